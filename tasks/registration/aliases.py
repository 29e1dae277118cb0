"""Decides which versions have the aliases ``candidate`` and ``champion``, and moves them there.

The champion is chosen by BLEU on the dev set alone (``becomes_champion``); test scores never decide. Others may
register or promote meanwhile, on machines that share MLflow and no lock. So a registration (``move_aliases``) repeats
four steps until the last one has nothing to do:

1. It reads the registry: what happened since it began is the difference to what it saw then (``_Reading``).
2. What a person chose since then stays (``_Reading.chosen_by_hand``).
3. Otherwise the newest contender becomes candidate (``_candidate``), and the contenders challenge the champion of
   before one after the other, by number (``_champion``). Contenders are the own version and those to which other
   registrations moved the alias meanwhile (``_Reading.contenders``).
4. It moves an alias that is elsewhere, and begins again: whoever moves it last sees what all others did.

For example, version 1 (26.0) is champion while machine A registers version 2 (27.0) and machine B version 3 (28.0).
Both read that 1 is champion; B moves the alias to 3, then A moves it to 2. Both read again and find the contenders 2
and 3: 2 beats 1, 3 beats 2. So both find 3, and A moves the alias there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from infra.tracking.model_version import BY_REGISTRATION, FIRST, PREFERRED, Promotion, Version, history
from infra.tracking.provenance import user
from infra.tracking.registry import set_alias, versions
from model.metric_names import DEV_BLEU

CHAMPION, CANDIDATE = PREFERRED
UNDECIDED = "none: the registration did not end"
"""The decision of a version until its aliases are moved."""
WHY_CANDIDATE = "the newest run without overrides"


def becomes_champion(
    tags: Mapping[str, str], champion: Version | None, first: bool, min_bleu: float
) -> tuple[bool, str]:
    """Whether a version with these tags becomes champion, and why: by BLEU (13a, cased) on the same dev set.

    ``first``: the model has no other version. With less BLEU than ``min_bleu`` no version becomes champion.
    """
    own = _measured(tags)
    if float(tags[DEV_BLEU]) < min_bleu:
        return False, f"{own}, below the {min_bleu:g} that a champion needs (min_champion_bleu)"
    if champion is None:
        return True, f"{own}, {FIRST}: there was nothing to compare it with" if first else f"{own}, the first champion"
    if champion.tags.get("dev_digest", "") != tags["dev_digest"]:
        return False, f"the champion, version {champion.version}, was measured on another dev set: {own} says nothing"
    best = float(champion.tags[DEV_BLEU])
    if float(tags[DEV_BLEU]) >= best:
        return True, f"{own}, not below the {best:.2f} of version {champion.version}"
    return False, f"{own}, below the {best:.2f} of version {champion.version}"


def _measured(tags: Mapping[str, str]) -> str:
    return f"dev BLEU {float(tags[DEV_BLEU]):.2f} on {tags['dev_set']}"


def holder(of_model: Iterable[Version], alias: str) -> Version | None:
    """The version that has the alias."""
    return next((version for version in of_model if alias in version.aliases), None)


@dataclass(frozen=True)
class AliasDecision:
    """What a registration did to the aliases."""

    held: tuple[str, ...]
    """The aliases that its version has."""
    reason: str
    """Why the version is champion, or is not."""
    compared: Version | None
    """The version that it was compared with."""

    @property
    def text(self) -> str:
        return f"{'' if CHAMPION in self.held else 'not '}champion: {self.reason}"


def move_aliases(uri: str, own: Version, before: Sequence[Version], min_bleu: float) -> AliasDecision:
    """Move candidate and champion to the versions that should have them, until the registry shows them there.

    ``own`` is the version that is being registered, ``before`` are the model's versions when that began.
    """
    while True:
        seen = _Reading(own.version, before, versions(uri, own.name))
        champion, reason, compared = _champion(seen, min_bleu)
        rightful = {CANDIDATE: _candidate(seen), CHAMPION: champion}
        wrong = {alias: to for alias, to in rightful.items() if to and alias not in to.version.aliases}
        if not wrong:
            held = tuple(alias for alias, to in rightful.items() if to and to.version == seen.own)
            return AliasDecision(held, reason, compared)
        for alias, to in wrong.items():
            set_alias(uri, to.version, alias, to.reason, to.who)


@dataclass(frozen=True)
class _Place:
    """The version that should have an alias; ``reason`` and ``who`` are recorded if the alias moves there."""

    version: Version
    reason: str
    who: str


@dataclass(frozen=True)
class _Reading:
    """One reading of a model's versions, by the registration of the version ``number``."""

    number: int
    before: Sequence[Version]
    """The model's versions when the registration began."""
    now: Sequence[Version]

    @cached_property
    def own(self) -> Version:
        return next(version for version in self.now if version.version == self.number)

    @cached_property
    def meanwhile(self) -> list[Promotion]:
        """The moves of aliases since the registration began, the newest first.

        Moves of registrations that were still in progress when this one began are among them.
        """
        ended = {version.version for version in self.before if version.tags.get("decision") != UNDECIDED}
        known = {move for move in history(self.before) if move.version in ended or not move.by_registration}
        return [move for move in history(self.now) if move not in known]

    def contenders(self, alias: str) -> list[Version]:
        """The own version and those to which other registrations moved the alias meanwhile, by number.

        So all machines compare them in the same order.
        """
        moved = {move.version for move in self.meanwhile if move.alias == alias and move.by_registration}
        found = [version for version in self.now if version.version in moved | {self.number}]
        return sorted(found, key=lambda version: version.version)

    def champion_of_before(self) -> Version | None:
        """The champion that the contenders challenge: the present one, unless it is a contender itself."""
        present = holder(self.now, CHAMPION)
        if present not in self.contenders(CHAMPION):
            return present
        earlier = holder(self.before, CHAMPION)
        return next((version for version in self.now if earlier and version.version == earlier.version), None)

    def chosen_by_hand(self, alias: str) -> _Place | None:
        """The version that a person gave the alias last, since the registration began."""
        by_number = {version.version: version for version in self.now}
        for move in self.meanwhile:
            if move.alias == alias and not move.by_registration and move.version in by_number:
                return _Place(by_number[move.version], move.reason, move.who)
        present = holder(self.now, alias)
        earlier = holder(self.before, alias)
        is_unmoved = present is None or (earlier and earlier.version == present.version)
        if present is None or is_unmoved or present in self.contenders(alias):
            return None
        return _Place(present, "moved without a reason, as in MLflow's pages", user())


def _candidate(seen: _Reading) -> _Place:
    """The version that a person chose meanwhile, or else the newest of those that are being registered."""
    newest = _Place(seen.contenders(CANDIDATE)[-1], WHY_CANDIDATE, f"{user()}{BY_REGISTRATION}")
    return seen.chosen_by_hand(CANDIDATE) or newest


@dataclass(frozen=True)
class _Contest:
    """A contender that challenged the champion of that moment."""

    challenger: Version
    champion: Version | None
    wins: bool
    why: str


def _champion(seen: _Reading, min_bleu: float) -> tuple[_Place | None, str, Version | None]:
    """The rightful champion, why the own version is or is not it, and the version that this one was compared with."""
    if chosen := seen.chosen_by_hand(CHAMPION):
        return chosen, f"version {chosen.version.version} was promoted by hand during the registration", chosen.version
    contests = _contests(seen, min_bleu)
    winners = [contest.challenger for contest in contests if contest.wins]
    champion = winners[-1] if winners else seen.champion_of_before()
    reason, compared = _verdict(seen.own, contests)
    if champion is None:
        return None, reason, compared
    if champion == seen.own:
        return _Place(champion, reason, f"{user()}{BY_REGISTRATION}"), reason, compared
    move = _last_move(champion)
    return _Place(champion, move.reason, move.who), reason, compared


def _contests(seen: _Reading, min_bleu: float) -> list[_Contest]:
    """The contests of the contenders, by number; each winner is the champion of the next contest."""
    champion = seen.champion_of_before()
    contests = []
    for challenger in seen.contenders(CHAMPION):
        if challenger == champion:
            continue
        # The others moved the alias: they have what their own runs ask of a champion.
        needed = min_bleu if challenger == seen.own else 0.0
        wins, why = becomes_champion(challenger.tags, champion, len(seen.now) == 1, needed)
        contests.append(_Contest(challenger, champion, wins, why))
        champion = challenger if wins else champion
    return contests


def _verdict(own: Version, contests: Sequence[_Contest]) -> tuple[str, Version | None]:
    """Why the own version is champion or is not, and the version of the contest that decided it."""
    for contest in contests:
        if contest.champion == own and contest.wins:
            bleu = float(contest.challenger.tags[DEV_BLEU])
            lost = f"{_measured(own.tags)}, not above the {bleu:.2f} of version {contest.challenger.version}"
            return lost, contest.challenger
    for contest in contests:
        if contest.challenger == own:
            return contest.why, contest.champion
    return _last_move(own).reason, None  # it was champion before, and nobody challenged it


def _last_move(version: Version) -> Promotion:
    """How the version became champion last."""
    moves = [move for move in version.promotions if move.alias == CHAMPION]
    return moves[-1] if moves else Promotion("", CHAMPION, version.version, f"{user()}: it has the alias already")
