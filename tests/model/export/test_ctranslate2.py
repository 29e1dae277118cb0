"""An exported CTranslate2 model scores and searches as the original, and its folder does not need this project."""

import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import ENDS, LINES, SHAPES, SMALL, name_of, sources, translated, write_model

from infra.store.store import Artifact
from model.config import Decoding, Model
from model.config.normalise import STANDARD
from model.data import word_splitting
from model.data.bpe import TokenizerPair, write_normalising
from model.decoding.search_engine import SearchEngine
from model.decoding.sentence_splitting import splitter
from model.decoding.translation import Search
from model.decoding.translator import Translator
from model.decoding.version_translator import VersionTranslator
from model.network.weights import load_model
from tasks.stages.learn_bpe import Vocabulary, learn_bpe

ctranslate2 = pytest.importorskip("ctranslate2")
from model.export import ctranslate2_runtime  # noqa: E402
from model.export.ctranslate2 import write_ctranslate2, write_folder  # noqa: E402

NETWORKS = [SHAPES[0], SHAPES[3], SHAPES[5], SHAPES[6], *SHAPES[8:]]
"""Each two of norm, positions and tied together in every combination."""
WIDTHS = [replace(SMALL, d_k=d_k, d_v=d_v) for d_k, d_v in ((4, 8), (8, 4), (12, 12), (16, 8))]
DECODING = Decoding(beam=4, alpha=0.6, max_extra=12)


def exported(
    folder: Path, config: Model, decoding: Decoding = DECODING
) -> tuple[Translator, ctranslate2_runtime.Folder]:
    weights, vocabulary = write_model(folder, config)
    out = folder / "out"
    out.mkdir()
    write_folder("small", weights, vocabulary, decoding, out, "float32")
    return Translator.load(weights, vocabulary, "cpu"), ctranslate2_runtime.Folder(out, threads=1)


@pytest.mark.parametrize("config", [*NETWORKS, *WIDTHS, *ENDS, replace(SMALL, attention="torch")], ids=name_of)
def test_scores_and_hypotheses_are_this_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Model
) -> None:
    monkeypatch.setattr(ctranslate2_runtime, "BATCH_PIECES", 1)
    own, folder = exported(tmp_path, config)
    requested = sources(24)
    asked_pieces = [[own.vocabulary.source.id_to_token(i) for i in source] for source in requested]
    ended = 0
    searches = [replace(DECODING, beam=beam, alpha=alpha) for beam, alpha in ((1, 0.6), (4, 0.6), (4, 0.0), (3, 2.0))]
    for decoding in (*searches, replace(DECODING, beam=4, alpha=1.0, length_penalty="length")):
        expected = own.search(requested, decoding)
        found = folder.search_best(asked_pieces, asdict(decoding))
        ids = [tuple(own.vocabulary.target.token_to_id(piece) for piece in pieces) for pieces in found]
        same = sum(pieces == hypothesis.pieces for pieces, hypothesis in zip(ids, expected, strict=True))
        # Where more than a beam end, CTranslate2 drops the least likely, which a great penalty may like best.
        assert same >= len(requested) - (decoding.alpha >= 1), decoding
        ended += sum(hypothesis.finished for hypothesis in expected)
    assert ended >= 4 * 6
    targets = [hypothesis.pieces for hypothesis in expected]
    assert len(set(targets)) > 3
    scored = folder.model.score_batch(
        asked_pieces, [[own.vocabulary.target.id_to_token(i) for i in target] for target in targets]
    )
    sums = [sum(result.log_probs) for result in scored]
    assert sums == pytest.approx(own.log_probabilities(requested, targets), abs=1e-3)


@pytest.mark.parametrize("config", [SHAPES[0], SHAPES[2]], ids=name_of)
def test_a_line_beyond_the_positions_is_named(tmp_path: Path, config: Model) -> None:
    _, folder = exported(tmp_path, config)
    longest = "A" * (folder.positions - 2)  # with the mark of a word and eos
    assert folder.translate([longest], {**folder.search, "max_extra": 1, "beam": 1})
    with pytest.raises(ValueError, match=f"line 2 has {folder.positions} pieces"):
        folder.translate(["A", longest + "A"], folder.search)


def test_lines_are_translated_in_their_order_whatever_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, folder = exported(tmp_path, SHAPES[0])
    expected = [translation.text for translation in translated(own, LINES, DECODING)]
    for budget in (1, 30, 1000):
        monkeypatch.setattr(ctranslate2_runtime, "BATCH_PIECES", budget)
        assert folder.translate(LINES, folder.search) == expected
    assert folder.search == DECODING.search()


@pytest.mark.parametrize("options", [[], ["--no-split"]], ids="".join)
def test_the_folder_translates_as_the_command_where_this_project_is_not(tmp_path: Path, options: list[str]) -> None:
    """Sentence by sentence, as ``repro translate`` does by default, or each line whole."""
    own, _ = exported(tmp_path, SHAPES[1])
    script = str(tmp_path / "out" / "translate.py")
    alone = (
        "import runpy, sys; sys.modules.update(dict.fromkeys(['model', 'flows', 'infra', 'tasks']));"
        f"sys.argv = ['translate.py', '--beam', '2', *{options}]; runpy.run_path({script!r}, run_name='__main__')"
    )
    lines = [*LINES, "A dog runs. The men run again."]
    done = subprocess.run(
        [sys.executable, "-c", alone],
        input="\ufeff" + "\r\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    decoding = replace(DECODING, beam=2)
    version = VersionTranslator("", own, SearchEngine(own), splitter("en"), decoding, own.longest_source)
    expected = version.translate(lines, Search(decoding, split="never" if options else "always"))
    assert done.stdout == "".join(f"{line.hypotheses[0].text if line.hypotheses else ''}\n" for line in expected)
    assert len(expected[-1].sources) == (1 if options else 2)


def test_translate_py_names_a_line_that_is_too_long(tmp_path: Path) -> None:
    exported(tmp_path, SHAPES[2])
    script = tmp_path / "out" / "translate.py"
    done = subprocess.run([sys.executable, script], input="A dog\n" + "A" * 99, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "translate.py: line 2 has 100 pieces, the longest that this model takes has 63\n"
    for options in (("--beam", "-1"), ("--alpha", "nan"), ("--workers", "0")):
        refused = subprocess.run([sys.executable, script, *options], input="", capture_output=True, text=True)
        assert (refused.returncode, "error: allowed are " in refused.stderr) == (2, True), options


@pytest.mark.parametrize(
    "vocabulary",
    [
        Vocabulary(size=270, moses=True, scripts=("Latin",), min_frequency=1),
        Vocabulary(size=270, moses=True, nfkc=True, lowercase=True, min_frequency=1),
        Vocabulary(size=270, scripts=("Latin",), min_frequency=1),
    ],
    ids=["scripts", "nfkc", "bytes"],
)
def test_text_is_read_as_by_the_version(tmp_path: Path, vocabulary: Vocabulary) -> None:
    _, folder = exported(tmp_path, SHAPES[0])
    text = pa.table({"pair_id": [f"{n}" for n in range(600)], "source": LINES * 100, "target": LINES * 100})
    pq.write_table(text, tmp_path / "pairs.parquet")
    (tmp_path / "learnt").mkdir()
    languages = ("en", "de") if vocabulary.moses else ()
    learn_bpe.body(tmp_path / "learnt", Artifact("clean", "text", tmp_path), vocabulary, languages=languages)
    write_normalising(tmp_path / "learnt", STANDARD, folder.folder)
    if vocabulary.moses:
        shutil.copyfile(word_splitting.__file__, folder.folder / ctranslate2_runtime.SPLITTING)
    version = TokenizerPair.load(folder.folder)
    lines = ["a Дом b", "Foo™ ﬁts", "It costs 5 p.m.\u200b He left.", " A\u00a0\u00addog ", "", "Don't (1-2)!"]
    expected = [[version.source.id_to_token(i) for i in ids] for ids in version.encode_source(version.read(lines))]
    assert folder.pieces(lines) == expected
    assert [folder.read(line) for line in lines] == version.read(lines)


@settings(max_examples=200)
@given(source=st.integers(2, 60), shortest=st.integers(0, 9), extra=st.integers(1, 60))
def test_lengths_are_a_decodings(source: int, shortest: int, extra: int) -> None:
    decoding = Decoding(max_extra=extra, min_length=shortest)
    assert ctranslate2_runtime.lengths(asdict(decoding), source) == decoding.lengths(source)


def test_outputs_keep_to_the_lengths_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2_runtime, "BATCH_PIECES", 30)
    own, folder = exported(tmp_path, SHAPES[0])
    requested = sources(24)
    pieces = [[own.vocabulary.source.id_to_token(i) for i in source] for source in requested]
    within = replace(DECODING, min_length=6, max_extra=2)
    bounds = [within.lengths(len(source) + 1) for source in pieces]
    free, found = (folder.search_best(pieces, asdict(decoding)) for decoding in (DECODING, within))
    assert any(len(output) + 1 < least for (least, _), output in zip(bounds, free, strict=True))
    assert any(len(output) > most for (_, most), output in zip(bounds, free, strict=True))
    for (least, most), output in zip(bounds, found, strict=True):
        assert least - 1 <= len(output) <= most


def test_a_batch_is_searched_alike_by_one_worker_and_by_several(tmp_path: Path) -> None:
    _, folder = exported(tmp_path, SHAPES[0])
    expected = folder.translate(LINES, folder.search)
    for workers in (2, 3):
        several = ctranslate2_runtime.Folder(folder.folder, threads=1, workers=workers)
        assert several.translate(LINES, several.search) == expected


def test_what_cannot_be_is_named(tmp_path: Path) -> None:
    weights, _ = write_model(tmp_path, SMALL)
    model = load_model(weights, torch.device("cpu"))
    pieces = [f"piece {i}" for i in range(model.source_size)]
    with pytest.raises(ValueError, match="target_pieces"):
        write_ctranslate2(model, pieces, [*pieces[1:], pieces[1]], tmp_path)
    with pytest.raises(ValueError, match="quantization"):
        write_ctranslate2(model, pieces, pieces, tmp_path, "int4")  # type: ignore[arg-type]
