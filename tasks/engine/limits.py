"""Limits on the facts of a run's stages: ``score.dev.bleu >= 20``, ``warn train.seconds <= 3600``.

A limit is not part of any key: it checks a finished artifact. An artifact that breaks a limit is kept.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.errors import BadData
from infra.store.manifest import bytes_of
from infra.store.store import Artifact
from model import metric_names

FORM = "[warn] STAGE[.ITEM].FACT >= or <= NUMBER, as in score.dev.bleu >= 20"
_PATTERN = re.compile(r"(warn +)?(\w+)\.(?:(\S+)\.)?(\w+) *(>=|<=) *([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
SHARES: Mapping[str, tuple[str, str]] = {
    "rejected_share": ("rejected", "read"),
    "length_ratio": ("source_pieces", "target_pieces"),
    "source_unknown_share": ("source_unknown", "source_pieces"),
    "target_unknown_share": ("target_unknown", "target_pieces"),
    "unfinished_share": ("unfinished", "sentences"),
    metric_names.TOKENS_PER_SECOND: ("target_tokens", "seconds"),
}
"""Derived facts: each is the ratio of two facts of a stage."""
USUAL_FACTS = {"seconds", "bytes", *SHARES, *(name for name in vars(metric_names).values() if isinstance(name, str))}
"""Facts that a stage may have although no artifact of it has shown them yet."""
EXPECTED_RULES = {"repeated": r"(near_)?distinct(_source|_target)?", "in_dev_or_test": "not_in"}
"""Rules whose pairs are not called rejected, by the word for these pairs; ``max_rejected`` counts no ``Distinct``."""


@dataclass(frozen=True)
class Limit:
    """The minimum or maximum of one fact. A breach fails the stage, or only warns."""

    text: str
    stage: str
    item: str
    fact: str
    at_least: bool
    bound: float
    warns: bool

    @classmethod
    def parse(cls, text: str) -> "Limit":
        """Parse a limit, such as ``score.dev.bleu >= 20``; raises ValueError for a text of another form."""
        found = _PATTERN.fullmatch(text.strip())
        if not found:
            raise ValueError(f"expect has {text!r}, allowed is {FORM}")
        warn, stage, item, fact, sign, number = found.groups()
        return cls(f"{fact} {sign} {number}", stage, item or "", fact, sign == ">=", float(number), bool(warn))

    @property
    def label(self) -> str:
        """The stage as users see it: ``score dev``."""
        return f"{self.stage} {self.item}".strip()

    @property
    def place(self) -> str:
        """The limited fact without the bound: ``score dev bleu``."""
        return f"{self.label} {self.fact}"

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class Check:
    """A limit and the value of its fact; None if the stage has no such fact."""

    limit: Limit
    value: float | None

    @property
    def holds(self) -> bool:
        return self.value is not None and self.limit.holds(self.value)

    @property
    def fails(self) -> bool:
        return not self.holds and not self.limit.warns

    def __str__(self) -> str:
        limit = self.limit
        if self.value is None:
            return f"{limit.label} has no fact {limit.fact}, for which the run expects {limit.text}"
        return f"{limit.label} has {limit.fact} {self.value:,.8g}, expected is {limit.text}"


@dataclass
class Limits:
    """Checks the artifacts of a run against its limits; ``checks`` are the results so far."""

    limits: Sequence[Limit] = ()
    checks: list[Check] = field(default_factory=list)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Limits":
        return cls(tuple(map(Limit.parse, texts)))

    def breaches(self, artifact: Artifact, item: str) -> list[Check]:
        """The limits that the artifact of a stage's item breaks."""
        found = [
            Check(each, _value(artifact, each.fact))
            for each in self.limits
            if (each.stage, each.item) == (artifact.stage, item)
        ]
        self.checks += found
        return [check for check in found if not check.holds]

    def judge(self, artifact: Artifact, item: str, say: Callable[[str], None]) -> tuple[Check, ...]:
        """Report the limits that an artifact breaks; raises BadData for a limit that does not only warn."""
        broken = self.breaches(artifact, item)
        for check in broken:
            if check.fails:
                facts = "" if check.value is not None else f" (it has {', '.join(artifact.facts)})"
                raise BadData(f"{check}{facts}; its artifact is kept: change the run's field expect to go on with it")
            say(f"{check}")
        return tuple(broken)


def counted_apart(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts in which the pairs of ``EXPECTED_RULES`` stand apart from rejected ones; other facts stay as they are."""
    rejected_by = facts.get("rejected_by", {})
    apart = {
        word: sum(count for rule, count in rejected_by.items() if re.fullmatch(pattern, rule))
        for word, pattern in EXPECTED_RULES.items()
    }
    apart = {word: count for word, count in apart.items() if count}
    return {**facts, "rejected": facts["rejected"] - sum(apart.values()), **apart} if apart else facts


def _value(artifact: Artifact, fact: str) -> float | None:
    facts = counted_apart(artifact.facts) if fact == "rejected_share" else artifact.facts
    if fact in SHARES and fact not in facts:
        part, whole = (facts.get(each) for each in SHARES[fact])
        return part / whole if isinstance(part, int | float) and isinstance(whole, int | float) and whole else None
    if fact in ("seconds", "bytes") and fact not in facts:
        manifest = artifact.manifest
        return {"seconds": manifest.seconds, "bytes": float(bytes_of(manifest))}[fact] if manifest else None
    found = facts.get(fact)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
