"""What makes a version champion after its registration: the mean of several seeds, or ``repro run --promote-better``.

A gain that one pair of models cannot show is shown by seeds, or taken on trust, so that small true gains add up.
"""

from collections.abc import Callable

from flows.inspection.seed_groups import compare_on, find_group
from infra.errors import BadConfiguration
from infra.processes.locks import file_lock
from infra.site import Site
from infra.tracking.model_version import BY_REGISTRATION, Version
from infra.tracking.provenance import user
from infra.tracking.registry import resolve, set_alias, versions
from tasks.registration.aliases import CHAMPION, becomes_champion, holder

FEWEST_SEEDS = 3


def promote_better(label: str, min_bleu: float, site: Site) -> str:
    """Make the version champion if its dev score is not below the champion's, noise or not; says what happened."""

    def is_better(own: Version, champion: Version | None) -> tuple[bool, str]:
        return becomes_champion(own.tags, champion, False, min_bleu, lambda _: "--promote-better")

    return _promote(label, site, is_better) or f"{label} is champion already"


def promote_by_seeds(label: str, min_bleu: float, site: Site) -> str:
    """Make the version champion if the seeds of its run are better than the champion's; says what happened.

    "" where they cannot say so: the version is champion, below ``min_bleu``, or measured on another dev set, the
    champion is one of the seeds, or there are fewer than FEWEST_SEEDS. A champion without other seeds stands alone.
    """
    return _promote(label, site, lambda own, champion: _seeds_win(own, champion, min_bleu, site))


def _promote(label: str, site: Site, test: Callable[[Version, Version | None], tuple[bool, str]]) -> str:
    """Make the version champion if ``test`` says so, which gives the reason; "" without one, or if it is champion."""
    with file_lock(site.root / "locks" / "aliases", lambda _: None):
        own = resolve(site.tracking, label)
        champion = holder(versions(site.tracking, own.name), CHAMPION)
        wins, reason = test(own, champion) if own != champion else (False, "")
        if wins:
            set_alias(site.tracking, own, CHAMPION, reason, f"{user()}{BY_REGISTRATION}")
    return f"{label} is {'now' if wins else 'not'} champion: {reason}" if reason else ""


def _seeds_win(own: Version, champion: Version | None, min_bleu: float, site: Site) -> tuple[bool, str]:
    is_measured = champion and champion.tags.get("dev_digest", "") == own.tags["dev_digest"]
    if champion is None or not is_measured or own.bleu[own.dev] < min_bleu:
        return False, ""
    try:
        theirs, ours = (find_group(each.label, site) for each in (champion, own))
    except BadConfiguration as error:
        return False, f"its seeds were not compared: {error}"
    keys = [{system.scores[own.dev].key for system in group.systems.values()} for group in (theirs, ours)]
    if len(ours.systems) < FEWEST_SEEDS or keys[0] & keys[1]:
        return False, ""
    gap = compare_on(own.dev, theirs, ours, site)[0].difference
    several = f"that of {len(theirs.systems)} seeds of" if len(theirs.systems) > 1 else "that of"
    reason = f"mean dev BLEU of {len(ours.systems)} seeds less {several} the champion, version {champion.version}"
    return gap.verdict == "better", f"{reason}: {gap.effect:+.2f} ({gap.interval})"
