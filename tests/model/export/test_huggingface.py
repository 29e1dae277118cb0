"""A model exported to Transformers has the same logits, and its tokenizers give the same tokens."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import ENDS, LINES, SHAPES, SIZES, SMALL, name_of, sources, translated, write_model

from model.config import Decoding, Model
from model.config.special_pieces import BOS, EOS, PAD
from model.data.bpe import TokenizerPair
from model.data.ends import TOKENS_AROUND
from model.decoding.translator import Translator, pad_sequences
from model.network.weights import load_model

transformers = pytest.importorskip("transformers")
from model.export.huggingface import write_folder  # noqa: E402

CPU = torch.device("cpu")
EXACT = [
    *(config for config in SHAPES if (config.norm, config.positions) != ("post", "learned")),
    replace(SMALL, d_k=4, d_v=8),
    replace(SMALL, d_k=8, d_v=4),
]


def exported(folder: Path, config: Model, decoding: Decoding) -> tuple[Path, Path, Path]:
    """Folders of weights, vocabulary and the export."""
    weights, vocabulary = write_model(folder, config, SIZES[1] if config.norm == "post" else SIZES[0], gain=1)
    out = folder / "out"
    out.mkdir()
    write_folder("small", weights, vocabulary, decoding, out)
    return weights, vocabulary, out


@pytest.mark.parametrize("config", EXACT, ids=name_of)
def test_logits_are_equal_even_after_saving_once_more(tmp_path: Path, config: Model) -> None:
    weights, _, out = exported(tmp_path, config, Decoding())
    model = load_model(weights, CPU)
    source_BS = pad_sequences([[*source, EOS] for source in sources(12)], CPU)
    target_BT = pad_sequences([[BOS, *target] for target in reversed(sources(12))], CPU)
    with torch.no_grad():
        expected_BTN = model.logits(model(source_BS, target_BT))
    transformers.AutoModelForSeq2SeqLM.from_pretrained(out).save_pretrained(tmp_path / "again")
    for folder in (out, tmp_path / "again"):
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        with torch.no_grad():
            found_BTN = theirs(
                input_ids=source_BS, attention_mask=(source_BS != PAD).long(), decoder_input_ids=target_BT
            ).logits
        torch.testing.assert_close(found_BTN[target_BT != PAD], expected_BTN[target_BT != PAD], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("config", "shortest"),
    [
        *((each, 0) for each in (*SHAPES[:2], SHAPES[5], ENDS[0], replace(SHAPES[1], source_ends="bos+eos"))),
        (SHAPES[0], 9),
    ],
    ids=lambda value: name_of(value) if isinstance(value, Model) else f"{value}",
)
def test_pieces_and_greedy_search_are_this_projects(tmp_path: Path, config: Model, shortest: int) -> None:
    decoding = Decoding(beam=1, max_extra=40, min_length=shortest)
    weights, vocabulary, out = exported(tmp_path, config, decoding)
    pieces = TokenizerPair.load(vocabulary)
    source = transformers.AutoTokenizer.from_pretrained(out)
    target = transformers.AutoTokenizer.from_pretrained(
        out if config.tied and config.source_ends == "eos" else out / "target"
    )
    before, after = TOKENS_AROUND[config.source_ends]
    encoded = pieces.encode_source([s.strip() for s in LINES])
    assert source(LINES)["input_ids"] == [[*before, *ids, *after] for ids in encoded]
    assert target(LINES)["input_ids"] == [[*ids, EOS] for ids in pieces.encode_target([s.strip() for s in LINES])]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(out)
    lines = [line for line in LINES if line.strip()]
    found = target.batch_decode(
        model.generate(**source(lines, return_tensors="pt", padding=True), max_length=16), skip_special_tokens=True
    )
    own = translated(Translator.load(weights, vocabulary, "cpu"), lines, decoding)
    assert min(len(translation.pieces) for translation in own) >= shortest
    assert len({translation.text for translation in own}) > 1
    assert found == [pieces.decode_target(translation.pieces[:15]) for translation in own]


def test_the_example_of_the_folder_translates_sentence_by_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, out = exported(tmp_path, SHAPES[0], Decoding(beam=1))
    monkeypatch.chdir(out)
    example = re.findall("^    (.*)$", Path("README.md").read_text(), re.MULTILINE)
    found: dict[str, Any] = {}
    exec("\n".join(example), found)
    assert found["sentences"] == ["A dog runs.", "A man sleeps."]
    alone = [found["model"].generate(**found["source"]([each], return_tensors="pt")) for each in found["sentences"]]
    texts = [found["target"].batch_decode(each, skip_special_tokens=True)[0] for each in alone]
    assert capsys.readouterr().out == " ".join(texts) + "\n"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("model.positions", {"positions": "learned"}),
        ("model.d_k", {"d_k": 16}),
        ("model.d_v", {"d_v": 16}),
        ("model.heads", {"heads": 3}),
        ("target vocabulary size", {"norm": "pre", "tied": False}),
    ],
)
def test_what_no_family_has_is_named(tmp_path: Path, field: str, changes: dict[str, Any]) -> None:
    weights, vocabulary = write_model(tmp_path, replace(SMALL, **changes))
    with pytest.raises(ValueError, match=field):
        write_folder("small", weights, vocabulary, Decoding(), tmp_path)
