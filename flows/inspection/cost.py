"""Estimates what a run costs before it starts: time, disk, energy and money of the stages that are not cached.

A stage costs what the most similar recorded one did, scaled by the work of both: of a training updates × tokens ×
parameters, of a translation sentences × parameters × beam, of the others the bytes that they read. A training
without any record costs its counted operations at the rate of this machine.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from flows.inspection.artifact_graph import sealed_everywhere
from flows.runner.request import RunPlan
from infra.site import Site
from infra.store.manifest import Manifest, bytes_of
from model.config import Model, count_parameters
from model.training.flops import TRAINED
from tasks.engine.planner import StageResult

EFFICIENCY = 0.5
"""Share of the measured rate of products that a training is assumed to reach: 65 to 75 % were measured of a model of
7.6M parameters (benchmarks/README.md), tiny ones reach less."""
FAR = 10.0
"""The rate of a training says little of another model that has so many times its work: tiny ones wait for overhead."""
MATRIX = 1024
MEASURED_SECONDS = 0.5
CONSTANT_COST = ("download", "register")
"""Stages whose work does not depend on the size of their input."""


@dataclass(frozen=True)
class StageCost:
    """The estimate for one stage that is not cached; None where nothing tells it."""

    stage: str
    item: str
    state: str
    """``miss``, or ``waits`` for one that runs only if an input changes."""
    seconds: float | None
    bytes: float | None
    gpu_kwh: float | None
    basis: str
    """What the estimate is from."""

    @property
    def label(self) -> str:
        return f"{self.stage} {self.item}".strip()


@dataclass(frozen=True)
class RunCost:
    """The estimate for a run."""

    run: str
    stages: tuple[StageCost, ...]
    rate: float = 0.0
    """Price of an hour of the machine; 0: not given."""

    @property
    def seconds(self) -> float:
        return sum(each.seconds or 0.0 for each in self.stages)

    @property
    def bytes(self) -> float:
        return sum(each.bytes or 0.0 for each in self.stages)

    @property
    def money(self) -> float | None:
        return self.seconds / 3600 * self.rate if self.rate else None

    @property
    def gpu_kwh(self) -> float | None:
        """None where no stage like these was metered."""
        found = [each.gpu_kwh for each in self.stages if each.gpu_kwh is not None]
        return sum(found) if found else None

    @property
    def unknown(self) -> list[str]:
        """Stages without an estimate of their time: the sums are at least what they say."""
        return [each.label for each in self.stages if each.seconds is None]

    def as_json(self) -> dict[str, Any]:
        names = ("run", "seconds", "bytes", "gpu_kwh", "rate", "money", "unknown")
        return {**{name: getattr(self, name) for name in names}, "stages": [vars(each) for each in self.stages]}


def estimate_cost(planned: RunPlan, rate: float = 0.0) -> RunCost:
    """The estimate for what a plan has to make. Reads the manifests of the root.

    Runs nothing but, if need be, a product.
    """
    estimator = _Estimator(list(sealed_everywhere(planned.store)), planned.outcome.rows, planned.resolved.site)
    found = {row.key: estimator.cost(row) for row in planned.outcome.rows if row.state in ("miss", "waits")}
    return RunCost(planned.outcome.run, tuple(found.values()), rate)


@dataclass(frozen=True)
class _Work:
    """What a stage has to do, in a unit of its own, and its settings, by which the most similar record is found."""

    amount: float
    unit: str
    settings: Mapping[str, Any]

    def is_comparable(self, other: "_Work") -> bool:
        """A download costs what its own file does."""
        return self.amount > 0 and ("file" not in other.settings or self.settings == other.settings)


class _Estimator:
    """Goes through the rows in their order, so that sizes of inputs that are not made yet are known by estimate."""

    def __init__(self, recorded: Sequence[Manifest], rows: Sequence[StageResult], site: Site) -> None:
        self._recorded: dict[str, list[Manifest]] = {}
        for each in recorded:
            if not each.is_adopted:  # nobody measured how long it took
                self._recorded.setdefault(each.stage, []).append(each)
        self._forms: dict[str, Mapping[str, Any]] = {row.key: row.form for row in rows}
        self._forms.update((each.key, each.arguments) for each in recorded)
        self._bytes: dict[str, float] = {each.key: bytes_of(each) for each in recorded}
        self._facts = {each.key: each.facts for each in recorded}
        self._on_gpu = site.device == "cuda" or (site.device == "auto" and bool(site.gpus))

    def cost(self, row: StageResult) -> StageCost:
        work = self._work(row.stage, row.form)
        recorded = (each for each in self._recorded.get(row.stage, ()) if each.version == row.version)
        candidates = [each for each in recorded if self._same_device(each)]
        known = [(each, self._work(row.stage, each.arguments, each)) for each in candidates]
        usable = [(each, done) for each, done in known if work and done and done.is_comparable(work)]
        if not usable or not work:
            return self._without_record(row, work)
        manifest, done = max(usable, key=lambda pair: _similarity(work, *pair))
        scale = work.amount / done.amount
        is_far = not 1 / FAR <= scale <= FAR and done.settings != work.settings
        if row.stage == "train" and is_far and not self._on_gpu:
            return self._without_record(row, work)
        growth = self._parameters(row.form) / (manifest.facts.get("parameters") or 1) if row.stage == "train" else scale
        size = self._bytes[row.key] = bytes_of(manifest) * growth
        energy = manifest.facts.get("gpu_kwh")
        name = f"{manifest.stage} {manifest.item}".strip()
        basis = f"{name} {manifest.key[:8]} of {manifest.made.get('at', '')[:10]}"
        return StageCost(
            row.stage,
            row.item,
            row.state,
            manifest.seconds * scale,
            size,
            energy * scale if isinstance(energy, int | float) else None,
            f"{basis}, {manifest.seconds:,.0f} s × {scale:.3g} by {work.unit}",
        )

    def _without_record(self, row: StageResult, work: _Work | None) -> StageCost:
        if row.stage != "train" or not work:
            if row.stage not in self._recorded:
                why = "no such stage on record"
            else:
                why = "none like it on record" if work else "the size of what it reads is not known"
            return StageCost(row.stage, row.item, row.state, None, None, None, why)
        weights = self._parameters(row.form)
        size = self._bytes[row.key] = 4 * weights * (row.form["training"].get("keep", 1) + 2)
        if self._on_gpu:
            return StageCost(
                row.stage, row.item, row.state, None, size, None, "no training on a GPU on record; time unknown"
            )
        rate = product_rate()
        operations = TRAINED * work.amount
        seconds = operations / (rate * EFFICIENCY)
        basis = (
            f"{operations:.2e} operations counted, at {EFFICIENCY:.0%} of the {rate / 1e9:,.0f} GFLOP/s measured now"
        )
        return StageCost(row.stage, row.item, row.state, seconds, size, None, basis)

    def _same_device(self, manifest: Manifest) -> bool:
        device = manifest.facts.get("device")
        return device is None or (device != "cpu") == self._on_gpu

    def _work(self, stage: str, form: Mapping[str, Any], made: Manifest | None = None) -> _Work | None:
        if stage in CONSTANT_COST:
            return _Work(1.0, "number", {name: value for name, value in form.items() if stage == "download"})
        if stage == "train":
            training = form["training"]
            updates = made.facts.get("updates", training["updates"]) if made else training["updates"]
            weights = made.facts.get("parameters") if made else self._parameters(form)
            tokens = updates * training["batch_tokens"]
            return _Work(tokens * weights, "tokens × parameters", form["model"]) if weights else None
        sizes = [self._bytes.get(key) for key in _input_keys(form)]
        read = [size for size in sizes if size is not None]
        if not read or len(read) < len(sizes):
            return None
        if stage == "translate":
            beam = form["decoding"].get("beam", 1)
            return _Work(math.prod(read) * beam, "sentences × parameters × beam", {"beam": beam})
        return _Work(sum(read), "bytes read", {"arguments": _without_artifacts(form)})

    def _parameters(self, form: Mapping[str, Any]) -> float:
        """Of a training, by its model and the vocabulary that it is to have."""
        learnt = self._forms.get(form["vocabulary"]["key"], {}).get("vocabulary", {})
        size = self._facts.get(form["vocabulary"]["key"], {}).get("size") or learnt.get("size", 0)
        known = {field.name for field in fields(Model)}
        return count_parameters(Model(**{name: v for name, v in form["model"].items() if name in known}), size, size)


def _similarity(work: _Work, manifest: Manifest, done: _Work) -> tuple[bool, float, str]:
    """Equal settings come first, then the nearest amount of work, then the newest."""
    return done.settings == work.settings, -abs(math.log(work.amount / done.amount)), f"{manifest.made.get('at', '')}"


def _input_keys(form: Any) -> Iterable[str]:
    if isinstance(form, Mapping):
        if "artifact" in form and "key" in form:
            yield form["key"]
        else:
            for name in form:
                yield from _input_keys(form[name])
    elif isinstance(form, list):
        for each in form:
            yield from _input_keys(each)


def _without_artifacts(form: Any) -> Any:
    """The settings in a stage's arguments."""
    if isinstance(form, Mapping):
        return None if "artifact" in form else {name: _without_artifacts(value) for name, value in form.items()}
    return [_without_artifacts(each) for each in form] if isinstance(form, list) else form


def product_rate() -> float:
    """Operations a second of a product of float32 matrices, measured now, with all threads of this process."""
    import numpy as np

    left = np.random.default_rng(1).random((MATRIX, MATRIX), np.float32)
    best = 0.0
    end = time.perf_counter() + MEASURED_SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        left @ left
        best = max(best, 2 * MATRIX**3 / (time.perf_counter() - began))
    return best
