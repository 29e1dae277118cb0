"""A setting that is unknown, of another type or fits nothing is refused before anything runs, by its name."""

import re
from dataclasses import replace

import pytest

from flows.runner.request import RunRequest
from flows.runs import RUNS
from flows.runs.synthetic import BackTranslation
from infra.errors import BadConfiguration
from tasks.corpus.catalogue import CORPORA


@pytest.mark.parametrize(
    ("run", "words", "field"),
    [
        ("demo", "training.update=3", "did you mean updates"),
        ("demo", "trainig.updates=3", "did you mean training"),
        ("demo", "seed=2", "did you mean training.seed"),
        ("demo", "filters.rules=LenghtRatio", "did you mean LengthRatio"),
        ("demo", "filters.rules=Length(maks=3)", "did you mean max"),
        ("demo", "filters.rules=-Identicle", "did you mean Identical"),
        ("demo", "training.updates=many", "training.updates"),
        ("demo", "training.updates=1.5", "training.updates"),
        ("demo", "training.updates=0", "training.updates"),
        ("demo", "training.updates=1" + "0" * 26, "training.updates"),
        ("demo", "training.seed=-1", "training.seed"),
        ("demo", "training.warmup_epochs=1", "training.warmup"),
        ("demo", "training.keep_epochs=2", "training.keep"),
        ("demo", "training.keep_epochs=2 training.keep=0 training.patience=5", "training.keep_epochs"),
        (
            "demo",
            "model.positions=learned model.max_positions=101 training.target_ends=eos+eos",
            "training.target_ends is eos+eos",
        ),
        ("demo", "training.peak=nan", "training.peak"),
        ("demo", "training.eps=1e400", "training.eps"),
        ("demo", "training.factor=2", "training.factor"),
        ("demo", "training.schedule=paper training.peak=1e-3", "training.peak"),
        ("demo", "model.norm=middle", "model.norm"),
        ("demo", "model.tied=perhaps", "model.tied"),
        ("demo", "model.d_model=100000000", "model.d_model"),
        ("demo", "decoding.beam=100000", "decoding.beam"),
        ("demo", "decoding.alpha=inf", "decoding.alpha"),
        ("demo", "decoding.alpha=101", "decoding.alpha"),
        ("demo", "profile=thorough", "profile"),
        ("demo", "preset=t2t", "preset"),
        ("demo", "training=3", "training"),
        ("demo", "training.updates.more=3", "training.updates"),
        ("demo", "training.updates", "training.updates"),
        ("demo", "filters.rules=Length(max=many)", "Length.max"),
        ("demo", "filters.rules=Length(min=0)", "length.min"),
        ("demo", "filters.rules=Language(source=en)", "Language"),
        ("demo", "filters.rules=Empty,+Distinct", "filters.rules"),
        ("demo", "filters.rules=NotIn,Distinct,Empty,Empty", "filters.rules"),
        ("demo", "filters.rules.LengthRatio.max=inf", "filters.rules.LengthRatio.max"),
        ("demo", "sets=+test+nonsense", "allowed is a set's name, or one with noise"),
        ("demo", "sets=+tset+caps", "did you mean test"),
        ("demo", "sets=dev,+test+caps", "sets of different names"),
        ("demo", "sets=+test+caps evaluate=dev,test+caps", "a set with noise beside its clean set: add test"),
        ("demo", "augment.caps=1.5", "a share of the pairs, from 0 to 1"),
        *(("demo", f"name={name}", "name") for name in ("", "a/b", "a:b", "v1.2", "../../x")),
        ("multi30k-ende-bt", "synthetic.tag=BT", "synthetic.tag"),
        ("multi30k-ende-bt", "synthetic.tag=</s>", "synthetic.tag"),
        ("multi30k-ende-bt", "synthetic.lines=-1", "synthetic.lines"),
        ("multi30k-ende-bt", "synthetic.decoding.ensemble=1,2", "synthetic.decoding.ensemble"),
        ("multi30k-ende-bt", "synthetic.updates=10", "averaging.count"),
        ("multi30k-ende-bt", "training.start=x@champion", "synthetic.tag"),
        ("demo-distilled", "synthetic.n_best=8", "synthetic.n_best"),
        ("demo-distilled", "synthetic.seeds=1,1", "synthetic.seeds"),
        ("demo-distilled", "synthetic.seeds=", "synthetic.seeds"),
        ("demo-distilled", "vocabulary.joint=false", "model.tied"),
    ],
)
def test_a_setting_that_fits_nothing_is_refused_by_its_name(run: str, words: str, field: str) -> None:
    with pytest.raises(BadConfiguration, match=rf"--set .*\b{re.escape(field)}\b"):
        RunRequest(run, overrides=tuple(words.split())).resolve()


def test_a_setting_that_the_schedule_does_not_use_may_be_the_run_s_or_the_preset_s() -> None:
    run = RunRequest("demo", overrides=("preset=tensor2tensor", "training.schedule=linear", "training.peak=1e-3"))
    assert (run.resolve().run.training.peak, run.resolve().run.training.factor) == (1e-3, 2.0)


def test_synthetic_text_is_of_the_target_language_alone_and_a_teacher_can_read_its_pairs() -> None:
    with pytest.raises(ValueError, match=r"^synthetic.monolingual is 'de'"):
        replace(RUNS["multi30k-enfr"], synthetic=RUNS["multi30k-ende-bt"].synthetic)
    with pytest.raises(ValueError, match=r"^synthetic.monolingual is 'multi30k-enfr'"):
        BackTranslation(CORPORA["multi30k-enfr"])
    run = RUNS["demo-distilled"]
    assert run.synthetic
    short = replace(run.synthetic, teacher=replace(run.model, positions="learned", max_positions=100))
    with pytest.raises(ValueError, match=r"^sharding.max_pieces is 100"):
        replace(run, synthetic=short)
