"""Plants a mistake in each of several runs of the demo, and has ``repro gap`` find it: ``python benchmarks/plants.py``.

    python benchmarks/plants.py multi30k-ende training.updates=1500     # mistakes of decoding in another run

The root is REPRO_ROOT; a finished run is not repeated. Prints a row of ``results.jsonl`` for each mistake: the first
cause that ``repro gap`` names, or the setting with its command where a training is needed. Fails if the bars do not
sum to the difference, or if the bars of one training leave anything unexplained.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from sacremoses import MosesTokenizer

from flows.inspection.compare import find_system, read_sentences
from flows.runs import DEMO
from infra.site import configured_site
from tasks.corpus.catalogue import EvaluationSet, File, Text
from tasks.demo import corpus

MIRROR = Path("build/plants").absolute()
DECODING = {
    "no averaging": ("averaging.count=1",),
    "greedy search": ("decoding.beam=1",),
    "alpha 0": ("decoding.alpha=0",),
}
TWO = {
    "greedy search and no averaging": ("decoding.beam=1", "averaging.count=1"),
    "greedy search and alpha 0": ("decoding.beam=1", "decoding.alpha=0"),
    "no averaging and alpha 0": ("averaging.count=1", "decoding.alpha=0"),
}
TRAINING = {
    "a vocabulary of half the size": ("vocabulary.size=750",),
    "half the updates": ("training.updates=425", "training.dev_every=85"),
    "post-norm without warm-up": ("model.norm=post", "training.warmup=1"),
}


def _lower(name: str, content: bytes) -> Text:
    path = MIRROR / "lower" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Text(File(f"lower/{name}", sha256=hashlib.sha256(content).hexdigest()))


LOWER = replace(
    DEMO,
    name="demo-lower",
    sets=(
        DEMO.sets[0],
        EvaluationSet(
            "test",
            _lower("test.en", corpus.content("demo/test.en")),
            _lower("test.de", corpus.content("demo/test.de").decode().lower().encode()),
        ),
    ),
)
"""The demo with lower-cased references of its test set."""


def repro(*words: str) -> str:
    """Run a command; gives its output."""
    mirrors = " ".join([os.environ.get("REPRO_MIRRORS", ""), f"{MIRROR}"])
    command = [sys.executable, "-c", "from flows.cli import main; main()", *words]
    done = subprocess.run(command, env=os.environ | {"REPRO_MIRRORS": mirrors}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-500:]}")
    return done.stdout


def translations(name: str, change: Any) -> str:
    """Changed translations of the healthy demo as a system of their own."""
    site = configured_site()
    lines = read_sentences(find_system("demo/1", site).scores["test"], site)["hypothesis"]
    (MIRROR / f"{name}.txt").write_text("".join(f"{change(line)}\n" for line in lines))
    repro("score", f"{MIRROR / name}.txt", "--on", "demo/test", "--name", name, "--anyway")
    return f"system:{name}"


def cut_words(line: str) -> str:
    """Long words in two pieces, as subword-nmt marks them."""
    return " ".join(f"{w[: len(w) // 2]}@@ {w[len(w) // 2 :]}" if len(w) > 7 else w for w in line.split())


def version(run: str, settings: tuple[str, ...]) -> str:
    """The version of a run with these settings."""
    made = json.loads(repro("run", run, *(w for each in settings for w in ("--set", each)), "--json"))
    facts = next(row["facts"] for row in made["stages"] if row["stage"] == "register")
    return f"{run}/{facts['version']}"


def planted_in_demo() -> dict[str, str]:
    """The systems of the demo by their mistake."""
    systems = {what: version("demo", settings) for what, settings in (DECODING | TRAINING).items()}
    here = f"{Path(__file__).absolute()}:LOWER"
    repro("run", here, "--until", "score")
    systems["lower-cased references"] = here
    moses = MosesTokenizer(lang="de")
    systems["tokenised translations"] = translations("tokens", lambda line: moses.tokenize(line, return_str=True))
    systems["translations left in pieces"] = translations("pieces", cut_words)
    return systems


def main() -> None:
    run, *words = sys.argv[1:] or ["demo"]
    same = tuple(words)
    healthy = version(run, same)
    if run == "demo":
        systems = planted_in_demo()
    else:
        systems = {what: version(run, (*same, *settings)) for what, settings in (DECODING | TWO).items()}
    for what, system in systems.items():
        found = json.loads(repro("gap", system, "--as", healthy, "--json").splitlines()[-1])
        first, *more = found["steps"]
        total = sum(step["score"] for step in found["steps"])
        assert abs(found["claim"]["score"] + total - found["system"]["score"]) < 1e-6, "the bars sum to the difference"
        assert run == "demo" or abs(more[-1]["score"]) < 1e-6, "one training, so all is explained"
        named = [each["name"] for each in found["differences"] if each["command"] and each["claimed"]]
        note = f"names {', '.join(named)}" if named else first["about"]
        if run != "demo":
            note = "; ".join(f"{each['about'].partition(': what')[0]} {each['score']:+.2f}" for each in found["steps"])
        interval = f"{first['low']:.2f} … {first['high']:.2f}"
        print(json.dumps({"what": what, "figure": round(first["score"], 2), "spread": interval, "note": note}))


if __name__ == "__main__":
    main()
