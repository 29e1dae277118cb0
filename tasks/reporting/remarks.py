"""Warns about a finished run: the clock ended it, translations are cut or empty, or a checkpoint beats the average."""

from collections.abc import Mapping
from typing import Any

from infra.store.manifest import Manifest
from model.metric_names import BEST_DEV_PERPLEXITY, DEV_PERPLEXITY, PERPLEXITY, STOPPED_EARLY, UPDATES

LONGER = "train longer (training.updates or minutes)"
CUT_SHARE = 0.05
"""Least share of a set's translations for a warning; below it, only single sentences failed."""
EMPTY_SHARE = 0.9
"""Least share of a set's translations for a warning that nearly all are empty."""
WORSE = 1.005
"""Least ratio of perplexities for a warning; a smaller one may come from the precision of the computation."""
CLEARLY_WORSE = 1.1
"""The same if the clock ended the training: the model was still learning, so the average is somewhat worse."""
OVERRUN = 1.1
"""Least ratio of a training's time to its minutes for which the reason is given."""
Facts = Mapping[str, Any]


def ended_by_clock(training: Facts, facts: Facts) -> list[str]:
    """Warns if ``training.minutes`` ended a training, according to its settings and facts."""
    seconds = facts.get("seconds", 0.0)
    planned = training.get("updates", 0)
    if not facts.get(STOPPED_EARLY) or not 0 < 60 * training.get("minutes", 0.0) <= seconds:
        return []
    done = f"{facts[UPDATES]:,} of {planned:,} updates" if planned else f"{facts[UPDATES]:,} updates"
    high = "; the rate of its schedule, linear, was still high" if training.get("schedule") == "linear" else ""
    over = seconds > 60 * training["minutes"] * OVERRUN
    waited = f" is {training['minutes']:g}, but it needs training.keep checkpoints" if over else ""
    return [f"the clock ended the training: {done} in {seconds / 60:.1f} minutes (training.minutes{waited}){high}"]


def failed_translations(set_name: str, facts: Facts) -> list[str]:
    """Warns if many of a set's translations have no end, or nearly all are empty, according to ``translate``."""
    sentences = facts.get("sentences", 0)
    cut = facts.get("unfinished", 0)
    empty = facts.get("empty", 0)
    found = []
    if cut and cut >= CUT_SHARE * sentences:
        found.append(
            f"{cut:,} of {sentences:,} translations of {set_name} were cut at the maximum length: {LONGER},"
            " or allow longer translations (decoding.max_extra)"
        )
    if empty and empty >= EMPTY_SHARE * sentences:
        found.append(f"{empty:,} of {sentences:,} translations of {set_name} are empty: {LONGER}")
    return found


def worse_weights(dev: str, train: Facts, score: Facts, least: float = WORSE) -> list[str]:
    """Warns if the averaged weights have a dev perplexity ``least`` times that of the best single checkpoint known.

    ``train`` has the perplexities of the last and the best checkpoint; ``score`` has the facts of the dev set.
    """
    single = {"last": train.get(DEV_PERPLEXITY), "best": train.get(BEST_DEV_PERPLEXITY)}
    known = {name: float(value) for name, value in single.items() if value}
    made = float(score.get(PERPLEXITY, 0.0))
    name = min(known, key=lambda each: known[each], default="")
    if not name or made <= least * known[name]:
        return []
    way = "take the best one (averaging.which=best, training.patience)" if name == "best" else LONGER
    return [
        f"the averaged weights have perplexity {made:.4g} on {dev}, the {name} checkpoint alone {known[name]:.4g}:"
        f" if several are averaged, average fewer (averaging.count, training.keep_epochs); or {way}"
    ]


def about_synthetic(stage: str, facts: Facts) -> str:
    """Describes how many training pairs are synthetic, from the facts of ``stage`` (``mix`` or ``extract_best``)."""
    pairs = facts["pairs"]
    if stage == "mix":
        return (
            f"{facts['synthetic']:,} of {pairs:,} training pairs are synthetic (back-translation): a model of the"
            " reverse direction translated a line of the target language, and its translation is the source."
        )
    return (
        f"{pairs - facts.get('references', 0):,} of {pairs:,} training pairs are synthetic (distillation): the target"
        " is a teacher's translation of the source."
    )


def run_remarks(
    dev: str, training: Facts, train: Facts, translations: Mapping[str, Facts], scores: Mapping[str, Facts]
) -> list[str]:
    """All warnings; ``training`` has the settings, ``translations`` and ``scores`` are facts by set name."""
    clock = ended_by_clock(training, train)
    failed = [remark for name, facts in translations.items() for remark in failed_translations(name, facts)]
    return [*clock, *failed, *worse_weights(dev, train, scores.get(dev, {}), CLEARLY_WORSE if clock else WORSE)]


def dev_set(train: Manifest | None, translations: Mapping[str, Manifest | None]) -> str:
    """The set of ``translations`` that a training was validated on; "" if it is not known."""
    shards = train.arguments.get("dev") if train else None
    found = (name for name, made in translations.items() if made and made.arguments.get("pairs") == shards)
    return next(found, "") if shards else ""
