"""Estimates what a run costs before it starts: time and disk of the stages that are not cached.

The cost of a stage is the cost of the most similar recorded stage, scaled by the work. The work of a training is
updates × tokens (or pairs, if batches count pairs) × parameters; of a translation, sentences × parameters × beam; of
other stages, the bytes they read. A training takes at most its ``minutes``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.inspection.artifact_graph import sealed_everywhere
from flows.runner.request import RunPlan
from infra.site import Site
from infra.store.manifest import Manifest, bytes_of, seconds_of
from model.config import Model, count_parameters, from_json
from tasks.engine.planner import StageResult

TRANSLATED = {"translate": "prepared", "translate_text": "text"}
"""The argument that holds the text of a stage that translates."""


@dataclass(frozen=True)
class StageCost:
    """The estimate for one stage that is not cached; None if unknown."""

    stage: str
    item: str
    state: str
    """``miss``, or ``waits`` for a stage that runs only if an input changes."""
    seconds: float | None
    bytes: float | None
    basis: str
    """The source of the estimate."""


@dataclass(frozen=True)
class RunCost:
    """The estimate for a run."""

    run: str
    stages: tuple[StageCost, ...]

    @property
    def seconds(self) -> float:
        return sum(each.seconds or 0.0 for each in self.stages)

    @property
    def bytes(self) -> float:
        return sum(each.bytes or 0.0 for each in self.stages)

    @property
    def unknown(self) -> list[str]:
        """Stages without an estimate of time or disk; the totals are lower bounds then."""
        return [f"{each.stage} {each.item}".strip() for each in self.stages if None in (each.seconds, each.bytes)]

    def as_json(self) -> dict[str, Any]:
        names = ("run", "seconds", "bytes", "unknown")
        return {**{name: getattr(self, name) for name in names}, "stages": [vars(each) for each in self.stages]}


def estimate_cost(planned: RunPlan) -> RunCost:
    """Estimate the missing stages of a plan. Reads the manifests of the root; runs nothing."""
    recorded = list(sealed_everywhere(planned.store))
    return RunCost(planned.outcome.run, stage_costs(planned.outcome.rows, recorded, planned.resolved.site))


def stage_costs(rows: Sequence[StageResult], recorded: Sequence[Manifest], site: Site) -> tuple[StageCost, ...]:
    """Estimate each planned stage that is not cached; ``recorded`` are the artifacts of the root."""
    estimator = _Estimator(recorded, rows, site)
    return tuple({row.key: estimator.cost(row) for row in rows if row.state in ("miss", "waits")}.values())


@dataclass(frozen=True)
class _Work:
    """The work of a stage in its own unit, and its settings, which find the most similar record."""

    amount: float
    unit: str
    settings: Any
    output: float
    """A number proportional to the size of its files."""


class _Estimator:
    """Takes the rows in order, so that a row can use the estimated sizes of inputs that do not exist yet."""

    def __init__(self, recorded: Sequence[Manifest], rows: Sequence[StageResult], site: Site) -> None:
        self._recorded = recorded
        self._forms: dict[str, Mapping[str, Any]] = {row.key: row.form for row in rows}
        self._forms.update((each.key, each.arguments) for each in recorded)
        self._bytes: dict[str, float] = {each.key: bytes_of(each) for each in recorded}
        self._facts = {each.key: each.facts for each in recorded}
        self._on_gpu = site.device == "cuda" or (site.device == "auto" and bool(site.gpus))

    def cost(self, row: StageResult) -> StageCost:
        begins = max(row.resumes, row.origin.done if row.origin else 0)
        work = self._work(row.stage, row.form, begins=begins)
        if not work:
            return self._unknown(row, "the size of what it reads is not known")
        recorded = [each for each in self._recorded if (each.stage, each.version) == (row.stage, row.version)]
        known = [(each, self._work(row.stage, each.arguments, each)) for each in recorded if self._same_device(each)]
        usable = [(each, done) for each, done in known if done and done.amount and done.unit == work.unit]
        if row.stage == "download":  # the cost of one file says nothing of another
            usable = [(each, done) for each, done in usable if work.settings == done.settings]
        if not usable:
            return self._unknown(row, "none like it on record" if recorded else "no such stage on record")
        manifest, done = max(usable, key=lambda pair: _similarity(work, *pair))
        by_work = (work.amount / done.amount, work.unit)
        whole = seconds_of(manifest)
        taken = min(whole, manifest.facts.get("seconds", whole))  # without the start of its process
        scale, unit = min(by_work, (_limit(row) / (taken or 1), "training.minutes"))
        size = self._bytes[row.key] = bytes_of(manifest) * work.output / (done.output or 1)
        name = f"{manifest.stage} {manifest.item}".strip()
        basis = f"{name} {manifest.key[:8]} of {manifest.made.get('at', '')[:10]}"
        basis += f", {taken:,.0f} s × {scale:.3g} by {unit}"
        return StageCost(row.stage, row.item, row.state, whole - taken + taken * scale, size, basis)

    def _unknown(self, row: StageResult, why: str) -> StageCost:
        limit = _limit(row)
        size = row.form["file"].get("size") or None if row.stage == "download" else None
        if size:
            self._bytes[row.key] = size
        return StageCost(row.stage, row.item, row.state, None if limit == math.inf else limit, size, why)

    def _same_device(self, manifest: Manifest) -> bool:
        device = manifest.facts.get("device")
        return device is None or (device != "cpu") == self._on_gpu

    def _work(self, stage: str, form: Mapping[str, Any], made: Manifest | None = None, begins: int = 0) -> _Work | None:
        """Return the work of a stage with these arguments, as ``made`` or as planned; None if unknown.

        ``begins``: the updates that are done: of an interrupted training, or of the finished one that it continues.
        """
        if stage in ("download", "register"):
            return _Work(1.0, "number", form, 1.0)
        if stage == "train":
            training = form["training"]
            updates = made.facts.get("updates", training["updates"]) if made else training["updates"]
            weights = made.facts.get("parameters", 0) if made else self._parameters(form)
            if not updates:  # counted in epochs
                return None
            updates = max(1, updates - begins)
            pairs = training.get("batch_sentences", 0)
            unit = "pairs × parameters" if pairs else "tokens × parameters"
            return _Work(updates * (pairs or training["batch_tokens"]) * weights, unit, form["model"], weights)
        sizes = [self._bytes.get(key) for key in _input_keys(form)]
        read = [size for size in sizes if size is not None]
        if not sum(read) or len(read) < len(sizes):
            return None
        if stage in TRANSLATED:
            beam = form["decoding"].get("beam", 1)
            weights = sum(self._bytes[each["key"]] for each in (form["weights"], *form.get("others", ())))
            key = form[TRANSLATED[stage]]["key"]
            pairs = self._facts.get(key, {}).get("pairs", 0)
            lines = form.get("lines", 0) if pairs else 0  # 0: all
            text = self._bytes[key] * (min(1.0, lines / pairs) if lines else 1.0)
            return _Work(text * weights * beam, "sentences × parameters × beam", beam, text)
        return _Work(sum(read), "bytes read", _without_artifacts(form), sum(read))

    def _parameters(self, form: Mapping[str, Any]) -> float:
        """Count the parameters of a training from its model and planned vocabulary."""
        learnt = self._forms.get(form["vocabulary"]["key"], {}).get("vocabulary", {})
        size = self._facts.get(form["vocabulary"]["key"], {}).get("size") or learnt.get("size", 0)
        model = from_json(Model, form["model"])
        return count_parameters(model, size, size)


def _limit(row: StageResult) -> float:
    """Return the seconds after which the clock ends the stage."""
    return 60 * row.form["training"].get("minutes", 0) or math.inf if row.stage == "train" else math.inf


def _similarity(work: _Work, manifest: Manifest, done: _Work) -> tuple[bool, float, str]:
    """Rank records: equal settings first, then the nearest amount of work, then the newest."""
    return done.settings == work.settings, -abs(math.log(work.amount / done.amount)), f"{manifest.made.get('at', '')}"


def _input_keys(form: Any) -> Iterable[str]:
    if isinstance(form, Mapping) and "artifact" in form and "key" in form:
        yield form["key"]
    elif isinstance(form, Mapping | list):
        for each in form.values() if isinstance(form, Mapping) else form:
            yield from _input_keys(each)


def _without_artifacts(form: Any) -> Any:
    """Remove artifacts from a stage's arguments; the settings stay."""
    if isinstance(form, Mapping):
        return None if "artifact" in form else {name: _without_artifacts(value) for name, value in form.items()}
    return [_without_artifacts(each) for each in form] if isinstance(form, list) else form
