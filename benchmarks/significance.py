"""Simulates comparisons of runs, and counts how often they tell equal runs apart or find a planted difference.

    OPENBLAS_NUM_THREADS=1 python benchmarks/significance.py    # prints lines of results.jsonl, in a few minutes

The statistics of sentences come from a model of a set of 1,014 sentences: each has its own difficulty; trainings of
one run share half of their translations and draw the others anew; the seed moves those a little. So a run has about 39
BLEU, with a standard deviation of about 0.27 over seeds. The tests are the project's own.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from infra.tracking.provenance import commit
from tasks.evaluation.significance import SeedScores, compare_groups, sequential_tails
from tasks.evaluation.translation_metrics import RESAMPLES, SEED, Counts, paired_p_value, score_metrics

SENTENCES = 1_014
EASE = 0.52
"""The logit of a matching word in a sentence of middling difficulty."""
DIFFICULTY = 0.7
SHARED = 0.5
"""The share of sentences that the trainings of a run translate alike."""
SEED_EFFECT = 0.012
"""The standard deviation over seeds of the logit, in the sentences that a training does not share."""
OWN = 0.5
"""The share of sentences that another run translates in a way of its own."""
BLEU_OF_GAIN = 18.8
"""BLEU that a logit more in all translations of a run is worth, for small gains."""
COMMAND = "OPENBLAS_NUM_THREADS=1 python benchmarks/significance.py"
DETECT = 0.3
BUDGET = 10
DECIDED = "% decided (better or worse)"
MOVED = "% became champion, at most 6.5"
NULL = f"{DECIDED}, at most 6.5"
FOUND = "% found"
Effects = tuple[float, float]
"""The deviation over seeds of both runs."""
SAME = (SEED_EFFECT, SEED_EFFECT)
MUCH = 5 * SEED_EFFECT
"""With it BLEU has a standard deviation of 0.78 over seeds, with 2.5 times SEED_EFFECT 0.43."""
Pair = tuple[SeedScores, SeedScores]


class SimulatedSet:
    """Trainings of runs on one set, with scores of the whole set and of the sets that the project resamples."""

    def __init__(self, number: int) -> None:
        self.rng = np.random.default_rng(number)
        self.lengths = np.clip(self.rng.lognormal(2.4, 0.4, SENTENCES).astype(int), 4, 40)
        self.difficulty = self.rng.normal(EASE, DIFFICULTY, SENTENCES)
        self.base = self.draw(0.0)

    def draw(self, gain: float) -> Counts:
        """sacreBLEU's statistics of each sentence for new translations: two lengths, matches, n-grams."""
        share = 1 / (1 + np.exp(-self.difficulty - gain))
        grams = np.maximum(self.lengths - np.arange(4)[:, None], 0)
        shares = share ** (1 + 0.75 * np.arange(4)[:, None])
        # Normal in place of binomial numbers, which take ten times as long.
        drawn = grams * shares + np.sqrt(grams * shares * (1 - shares)) * self.rng.standard_normal(grams.shape)
        matches = np.clip(np.rint(drawn), 0, grams)
        return np.concatenate([[self.lengths, self.lengths], matches, grams]).T

    def other_run(self, gain: float) -> Counts:
        """The translations that the trainings of another run share."""
        return np.where(self.rng.random(SENTENCES)[:, None] < OWN, self.draw(gain), self.base)

    def seeds(self, count: int, run: Counts, gain: float = 0.0, effect: float = SEED_EFFECT) -> SeedScores:
        """The scores of so many trainings of a run."""
        trained = []
        for _ in range(count):
            fresh = self.draw(gain + self.rng.normal(0, effect))
            trained.append(np.where(self.rng.random(SENTENCES)[:, None] < SHARED, run, fresh))
        stacked = np.stack(trained)
        drawn = [weights() @ each.astype(np.float32) for each in stacked]
        return SeedScores(bleu(stacked.sum(axis=1)), bleu(np.array(drawn, dtype=np.float64)))


@cache
def weights() -> Any:
    """How often each sentence is in each resampled set: (resamples, sentences), drawn as ``resample`` draws."""
    rng = np.random.default_rng(SEED)
    drawn = [np.bincount(rng.integers(0, SENTENCES, SENTENCES), minlength=SENTENCES) for _ in range(RESAMPLES)]
    return np.array(drawn, dtype=np.float32)


def bleu(sums: Counts) -> Counts:
    """BLEU of summed statistics, on the last axis, where each order has a match: as sacreBLEU's."""
    precisions = sums[..., 2:6] / sums[..., 6:]
    brevity = np.minimum(0.0, 1 - sums[..., 1] / sums[..., 0])
    return np.asarray(100 * np.exp(brevity + np.log(precisions).mean(axis=-1)))


def check_bleu() -> None:
    """Compare ``bleu`` with sacreBLEU's score of the same statistics."""
    sums = SimulatedSet(0).base.sum(axis=0)
    theirs = score_metrics("en")[0].metric._compute_score_from_stats(sums.astype(int).tolist()).score
    assert abs(float(bleu(sums)) - theirs) < 1e-9


def plain_bootstrap(a: SeedScores, b: SeedScores, rng: np.random.Generator) -> bool:
    """Whether a plain hierarchical bootstrap, over seeds and sentences, tells the runs apart."""
    means = []
    for group in (a, b):
        seeds, resamples = group.drawn.shape
        chosen = rng.integers(0, seeds, (seeds, resamples))
        means.append(np.take_along_axis(group.drawn, chosen, axis=0).mean(axis=0))
    low, high = np.quantile(means[1] - means[0], [0.025, 0.975])
    return bool(low > 0 or high < 0)


def decide(a: SeedScores, b: SeedScores) -> tuple[str, int]:
    """The verdict of ``repro decide`` and the seeds of each run that it took."""
    for seeds, tail in enumerate(sequential_tails(BUDGET), 2):
        first = SeedScores(a.scores[:seeds], a.drawn[:seeds])
        second = SeedScores(b.scores[:seeds], b.drawn[:seeds])
        verdict = compare_groups(first, second, tail).verdict(DETECT)
        if verdict != "undecided":
            return verdict, seeds
    return "undecided", BUDGET


def is_apart(a: SeedScores, b: SeedScores) -> bool:
    """Whether the sentence-level test tells two versions apart."""
    gap = float(b.scores[0] - a.scores[0])
    return paired_p_value(gap, b.drawn[0] - a.drawn[0], SENTENCES) <= 0.05


def report(what: str, figure: float, unit: str, note: str = "") -> None:
    """Print a figure as a line of results.jsonl."""
    row = {"section": "Significance", "what": what, "figure": round(figure, 2), "spread": "", "unit": unit, "peer": ""}
    row |= {"machine": "Zen 4, any: no time is measured", "commit": commit()[:7]}
    row |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "command": COMMAND, "limit": "", "note": note}
    print(json.dumps(row, ensure_ascii=False), flush=True)


def compared(simulations: int, seeds: int, gain: float | None, effects: Effects = SAME) -> Iterator[Pair]:
    """Both groups of each simulation; with a ``gain`` of None they are of one run, else of two."""
    for number in range(simulations):
        simulated = SimulatedSet(number)
        other = simulated.base if gain is None else simulated.other_run(gain)
        a = simulated.seeds(seeds, simulated.base, effect=effects[0])
        yield a, simulated.seeds(seeds, other, gain or 0.0, effects[1])


def share(found: Sequence[bool]) -> float:
    return 100 * float(np.mean(found))


def report_groups(simulations: int, seeds: int) -> None:
    """``repro compare --seeds``."""
    rng = np.random.default_rng(seeds)
    cases: list[tuple[str, float | None, Effects]] = [
        ("a run with itself", None, SAME),
        ("a run with itself, whose seeds vary three times as much", None, (MUCH, MUCH)),
        ("two runs, equally good", 0.0, SAME),
    ]
    for case, gain, effects in cases:
        pairs = [*compared(simulations, seeds, gain, effects)]
        decided = [compare_groups(a, b).verdict() != "undecided" for a, b in pairs]
        plain = share([plain_bootstrap(a, b, rng) for a, b in pairs])
        note = f"a plain hierarchical bootstrap: {plain:.1f} %"
        report(f"`compare --seeds`, {seeds} seeds: {case}", share(decided), NULL, note)
    smallest = float(np.sqrt(np.mean([compare_groups(a, b).detectable ** 2 for a, b in pairs])))
    planted = [compare_groups(a, b) for a, b in compared(simulations, seeds, smallest / BLEU_OF_GAIN)]
    found = share([each.verdict() == "better" for each in planted])
    effect = float(np.mean([each.effect for each in planted]))
    note = f"{smallest:.2f} BLEU is the smallest difference that it names (root mean square), {effect:.2f} was planted"
    report(f"`compare --seeds`, {seeds} seeds: the difference that it names", found, FOUND, note)


def report_decisions(simulations: int) -> None:
    """``repro decide``."""
    named = named_by_decide(simulations)
    cases: list[tuple[str, float | None, Effects]] = [
        ("a run with itself", None, SAME),
        ("a run with itself, the second one's seeds vary 1.7 times as much", None, (SEED_EFFECT, 2.5 * SEED_EFFECT)),
        ("two runs, equally good", 0.0, SAME),
        *((f"a difference of {gap:.2g} BLEU", gap / BLEU_OF_GAIN, SAME) for gap in (0.3, 0.5, 1.0)),
        (f"the difference that it names, {named:.2f} BLEU", named / BLEU_OF_GAIN, SAME),
    ]
    for case, gain, effects in cases:
        found = [decide(a, b) for a, b in compared(simulations, BUDGET, gain, effects)]
        verdicts = [verdict for verdict, _ in found]
        seeds = float(np.mean([taken for _, taken in found]))
        none = share([verdict == "no such difference" for verdict in verdicts])
        worse = share([verdict == "worse" for verdict in verdicts])
        note = f"{none:.1f} % no difference as large as {DETECT:g}; {seeds:.1f} seeds of each run"
        what = f"`decide --detect {DETECT:g} --budget {BUDGET}`: {case}"
        if gain:
            better = share([verdict == "better" for verdict in verdicts])
            report(what, better, FOUND, f"{worse:.1f} % worse; {note}")
        else:
            report(what, share([verdict in ("better", "worse") for verdict in verdicts]), NULL, note)


def named_by_decide(simulations: int) -> float:
    """The smallest difference that ``repro decide`` names when its budget is used up (root mean square)."""
    tail = sequential_tails(BUDGET)[-1]
    named = [compare_groups(a, b, tail).detectable for a, b in compared(simulations // 10, BUDGET, 0.0)]
    return float(np.sqrt(np.mean(np.square(named))))


def report_promotions_by_seeds(simulations: int) -> None:
    """Promotion by the mean of three seeds."""
    for case, own in (("a champion alone", 1), ("a champion with three seeds", 3)):
        moved = []
        for number in range(simulations):
            simulated = SimulatedSet(number)
            champion = simulated.seeds(own, simulated.base)
            moved.append(compare_groups(champion, simulated.seeds(3, simulated.base)).verdict() == "better")
        report(f"promotion by the mean of three seeds: {case}, of an equal run", share(moved), MOVED)


def report_promotions(simulations: int) -> None:
    """Promotion to champion: one version against another."""
    cases: list[tuple[str, float | None, Effects, str]] = [
        ("two models, equally good", None, (0.0, 0.0), NULL),
        ("two seeds of one run, which are not equally good", None, SAME, DECIDED),
        ("a difference of 0.5 BLEU", 0.5 / BLEU_OF_GAIN, (0.0, 0.0), FOUND),
        ("a difference of 1 BLEU", 1 / BLEU_OF_GAIN, (0.0, 0.0), FOUND),
    ]
    for case, gain, effects, unit in cases:
        decided = [is_apart(a, b) for a, b in compared(simulations, 1, gain, effects)]
        report(f"promotion: {case}", share(decided), unit)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--simulations", type=int, default=1_000, help="of each row (1,000)")
    simulations = flags.parse_args().simulations
    check_bleu()
    for seeds in (2, 3, 5):
        report_groups(simulations, seeds)
    report_decisions(simulations)
    report_promotions(simulations)
    report_promotions_by_seeds(simulations)


if __name__ == "__main__":
    main()
