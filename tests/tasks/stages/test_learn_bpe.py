"""The vocabulary: what was asked for, the same bytes every time, an error that says what is possible."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.errors import BadConfiguration
from infra.store.store import Artifact
from model.data.bpe import TokenizerPair
from tasks.corpus.noise import Augment
from tasks.stages.learn_bpe import Vocabulary, learn_bpe

SOURCE = [f"The {n}th Dog runs ﬁve times over meadow {n * 7}" for n in range(300)]
TARGET = [f"Der {n}. Hund läuft fünfmal über Wiese {n * 7}" for n in range(300)]


def corpus(folder: Path, source: list[str] = SOURCE, target: list[str] = TARGET) -> Artifact:
    folder.mkdir()
    pairs = [f"toy:{n}" for n in range(len(source))]
    columns = {"pair_id": pairs, "corpus": ["toy"] * len(pairs), "source": source, "target": target}
    schema = pa.schema([(name, pa.string()) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), folder / "pairs.parquet")
    return Artifact("clean", "toy", folder)


def learnt(out: Path, text: Artifact, vocabulary: Vocabulary) -> dict[str, object]:
    out.mkdir()
    return learn_bpe.body(out, text, vocabulary)


def test_same_bytes_and_the_size_asked(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    facts = learnt(tmp_path / "a", text, Vocabulary(size=320))
    learnt(tmp_path / "b", text, Vocabulary(size=320))
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["tokenizer.json"]
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()
    assert (facts["size"], facts["target_size"]) == (320, 320)
    ids = TokenizerPair.load(tmp_path / "a").encode_source(SOURCE)
    words = sum(len(line.split(" ")) for line in SOURCE)
    assert facts["pieces_per_word"] == pytest.approx(sum(map(len, ids)) / words, abs=1e-3)


def test_only_a_run_that_makes_quotes_plain_has_a_vocabulary_that_does(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    for name, plain_quotes in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        learn_bpe.body(tmp_path / name, text, Vocabulary(size=300, joint=False), plain_quotes)
        assert TokenizerPair.load(tmp_path / name).normalise.quotes == plain_quotes
    both = [(tmp_path / name / "tokenizer.target.json").read_bytes() for name in ("with", "without")]
    assert both[0] == both[1], "the target's is the same"


def test_one_vocabulary_for_each_side(tmp_path: Path) -> None:
    learnt(tmp_path / "out", corpus(tmp_path / "corpus"), Vocabulary(size=300, joint=False))
    pieces = TokenizerPair.load(tmp_path / "out")
    assert not pieces.joint
    assert len(pieces.encode_target(["Hund"])[0]) < len(pieces.encode_source(["Hund"])[0])


def test_a_vocabulary_larger_than_the_data_allows_names_the_greatest(tmp_path: Path) -> None:
    text = corpus(tmp_path / "corpus")
    with pytest.raises(BadConfiguration, match=r"vocabulary\.size is 5000, but .* at most \d+ pieces") as error:
        learnt(tmp_path / "out", text, Vocabulary(size=5000))
    greatest = int(re.findall(r"at most (\d+)", str(error.value))[0])
    assert learnt(tmp_path / "greatest", text, Vocabulary(size=greatest))["size"] == greatest


def test_noised_copies_of_training_pairs_count_as_text(tmp_path: Path) -> None:
    augment = Augment(caps=0.5, typos=0.2)
    pairs = zip((f"toy:{n}" for n in range(300)), SOURCE, TARGET, strict=True)
    copies = [copy for pair in pairs for copy in augment.copies(*pair)]
    both = [*SOURCE, *(source for _, source, _ in copies)], [*TARGET, *(target for _, _, target in copies)]
    learnt(tmp_path / "a", corpus(tmp_path / "joined", *both), Vocabulary(size=320))
    (tmp_path / "b").mkdir()
    learn_bpe.body(tmp_path / "b", corpus(tmp_path / "corpus"), Vocabulary(size=320), augment=augment)
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()
