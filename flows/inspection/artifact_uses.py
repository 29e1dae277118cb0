"""Readable names of artifacts, and which runs on record made or used each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from flows.inspection.artifact_graph import Name
from flows.inspection.run_history import RecordedRun
from flows.runner.artifact_names import ArtifactName
from flows.runner.named_runs import NamedRun, name_run


@dataclass(frozen=True)
class ArtifactUses:
    """What the records of runs say of artifacts."""

    names: Mapping[Name, list[ArtifactName]]
    """``demo/clean`` means the newest artifact of that stage, so an older one has no name."""
    made_by: Mapping[Name, RecordedRun]
    used_by: Mapping[Name, list[RecordedRun]]
    """The runs that had it as a hit or made it, the newest first."""
    named: Mapping[str, NamedRun]
    """What the name of each run means."""

    def label(self, name: Name) -> str:
        """The readable name, else ``stage/key``."""
        return f"{self.names[name][0]}" if name in self.names else "/".join(name)

    def runs(self, name: Name) -> list[str]:
        """The runs that used it, each with its overrides, the last first."""
        return list(dict.fromkeys(" ".join((each.run, *each.overrides)) for each in self.used_by.get(name, ())))


def uses_of(history: Sequence[RecordedRun]) -> ArtifactUses:
    """The uses in all records of a root, the newest first (``read_history``)."""
    names: dict[Name, list[ArtifactName]] = {}
    named: dict[str, NamedRun] = {}
    made_by: dict[Name, RecordedRun] = {}
    used_by: dict[Name, list[RecordedRun]] = {}
    for run, of_run in groupby(
        sorted(history, key=lambda each: each.run), lambda each: each.run
    ):  # stable: newest first
        named[run] = name_run(of_run, run)
        for (stage, item), key in named[run].artifacts.items():
            names.setdefault((stage, key), []).append(ArtifactName(run, stage, item))
    for each in history:
        for used in each.stages:
            if used.was_made or used.was_cached:
                used_by.setdefault((used.stage, used.key), []).append(each)
            if used.was_made:
                made_by.setdefault((used.stage, used.key), each)
    return ArtifactUses(names, made_by, used_by, named)
