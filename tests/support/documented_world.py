"""A folder in which the lines of the documentation work: small runs, finished ones of them, and the files they name."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import warm_repro
from documented_commands import TOP
from small_pipeline import small_run

from tasks.demo import corpus

HERE = Path(__file__).parent
PREPARED = (
    "repro run demo",
    "repro run demo --set decoding.beam=1",
    "repro run demo --set decoding.beam=3",
    "repro promote demo/1 --why 'it is the first'",
    "repro run multi30k-ende",
    "repro promote multi30k-ende/1 --why 'it is the first'",
    "mkdir old && cp $(repro path multi30k-ende/learn_bpe)/tokenizer.json old",
    "mkdir -p exported/weights && cp $(repro path demo/average)/model.* exported/weights",
    f"ln -s {TOP / 'benchmarks'} benchmarks",
    "mkdir trusted && openssl ecparam -name prime256v1 -genkey -noout -out sign.key",
    "openssl ec -in sign.key -pubout -out trusted/us.pem && cp trusted/us.pem us.pem && cp us.pem trusted.pem",
    "repro sign demo@champion --key sign.key",
)
"""What was done before the pages' lines."""
MY_RUNS = """from dataclasses import replace
from flows.runs import DEMO

TINY = replace(DEMO, name="tiny", training=replace(DEMO.training, updates=20))
"""
RULES = """[[rules]]
rule = "Length"
min = 2
max = 60

[[rules]]
rule = "NotIn"
"""


class World:
    """bash in the folder, with ``repro`` answered by one warm process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder / "work", folder / "bin"
        self.folder.mkdir()
        self.programs.mkdir()
        small_run(folder / "mirror")
        for name in ("test.en", "test.de"):  # a line 33 is asked for
            (folder / "mirror" / "small" / name).write_bytes(first_lines(name, 40))
        write_texts(self.folder)
        path = os.pathsep.join([f"{self.programs}", f"{Path(sys.executable).parent}", os.environ["PATH"]])
        self.variables = {
            "PATH": path,
            "PYTHONPATH": os.pathsep.join([f"{HERE / 'small_world'}", f"{HERE}"]),
            "REPRO_MIRRORS": f"{folder / 'mirror'}",
            "REPRO_ROOT": f"{self.folder / '.repro'}",
            "REPRO_THREADS": "1",
            "HOME": f"{folder}",
        }
        warm_repro.write_client(self.programs / "repro", folder / "warm")
        self.warm = warm_repro.start(folder / "warm", self.variables)

    def start(self, line: str, new_session: bool = False) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=os.environ | self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=new_session,
        )

    def run(self, line: str, code: int = 0, seconds: float = 900) -> str:
        """What the line says; it must end with the exit code."""
        process = self.start(line)
        said, _ = process.communicate(timeout=seconds)
        assert process.returncode == code, f"{line}\n{said}"
        assert "Traceback" not in said, f"{line}\n{said}"
        return said

    def run_until(self, line: str, sign: str, code: int) -> str:
        """Press Ctrl-C, for all processes of the line, when it has said the sign; gives what it said."""
        process, said = self.start(f"exec {line}", new_session=True), ""
        assert process.stdout
        for each in process.stdout:
            said += each
            if sign in each:
                os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == code, f"{line}\n{said}"
        return said

    def end(self) -> None:
        self.warm.terminate()
        self.warm.wait()


def first_lines(name: str, count: int) -> bytes:
    return b"".join(line + b"\n" for line in corpus.content(f"demo/{name}").split(b"\n")[:count])


def write_texts(folder: Path) -> None:
    """The files of text and settings that the pages' lines read."""
    sides = {}
    for side in ("en", "de"):
        sides[side] = first_lines(f"train.{side}", 3000)
        for name, count in (("dev", 40), ("test", 40)):
            (folder / f"{name}.{side}").write_bytes(first_lines(f"{name}.{side}", count))
        (folder / f"train.{side}").write_bytes(sides[side])
        (folder / f"train.{side}.gz").write_bytes(gzip.compress(sides[side]))
    lines = {side: text.decode(errors="replace").split("\n")[:3000] for side, text in sides.items()}
    pairs = [(a.replace("\t", " "), b.replace("\t", " ")) for a, b in zip(lines["en"], lines["de"], strict=True)]
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    saved = folder / "data" / "train"  # as ``save_to_disk`` of Hugging Face's datasets writes it
    saved.mkdir(parents=True)
    table = pa.table({"translation": [{"en": a, "de": b} for a, b in pairs]})
    with pa.OSFile(f"{saved / 'data-00000-of-00001.arrow'}", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as to:
        to.write_table(table)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "in.txt").write_text("The old woman sees a dog.\nA man runs.\n")
    (folder / "in.tsv").write_text("The old woman sees a dog.\tDie Frau\n")
    (folder / "my_runs.py").write_text(MY_RUNS)
    (folder / "rules.toml").write_text(RULES)
