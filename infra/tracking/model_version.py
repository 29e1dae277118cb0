"""Reads a registered model version from its tags: scores, data, and the history of its aliases.

A score is a tag ``<set>.bleu``; the tag ``dev_set`` names the set that choices were made on. The tag
``promotion.<alias>`` has one line for each move of the alias to the version: when, by whom, why.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

PREFERRED = ("champion", "candidate")
"""A bare model name means the first of these aliases that is set, else the newest version."""
PROMOTION_TAG = "promotion."
DIGEST_TAG = "digest."
SCORE_TAG = ".bleu"
"""The end of a tag with a set's BLEU."""
HEADLINES = {"bleu": "BLEU", "bleu_lc": "BLEU lower-cased"}
"""Names of the metrics that a score card may show first."""
BY_REGISTRATION = ", by registration"
"""Follows the user's name if a registration moved the alias by scores; a move by hand has only the name."""
FIRST = "first of its name"
"""The reason of a promotion if the model had no other version."""
GROUPED_TAGS = {"keys": "key.", "digests": DIGEST_TAG, "decoding": "decoding.", "changes": "changed."}
"""Maps each tag that holds several tags as JSON to their prefix; in runs of versions, and in old versions."""
SCORES_TAG = "scores"
"""The tag that holds all tags ``<set>.<fact>``."""
SHOWN_TAGS = ("settings", "dev_bleu", "test_bleu")
"""Tags that MLflow's list shows of a version, with the moves of its aliases. With more tags a row fills a screen."""
DETAILS = "mlflow.details"
"""The tag that holds all others as JSON; further ones are ``mlflow.details.1``, … Because of the prefix, MLflow's page
of a version does not show them."""
MAX_DETAILS_LENGTH = 90_000
"""Characters of one such tag. MLflow refuses 100,000, which the scores of some 60 sets reach."""
Order = Literal["newest", "dev", "test"]


def headline(*cards: Mapping[str, Any]) -> str:
    """Return the metric for comparing systems, by their scores' facts: BLEU, without case if all write lower case.

    With case, every capital letter of the references would be an error of a lower-case system.
    """
    return "bleu_lc" if cards and all("lower-cased" in card.get("source_input", "") for card in cards) else "bleu"


def headline_signature(signature: str, metric: str) -> str:
    """Return sacreBLEU's signature of the ``headline`` metric from that of BLEU with case."""
    return signature if metric == "bleu" else signature.replace("case:mixed", "case:lc")


@dataclass(frozen=True)
class Promotion:
    """One move of an alias to a version."""

    when: str
    """UTC, ISO 8601."""
    alias: str
    version: int
    why: str
    """``user: reason``."""

    @property
    def reason(self) -> str:
        return self.why.partition(": ")[2]

    @property
    def by_registration(self) -> bool:
        """Whether a registration moved the alias by scores; otherwise a person did."""
        return self.why.partition(": ")[0].endswith(BY_REGISTRATION)


@dataclass(frozen=True)
class Version:
    """A model version: its identity, aliases and tags."""

    name: str
    version: int
    created: datetime
    aliases: tuple[str, ...]
    tags: Mapping[str, str]
    run_id: str
    source: str

    @property
    def label(self) -> str:
        """The version's unique name: ``demo/3``."""
        return f"{self.name}/{self.version}"

    @property
    def dev(self) -> str:
        """Name of the set that choices were made on; empty if this project did not register the version."""
        return self.tags.get("dev_set", "")

    @property
    def settings(self) -> str:
        """The overrides of its run in words, ``p_drop 0.2 · seed 3``; empty for none and for old versions."""
        return self.tags.get("settings", "")

    @property
    def stage_run(self) -> str:
        """The MLflow run of the stage that registered it. ``run_id`` is the pipeline's run, except in old versions."""
        return self.tags.get("stage_run", self.run_id)

    @property
    def protocol(self) -> str:
        """sacreBLEU's signature of the ``headline`` scores."""
        return headline_signature(self.tags.get("dev_signature", ""), self.headline)

    @property
    def headline(self) -> str:
        """The metric that its score card shows first."""
        return headline({"source_input": self.tags.get(f"{self.dev}.source_input", "")})

    def dev_score(self, metric: str) -> float:
        return float(self.tags[f"{self.dev}.{metric}"])

    @property
    def bleu(self) -> Mapping[str, float]:
        """Maps sets to their ``headline`` score, the dev set first."""
        found = {name: finite(self.tags.get(f"{name}.{self.headline}", "")) for name in scored_sets(self.tags)}
        scores = {name: score for name, score in found.items() if score is not None}
        return dict(sorted(scores.items(), key=lambda score: (score[0] != self.dev, score[0])))

    @property
    def test(self) -> str:
        """Name of the first set that no choice was made on; empty if there is none."""
        others = (name for name in self.bleu if name != self.dev and "+" not in name)  # test+caps has noise
        return self.tags.get("test_set", "") or next(others, "")

    @property
    def digests(self) -> Mapping[str, str]:
        """Digests of the version's text (``clean``), vocabulary (``learn_bpe``) and each evaluation set
        (``prepare_sets.<set>``)."""
        return tags_below(self.tags, DIGEST_TAG)

    @property
    def promotions(self) -> list[Promotion]:
        """Every move of an alias to this version, the oldest first."""
        found = []
        for tag, value in self.tags.items():
            if tag.startswith(PROMOTION_TAG):
                lines = [line.partition(" ") for line in value.splitlines()]
                found += [Promotion(when, tag.removeprefix(PROMOTION_TAG), self.version, why) for when, _, why in lines]
        return sorted(found, key=lambda move: move.when)

    @property
    def remark(self) -> str:
        """``first of its name`` for a champion that had no other version to compare with; otherwise empty."""
        reasons = [move.why for move in self.promotions if move.alias == PREFERRED[0]]
        return FIRST if PREFERRED[0] in self.aliases and reasons and FIRST in reasons[-1] else ""

    def line(self) -> str:
        """Return ``multi30k-ende/3  2026-11-21 12:00  champion, candidate  val (dev) 34.12  test 33.80  13a…``."""
        scores = [f"{name}{' (dev)' * (name == self.dev != 'dev')} {bleu:.2f}" for name, bleu in self.bleu.items()]
        digests = [
            f"{label} {self.digests[stage][:8]}"
            for label, stage in (("data", "clean"), ("vocabulary", "learn_bpe"))
            if stage in self.digests
        ]
        created = f"{self.created.astimezone():%Y-%m-%d %H:%M}"
        changed = self.settings or ("with overrides" if self.tags.get("modified") == "true" else "")
        identity = [self.label, created, ", ".join(filter(None, (*self.aliases, self.remark)))]
        return "  ".join(part for part in [*identity, *scores, self.protocol, *digests, changed] if part)


def finite(text: str) -> float | None:
    """Return a tag's number; None for other text, because anybody may write tags."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def make_version(
    name: str,
    version: int | str,
    created_ms: int,
    run_id: str | None,
    source: str | None,
    tags: Mapping[str, str],
    aliases: Iterable[str],
) -> Version:
    """Make a Version from MLflow's values; the preferred aliases come first."""
    in_order = tuple(sorted(aliases, key=lambda alias: (*PREFERRED, alias).index(alias)))
    created = datetime.fromtimestamp(created_ms / 1000, UTC)
    return Version(name, int(version), created, in_order, _separate_tags(tags), run_id or "", source or "")


def tags_below(tags: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the tags that begin with ``prefix``, by the rest of their names."""
    return {tag.removeprefix(prefix): value for tag, value in tags.items() if tag.startswith(prefix)}


def scored_sets(tags: Mapping[str, str]) -> list[str]:
    """Return the names of the sets that a version was scored on. A tag ``x.bleu`` that is no number names no set."""
    return [tag.removesuffix(SCORE_TAG) for tag in tags if tag.endswith(SCORE_TAG) and finite(tags[tag]) is not None]


def stored_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags for MLflow to store with a version: those that its list shows, and all others in few."""
    shown = {tag: value for tag, value in tags.items() if tag in SHOWN_TAGS or tag.startswith(PROMOTION_TAG)}
    parts: list[dict[str, str]] = [{}]
    length = 0
    for tag, value in tags.items():
        if tag in shown:
            continue
        own = len(json.dumps({tag: value}, ensure_ascii=False))
        length += own
        if length > MAX_DETAILS_LENGTH:
            parts.append({})
            length = own
        parts[-1][tag] = value
    texts = (json.dumps(part, ensure_ascii=False) for part in parts)
    return shown | {f"{DETAILS}.{number}" if number else DETAILS: text for number, text in enumerate(texts)}


def grouped_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags with scores, keys, digests and decoding grouped into one tag each."""
    sets = tuple(f"{name}." for name in scored_sets(tags))
    prefixes = {**{group: (prefix,) for group, prefix in GROUPED_TAGS.items()}, SCORES_TAG: sets}
    alone: dict[str, str] = {}
    groups: dict[str, dict[str, str]] = {}
    for tag, value in tags.items():
        group = next((group for group, begins in prefixes.items() if tag.startswith(begins)), "")
        members = groups.setdefault(group, {}) if group else alone
        members[tag.removeprefix(GROUPED_TAGS.get(group, ""))] = value
    return alone | {group: json.dumps(values, ensure_ascii=False) for group, values in groups.items()}


def _separate_tags(stored: Mapping[str, str]) -> dict[str, str]:
    """Invert ``stored_tags``, and ``grouped_tags`` of old versions; foreign tags with such names stay."""
    tags: dict[str, str] = {}
    for tag, value in stored.items():
        try:
            members = json.loads(value) if tag.startswith(DETAILS) or tag in (SCORES_TAG, *GROUPED_TAGS) else None
        except ValueError:
            members = None
        if not isinstance(members, dict):
            tags[tag] = value
            continue
        for name, member in members.items():
            text = member if isinstance(member, str) else json.dumps(member)  # earlier releases stored such values
            tags[f"{GROUPED_TAGS.get(tag, '')}{name}"] = text
    return tags


def ordered(found: Iterable[Version], by: Order) -> list[Version]:
    """Sort newest first, or by BLEU on the dev or first test set, best first; versions without a score come last."""
    if by == "newest":
        return sorted(found, key=lambda version: version.created, reverse=True)

    def score(version: Version) -> float:
        return version.bleu.get(version.dev if by == "dev" else version.test, float("-inf"))

    return sorted(found, key=score, reverse=True)


def history(of_model: Iterable[Version]) -> list[Promotion]:
    """Return all moves of all aliases of one model, the newest first."""
    return sorted(
        (move for version in of_model for move in version.promotions), key=lambda move: move.when, reverse=True
    )
