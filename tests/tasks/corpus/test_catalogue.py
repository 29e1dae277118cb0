"""The catalogue names what exists."""

import hashlib
from dataclasses import replace
from pathlib import Path

from tasks.corpus import catalogue as corpora
from tasks.corpus.catalogue import CORPORA, SETS, File, files
from tasks.demo import corpus as demo_corpus
from tasks.engine.keys import canonical

ALL_SETS = [each for sets in SETS.values() for each in sets.values()]
SHA256 = "0" * 64


def catalogue() -> list[File]:
    return list(dict.fromkeys(file for corpus in CORPORA.values() for file in files(corpus, tuple(ALL_SETS))))


def test_the_embedded_corpus_is_the_pinned_one() -> None:
    embedded = [file for file in catalogue() if file.url.startswith(corpora.EMBEDDED)]
    assert {file.path for file in embedded} == {f"demo/{file.stem}" for file in demo_corpus.FOLDER.glob("*.xz")}
    for file in embedded:
        assert file.url == f"{corpora.EMBEDDED}{file.path}"
        assert file.sha256 == hashlib.sha256(demo_corpus.content(file.path)).hexdigest()


def test_real_files_have_the_pinned_sums(real_text: Path) -> None:
    present = [file for file in catalogue() if (real_text / file.path).is_file()]
    assert len(present) >= 13
    for file in present:
        data = (real_text / file.path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256), file.path


def test_an_address_does_not_enter_keys_but_a_sum_does() -> None:
    text = CORPORA["multi30k-ende"].parts[0].source
    elsewhere = replace(text, file=replace(text.file, url="https://example.org/train.en.gz"))
    assert canonical(elsewhere) == canonical(text)
    assert canonical(replace(text, file=replace(text.file, sha256=SHA256))) != canonical(text)
