"""Makes a version champion after its registration, by the mean of several seeds or ``repro run --promote-better``."""

from flows.inspection.seed_groups import compare_on, find_group
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.model_version import BY_REGISTRATION, HEADLINES, Version
from infra.tracking.provenance import user
from infra.tracking.registry import resolve, set_alias, versions
from tasks.registration.aliases import CHAMPION, alias_lock, becomes_champion, holder

FEWEST_SEEDS = 3


def promote(label: str, min_bleu: float, site: Site, *, by_score: bool) -> str:
    """Make the version champion if its run's seeds, or with ``by_score`` its dev score, beat the champion; return why.

    ``by_score`` only requires a score that is not below the champion's, significant or not. Seeds decide nothing and
    return "" if the version is champion, below ``min_bleu`` or measured on another dev set, if the champion is one of
    the seeds, a score was removed, or there are fewer than FEWEST_SEEDS. The champion may have only one seed.
    """
    with alias_lock(site.root):
        own = resolve(site.tracking, label)
        champion = holder(versions(site.tracking, own.name), CHAMPION)
        if own == champion:
            return f"{label} is champion already" if by_score else ""
        if by_score:
            wins, reason = becomes_champion(own, champion, False, min_bleu, lambda _: "--promote-better")
        else:
            wins, reason = _seeds_win(own, champion, min_bleu, site)
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
    both = [system.scores.get(own.dev) for system in (*theirs.values(), *ours.values())]
    if None in both or len(ours) < FEWEST_SEEDS or len({score.key for score in both if score}) < len(both):
        return False, ""
    found = compare_on(own.dev, theirs, ours, site)
    if len(found.b) < FEWEST_SEEDS:
        return False, ""
    gap = found.difference
    mean = f"mean dev {HEADLINES[found.measure]} of {len(found.b)} seeds"
    reason = f"{mean} less that of the champion, version {champion.version} ({len(found.a)} seeds)"
    return gap.verdict() == "better", f"{reason}: {gap.effect:+.2f} ({gap.interval})"
