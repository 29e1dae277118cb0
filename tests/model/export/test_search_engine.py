"""The chosen engine searches as the own engine does; its CTranslate2 form is made once, whole, and checked."""

import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_models import LINES, SMALL, sources, write_model

from model.config import Decoding
from model.config.decoding import EngineChoice
from model.decoding.search_engine import CTRANSLATE2, OWN, SearchEngine
from model.decoding.translation import Search
from model.decoding.translator import Translator
from model.export.open_engine import open_ctranslate2

pytest.importorskip("ctranslate2")
from model.export import ctranslate2_form
from model.export.ctranslate2_form import CTranslate2Search

DECODING = Decoding(beam=3, alpha=0.6, max_extra=12)
SEARCH = Search(DECODING)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_model(tmp_path_factory.mktemp("model"), SMALL)


@pytest.fixture(scope="module")
def translator(folders: tuple[Path, Path]) -> Translator:
    return Translator.load(*folders, "cpu")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that forms are written into."""
    found: list[Path] = []
    write = ctranslate2_form.write_folder

    def noted(*arguments: Any) -> None:
        found.append(arguments[4])
        write(*arguments)

    monkeypatch.setattr(ctranslate2_form, "write_folder", noted)
    return found


def engine_of(
    translator: Translator, folders: tuple[Path, Path], cache: Path, choice: EngineChoice = "auto", **options: Any
) -> SearchEngine:
    required = choice == "ctranslate2"
    opening = partial(open_ctranslate2, translator, *folders, cache, DECODING, required=required, **options)
    return SearchEngine(translator, choice, opening)


def test_both_engines_find_the_same_in_the_callers_order(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = engine_of(translator, folders, tmp_path, lines=LINES)
    assert engine.name_for(SEARCH) == CTRANSLATE2
    assert engine.opened.note == "float32, 4 of 4 sentences translated as by the own search"
    asked = [*sources(12), [], *sources(3)]
    found = engine.search_n_best(asked, SEARCH)
    expected = translator.search_n_best(asked, DECODING, 1)
    assert [best.pieces for best, *_ in found] == [best.pieces for best, *_ in expected]
    assert [best.finished for best, *_ in found] == [best.finished for best, *_ in expected]
    for (a,), (b,) in zip(found, expected, strict=True):
        assert (a.score, a.log_probability) == pytest.approx((b.score, b.log_probability), abs=1e-3)


def test_what_ctranslate2_does_not_do_alike_is_searched_by_the_own_engine(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(translator, folders, tmp_path)
    other = engine.opened.other
    assert isinstance(other, CTranslate2Search)
    given: list[int] = []
    search = other.search_n_best
    monkeypatch.setattr(other, "search_n_best", lambda each, *rest: given.append(len(each)) or search(each, *rest))
    asked = sources(4)
    with monkeypatch.context() as patch:
        patch.setattr(other, "can_search", lambda source, _: source != asked[1])
        found = engine.search_n_best(asked, SEARCH)
    assert [h.pieces for h, *_ in found] == [h.pieces for h, *_ in translator.search_n_best(asked, DECODING, 1)]
    assert given == [3]
    unlike = Search(DECODING, 2)
    assert "n_best" in engine.why_own(unlike)
    assert engine.name_for(unlike) == OWN
    assert engine.search_n_best(asked, unlike) == translator.search_n_best(asked, DECODING, 2)
    # More tokens than CTranslate2 has positions for.
    long = replace(DECODING, max_extra=other.folder.positions, beam=1)
    assert not other.can_search(asked[0], Search(long))
    assert engine.search_n_best(asked[:1], Search(replace(long, max_extra=1)))
    assert given == [3, 1]


def test_nothing_is_opened_for_searches_of_the_own_engine(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = engine_of(translator, folders, tmp_path)
    engine.search_n_best(sources(1), Search(DECODING, 2))
    assert not list(tmp_path.iterdir())


def test_a_form_is_made_once_and_again_if_it_is_damaged(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path, written: list[Path]
) -> None:
    for _ in range(2):
        assert engine_of(translator, folders, tmp_path).name_for(SEARCH) == CTRANSLATE2
    assert len(written) == 1
    [record] = tmp_path.glob("*/form.json")
    model = record.with_name("model.bin")
    whole = model.read_bytes()
    for damage in (
        lambda: model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1])),
        model.unlink,
        lambda: record.write_text("[]"),
    ):
        made = len(written)
        damage()
        assert engine_of(translator, folders, tmp_path).name_for(SEARCH) == CTRANSLATE2
        assert len(written) == made + 1
        assert model.read_bytes() == whole
    assert engine_of(translator, folders, tmp_path, quantization="int8").opened.other
    assert len(list(tmp_path.glob("*/form.json"))) == 2
    assert not list(tmp_path.glob("*.partial-*"))


def test_the_forms_used_longest_ago_are_removed(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctranslate2_form, "KEPT", 2)
    monkeypatch.setattr(ctranslate2_form, "COMPARED", 2)

    def used(model: int) -> Path:
        """Open a model of other files than the rest, and return the record of its form."""
        vocabulary = tmp_path / f"vocabulary-{model}"
        if not vocabulary.exists():
            shutil.copytree(folders[1], vocabulary)
            (vocabulary / f"{model}").touch()
        for record in (tmp_path / "cache").glob("*/form.json"):  # uses within one tick of the clock have one time
            earlier = record.stat().st_mtime_ns - 10**9
            os.utime(record, ns=(earlier, earlier))
        assert engine_of(translator, (folders[0], vocabulary), tmp_path / "cache").opened.other
        return max((tmp_path / "cache").glob("*/form.json"), key=lambda record: record.stat().st_mtime_ns)

    first, second = used(1), used(2)
    assert used(1) == first
    third = used(3)
    assert [first.exists(), second.exists(), third.exists()] == [True, False, True]


def test_a_killed_attempt_leaves_nothing_that_is_used(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ctranslate2_form, "_compare", dies)
        with pytest.raises(KeyboardInterrupt):
            engine_of(translator, folders, tmp_path).why_own(SEARCH)
    assert not [each for each in tmp_path.iterdir() if each.is_dir()]
    name = next(tmp_path.glob("*.lock")).stem
    (tmp_path / f"{name}.partial-12345678").mkdir()  # of a process that was killed
    assert engine_of(translator, folders, tmp_path).name_for(SEARCH) == CTRANSLATE2
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == [name]


def test_two_that_open_at_once_share_one_form(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path, written: list[Path]
) -> None:
    both = threading.Barrier(2)

    def opened(_: int) -> tuple[str, int]:
        both.wait(60)
        engine = engine_of(translator, folders, tmp_path)
        return engine.name_for(SEARCH), len(engine.search_n_best(sources(2), SEARCH))

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(opened, range(2))] == [(CTRANSLATE2, 2)] * 2
    assert len(written) == 1
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 1


def test_an_engine_that_differs_is_not_used_but_int8_says_how_much(
    translator: Translator,
    folders: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: list[Path],
) -> None:
    search = ctranslate2_form.CTranslate2Search.search_n_best

    def wrong(self: Any, asked: Any, *rest: Any) -> Any:
        found = search(self, asked, *rest)
        return [[replace(found[0][0], pieces=(7, 7, 7))], [replace(found[1][0], pieces=(7, 7, 7))], *found[2:]]

    monkeypatch.setattr(ctranslate2_form.CTranslate2Search, "search_n_best", wrong)
    choices: tuple[EngineChoice, ...] = ("auto", "ctranslate2")
    for choice in choices:
        assert "98 of 100" in engine_of(translator, folders, tmp_path, choice).why_own(SEARCH)
    assert len(written) == 1, "the verdict is kept"
    assert "2 of 4" in engine_of(translator, folders, tmp_path, lines=LINES).why_own(SEARCH), "of other sentences"
    rough = engine_of(translator, folders, tmp_path, quantization="int8")
    assert rough.name_for(SEARCH) == CTRANSLATE2
    assert rough.opened.note.startswith("int8, ")


def test_what_keeps_the_own_engine_is_said(
    translator: Translator, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine_of(translator, folders, tmp_path, "own").why_own(SEARCH) == "the engine is own"
    (tmp_path / "file").touch()
    assert engine_of(translator, folders, tmp_path / "file" / "x").name_for(SEARCH) == OWN
    with pytest.raises(ValueError, match="engine"):
        engine_of(translator, folders, tmp_path, "marian")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "model.export.ctranslate2_form", None)
    assert engine_of(translator, folders, tmp_path).name_for(SEARCH) == OWN
    assert not list(tmp_path.glob("*/form.json"))
    with pytest.raises(ModuleNotFoundError):
        engine_of(translator, folders, tmp_path, "ctranslate2").why_own(SEARCH)
