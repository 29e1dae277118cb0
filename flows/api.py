"""Gives Python access to runs, scores, models and artifacts: in a script, a notebook, another program.

    from flows import api

    api.run("demo")
    api.scores("demo").filter(metric="bleu")
    api.translate(["The old woman sees a dog."], "demo@champion")

Tables are polars frames, arrays are NumPy's. No function needs a server. As on the command line, state is in
``REPRO_ROOT``, else in the nearest ``.repro``; set ``REPRO_ROOT`` before the first call. Configuration errors are
``infra.errors.BadConfiguration``, with a sentence that says what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.inference.load_version import load_version
from flows.inference.sentence_attention import attention_of
from flows.inspection.artifacts import find_artifact
from flows.inspection.compare import find_system, find_training, read_sentences, training_table
from flows.orchestration.dispatch import dispatch
from flows.runner.find_run import find_version
from flows.runner.outcome import Outcome
from flows.runner.recorded_runs import run_names
from flows.runner.records import receive_records
from flows.runner.request import ResolvedRun, RunRequest, make_plan
from flows.runs import RUNS
from flows.views.stage_words import outcome_json
from infra.errors import BadConfiguration, BadData, bad_values
from infra.processes import signals
from infra.servers.environment import configure_libraries
from infra.site import Site, configured_site, open_store
from infra.store.store import Artifact
from infra.tracking.registry import versions as registered
from model.decoding.translation import AttentionMap, Search
from model.metric_names import DEV_BLEU, PERPLEXITY, PERPLEXITY_WORD, TEST_BLEU

if TYPE_CHECKING:
    from model.decoding.version_translator import VersionTranslator

__all__ = [
    "artifact",
    "attention",
    "curves",
    "load",
    "plan",
    "run",
    "runs",
    "scores",
    "sentences",
    "translate",
    "versions",
]
STAGE_SCHEMA = {
    "stage": pl.String,
    "item": pl.String,
    "state": pl.String,
    "seconds": pl.Float64,
    "why": pl.String,
    "key": pl.String,
    "path": pl.String,
}


def runs() -> pl.DataFrame:
    """List the built-in runs, then other runs with a record in the root.

    Returns columns ``run``, ``about`` (empty for a run of your own) and ``recorded``: whether the root has a record.
    """
    store = open_store(Site.named())
    receive_records(store)
    recorded = run_names(store.root)
    about = {name: value.about for name, value in RUNS.items()} | {name: "" for name in recorded if name not in RUNS}
    rows = [(name, text, name in recorded) for name, text in about.items()]
    return pl.DataFrame(rows, {"run": pl.String, "about": pl.String, "recorded": pl.Boolean}, orient="row")


def plan(
    name: str,
    overrides: Mapping[str, object] | None = None,
    *,
    from_stage: str = "",
    until: str = "",
    force: Sequence[str] = (),
    site: str = "local",
) -> pl.DataFrame:
    """Plan what ``run`` would do, like ``repro plan``. Runs nothing.

    ``name`` is a built-in run, ``FILE.toml`` or ``FILE.py:NAME``; ``overrides`` maps its fields to values:
    ``{"training.updates": 200, "decoding.ensemble": (1, 2)}``. Returns a row for each stage: ``stage``, ``item``,
    ``state`` (``cached``, ``miss``, ``waits``), ``seconds``, ``why`` it runs, ``key`` and ``path``. Raises
    BadConfiguration for an unknown run, stage or field.
    """
    return _stage_frame(make_plan(_resolved(name, overrides, from_stage, until, force, site)).outcome)


@signals.handled()
def run(
    name: str,
    overrides: Mapping[str, object] | None = None,
    *,
    from_stage: str = "",
    until: str = "",
    force: Sequence[str] = (),
    site: str = "local",
) -> pl.DataFrame:
    """Run every stage that is not cached, like ``repro run``. Progress goes to stderr, so a notebook shows it.

    Returns the columns of ``plan``; ``state`` is ``cached`` or ``completed``. An interrupt ends a training after a
    checkpoint; the same call resumes it. A second interrupt ends this process. Raises
    ``flows.runner.outcome.StageFailed`` for a stage that failed, BadConfiguration as ``plan`` does. A process can use
    only one root.
    """
    resolved = _resolved(name, overrides, from_stage, until, force, site)
    configure_libraries(resolved.site.root)
    return _stage_frame(dispatch(make_plan(resolved)))


def scores(name: str, overrides: Mapping[str, object] | None = None) -> pl.DataFrame:
    """Return the scores of a run (``demo``), a model version (``demo@champion``) or one set (``demo/score/test``).

    For a run, the newest finished one counts, without overrides or with ``overrides``, as in ``run``. Returns columns
    ``set``, ``metric``, ``score``, ``low`` and ``high`` (the 95 % interval by bootstrap, null if there is none),
    ``protocol`` and ``signature``. Raises BadConfiguration if there are no scores.
    """
    site = configured_site()
    store = open_store(site)
    rows = []
    for set_name, manifest in find_system(name, site, _assignments(overrides)).scores.items():
        card = json.loads((store.artifact(manifest).path() / "card.json").read_bytes())
        perplexities = {each: {"score": card[each]} for each in (PERPLEXITY, PERPLEXITY_WORD) if each in card}
        rows += [
            {"set": set_name, "metric": each, **values} for each, values in (card["scores"] | perplexities).items()
        ]
    columns = ("set", "metric", "score", "low", "high", "protocol", "signature")
    numbers = dict.fromkeys(("score", "low", "high"), pl.Float64)
    return pl.DataFrame(rows, {column: numbers.get(column, pl.String) for column in columns})


def curves(name: str, overrides: Mapping[str, object] | None = None) -> pl.DataFrame:
    """Return the metrics of a training by update, for a run (``demo``) or a model version (``demo@champion``).

    For a run, it is the training of the model of ``scores``, if there are scores. Returns a row for each update with a
    measurement: ``update``, ``time`` (seconds since 1970), and a column for each metric (``loss``, ``dev_perplexity``,
    ``learning_rate``, …; docs/files.md), null if not measured. Raises BadConfiguration if there is no finished
    training.
    """
    return training_table(find_training(name, configured_site(), _assignments(overrides)).path() / "metrics.jsonl")


def sentences(name: str) -> pl.DataFrame:
    """Return every scored sentence of a run or a model version.

    Returns columns ``set``, ``pair_id``, ``source``, ``reference``, ``hypothesis``, ``bleu`` and ``chrf`` (of the
    sentence). Raises BadConfiguration if there are no scores.
    """
    site = configured_site()
    scored = find_system(name, site).scores
    frames = {each: read_sentences(manifest, site) for each, manifest in scored.items()}
    return pl.concat(table.select(pl.lit(each).alias("set"), pl.all()) for each, table in frames.items())


def versions(model: str = "") -> pl.DataFrame:
    """List the registered versions of all models or of one, by name, the newest first.

    Returns columns ``name`` (``demo/3``), ``model``, ``version``, ``created`` (UTC), ``aliases`` (list), ``dev_set``,
    ``dev_bleu``, ``test_set``, ``test_bleu``, ``protocol``, ``modified`` (made with overrides) and ``run_id`` in
    MLflow. Empty if none is registered.
    """
    rows = [
        (
            each.label,
            each.name,
            each.version,
            each.created,
            list(each.aliases),
            each.dev,
            each.bleu.get(each.dev),
            each.test,
            each.bleu.get(each.test),
            each.protocol,
            each.tags.get("modified") == "true",
            each.run_id,
        )
        for each in registered(configured_site().registry, model)
    ]
    schema: dict[str, Any] = {
        "name": pl.String,
        "model": pl.String,
        "version": pl.Int64,
        "created": pl.Datetime("us", "UTC"),
        "aliases": pl.List(pl.String),
        "dev_set": pl.String,
        DEV_BLEU: pl.Float64,
        "test_set": pl.String,
        TEST_BLEU: pl.Float64,
        "protocol": pl.String,
        "modified": pl.Boolean,
        "run_id": pl.String,
    }
    return pl.DataFrame(rows, schema, orient="row")


def load(model: str = "demo@champion") -> VersionTranslator:
    """Load a model version once for several calls of ``translate`` and ``attention``.

    Raises BadConfiguration for an unknown version, BadData for damaged weights.
    """
    site = configured_site()
    return load_version(find_version(model, site), site)


def translate(
    texts: Sequence[str],
    model: str | VersionTranslator = "demo@champion",
    *,
    n_best: int = 1,
    beam: int | None = None,
    alpha: float | None = None,
) -> pl.DataFrame:
    """Translate texts sentence by sentence.

    ``model`` is a version's name (``demo@champion``, ``demo/3``, ``demo``) or what ``load`` returned for it; ``beam``
    and ``alpha`` (exponent of the length penalty, §6.1) default to the values of the model's run. Returns ``n_best``
    rows for each text, best first: ``number`` of the text from 0, ``source``, ``rank`` from 1, ``hypothesis``,
    ``score`` (log-probability over the length penalty, summed over sentences), ``log_probability`` (natural) and
    ``finished`` (false if the translation was cut). Raises BadConfiguration for settings that are not allowed, BadData
    for a sentence that is too long for the model.
    """
    if isinstance(texts, str):
        raise BadConfiguration("texts is one text, allowed is a list of texts")
    served = load(model) if isinstance(model, str) else model
    given: dict[str, Any] = {"beam": beam, "alpha": alpha}
    given = {name: value for name, value in given.items() if value is not None}
    with bad_values():
        search = Search(replace(served.decoding, **given), n_best)
    found = served.translate(texts, search)
    for number, translation in enumerate(found):
        if translation.refusal:
            raise BadData(f"text {number} has {translation.refusal}; shorten it or leave it out")
    rows = [
        (number, text, rank, each.text, each.score, each.log_probability, each.finished)
        for number, (text, translation) in enumerate(zip(texts, found, strict=True))
        for rank, each in enumerate(translation.hypotheses, 1)
    ]
    schema = {
        "number": pl.Int64,
        "source": pl.String,
        "rank": pl.Int64,
        "hypothesis": pl.String,
        "score": pl.Float64,
        "log_probability": pl.Float64,
        "finished": pl.Boolean,
    }
    return pl.DataFrame(rows, schema, orient="row")


def attention(
    sentence: str, model: str | VersionTranslator = "demo@champion", *, target: str = ""
) -> Mapping[str, AttentionMap]:
    """Return the attention weights of a sentence and its translation, or ``target`` in its place.

    Returns a map for ``cross`` (the translation attends to the source), ``encoder`` and ``decoder`` (self-attention):
    ``weights`` is an array (layers, heads, rows, columns) of float32, each row sums to 1; ``rows`` and ``columns`` are
    the tokens. Raises BadConfiguration for an empty sentence or one that is too long.
    """
    served = load(model) if isinstance(model, str) else model
    return attention_of(served, sentence, target)[1]


def artifact(name: str, overrides: Mapping[str, object] | None = None) -> Artifact:
    """Return the newest artifact of a name such as ``demo/clean`` or ``demo/score/test`` (``repro show --path``).

    It belongs to a run without overrides, finished or not, or with ``overrides``, as in ``run``. ``path()`` is its
    folder, downloaded if it is in a bucket; docs/files.md lists the files; ``facts`` is what its stage returned. Raises
    BadConfiguration if the name means no or several artifacts.
    """
    return find_artifact(name, Site.named(), _assignments(overrides))


def _resolved(
    name: str, overrides: Mapping[str, object] | None, from_stage: str, until: str, force: Sequence[str], site: str
) -> ResolvedRun:
    forced = (force,) if isinstance(force, str) else tuple(force)
    return RunRequest(f"{name}", from_stage, until, forced, _assignments(overrides), site).resolve()


def _assignments(overrides: Mapping[str, object] | None) -> tuple[str, ...]:
    """Write the overrides in the form of ``--set``."""
    return tuple(f"{field}={_text(value)}" for field, value in (overrides or {}).items())


def _text(value: object) -> str:
    """Write the value in the form of ``--set``."""
    if isinstance(value, tuple | list):
        return ",".join(map(_text, value))
    return f"{value}".lower() if isinstance(value, bool) else f"{value}"


def _stage_frame(outcome: Outcome) -> pl.DataFrame:
    return pl.DataFrame(outcome_json(outcome)["stages"], STAGE_SCHEMA)
