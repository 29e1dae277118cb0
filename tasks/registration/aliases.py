"""Decides which versions have the aliases ``candidate`` and ``champion``, and moves them there.

The champion is chosen by BLEU on the dev set alone (``becomes_champion``); test scores never decide. A version within
noise of the champion stays a candidate. Others may register or promote a version while a model is stored, so the
registry is read again when the aliases move. The version is compared with the champion of that moment. An alias that a
person moved since the registration began stays. Registrations of one root take turns (``register_version``). Machines
that share only MLflow may move an alias at the same time; then the last move counts.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from infra.processes.locks import file_lock
from infra.store.store import Artifact
from infra.tracking.model_version import BY_REGISTRATION, FIRST, HEADLINES, PREFERRED, Version, headline
from infra.tracking.provenance import user
from infra.tracking.registry import set_alias, versions
from tasks.evaluation.system_comparison import compare
from tasks.evaluation.translation_metrics import score_metric
from tasks.lazy_libraries import pl
from tasks.registration.model_card import SENTENCES

CHAMPION, CANDIDATE = PREFERRED
UNDECIDED = "none: the registration did not end"
"""The decision of a version until its aliases are moved."""
WHY_CANDIDATE = "the newest run without overrides"
NOISE = 0.05
"""The p-value above which a difference counts as noise."""
SentenceTest = Callable[[Version], float | str]
"""Returns the two-sided p-value of the dev scores of the new version and this champion, or why there is none."""


def alias_lock(root: Path) -> AbstractContextManager[object]:
    """Lock the aliases of a root: registrations and promotions read the versions and move an alias in turn."""
    return file_lock(root / "locks" / "aliases", lambda _: None)


def becomes_champion(
    own: Version, champion: Version | None, first: bool, min_bleu: float, test: SentenceTest
) -> tuple[bool, str]:
    """Whether a version becomes champion, and why, by BLEU (13a) on the same dev set.

    BLEU is cased unless both versions write lower case. ``first``: the model has no other version. With less BLEU than
    ``min_bleu`` no version becomes champion. If ``test`` has no p-value, the score alone decides.
    """
    metric = min(own.headline, champion.headline) if champion else own.headline
    score = own.dev_score(metric)
    said = f"dev {HEADLINES[metric]} {score:.2f} on {own.dev}"
    if score < min_bleu:
        return False, f"{said}, below the {min_bleu:g} that a champion needs (min_champion_bleu)"
    if champion is None:
        return True, f"{said}, {f'{FIRST}: there was nothing to compare it with' if first else 'the first champion'}"
    if champion.tags.get("dev_digest", "") != own.tags["dev_digest"]:
        return False, f"the champion, version {champion.version}, was measured on another dev set: {said} says nothing"
    best = champion.dev_score(metric)
    gap = score - best
    theirs = f"the {best:.2f} of the champion, version {champion.version}"
    if gap < 0:
        return False, f"{said}, below {theirs}"
    p_value = test(champion)
    if isinstance(p_value, str):
        return True, f"{said}, not below {theirs}; by score alone: {p_value}"
    if p_value > NOISE:
        return False, f"{said} is {gap:.2f} above {theirs}, within noise (p = {p_value:.3f})"
    return True, f"{said} is {gap:.2f} above {theirs} (p = {p_value:.3f})"


def dev_p_value(own: Artifact, champion: Version) -> float | str:
    """A ``SentenceTest`` for the version with the dev scores ``own``: a paired bootstrap test of BLEU."""
    store = own.store
    made = store.find(own.stage, champion.tags.get(f"key.score.{champion.dev}", ""))
    if made is None or store.damage(made):
        return f"the sentence scores of version {champion.version} were removed"
    metric = min(headline(own.facts), champion.headline)
    bleu = score_metric(metric, made.arguments.get("language", "en"))
    theirs, ours = (pl.read_parquet(each.path() / SENTENCES) for each in (store.artifact(made), own))
    return compare("dev", theirs, ours, [bleu])[0].p


def holder(of_model: Iterable[Version], alias: str) -> Version | None:
    return next((version for version in of_model if alias in version.aliases), None)


def move_aliases(
    uri: str, own: Version, before: Sequence[Version], min_bleu: float, test: SentenceTest
) -> tuple[list[str], str, Version | None]:
    """Give a version that is being registered the alias candidate, and champion if it wins (``becomes_champion``).

    ``own`` is the version, ``before`` are the model's versions when its registration began. A repeated call moves
    nothing again. Returns the version's aliases, why it is or is not champion, and the version compared with.
    """
    now = versions(uri, own.name)
    own = next(version for version in now if version.version == own.version)
    champion, reason, compared = _champion(own, before, now, min_bleu, test)
    newest = max(own, holder(now, CANDIDATE) or own, key=lambda version: version.version)
    candidate = _chosen_by_hand(CANDIDATE, before, now) or newest
    held = []
    for alias, version, why in ((CANDIDATE, candidate, WHY_CANDIDATE), (CHAMPION, champion, reason)):
        if version != own:
            continue
        held.append(alias)
        if alias not in own.aliases:
            set_alias(uri, own, alias, why, f"{user()}{BY_REGISTRATION}")
    return held, f"{'' if CHAMPION in held else 'not '}champion: {reason}", compared


def _champion(
    own: Version, before: Sequence[Version], now: Sequence[Version], min_bleu: float, test: SentenceTest
) -> tuple[Version | None, str, Version | None]:
    """The champion to set, why ``own`` is or is not champion, and the version that ``own`` was compared with."""
    if chosen := _chosen_by_hand(CHAMPION, before, now):
        return chosen, f"version {chosen.version} was promoted by hand during the registration", chosen
    present = holder(now, CHAMPION)
    if present == own:  # an earlier, interrupted call moved the alias
        moves = [move.reason for move in own.promotions if move.alias == CHAMPION]
        return own, moves[-1] if moves else "it has the alias already", None
    wins, reason = becomes_champion(own, present, len(now) == 1, min_bleu, test)
    return own if wins else present, reason, present


def _chosen_by_hand(alias: str, before: Sequence[Version], now: Sequence[Version]) -> Version | None:
    """The version that a person gave the alias since the registration began; MLflow's pages record no reason."""
    present = holder(now, alias)
    earlier = holder(before, alias)
    if present is None or (earlier and earlier.version == present.version):
        return None
    known = [move for version in before for move in version.promotions]
    moves = [move for move in present.promotions if move.alias == alias and move not in known]
    return None if moves and moves[-1].by_registration else present
