"""Finds the claim that a score is compared with, and the training settings in which the two differ.

``paper-base`` is a row of the paper, ``tutorial`` a preset of a reproduction; other names are versions or runs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

from flows.inspection.compare import ScoredSystem, find_system, training_size
from flows.inspection.cost import RunCost, stage_costs
from flows.runner.artifact_names import is_version
from flows.runner.find_run import find_version, short_name, split_name
from flows.runner.recorded_runs import command_of
from flows.runner.request import RunRequest, make_plan
from flows.runner.systems import SYSTEM
from flows.runs import Run
from flows.runs.overrides import NAMED
from flows.runs.paper_rows import PAPER, PAPER_RUNS, row_run_name
from flows.runs.synthetic import COUNTED_AS, MONOLINGUAL
from flows.runs.text_settings import fitting, for_pairs, measured_with
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.manifest import Manifest
from infra.tracking.mlflow_runs import OVERRIDES
from infra.tracking.model_version import headline
from model.config.normalise import Normalise
from model.metric_names import BLEU
from tasks.durations import duration
from tasks.evaluation.paper_figures import PEERS, ROWS
from tasks.evaluation.score_gap import Claim, SettingDifference
from tasks.registration.differences import DEFAULT, NONE, differing_fields
from tasks.reporting.remarks import ended_by_clock

PAPER_CLAIMS = {f"paper-{row.removeprefix('table2-')}": row for row in PAPER_RUNS if BLEU in ROWS[row].figures}
PUBLISHED_CLAIMS = ", ".join((*PAPER_CLAIMS, *NAMED["preset"]))
TRAINED = ("corpus", "synthetic", "model", "training", "vocabulary", "sharding", "filters", "augment", "start")
"""Roots of the settings that decide a training, in display order. The effect of averaging and decoding is measured."""
KINDS = {each.name: each.type for each in fields(Run) if is_dataclass(each.type)} | {"filters.normalise": Normalise}
DEFAULTS = {f"{root}.{each.name}": each.default for root, kind in KINDS.items() for each in fields(kind)}
ASSIGNMENT = re.compile(r"(?<![:;,]) (?=[a-z_]+(?:\.[\w.]+)?=)")
"""Matches spaces between the assignments of a version's tag, but not inside a value: ``a=1; 8000: b=1``."""

AUGMENTED = ("caps", "typos", "seed")
PAIR_STAGES = ("translate_text", "extract_best", "mix")
CLOCK = ("training.schedule", "training.minutes")
"""Settings that are changed together: the schedule clock needs minutes."""
ALL = "only with other settings of the preset"
"""Why a claim has no command of its own: the command for the whole preset has it."""
OTHER_TEXT = "other text now"
"""Why a claim has no command: the run would read other text than its version did."""


@dataclass(frozen=True)
class ClaimedSystem:
    """A claim with the known facts of its system: manifests of artifacts or of a plan, and scores in this root."""

    claim: Claim
    run: str = ""
    settings: Mapping[str, Manifest] = field(default_factory=dict)
    scores: Mapping[str, Manifest] = field(default_factory=dict)


def request_of(name: str, site: Site) -> RunRequest:
    """Return the request of a version's run, with its overrides, or of a named run."""
    if not is_version(name):
        return RunRequest(split_name(short_name(name))[0], until="score")
    version = find_version(name, site)
    overrides = filter(None, ASSIGNMENT.split(version.tags.get(OVERRIDES, "")))
    return RunRequest(version.name, until="score", overrides=tuple(overrides))


def find_claim(name: str, score: float | None, ours: RunRequest, site: Site) -> ClaimedSystem:
    """Find the system of ``--as``; a score of ``--claim`` replaces its own score.

    Raises BadConfiguration for an unknown name, an impossible score, or if both are missing.
    """
    if score is not None and not 0 <= score <= 100:
        raise BadConfiguration(f"--claim is {score:g}, allowed is a BLEU score from 0 to 100")
    if not name:
        if score is None:
            raise BadConfiguration("--claim and --as are empty, allowed is a score, a name such as paper-base, or both")
        return ClaimedSystem(Claim("a score of which nothing is known", score))
    if name.startswith("paper-") or name in NAMED["preset"]:
        return _published(name, score, ours)
    try:
        system = find_system(name, site)
    except BadConfiguration as error:
        raise BadConfiguration(f"{error}; published claims are {PUBLISHED_CLAIMS}") from error
    claim = Claim(system.name, score or 0.0, headline(*(each.facts for each in system.scores.values())))
    return ClaimedSystem(claim, request_of(name, site).run, system.lineage, system.scores if score is None else {})


def _published(name: str, score: float | None, ours: RunRequest) -> ClaimedSystem:
    """Find the claim of a preset or a row of the paper: the figure that equals ``score``, else the first."""
    if name in NAMED["preset"]:
        if ours.run.startswith(SYSTEM):
            raise BadConfiguration(f"--as is {name!r}, allowed is a preset only for a version or run, not {ours.run}")
        peers = [each for each in PEERS if each.preset == name]
        figures = [Claim(name, float(p.bleu), p.metric, p.card_set, f"{p.system}, {p.source}") for p in peers]
        request = RunRequest(ours.run, overrides=("training.minutes=0", f"preset={name}"))  # a preset counts updates
    elif name in PAPER_CLAIMS:
        row = ROWS[PAPER_CLAIMS[name]]
        figures = [Claim(name, row.figures[BLEU], row.metric, row.set_name, f"Table {row.table}")]
        request = RunRequest(row_run_name(row.name, PAPER, 1))
    else:
        raise BadConfiguration(f"--as is {name!r}, allowed of the paper is {', '.join(PAPER_CLAIMS)}")
    if not figures and score is None:
        raise BadConfiguration(f"--as is {name!r}, of which no score is known, allowed is that with --claim")
    claim = min((*figures, Claim(name, 0.0)), key=lambda each: each.score != score)
    settings = {  # as manifests without files
        f"{row.stage}.{row.item}".rstrip("."): Manifest(
            row.stage, row.key, row.version, row.item, row.form, {}, "", row.facts, {}, 0.0, {}
        )
        for row in make_plan(request.resolve()).outcome.rows
    }
    return ClaimedSystem(claim if score is None else replace(claim, score=score), request.run, settings)


def training_differences(
    claimed: ClaimedSystem, system: ScoredSystem, ours: RunRequest, recorded: Sequence[Manifest]
) -> list[SettingDifference]:
    """List differences from the claim's training, each with the command to train with the claim's value, and its cost.

    ``recorded`` are the artifacts of the root, to estimate the cost.
    """
    both = (claimed.settings, system.lineage)
    trains = [made["train"] for made in both if "train" in made]
    training = claimed.settings["train"].arguments["training"] if "train" in claimed.settings else {}
    unused = {"training.peak" if training.get("schedule") == "paper" else "training.factor"}
    if all(ended_by_clock(each.arguments["training"], each.facts) for each in trains):
        unused.add("training.updates")  # a limit that neither reached
    unlimited = [] if training.get("minutes") else _without_clock(system.lineage)  # else the clock may end it first
    of_pairs = [_of_synthetic_pairs(made) for made in both]
    own = [{name: made[name] for name in made if name not in pairs} for made, pairs in zip(both, of_pairs, strict=True)]
    differing: dict[str, Sequence[str]] = {}
    for each in differing_fields(own) if claimed.settings else ():
        differing.setdefault(each.name.rpartition(": ")[2], each.values)
    if differing.pop("augment", None):
        noise = [made["learn_bpe"].arguments.get("augment", {}) for made in own]
        parts = [(name, [f"{each.get(name, DEFAULTS[f'augment.{name}'])}" for each in noise]) for name in AUGMENTED]
        differing |= {f"augment.{name}": values for name, values in parts if values[0] != values[1]}
    timed = [f"{name}={training.get(name.partition('.')[2], 0)}" for name in CLOCK if name in differing]
    found = {}
    text = {name: values for name, values in differing.items() if name.startswith("corpus.")}
    if text:  # no assignment can change it
        command = _command_for(RunRequest(claimed.run), claimed.settings, recorded)
        shown = {"corpus": ("another text", "")} if "corpus.name" in text else text
        found = {name: SettingDifference(name, theirs, here, *command) for name, (theirs, here) in shown.items()}
    if claimed.settings and differing_fields(of_pairs):
        command = _command_for(RunRequest(claimed.run), claimed.settings, recorded)
        theirs, here = map(_kind_of_pairs, of_pairs)
        shown_here = here if theirs != here else f"{here} by other settings"
        found["synthetic"] = SettingDifference("synthetic", theirs, shown_here, *command)
    for name, values in differing.items():
        if name.partition(".")[0] in TRAINED and name not in (*unused, *text):
            theirs, here = (_stated(name, value) for value in values)
            assignments = timed if name in CLOCK else [*unlimited, _assignment(name, theirs, here)]
            command = _command_for(ours, system.lineage, recorded, *assignments)
            found[name] = SettingDifference(name, theirs, here, *command)
    preset = claimed.claim.name
    whole = []
    if found and preset in NAMED["preset"]:
        as_preset = ("training.minutes=0", f"preset={preset}")  # not the schedule, which a preset may set
        command = _command_for(ours, system.lineage, recorded, *as_preset)
        whole = [SettingDifference("all settings of the preset", preset, "", *command)]
        found = {name: replace(each, cost=re.sub("^refused: .*", ALL, each.cost)) for name, each in found.items()}
    sizes = [training_size(made) for made in both]
    first = [SettingDifference("training", *sizes)] if all(sizes) and sizes[0] != sizes[1] else []
    return [*first, *whole, *sorted(found.values(), key=lambda each: TRAINED.index(each.name.partition(".")[0]))]


def about_training(
    made: Mapping[str, Manifest], ours: RunRequest, recorded: Sequence[Manifest], claimed: float = 0.0
) -> Iterator[str]:
    """Describe how long the training was, which command trains longer or by the usual settings, and what to expect.

    ``claimed`` is the score to reach, 0.0 for none.
    """
    if size := training_size(made):
        yield f"the training had {size}"
        for ended in ended_by_clock(made["train"].arguments["training"], made["train"].facts):
            yield f"{ended}; without this limit: {_way(made, ours, recorded, _without_clock(made))}"
        pairs = made["clean"].facts.get("pairs", 0) if "clean" in made else 0
        if known := measured_with(pairs):
            usual = for_pairs(fitting(pairs)[0], pairs)
            if changes := [*_changes_to(usual, made)]:
                size = f"{usual.model.layers} layers of {usual.model.d_model}, {usual.vocabulary.size:,} pieces"
                way = _way(made, ours, recorded, changes)
                yield f"without a budget `repro new` takes {size}, {usual.training.updates:,} updates: {way}"
            basis, best = known[0]
            if best < claimed:
                more = [f", {bleu:.1f} with {text}" for text, bleu in known[1:] if bleu >= claimed][:1]
                measured = f"the simple sentences of Multi30k had {best:.1f} BLEU on val with {basis}{''.join(more)}"
                yield f"do not expect {claimed:.2f} with {pairs:,} pairs: {measured}; add text (docs/own-text.md)"


def _of_synthetic_pairs(made: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Return the artifacts of synthetic pairs: of the models that translate them, and of the pairs themselves."""
    return {
        name: each
        for name, each in made.items()
        if each.item.partition("/")[0] in (*COUNTED_AS, MONOLINGUAL) or each.stage in PAIR_STAGES
    }


def _kind_of_pairs(of_pairs: Mapping[str, Manifest]) -> str:
    if not of_pairs:
        return NONE
    return "distillation" if any(each.stage == "extract_best" for each in of_pairs.values()) else "back-translation"


def _way(
    made: Mapping[str, Manifest], ours: RunRequest, recorded: Sequence[Manifest], assignments: Iterable[str]
) -> str:
    """Return the command that trains on the same text with these assignments, and its cost; or why there is none."""
    command, cost = _command_for(ours, made, recorded, *assignments)
    return f"`{command}` ({cost})" if command else cost


def _changes_to(usual: Run, made: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield the assignments from a training to the model, the training and the vocabulary's size of ``usual``."""
    before = made["train"].arguments
    for table in ("model", "training"):
        for name, value in vars(getattr(usual, table)).items():
            if name != "seed" and value != before[table].get(name, DEFAULTS[f"{table}.{name}"]):
                yield f"{table}.{name}={value}".removesuffix(".0").lower()
    if "learn_bpe" in made and made["learn_bpe"].arguments["vocabulary"].get("size") != usual.vocabulary.size:
        yield f"vocabulary.size={usual.vocabulary.size}"


def _without_clock(made: Mapping[str, Manifest]) -> list[str]:
    """Return the assignments that remove the limit ``training.minutes``; none if there is no limit."""
    training = made["train"].arguments["training"] if "train" in made else {}
    if not training.get("minutes"):
        return []
    return [*(["training.schedule=linear"] if training["schedule"] == "clock" else []), "training.minutes=0"]


def _assignment(name: str, claimed: str, here: str) -> str:
    """Write the assignment for ``--set`` that gives the claim's value."""
    parent, _, leaf = name.rpartition(".")
    if parent == "filters.rules" and "yes" in (claimed, here):
        return f"filters.rules={'+' if claimed == 'yes' else '-'}{leaf}"
    is_word = claimed != NONE or isinstance(DEFAULTS.get(name), str)  # else an empty list, or a part that is absent
    return f"{name}={claimed if claimed != DEFAULT and is_word else ''}"


def _stated(name: str, value: str) -> str:
    """Return the value of the field; of a default that was not stated, the default itself."""
    if value != DEFAULT or name not in DEFAULTS:
        return value
    default = DEFAULTS[name]
    return (", ".join(default) or NONE) if isinstance(default, tuple) else f"{default}"


def _command_for(
    ours: RunRequest, made: Mapping[str, Manifest], recorded: Sequence[Manifest], *values: str
) -> tuple[str, str]:
    """Return the command that trains with these values on the text of ``made``, and its cost; or "" and why none."""
    request = replace(ours, overrides=(*ours.overrides, *values))
    try:
        planned = make_plan(request.resolve())
    except BadConfiguration as error:
        return "", f"refused: {re.sub('^--set .*?: ', '', f'{error}')}"
    text = made["clean"].arguments["corpus"] if "clean" in made else None
    if text and not any(row.form.get("corpus") == text for row in planned.outcome.rows):
        return "", f"no command: {ours.run} has {OTHER_TEXT}"
    cost = RunCost(ours.run, stage_costs(planned.outcome.rows, recorded, planned.resolved.site))
    unknown = "not known: nothing like it is on record" if cost.stages else "nothing: it is cached"
    known = cost.seconds and "train" not in cost.unknown
    return command_of(ours.run, request.overrides, {}), f"about {duration(cost.seconds)}" if known else unknown
