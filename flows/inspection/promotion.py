"""What makes a version champion after its registration: the mean of several seeds, or ``repro run --promote-better``.

A gain that one pair of models cannot show is shown by seeds, or taken on trust, so that small true gains add up.
"""

from flows.inspection.seed_groups import find_group, seed_scores
from infra.errors import BadConfiguration
from infra.processes.locks import file_lock
from infra.site import Site
from infra.tracking.model_version import BY_REGISTRATION, Version
from infra.tracking.provenance import user
from infra.tracking.registry import resolve, set_alias, versions
from tasks.evaluation.significance import compare_groups
from tasks.evaluation.translation_metrics import score_metrics
from tasks.registration.aliases import CHAMPION, becomes_champion, holder

FEWEST_SEEDS = 3


def promote_better(label: str, min_bleu: float, site: Site) -> str:
    """Make the version champion if its dev score is not below the champion's, noise or not; says what happened."""
    with file_lock(site.root / "locks" / "aliases", lambda _: None):
        own, champion = _own_and_champion(label, site)
        if own == champion:
            return f"{label} is champion already"
        wins, reason = becomes_champion(own.tags, champion, False, min_bleu, lambda _: "--promote-better")
        if wins:
            set_alias(site.tracking, own, CHAMPION, reason, f"{user()}{BY_REGISTRATION}")
    return f"{label} is {'now' if wins else 'not'} champion: {reason}"


def promote_by_seeds(label: str, min_bleu: float, site: Site) -> str:
    """Make the version champion if the seeds of its run are better than the champion's; says what happened.

    "" where they cannot say so: the version is champion, below ``min_bleu``, or measured on another dev set, the
    champion is one of the seeds, or there are fewer than FEWEST_SEEDS. A champion without other seeds stands alone.
    """
    with file_lock(site.root / "locks" / "aliases", lambda _: None):
        own, champion = _own_and_champion(label, site)
        is_measured = champion and champion.tags.get("dev_digest", "") == own.tags["dev_digest"]
        if champion is None or champion == own or not is_measured or own.bleu[own.dev] < min_bleu:
            return ""
        try:
            groups = [find_group(name, site) for name in (f"{own.name}/{champion.version}", label)]
        except BadConfiguration as error:
            return f"{label} was not compared by its seeds: {error}"
        scores = [[each.scores[own.dev] for each in group.systems.values()] for group in groups]
        if len(scores[1]) < FEWEST_SEEDS or {each.key for each in scores[0]} & {each.key for each in scores[1]}:
            return ""
        language = scores[1][0].arguments.get("language", "en")
        defending, challenging = seed_scores(own.dev, score_metrics(language)[0], scores, site)
        gap = compare_groups(defending, challenging)
        several = f"that of {len(scores[0])} seeds of" if len(scores[0]) > 1 else "that of"
        reason = (
            f"mean dev BLEU of {len(scores[1])} seeds less {several} the champion, version {champion.version}: "
            f"{gap.effect:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})"
        )
        wins = gap.verdict == "better"
        if wins:
            set_alias(site.tracking, own, CHAMPION, reason, f"{user()}{BY_REGISTRATION}")
    return f"{label} is {'now' if wins else 'not'} champion: {reason}"


def _own_and_champion(label: str, site: Site) -> tuple[Version, Version | None]:
    own = resolve(site.tracking, label)
    return own, holder(versions(site.tracking, own.name), CHAMPION)
