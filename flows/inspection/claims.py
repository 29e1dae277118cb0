"""What a score is compared with, by name, and in which settings of the training the two differ.

``paper-base`` and ``paper-A1`` are rows of the paper, ``tutorial`` and others presets of published reproductions,
``multi30k-ende-tiny`` its published figure; any other name is a version or run of this root.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from shlex import quote

from flows.inspection.compare import ScoredSystem, find_system
from flows.inspection.cost import RunCost, stage_costs
from flows.runner.artifact_names import is_version
from flows.runner.find_run import find_run, is_file
from flows.runner.request import RunRequest, make_plan
from flows.runs import Run
from flows.runs.overrides import override
from flows.runs.paper_rows import PAPER, PAPER_RUNS, row_run_name
from flows.runs.presets import NAMED
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.manifest import Manifest
from infra.tracking.registry import resolve
from infra.tracking.tracker import OVERRIDES
from model.config import Model, Training
from model.config.normalise import Normalise
from model.metric_names import BLEU, BLEU_MOSES_LC
from tasks.durations import duration
from tasks.evaluation.paper_figures import PEERS, ROWS, TEST
from tasks.evaluation.score_gap import Claim, SettingDifference
from tasks.registration.differences import DEFAULT, NONE, differing_fields
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import Sharding

ROW = "paper-"
PEER_NAMES = {"tensor2tensor": "Tensor2Tensor", "tutorial": "a-PyTorch", "workbench": "Transformer-W", "aiayn": "trans"}
"""How the systems of published figures begin that a preset follows."""
PEER_SETS = {"newstest2014, full": TEST, "newstest2014": TEST, "newstest2014, 2,737 lines": "newstest2014"}
TINY = Claim("multi30k-ende-tiny", 41.02, BLEU_MOSES_LC, "test_2016_flickr", "Wu et al., ACL 2021")
TRAINED = ("corpus", "filters", "vocabulary", "sharding", "model", "training", "start")
"""Roots of the settings that decide a training. Those of averaging and decoding are measured."""
DEFAULTS = {"vocabulary": Vocabulary, "sharding": Sharding, "model": Model, "training": Training}
DEFAULTS |= {"filters.normalise": Normalise}
FACTS = (("clean", "pairs"), ("train", "updates"), ("train", "epochs"))
ASSIGNMENT = re.compile(r" (?=[a-z_]+(?:\.[\w.]+)?=)")
"""The spaces between the assignments of a version's tag."""


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
        return RunRequest(name if is_file(name) else name.partition("/")[0], until="score")
    version = resolve(site.tracking, name)
    overrides = filter(None, ASSIGNMENT.split(version.tags.get(OVERRIDES, "")))
    return RunRequest(version.name, until="score", overrides=tuple(overrides))


def find_claim(name: str, score: float | None, ours: RunRequest, site: Site) -> ClaimedSystem:
    """What ``--as`` names, with the score of ``--claim`` in place of its own where that is given.

    Raises BadConfiguration for an unknown name, a score that is none, or neither of both.
    """
    if score is not None and not (math.isfinite(score) and 0 <= score <= 100):
        raise BadConfiguration(f"--claim is {score:g}, allowed is a BLEU score from 0 to 100")
    if not name and score is None:
        raise BadConfiguration("--claim and --as are empty, allowed is a score, a name such as paper-base, or both")
    found = _published(name, score, ours) if name else (Claim("a score of which nothing is known", 0.0), None)
    if found is None:
        system = find_system(name, site)
        scores = system.scores if score is None else {}
        claim = Claim(system.name, score or 0.0, BLEU)
        return ClaimedSystem(claim, request_of(name, site).run, system.lineage, scores)
    claim, request = found
    if score is None and not claim.metric:
        raise BadConfiguration(f"--as is {name!r}, of which no score is published, allowed is that with --claim")
    claim = claim if score is None else replace(claim, score=score)
    return ClaimedSystem(claim, request.run, _planned(request)) if request else ClaimedSystem(claim)


def _published(name: str, score: float | None, ours: RunRequest) -> tuple[Claim, RunRequest] | None:
    """A published figure and the run with its settings; None for another name."""
    if name == TINY.name:
        return TINY, RunRequest(name)
    if name.startswith(ROW):
        rows = {ROW + row.removeprefix("table2-"): row for row in PAPER_RUNS if BLEU in ROWS[row].figures}
        row = rows.get(name) or rows.get(f"{ROW}table2-{name}", "")
        if not row:
            raise BadConfiguration(f"--as is {name!r}, allowed of the paper is {', '.join(rows)}")
        figures = ROWS[row]
        claim = Claim(name, figures.figures[BLEU], figures.metric, figures.set_name, f"Table {figures.table}")
        return claim, RunRequest(row_run_name(row, PAPER, 1))
    if name not in NAMED["preset"]:
        return None
    peers = [each for each in PEERS if name in PEER_NAMES and each.system.startswith(PEER_NAMES[name])]
    chosen = [each for each in peers if score in (None, float(each.bleu))] or peers
    claim = Claim(name, 0.0)
    for each in chosen[:1]:
        set_name = PEER_SETS.get(each.set_name, each.set_name)
        claim = Claim(name, float(each.bleu), each.metric, set_name, f"{each.system}, {each.source}")
    return claim, RunRequest(ours.run, overrides=(f"preset={name}",))


def _planned(request: RunRequest) -> dict[str, Manifest]:
    """The settings of a run that need not have been made, as manifests without files."""
    rows = make_plan(request.resolve()).outcome.rows
    named = {f"{row.stage}.{row.item}".rstrip("."): row for row in rows}
    return {
        name: Manifest(row.stage, row.key, row.version, row.item, row.form, {}, "", row.facts, {}, 0.0, {})
        for name, row in named.items()
    }


def training_differences(
    claimed: ClaimedSystem, system: ScoredSystem, ours: RunRequest, recorded: Sequence[Manifest]
) -> list[SettingDifference]:
    """What of the training differs from the claim's, each with the command that trains with its value, and the cost.

    ``recorded`` are the artifacts of the root, by which a cost is estimated.
    """
    sides = (claimed.settings, system.lineage)
    differing = {each.name.rpartition(": ")[2]: each.values for each in differing_fields(sides)} if sides[0] else {}
    found = {}
    assignments = []
    for name, (theirs, here) in differing.items():
        root = name.partition(".")[0]
        if root == "corpus":  # no assignment changes it
            found[root] = SettingDifference(root, "another text", "", f"repro run {claimed.run}")
        elif root in TRAINED:
            assignments.append(_assignment(name, theirs, here))
            found[name] = SettingDifference(name, theirs, here, *_command(ours, assignments[-1:], recorded))
    if len(assignments) > 1:
        found[""] = SettingDifference("all but the text", "", "", *_command(ours, assignments, recorded))
    for stage, fact in FACTS:
        values = [f"{side[stage].facts[fact]:,}" for side in sides if stage in side and fact in side[stage].facts]
        if len(set(values)) > 1:
            found[fact] = SettingDifference(f"{fact} ({stage})", *values)
    return list(found.values())


def _assignment(name: str, claimed: str, here: str) -> str:
    """What ``--set`` takes to have the claim's value."""
    parent, _, leaf = name.rpartition(".")
    if parent == "filters.rules" and "yes" in (claimed, here):
        return f"filters.rules={'+' if claimed == 'yes' else '-'}{leaf}"
    if claimed in (DEFAULT, NONE):
        value = next((each.default for each in fields(DEFAULTS.get(parent, Model)) if each.name == leaf), ())
        claimed = ",".join(value) if isinstance(value, tuple) else f"{value}"
    return f"{name}={claimed.lower() if claimed in ('True', 'False') else claimed}"


def _changes(run: Run, rest: Sequence[str], wanted: Run) -> bool:
    """Whether the rest of the assignments does not give the wanted run."""
    try:
        return override(run, rest) != wanted
    except BadConfiguration:
        return True


def _command(ours: RunRequest, assignments: Sequence[str], recorded: Sequence[Manifest]) -> tuple[str, str]:
    """The command that trains the system with these values, and what it would cost; "" and why there is none."""
    paths = {each.partition("=")[0] for each in assignments}
    kept = tuple(each for each in ours.overrides if each.partition("=")[0] not in paths)
    try:
        present = override(find_run(ours.run), kept)
        wanted = override(present, assignments)
        needed = [each for each in assignments if _changes(present, [a for a in assignments if a != each], wanted)]
        planned = make_plan(replace(ours, overrides=(*kept, *needed)).resolve())
    except BadConfiguration as error:
        return "", f"refused: {error}"
    cost = RunCost(ours.run, stage_costs(planned.outcome.rows, recorded, planned.resolved.site))
    command = " ".join(
        ["repro run", ours.run, *(f"--set {quote(each)}" for each in planned.resolved.request.overrides)]
    )
    unknown = "not known: nothing like it is on record"
    return (
        command,
        f"about {duration(cost.seconds)}" if cost.seconds else unknown if cost.stages else "nothing: it is cached",
    )
