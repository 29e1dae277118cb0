"""All runs that ``repro run`` knows by name, from the demo to the paper's models. The dictionary is ``RUNS``."""

from dataclasses import replace

from flows.runs.languages import standard_filters
from flows.runs.run import Run
from flows.runs.synthetic import BackTranslation, Distillation, monolingual
from model.config import Averaging, Decoding, Model, Training
from model.config.normalise import Normalise
from model.config.paper_models import BASE, BASE_TRAINING, BIG, BIG_TRAINING, TABLE_3
from tasks.cleaning.filters import Empty, Filters, Length
from tasks.corpus.catalogue import CORPORA, SETS
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import Sharding

DATA_LIMITS = (
    "warn clean.rejected_share <= 0.1",
    "warn shard.train.length_ratio >= 0.5",
    "warn shard.train.length_ratio <= 2",
)
"""Limits that training text in any of these languages should keep."""

DEMO = Run(
    name="demo",
    about="English-German by a small grammar, embedded: the whole pipeline in minutes on two cores",
    corpus=CORPORA["demo"],
    sets=tuple(SETS["demo"].values()),
    dev="dev",
    filters=standard_filters("en", "de", Length(2, 60), ("dev", "test")),
    vocabulary=Vocabulary(size=1_500),
    sharding=Sharding(max_pieces=100),
    model=Model(layers=2, d_model=128, d_ff=256, heads=4, d_k=32, d_v=32, norm="pre"),
    training=Training(
        updates=850, batch_tokens=1_200, schedule="linear", warmup=80, peak=5e-3, checkpoint_every=15, dev_every=170
    ),
    averaging=Averaging(5),
    decoding=Decoding(),
    expect=(*DATA_LIMITS, "warn train.dev_perplexity <= 1.5"),
)

MULTI30K_ENDE = Run(
    name="multi30k-ende",
    about="Multi30k English-German, raw text, a tiny model; two hours on one core",
    corpus=CORPORA["multi30k-ende"],
    sets=tuple(SETS["multi30k-ende"].values()),
    dev="val",
    filters=standard_filters("en", "de", Length(1, 100), ("val", "test_2016_flickr")),
    vocabulary=Vocabulary(size=8_000),
    sharding=Sharding(max_pieces=100),
    model=Model(layers=4, d_model=128, d_ff=256, heads=4, d_k=32, d_v=32, p_drop=0.3, norm="pre"),
    training=Training(
        updates=6_000,
        batch_tokens=4_096,
        schedule="linear",
        warmup=400,
        peak=5e-3,
        checkpoint_every=40,
        keep=8,
        dev_every=200,
    ),
    averaging=Averaging(8),
    decoding=Decoding(alpha=2.0),
    expect=(*DATA_LIMITS, "warn train.dev_perplexity <= 6"),
)

EPOCH_OF_TINY = 56
"""Updates of an epoch of multi30k-ende-tiny."""
MULTI30K_ENDE_TINY = replace(
    MULTI30K_ENDE,
    name="multi30k-ende-tiny",
    about="Multi30k English-German by the published Transformer-Tiny, lower-cased Moses tokens; hours on one core",
    filters=Filters((Empty(),), Normalise(nfc=False, control=False, white_space=False)),
    vocabulary=Vocabulary(size=10_100, tokens="characters", moses=True, lowercase=True),
    sharding=Sharding(max_pieces=256),
    model=replace(MULTI30K_ENDE.model, norm="post", qkv_bias=True),
    training=Training(
        updates=8_000,
        batch_tokens=8_192,
        schedule="inverse_sqrt",
        warmup=2_000,
        peak=5e-3,
        eps=1e-8,
        checkpoint_every=EPOCH_OF_TINY,
        keep=10,
        dev_every=EPOCH_OF_TINY,
        patience=10,
    ),
    averaging=Averaging(10),
    decoding=Decoding(beam=5, alpha=1.0, length_penalty="length", min_length=1),
    expect=DATA_LIMITS,
)

MULTI30K_ENFR = replace(
    MULTI30K_ENDE,
    name="multi30k-enfr",
    about="Multi30k English-French, settings of multi30k-ende",
    corpus=CORPORA["multi30k-enfr"],
    sets=tuple(SETS["multi30k-enfr"].values()),
    filters=standard_filters("en", "fr", Length(1, 100), ("val", "test_2016_flickr")),
    expect=DATA_LIMITS,
)

WMT14_SAMPLE_ENDE = Run(
    name="wmt14-sample-ende",
    about="a real sample of WMT14 English-German (52,072 pairs); newstest2013 as dev, no test set",
    corpus=CORPORA["wmt14-sample-ende"],
    sets=tuple(SETS["wmt14-sample-ende"].values()),
    dev="newstest2013",
    filters=standard_filters("en", "de", Length(1, 150), ("newstest2013",)),
    vocabulary=Vocabulary(size=10_000),
    sharding=Sharding(max_pieces=150),
    model=Model(layers=3, d_model=256, d_ff=1024, heads=4, d_k=64, d_v=64, p_drop=0.2, norm="pre"),
    training=Training(
        updates=10_000,
        batch_tokens=8_000,
        schedule="inverse_sqrt",
        warmup=1_000,
        peak=2e-3,
        checkpoint_every=250,
        dev_every=250,
    ),
    averaging=Averaging(5),
    decoding=Decoding(),
    expect=DATA_LIMITS,
)

MULTI30K_ENDE_BACK_TRANSLATION = replace(
    MULTI30K_ENDE,
    name="multi30k-ende-bt",
    about="multi30k-ende with 30,000 tagged back-translations of the WMT14 sample's German text",
    synthetic=BackTranslation(
        monolingual("wmt14-sample-de", "de", {"wmt14_sample": CORPORA["wmt14-sample-ende"].parts[0].target}),
        lines=30_000,
    ),
    expect=DATA_LIMITS,
)

WMT14_SAMPLE_ENDE_BACK_TRANSLATION = replace(
    WMT14_SAMPLE_ENDE,
    name="wmt14-sample-ende-bt",
    about="wmt14-sample-ende with 30,000 tagged back-translations of its own German text",
    synthetic=MULTI30K_ENDE_BACK_TRANSLATION.synthetic,
)

DEMO_DISTILLED = replace(
    DEMO,
    name="demo-distilled",
    about="a model of a third of the demo's size, trained on the demo's translations of its own text",
    model=replace(DEMO.model, layers=1, d_model=80, d_k=20, d_v=20),
    synthetic=Distillation(DEMO.model),
    expect=DATA_LIMITS,
)

MULTI30K_ENDE_DISTILLED = replace(
    MULTI30K_ENDE,
    name="multi30k-ende-distilled",
    about="a third of multi30k-ende's size, trained on translations by three models of multi30k-ende",
    model=replace(MULTI30K_ENDE.model, layers=2, d_model=64, d_k=16, d_v=16, p_drop=0.1),
    synthetic=Distillation(MULTI30K_ENDE.model, seeds=(1, 2, 3), n_best=7, decoding=MULTI30K_ENDE.decoding),
    expect=DATA_LIMITS,
)

MULTI30K_ENDE_BEST = replace(
    MULTI30K_ENDE_DISTILLED,
    name="multi30k-ende-best",
    about="multi30k-ende by the best known recipe, translations by five models beside the references; nine hours",
    model=replace(MULTI30K_ENDE.model, p_drop=0.2),
    training=replace(MULTI30K_ENDE.training, precision="bf16", updates=8_000),
    synthetic=Distillation(
        MULTI30K_ENDE.model,
        seeds=(1, 2, 3, 4, 5),
        n_best=15,
        references=True,
        decoding=replace(MULTI30K_ENDE.decoding, beam=8),
        updates=MULTI30K_ENDE.training.updates,
    ),
)

WMT14_SETS = ("newstest2013", "newstest2014", "newstest2014_full")

PAPER_BASE = Run(
    name="wmt14-ende-base",
    about="the paper's base model, WMT14 English-German (Table 2; 1.66 GB of archives, GPU)",
    corpus=CORPORA["wmt14-ende"],
    sets=tuple(SETS["wmt14-ende"].values()),
    dev="newstest2013",
    # The paper names no cleaning (§5.1): `profile=paper` removes it from this run, as in the rows of `repro paper`.
    filters=standard_filters("en", "de", Length(1, 150), WMT14_SETS),
    vocabulary=Vocabulary(size=37_000),
    sharding=Sharding(max_pieces=256),
    model=BASE,
    training=BASE_TRAINING,
    averaging=Averaging(5),
    decoding=Decoding(),
    expect=DATA_LIMITS,
)

PAPER_BIG = replace(
    PAPER_BASE,
    name="wmt14-ende-big",
    about="the paper's big model, WMT14 English-German (Table 2)",
    model=BIG,
    training=BIG_TRAINING,
    averaging=Averaging(20),
)

PAPER_BASE_ENFR = replace(
    PAPER_BASE,
    name="wmt14-enfr-base",
    about="the paper's base model, WMT14 English-French (36M pairs)",
    corpus=CORPORA["wmt14-enfr"],
    sets=tuple(SETS["wmt14-enfr"].values()),
    filters=standard_filters("en", "fr", Length(1, 150), WMT14_SETS),
    vocabulary=Vocabulary(size=32_000),
)

PAPER_BIG_ENFR = replace(
    PAPER_BASE_ENFR,
    name="wmt14-enfr-big",
    about="the paper's big model, WMT14 English-French, P_drop 0.1 (§6.1)",
    model=replace(BIG, p_drop=0.1),
    training=BIG_TRAINING,
    averaging=Averaging(20),
)

VARIATIONS = {
    f"wmt14-ende-{row}": replace(
        PAPER_BASE,
        name=f"wmt14-ende-{row}",
        about=f"Table 3, row {row}: the last checkpoint, newstest2013",
        evaluate=("newstest2013",),
        model=model,
        training=training,
        averaging=Averaging(1),
    )
    for row, (model, training) in TABLE_3.items()
    if row not in ("base", "big")
}
"""The rows of Table 3 between base and big."""

RUNS = {
    run.name: run
    for run in (
        DEMO,
        DEMO_DISTILLED,
        MULTI30K_ENDE,
        MULTI30K_ENDE_TINY,
        MULTI30K_ENFR,
        MULTI30K_ENDE_BACK_TRANSLATION,
        MULTI30K_ENDE_DISTILLED,
        MULTI30K_ENDE_BEST,
        WMT14_SAMPLE_ENDE,
        WMT14_SAMPLE_ENDE_BACK_TRANSLATION,
        PAPER_BASE,
        PAPER_BIG,
        PAPER_BASE_ENFR,
        PAPER_BIG_ENFR,
    )
} | VARIATIONS
