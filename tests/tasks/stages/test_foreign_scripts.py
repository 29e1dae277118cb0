"""Characters of foreign scripts become ``<unk>``, one each, in learning, encoding, shards and exports."""

import json

import pyarrow as pa
import pytest
from small_text import train_tokenizer

from model.config.special_pieces import UNK
from model.data.bpe import SUBSTITUTE, TokenizerPair
from tasks.bpe.word_cache import WordCache
from tasks.stages.learn_bpe import Vocabulary

LATIN = Vocabulary(size=290, min_frequency=1, scripts=("Latin",))
TEXT = pa.array(
    ["Der Hund Жук läuft nicht 中文, der Hund"] * 3 + ["Ein Hund und noch ein Hund läuft nicht schnell"] * 9
)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> TokenizerPair:
    folder = tmp_path_factory.mktemp("latin")
    train_tokenizer([TEXT], LATIN).save(str(folder / "tokenizer.json"))
    return TokenizerPair.load(folder)


def test_each_foreign_character_is_one_unknown_token(pieces: TokenizerPair) -> None:
    shown = [
        pieces.source_pieces(ids)
        for ids in pieces.encode_source(["Жук Hund中文!", "Hund 1 – 😀 é e\u0301", SUBSTITUTE])
    ]
    assert shown[0] == ["▁", *["<unk>"] * 3, "▁Hund", *["<unk>"] * 2, "!"]
    assert "<unk>" not in shown[1], "digits, punctuation, emoji and combining marks belong to no script of their own"
    assert shown[2] == ["▁", "<unk>"]
    (ids,) = pieces.encode_target(["der Hund中 läuft"])
    assert UNK in ids
    assert pieces.decode_target(ids) == "der Hund läuft", "an unknown token has no text"


def test_no_piece_is_learnt_of_or_across_a_foreign_character() -> None:
    # Each line is one word: "a" follows the space three times and "b" once, and "ab" occurs once.
    learnt = train_tokenizer([pa.array(["aЖb", "a中b", "ab"])], Vocabulary(size=260, scripts=("Latin",)))
    assert json.loads(learnt.to_str())["model"]["merges"] == [["Ġ", "a"]]
    assert learnt.get_vocab_size() == 260 == 4 + 255 + 1, "special tokens, all bytes but one, the merge"


def test_shards_read_lines_as_the_tokenizer_does(pieces: TokenizerPair) -> None:
    lines = ["Der Hund中 Жук läuft", "中", " Hund  Ж!? Ж", "", "nicht«Ж»"]
    expected = pieces.encode_source(lines)
    (cached,) = WordCache(pieces.source).encode([pa.array(lines)])
    assert cached.ids.tolist() == [i for ids in expected for i in ids]
    assert (cached.ids == UNK).sum() == 8
