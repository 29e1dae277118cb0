"""What a score is compared with, by name, and in which settings of the training the two differ.

``paper-base`` and ``paper-A1`` are rows of the paper, ``tutorial`` and others presets of published reproductions; any
other name is a version or run of this root.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from flows.inspection.compare import ScoredSystem, find_system
from flows.inspection.cost import RunCost, stage_costs
from flows.runner.artifact_names import is_version
from flows.runner.find_run import find_version, short_name, split_name
from flows.runner.recorded_runs import command_of
from flows.runner.request import RunRequest, make_plan
from flows.runs import RUNS
from flows.runs.paper_rows import PAPER, PAPER_RUNS, row_run_name
from flows.runs.presets import NAMED
from flows.runs.recorded_results import recorded_results
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.model_version import headline
from infra.tracking.tracker import OVERRIDES
from model.config import Averaging, Model, Training
from model.config.normalise import Normalise
from model.metric_names import BLEU, DEV_PERPLEXITY, EPOCHS, UPDATES
from tasks.corpus.noise import Augment
from tasks.durations import duration
from tasks.evaluation.paper_figures import PEERS, ROWS
from tasks.evaluation.score_gap import Claim, SettingDifference
from tasks.registration.differences import DEFAULT, NONE, differing_fields
from tasks.reporting.remarks import ended_by_clock
from tasks.stages.gap import last_tenth
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import Sharding

ROW = "paper-"
PEER_NAMES = {"tensor2tensor": "Tensor2Tensor", "tutorial": "a-PyTorch", "workbench": "Transformer-W", "aiayn": "trans"}
"""By the preset that follows a system, how the name of the system begins in the table of published figures."""
TRAINED = ("filters", "vocabulary", "sharding", "augment", "model", "training", "start")
"""Roots of the settings that decide a training, beside its text. Those of averaging and decoding are measured."""
TOGETHER = (
    "filters.exclude filters.rules.NotIn",
    "training.schedule training.peak training.factor",
    "training.warmup training.warmup_epochs",
    "training.updates training.epochs training.minutes training.checkpoint_every training.keep training.keep_epochs "
    "averaging.count",
)
"""Fields of which a value of one may be refused, or does nothing, without those of the others."""
LIKELY = ["corpus", "all", *(f"training.{each}" for each in ("updates", "epochs", "minutes", "batch_tokens")), "model."]
"""How the names of the differences begin that are likely the largest, in their order."""
PAIRS = {"wmt14-ende": 4_500_000, "wmt14-enfr": 36_000_000, "multi30k-ende": 29_000, "multi30k-enfr": 29_000}
"""Pairs of corpora that this root may not have: of WMT14 by §5.1 of the paper, of Multi30k its training set."""
MUCH = 2
"""The claim's training saw so many times the pairs or tokens of ours, at least, where that is said first."""
FALLING = 0.97
"""Dev perplexity that fell below this share in the last tenth of a training would fall further."""
ROOTS = {kind.__name__.lower(): kind for kind in (Vocabulary, Sharding, Augment, Model, Training, Averaging)}
WITH_DEFAULTS = {**ROOTS, "filters.normalise": Normalise}
DEFAULTS = {f"{root}.{each.name}": each.default for root, kind in WITH_DEFAULTS.items() for each in fields(kind)}
ASSIGNMENT = re.compile(r"(?<![:;,]) (?=[a-z_]+(?:\.[\w.]+)?=)")
"""The spaces between the assignments of a version's tag, not those in a value: ``a=1; 8000: b=1``."""


@dataclass(frozen=True)
class ClaimedSystem:
    """A claim, and what is known of its system: manifests of artifacts or of a plan; its scores in this root."""

    claim: Claim
    run: str = ""
    settings: Mapping[str, Manifest] = field(default_factory=dict)
    scores: Mapping[str, Manifest] = field(default_factory=dict)


def request_of(name: str, site: Site) -> RunRequest:
    """The run behind a version, with its overrides, or behind the name of a run."""
    if not is_version(name):
        return RunRequest(split_name(short_name(name))[0], until="score")
    version = find_version(name, site)
    overrides = filter(None, ASSIGNMENT.split(version.tags.get(OVERRIDES, "")))
    return RunRequest(version.name, until="score", overrides=tuple(overrides))


def find_claim(name: str, score: float | None, ours: RunRequest, site: Site) -> ClaimedSystem:
    """What ``--as`` names, with the score of ``--claim`` in place of its own where that is given.

    Raises BadConfiguration for an unknown name, a score that is none, or neither of both.
    """
    if score is not None and not 0 <= score <= 100:
        raise BadConfiguration(f"--claim is {score:g}, allowed is a BLEU score from 0 to 100")
    if not name and score is None:
        raise BadConfiguration("--claim and --as are empty, allowed is a score, a name such as paper-base, or both")
    if not name:
        found = ClaimedSystem(Claim("a score of which nothing is known", 0.0))
    elif name.startswith(ROW):
        found = _paper_row(name, score)
    elif name in NAMED["preset"]:
        known = [
            Claim(name, float(each.bleu), each.metric, each.card_set, f"{each.system}, {each.source}")
            for each in PEERS
            if name in PEER_NAMES and each.system.startswith(PEER_NAMES[name])
        ]
        found = _by_settings(name, score, known, RunRequest(ours.run, overrides=(f"preset={name}",)))
    else:
        found = _own_system(name, score, site)
    return found if score is None else replace(found, claim=replace(found.claim, score=score))


def _paper_row(name: str, score: float | None) -> ClaimedSystem:
    rows = {ROW + row.removeprefix("table2-"): row for row in PAPER_RUNS if BLEU in ROWS[row].figures}
    if name not in rows:
        raise BadConfiguration(f"--as is {name!r}, allowed of the paper is {', '.join(rows)}")
    row = ROWS[rows[name]]
    claim = Claim(name, row.figures[BLEU], row.metric, row.set_name, f"Table {row.table}")
    return _by_settings(name, score, [claim], RunRequest(row_run_name(rows[name], PAPER, 1)))


def _own_system(name: str, score: float | None, site: Site) -> ClaimedSystem:
    """A version or run of this root; a built-in run that is none yet stands for its recorded scores."""
    try:
        system = find_system(name, site)
    except BadConfiguration:
        if name not in RUNS:
            raise
        recorded = recorded_results()[name].scores if name in recorded_results() else {}
        figures = {each: scores[BLEU] for each, scores in recorded.items() if score in (None, scores[BLEU])}
        known = [Claim(name, bleu, BLEU, each, "recorded") for each, bleu in figures.items()]
        return _by_settings(name, score, known[::-1], RunRequest(name))
    scores = system.scores if score is None else {}
    metric = headline(*(each.facts for each in system.scores.values()))
    return ClaimedSystem(Claim(system.name, 0.0, metric), request_of(name, site).run, system.lineage, scores)


def _by_settings(name: str, score: float | None, known: Sequence[Claim], request: RunRequest) -> ClaimedSystem:
    """A run that need not have been made, as manifests without files; of its known claims that of the score, else the
    first."""
    if not known and score is None:
        raise BadConfiguration(f"--as is {name!r}, of which no score is known, allowed is that with --claim")
    claim = min((*known, Claim(name, 0.0)), key=lambda each: each.score != score)
    settings = {
        f"{row.stage}.{row.item}".rstrip("."): Manifest(
            row.stage, row.key, row.version, row.item, row.form, {}, "", row.facts, {}, 0.0, {}
        )
        for row in make_plan(request.resolve()).outcome.rows
    }
    return ClaimedSystem(claim, request.run, settings)


def training_differences(
    claimed: ClaimedSystem, system: ScoredSystem, ours: RunRequest, recorded: Sequence[Manifest]
) -> list[SettingDifference]:
    """What of the training differs from the claim's, each with the command that trains with its value, and the cost.

    ``recorded`` are the artifacts of the root, by which a cost is estimated.
    """
    sides = (claimed.settings, system.lineage)
    training = claimed.settings["train"].arguments["training"] if "train" in claimed.settings else {}
    unused = "training.peak" if training.get("schedule") == "paper" else "training.factor"
    found = {}
    assigned: dict[str, str] = {}
    settings: dict[str, tuple[str, str]] = {}
    for each in differing_fields(sides) if claimed.settings else ():
        theirs, here = each.values
        name = each.name.rpartition(": ")[2]
        root = name.partition(".")[0]
        if root == "corpus":  # no assignment changes it
            found[root] = SettingDifference(root, "another text", "", f"repro run {claimed.run}")
        elif root in (*TRAINED, "averaging") and name not in (unused, *assigned):
            assigned[name] = _assignment(name, theirs, here)
            settings |= {name: (theirs, here)} if root in TRAINED else {}
    groups = {next((each for each in TOGETHER if name in each.split()), name): None for name in settings}
    for group in map(str.split, groups):
        names = [each for each in group if each in settings]
        together = [assigned[each] for each in group if each in assigned]
        claims, values = (", ".join(side) for side in zip(*(settings[each] for each in names), strict=True))
        found[names[0]] = SettingDifference(", ".join(names), claims, values, *_command(ours, together, recorded))
    if len(settings) > 1:
        found["all"] = SettingDifference("all but the text", "", "", *_command(ours, [*assigned.values()], recorded))
    places = {name: [name.startswith(each) for each in (*LIKELY, "")].index(True) for name in found}
    return [found[name] for name in sorted(found, key=places.__getitem__)]


def less_training(claimed: ClaimedSystem, system: ScoredSystem, differences: Sequence[SettingDifference]) -> str:
    """A sentence if the claim's training saw many times more pairs or tokens than ours, with the command; else ""."""
    sides = (system.lineage, claimed.settings)
    if not all({"clean", "train"} <= side.keys() for side in sides):
        return ""
    pairs = [side["clean"].facts.get("pairs", 0) for side in sides]
    pairs[1] = pairs[1] or PAIRS.get(RunRequest(claimed.run).resolve().run.corpus.name, 0)
    tokens = [side["train"].arguments["training"]["batch_tokens"] for side in sides]
    updates = [side["train"].facts.get("updates") or side["train"].arguments["training"]["updates"] for side in sides]
    if not pairs[1] or (pairs[1] < MUCH * pairs[0] and updates[1] * tokens[1] < MUCH * updates[0] * tokens[0]):
        return ""
    here, theirs = (
        f"{p:,} pairs, with {u:,} updates of {t:,} tokens" for p, u, t in zip(pairs, updates, tokens, strict=True)
    )
    large = (each.command for each in differences if each.name.startswith(("corpus", "training.updates")))
    command = next((f"; this training does: `{each}`" for each in large if each), "")
    return f"trained on {here}; the claim on {theirs}. No bar measures what that costs{command}"


def longer_training(system: ScoredSystem, ours: RunRequest, recorded: Sequence[Manifest], store: Store) -> str:
    """A sentence if the clock ended the training or dev perplexity was still falling, with a longer one; else ""."""
    if (train := system.lineage.get("train")) is None:
        return ""
    training = train.arguments["training"]
    said = ended_by_clock(training, train.facts)
    length = "epochs" if training.get("epochs") else "updates"
    longer = {length: MUCH * training[length]}
    if said:  # so many minutes would have done for all updates
        longer["minutes"] = MUCH * training["minutes"] * training["updates"] / train.facts[UPDATES]
    first, last = last_tenth(system.lineage, store) or ({}, {})
    before, fell = (check.get(DEV_PERPLEXITY, 0.0) for check in (first, last))
    if fell < FALLING * before:
        updates = f"from update {first['done']:,} to {last['done']:,}"
        said.append(f"dev perplexity was still falling: {before:.1f} to {fell:.1f} {updates}")
    if not said:
        return ""
    command, cost = _command(
        ours, [f"training.{field}={math.ceil(value)}" for field, value in longer.items()], recorded
    )
    size = f"{train.facts[UPDATES]:,} updates, {train.facts.get(EPOCHS, 0):.1f} epochs"
    return "; ".join([f"trained too briefly: {size}", *said, f"a longer training: `{command}` ({cost})"])


def _assignment(name: str, claimed: str, here: str) -> str:
    """What ``--set`` takes to have the claim's value."""
    parent, _, leaf = name.rpartition(".")
    if parent == "filters.rules" and "yes" in (claimed, here):
        return f"filters.rules={'+' if claimed == 'yes' else '-'}{leaf}"
    if claimed not in (DEFAULT, NONE):
        return f"{name}={claimed}"
    default = DEFAULTS.get(name, "")
    return f"{name}={','.join(default) if isinstance(default, tuple) else default}"


def _command(ours: RunRequest, assignments: Sequence[str], recorded: Sequence[Manifest]) -> tuple[str, str]:
    """The command that trains the system with these values, and what it would cost; "" and why there is none."""
    request = replace(ours, overrides=(*ours.overrides, *assignments))
    try:
        planned = make_plan(request.resolve())
    except BadConfiguration as error:
        return "", f"refused: {re.sub('^--set .*?: ', '', f'{error}')}"
    cost = RunCost(ours.run, stage_costs(planned.outcome.rows, recorded, planned.resolved.site))
    unknown = "not known: nothing like it is on record" if cost.stages else "nothing: it is cached"
    return command_of(ours.run, request.overrides, {}), f"about {duration(cost.seconds)}" if cost.seconds else unknown
