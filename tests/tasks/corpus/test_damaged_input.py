"""Damaged input ends in a clean result with counts or in one clear sentence, and leaves nothing half done."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_text import archive
from toy_stages import Quiet, Untracked

from flows.reproduce import STAGES
from infra.errors import Fault
from infra.site import Site
from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.cleaning.filters import Empty, Filters, InvalidUnicode
from tasks.corpus.catalogue import Corpus, File, Part, Text
from tasks.engine import lookup
from tasks.engine.planner import Scope
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import engine
from tasks.engine.stage_code import StageCode
from tasks.stages.clean import clean
from tasks.stages.download import download

LINES = 40
SOURCE = [f"Line {n} of some text, & “so on”." for n in range(LINES)]
TARGET = [f"Zeile {n} eines Textes – äöü." for n in range(LINES)]


@pytest.fixture(autouse=True, scope="module")
def _code_is_not_parsed_for_each_root() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "stage_code", lambda *_: StageCode({}, {}))
        yield


def plain(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def sgm(lines: list[str]) -> bytes:
    return plain(['<srcset setid="x">', *(f'<seg id="{n}">{line}</seg>' for n, line in enumerate(lines)), "</srcset>"])


def tgz(lines: list[str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return archive(Path(folder) / "a.tgz", dict.fromkeys(("before", "in/text"), plain(lines))).read_bytes()


def zst_of(data: bytes) -> bytes:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(data)
    return bytes(packed.getvalue())


def zst(lines: list[str]) -> bytes:
    return zst_of(plain(lines))


def csv(lines: list[str]) -> bytes:
    return plain(["n,text", *(f'{n},"{line}"' for n, line in enumerate(lines))])


def json_lines(lines: list[str]) -> bytes:
    return plain([json.dumps({"n": n, "in": {"text": line}}) for n, line in enumerate(lines)])


def parquet(lines: list[str]) -> bytes:
    packed = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(lines, pa.string())}), packed)
    return packed.getvalue()


def tmx(lines: list[str]) -> bytes:
    units = [f"<tu><tuv xml:lang='en'><seg>{line.replace('&', '&amp;')}</seg></tuv></tu>" for line in lines]
    return plain(["<tmx><body>", *units, "</body></tmx>"])


FORMS: dict[str, tuple[Callable[[list[str]], bytes], str, str]] = {
    "text": (plain, "", ""),
    "text.gz": (lambda lines: gzip.compress(plain(lines)), "", ""),
    "text.xz": (lambda lines: lzma.compress(plain(lines)), "", ""),
    "text.bz2": (lambda lines: bz2.compress(plain(lines)), "", ""),
    "text.zst": (zst, "", ""),
    "text.sgm": (sgm, "", ""),
    "text.tgz": (tgz, "in/text", ""),
    "text.tsv": (lambda lines: plain([f"{n}\t{line}" for n, line in enumerate(lines)]), "", "2"),
    "text.csv": (csv, "", "text"),
    "text.parquet": (parquet, "", "text"),
    "text.jsonl": (json_lines, "", "in.text"),
    "text.jsonl.zst": (lambda lines: zst_of(json_lines(lines)), "", "in.text"),
    "text.tmx": (tmx, "", "en"),
}
"""By name: how it is written, the member, the column."""


def ends_well(folder: Path, name: str, source: bytes, member: str = "", column: str = "") -> Artifact | str:
    """A source beside an unharmed target, from their mirror to clean pairs: what came of it, or the sentence."""
    sides = {f"source/{name}": source, "target/text": plain(TARGET)}
    for path, data in sides.items():
        (folder / "mirror" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mirror" / path).write_bytes(data)
    files = {path: File(path, sha256=hashlib.sha256(data).hexdigest()) for path, data in sides.items()}
    part = Part("part", Text(files[f"source/{name}"], member, column), Text(files["target/text"]))
    root = folder / "root"
    site = Site(root=root, mirrors=(str(folder / "mirror"),))
    running = Runner(RunSettings(LocalStore(root), site, Scope(STAGES), Quiet(), Untracked()))  # type: ignore[arg-type]
    try:
        with engine(running):
            archives = download.map(files, 2)
            made = clean(Corpus("own", "en", "de", (part,)), archives, (), Filters((Empty(), InvalidUnicode())))
    except Fault as fault:
        assert not list(root.glob("*/*.partial*")), "no half artifact"
        assert {each.suffix for each in root.glob("clean/*")} <= {".failed"}, "no half artifact"
        message = str(fault)
        assert message
        assert "\n" not in message
        assert len(message) < 2_000
        return message
    pairs, rejected = (pl.read_parquet(made.path() / f"{name}.parquet") for name in ("pairs", "rejected"))
    assert made.facts["read"] == LINES == len(pairs) + len(rejected)
    assert made.facts["pairs"] == len(pairs)
    text = pl.concat([pairs.select("pair_id", "target"), rejected.select("pair_id", "target")])
    assert set(text["pair_id"]) == {f"part:{n}" for n in range(LINES)}
    return made


# fmt: off
JUNK = [
    b"\0", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xc2\x85", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b'"', b"<",
    b"\t", b",", b"\xff\xfe", b"]]>", b"<seg", b"&x;", b"<!DOCTYPE x>", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"x" * 5_000,
]
# fmt: on
place = st.floats(0, 1)
damage = st.one_of(
    st.tuples(st.just("cut"), place, st.just(b"")),
    st.tuples(st.just("insert"), place, st.sampled_from(JUNK)),
    st.tuples(st.just("overwrite"), place, st.one_of(st.sampled_from(JUNK), st.binary(min_size=1, max_size=40))),
    st.tuples(st.just("remove"), place, st.binary(min_size=1, max_size=300)),
    st.tuples(st.just("twice"), place, st.just(b"")),
)


def damaged(data: bytes, how: str, where: float, what: bytes) -> bytes:
    at = int(where * len(data))
    behind = {
        "cut": b"",
        "insert": what + data[at:],
        "overwrite": what + data[at + len(what) :],
        "remove": data[at + len(what) :],
        "twice": data[at:] + data,
    }
    return data[:at] + behind[how]


@example(form="text.parquet", damages=[("overwrite", 0.51953125, b"\xff")])
@given(form=st.sampled_from(sorted(FORMS)), damages=st.lists(damage, min_size=1, max_size=3))
@settings(max_examples=125, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_was_damaged_it_ends_well(
    tmp_path_factory: pytest.TempPathFactory, form: str, damages: list[tuple[str, float, bytes]]
) -> None:
    write, member, column = FORMS[form]
    data = write(SOURCE)
    for each in damages:
        data = damaged(data, *each)
    folder = tmp_path_factory.mktemp("damaged")
    ends_well(folder, form, data, member, column)
    shutil.rmtree(folder)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_undamaged_every_form_gives_all_pairs(tmp_path: Path, form: str) -> None:
    write, member, column = FORMS[form]
    made = ends_well(tmp_path, form, write(SOURCE), member, column)
    assert isinstance(made, Artifact)
    assert made.facts["pairs"] == LINES


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"\0", LINES - 1),
        (b"a\0b", LINES),
        ("in\u2028side \u2029 and \x85 \x0b \x0c \x1c".encode(), LINES),
        (b"\xed\xa0\x80 lone surrogate", LINES - 1),
        (b"\xf4\x90\x80\x80 beyond", LINES - 1),
        (b"latin \xfc", LINES - 1),
        (b"x" * 10_000_000, LINES),
        (b"", LINES - 1),
        (b" \t ", LINES - 1),
        (b"\xef\xbb\xbfmark inside", LINES),
        (b"with\rreturn", LINES),
        (b"ended by CR\r", LINES),
    ],
)
def test_one_odd_line_costs_itself_at_most(tmp_path: Path, line: bytes, kept: int) -> None:
    lines = [line.encode() for line in SOURCE]
    lines[7] = line
    made = ends_well(tmp_path, "text", b"".join(each + b"\n" for each in lines))
    assert isinstance(made, Artifact)
    assert made.facts["pairs"] == kept
