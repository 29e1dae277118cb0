"""Tests of the translation job: one row per pair in the order of the set, consistent numbers, clear errors."""

import json
import random
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small_text import train_tokenizer
from small_training import write_shards, write_text

from model.config import Decoding, Model
from model.config.normalise import STANDARD, Normalise
from model.data.bpe import TokenizerPair
from model.decoding.translation import Hypothesis
from model.decoding.translator import Translator
from model.errors import JobError
from model.job import Job, Metrics
from model.network.transformer import Transformer
from model.network.weights import load_model, save_model
from model.translate import EXAMPLES, ProgressReporter, examples, work
from tasks.stages.learn_bpe import Vocabulary

TEXT = ["Two dogs run over the green meadow.", "It's 2014 again, isn't it?", "The men don't run."] * 3
AS_READ = Normalise(nfc=False, control=False, white_space=False)
SHAPE = Model(layers=2, d_model=32, d_ff=64, heads=2, d_k=16, d_v=16, init="normal")


PIECES = train_tokenizer([pa.array(TEXT)], Vocabulary(size=290, min_frequency=1))


def sources() -> list[str]:
    """The source side of the set, of which one line is empty."""
    draw, words = random.Random(2), " ".join(TEXT).split()
    return [" ".join(draw.choices(words, k=draw.randrange(1, 8))) if number != 4 else "" for number in range(13)]


def pairs() -> list[tuple[list[int], list[int]]]:
    draw = random.Random(1)
    side = lambda: [draw.randrange(4, 290) for _ in range(draw.randrange(1, 14))]  # noqa: E731
    return [(PIECES.encode(line, add_special_tokens=False).ids, side()) for line in sources()]


def write_pairs(folder: Path, rows: list[tuple[list[int], list[int]]]) -> Path:
    return write_shards(folder, rows, files=1)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("model.translate.StopSignal", lambda: SimpleNamespace(received=False))
    torch.manual_seed(5)
    for name in ("weights", "vocabulary", "out"):
        (tmp_path / name).mkdir()
    save_model(tmp_path / "weights", Transformer(SHAPE, 290, 290))
    PIECES.save(str(tmp_path / "vocabulary" / "tokenizer.json"))
    folders = {name: tmp_path / name for name in ("weights", "vocabulary")}
    inputs = {**folders, "pairs": write_pairs(tmp_path / "pairs", pairs())}
    inputs["text"] = write_text(tmp_path / "text", sources())
    config = {"decoding": {"beam": 2, "alpha": 0.6, "max_extra": 3}, "normalise": asdict(AS_READ)}
    return Job(config, inputs, tmp_path / "out")


def test_a_set_is_translated_in_bf16_and_scored_in_fp32(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.numerics.has_bf16", lambda: True)  # slow without, and the same
    found = []
    for precision in ("fp32", "bf16"):
        job.config["decoding"]["precision"] = precision
        work(job)
        table = pq.read_table(job.out / "hypotheses.parquet")
        found.append([table[name].to_pylist() for name in ("log_probability", "reference_log_probability")])
    assert found[0][1] == found[1][1]
    assert found[0][0] != found[1][0]


def test_sources_are_read_as_the_training_text_was(job: Job, tmp_path: Path) -> None:
    def hypotheses(lines: list[str], normalise: Normalise) -> list[str]:
        inputs = {**job.inputs, "text": write_text(tmp_path / f"text-{len(list(tmp_path.iterdir()))}", lines)}
        work(Job({**job.config, "normalise": asdict(normalise)}, inputs, job.out))
        return list(pq.read_table(job.out / "hypotheses.parquet")["hypothesis"].to_pylist())

    clean = hypotheses(sources(), STANDARD)
    marked = [line.replace(" ", " \xa0\t").replace("o", "\xado\u200b\ufeff") for line in sources()]
    assert hypotheses(marked, STANDARD) == clean
    assert hypotheses(marked, AS_READ) != clean
    outside = [f"\xa0 {line}\t" for line in sources()]
    assert hypotheses(outside, AS_READ) == clean, "as in use, white space at the ends of a line is no part of it"


def test_the_text_of_another_set_is_refused(job: Job, tmp_path: Path) -> None:
    other = write_text(tmp_path / "other", sources()[:-1])
    with pytest.raises(JobError, match=f"{other} holds other pairs than the shards"):
        work(Job(job.config, {**job.inputs, "text": other}, job.out))


def test_rows_match_the_set_and_its_numbers_agree(job: Job) -> None:
    facts = work(job)
    assert facts["sentences"] == 13
    assert facts["seconds"] > 0
    rows = pq.read_table(job.out / "hypotheses.parquet").to_pylist()
    assert [row["pair_id"] for row in rows] == [f"small:{i}" for i in range(13)]
    assert [row["reference_pieces"] for row in rows] == [len(target) + 1 for _, target in pairs()]
    assert rows[4]["hypothesis"] == ""
    assert facts["empty"] == sum(row["hypothesis"] == "" for row in rows)
    translator = Translator.load(job.inputs["weights"], job.inputs["vocabulary"], device="cpu")
    expected = translator.search([source for source, _ in pairs()], Decoding(2, 0.6, 3))
    assert [row["hypothesis"] for row in rows] == [translator.text(hypothesis) for hypothesis in expected]
    assert facts["unfinished"] == sum(not hypothesis.finished for hypothesis in expected)
    for row in rows:
        assert row["score"] == pytest.approx(row["log_probability"] / ((5 + row["pieces"]) / 6) ** 0.6)
        assert row["reference_log_probability"] < 0
    lines = [json.loads(line) for line in (job.out / "metrics.jsonl").read_text().splitlines()]
    assert all(line["sentences_per_second"] > 0 for line in lines)
    assert (lines[-1]["done"], lines[-1]["total"]) == (13, 13)


def test_further_weights_make_an_ensemble(job: Job, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    save_model(other, Transformer(Model(**{**vars(SHAPE), "layers": 1}), 290, 290))
    work(Job(job.config, {**job.inputs, "weights_2": other}, job.out))
    rows = pq.read_table(job.out / "hypotheses.parquet").to_pylist()
    one = Translator.load(job.inputs["weights"], job.inputs["vocabulary"], device="cpu")
    ensemble = Translator(one.model, one.vocabulary, one.device, [load_model(other)])
    expected = ensemble.search([source for source, _ in pairs()], Decoding(2, 0.6, 3))
    assert [row["hypothesis"] for row in rows] == [ensemble.text(hypothesis) for hypothesis in expected]
    log_p = ensemble.log_probabilities(*zip(*pairs(), strict=True))
    assert [row["reference_log_probability"] for row in rows] == pytest.approx(log_p)


def test_attention_has_the_shape_of_its_pieces(job: Job) -> None:
    work(job)
    described = json.loads((job.out / "attention.json").read_text())
    known = {f"small:{i}": source for i, (source, _) in enumerate(pairs())}
    vocabulary = TokenizerPair.load(job.inputs["vocabulary"])
    assert len({example["pair_id"] for example in described}) == EXAMPLES
    with np.load(job.out / "attention.npz") as arrays:
        assert sorted(arrays.files) == sorted([*(f"cross_{i}" for i in range(EXAMPLES)), "encoder_0", "decoder_0"])
        source, written = (len(described[0][f"{side}_pieces"]) for side in ("source", "hypothesis"))
        assert arrays["encoder_0"].shape == (2, 2, source, source)
        assert arrays["decoder_0"].shape == (2, 2, written, written)
        for i, example in enumerate(described):
            weights = arrays[f"cross_{i}"]
            assert weights.dtype == np.float16
            assert weights.shape == (2, 2, len(example["hypothesis_pieces"]), len(example["source_pieces"]))
            assert weights.astype(float).sum(-1) == pytest.approx(1, abs=0.01)
            assert example["source_pieces"] == [*vocabulary.source_pieces(known[example["pair_id"]]), "</s>"]


def test_the_same_job_writes_the_same_bytes(job: Job, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    work(job)
    work(Job(job.config, job.inputs, again))
    for name in ("hypotheses.parquet", "attention.npz", "attention.json"):
        assert (job.out / name).read_bytes() == (again / name).read_bytes()


def test_a_stop_signal_ends_the_job_after_the_batch(tmp_path: Path) -> None:
    stop = SimpleNamespace(received=False)
    progress = ProgressReporter(Metrics(tmp_path), stop, total=20, seconds=1000.0).phase(10)  # type: ignore[arg-type]
    progress(3, 10)
    stop.received = True
    with pytest.raises(JobError) as ended:
        progress(6, 10)
    assert ended.value.reason == "preempted"


def test_an_invalid_input_is_named(job: Job, tmp_path: Path) -> None:
    def fails(sentence: str, **inputs: Path) -> None:
        with pytest.raises(JobError, match=sentence):
            work(Job(job.config, {**job.inputs, **inputs}, job.out))

    long = write_text(tmp_path / "long", [*sources()[:-1], "7 " * 1001])
    fails("source of small:12 has 2002 pieces, .* takes has 1000", text=long)
    fails("source piece 290", pairs=write_pairs(tmp_path / "odd", [([290], [5])]))
    narrow = tmp_path / "narrow"
    narrow.mkdir()
    model = Transformer(Model(**{**vars(SHAPE), "positions": "learned", "max_positions": 14}), 290, 290)
    save_model(narrow, model)
    fails(
        "reference of small:0 has 14 pieces, .* takes has 13",
        weights=narrow,
        pairs=write_pairs(tmp_path / "r", [([4], [5] * 14)]),
        text=write_text(tmp_path / "one", ["A"]),
    )
    save_model(narrow, Transformer(SHAPE, 291, 291))
    fails("vocabulary size is 290, allowed is the model's 291", weights=narrow)
    with torch.no_grad():
        model = Transformer(SHAPE, 290, 290)
        model.target_embedding[7] = torch.nan
    save_model(narrow, model)
    fails("not finite", weights=narrow)


def test_examples_are_of_moderate_length_and_spread_over_the_set() -> None:
    lengths = [10 if row % 2 else 40 for row in range(200)]
    hypotheses = [Hypothesis((5,) * length, length + 1, -1.0, -1.0, finished=True) for length in lengths]
    found = examples(lengths, hypotheses)
    assert all(lengths[row] == 10 for row in found)
    assert [row // 50 for row in found] == [0, 1, 2, 3]
    assert len(examples([50, 60, 0, 1], [*hypotheses[:3], Hypothesis((), 1, -1.0, -1.0, finished=True)])) == 2
