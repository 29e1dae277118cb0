"""Makes runs of the rows of the paper's Tables 2 and 3, on the paper's corpus or scaled down on another run's corpus.

On the paper's corpus, text is not cleaned (the profile ``paper``). On another corpus, text, sets, vocabulary, schedule
and norm come from its run, everything else from the paper. The name ``demo-paper-A1-scale8`` holds corpus, row and
scale, so ``parse_run_name`` can rebuild the run from it.
"""

import re
from dataclasses import fields, replace

from flows.runs.built_in_runs import PAPER_BASE, PAPER_BASE_ENFR, PAPER_BIG, PAPER_BIG_ENFR, RUNS, VARIATIONS
from flows.runs.overrides import override
from flows.runs.run import Run
from infra.errors import BadConfiguration, bad_values
from model.config import Averaging, Decoding, Model, supports_varlen_attention
from tasks.corpus.catalogue import SETS
from tasks.evaluation.paper_figures import ROWS
from tasks.evaluation.paper_row import PaperRow

PAPER = "wmt14-ende"
"""The paper's corpus; stands for WMT14 English-French in the rows of that language pair."""
TABLE_2 = {
    "table2-base": PAPER_BASE,
    "table2-big": PAPER_BIG,
    "table2-base-enfr": PAPER_BASE_ENFR,
    "table2-big-enfr": PAPER_BIG_ENFR,
}
CLEANED = TABLE_2 | {name.removeprefix(f"{PAPER}-"): run for name, run in VARIATIONS.items()}
"""The run with cleaned text of each row, except base and big: they are table2-base and table2-big."""
UNCLEANED = override(PAPER_BASE, ("profile=paper",)).filters
"""The filters of the rows: the paper names no cleaning (§5.1)."""


def row_run_name(row: str, corpus: str, scale: int) -> str:
    """Return the name of ``row_run(row, corpus, scale)``."""
    return f"{corpus}-paper-{row}-scale{scale}"


def _uncleaned(row: str, run: Run) -> Run:
    return replace(run, name=row_run_name(row, PAPER, 1), filters=UNCLEANED)


def _of_table_3(row: str, run: Run) -> Run:
    """Score the run as in Table 3: newstest2013 alone, by the last checkpoint."""
    about = f"Table 3, row {row}: the last checkpoint, newstest2013"
    sets = (SETS["wmt14-ende"]["newstest2013"],)
    return replace(_uncleaned(row, run), about=about, sets=sets, evaluate=(), averaging=Averaging(1))


BASE_ROW = _of_table_3("base", PAPER_BASE)


def _variant(name: str, about: str, model: Model, decoding: Decoding = BASE_ROW.decoding) -> Run:
    """Change the model or search of Table 3's base; uses padded batches, which every model supports."""
    training = replace(BASE_ROW.training, batching="buckets")
    base = replace(BASE_ROW, model=model, training=training, decoding=decoding)
    return replace(base, name=row_run_name(name, PAPER, 1), about=about)


GROUPS = {"norms": ("post-ln", "pre-ln"), "searches": ("own-greedy", "own-beam", "torch-greedy", "torch-beam")}
"""Groups of rows to compare: the place of layer norm; layers and search."""
VARIANTS = {
    **{
        f"{norm}-ln": _variant(f"{norm}-ln", f"base with {norm}-LN", replace(PAPER_BASE.model, norm=norm))
        for norm in ("post", "pre")
    },
    **{
        f"{layers}-{search}": _variant(
            f"{layers}-{search}",
            f"base with {'torch.nn.Transformer' if layers == 'torch' else 'own layers'}, {search} search",
            replace(PAPER_BASE.model, attention=layers),
            PAPER_BASE.decoding if search == "beam" else Decoding(beam=1),
        )
        for layers in ("own", "torch")
        for search in ("greedy", "beam")
    },
}
"""Variants of base that the paper does not have, for ``GROUPS``."""
MADE = {
    "base": BASE_ROW,
    "big": _of_table_3("big", PAPER_BIG),
    **{row: _uncleaned(row, run) for row, run in TABLE_2.items()},
    **{row: _of_table_3(row, run) for row, run in CLEANED.items() if row not in TABLE_2},
    **VARIANTS,
}
PAPER_RUNS = {row: MADE[row] for row in ROWS}
"""Each row at the paper's size, on the paper's corpus."""
SHORTENED_UPDATES = {"demo": 400}
"""Updates of rows on a corpus where its run has more: 6 layers take longer than the demo's 2."""
NAMING = ("name", "about", "sets", "evaluate", "expect", "min_champion_bleu")
"""Fields that change no result: ``wmt14-ende-A1`` with the profile ``paper`` is row A1."""
RUN_NAME = re.compile(r"(.+)-paper-(.+)-scale([1-9]\d*)")


def corpora() -> tuple[str, ...]:
    """List the corpora for rows: the paper's, and those of all runs that are not rows of the paper."""
    paper = [run.name for run in CLEANED.values()]
    return (PAPER, *(name for name in RUNS if name not in paper))


def rows_on(corpus: str) -> tuple[str, ...]:
    """List the rows for the languages of the corpus. Raises BadConfiguration for an unknown corpus."""
    if corpus not in corpora():
        raise BadConfiguration(f"unknown corpus {corpus!r}, known are: {', '.join(corpora())}")
    return tuple(row for row in PAPER_RUNS if corpus == PAPER or ROWS[row].languages == "English-German")


def parse_rows(words: str, corpus: str) -> tuple[str, ...]:
    """Parse rows such as ``base,A1``; ``all`` means the paper's rows, ``norms`` and ``searches`` are in ``GROUPS``.

    Raises BadConfiguration for an unknown or repeated row.
    """
    allowed = rows_on(corpus)
    groups = GROUPS | {"all": tuple(row for row in allowed if row not in VARIANTS)}
    names = (word.strip() for word in words.split(","))
    rows = tuple(row for name in names for row in groups.get(name, (name,)))
    for row in rows:
        if row not in allowed:
            known = f"known on {corpus} are: {', '.join(allowed)}; or {', '.join(groups)}"
            raise BadConfiguration(f"unknown row {row!r}, {known}")
    if len(set(rows)) < len(rows):
        raise BadConfiguration(f"--rows is {words!r}, allowed is each row once")
    return rows


def effective_scale(scale: int, corpus: str) -> int:
    """Return the scale, or the corpus's default for 0. Raises BadConfiguration for a negative one."""
    if scale < 0:
        raise BadConfiguration(f"--scale is {scale}, allowed is a whole number from 1, or 0 for the corpus's own")
    return scale or (1 if corpus == PAPER else 8)


def row_run(row: str, corpus: str, scale: int) -> Run:
    """Make the run of a row on a corpus, with the model's widths divided by ``scale``."""
    own = PAPER_RUNS[row]
    if corpus == PAPER and scale == 1:
        return own
    widths = {name: max(1, getattr(own.model, name) // scale) for name in ("d_ff", "d_k", "d_v")}
    with bad_values(f"--scale is {scale}, which row {row} cannot have: "):
        model = replace(own.model, d_model=max(2, own.model.d_model // scale // 2 * 2), **widths)  # even (§3.5)
    name = row_run_name(row, corpus, scale)
    where = own.about if row in VARIANTS else f"Table {ROWS[row].table}, row {row}"
    about = f"{where}, on {corpus}, widths divided by {scale}"
    if corpus == PAPER:
        packed = own.training.batching == "packed" and supports_varlen_attention(model)
        training = replace(own.training, batching="packed" if packed else "buckets")
        return replace(own, name=name, about=about, model=model, training=training)
    base = RUNS[corpus]
    training = replace(base.training, label_smoothing=own.training.label_smoothing)
    if updates := SHORTENED_UPDATES.get(corpus):
        training = replace(training, updates=updates, dev_every=updates // 4)
    return replace(
        base,
        name=name,
        about=about,
        model=model if row in GROUPS["norms"] else replace(model, norm=base.model.norm),
        training=training,
        decoding=replace(base.decoding, beam=1) if own.decoding.beam == 1 else base.decoding,
        averaging=base.averaging if ROWS[row].table == 2 else Averaging(1),
        expect=(),
    )


def parse_run_name(name: str) -> Run | None:
    """Make the run of a row from its name; None for any other name. Raises BadConfiguration for an unknown row."""
    found = RUN_NAME.fullmatch(name)
    if not found:
        return None
    corpus, row, scale = found.groups()
    if row not in rows_on(corpus):
        raise BadConfiguration(f"unknown row {row!r} in {name!r}, known on {corpus} are: {', '.join(rows_on(corpus))}")
    return row_run(row, corpus, int(scale))


def paper_row_of(run: Run) -> tuple[PaperRow, ...]:
    """Find the paper's row that a run reproduces, also with overrides; empty for any other run."""
    found = RUN_NAME.fullmatch(run.name)
    cleaned = {value.name: row for row, value in CLEANED.items()}
    corpus, row, number = found.groups() if found else (PAPER, cleaned.get(run.name, ""), "1")
    if row not in PAPER_RUNS or corpus not in corpora():
        return ()
    own = PAPER_RUNS[row]
    exact = all(getattr(run, each.name) == getattr(own, each.name) for each in fields(own) if each.name not in NAMING)
    size = run.vocabulary.size
    count = run.averaging.count
    cleaned_text = corpus == PAPER and run.filters != UNCLEANED
    return (PaperRow(row, corpus, int(number), exact, _comparison_set(run, row), run.model, size, count, cleaned_text),)


def _comparison_set(run: Run, row: str) -> str:
    """Choose the set to compare with the paper's: dev for Table 3; for Table 2 a test set if the run has one."""
    names = run.evaluate or [each.name for each in run.sets]
    if ROWS[row].set_name in names:
        return ROWS[row].set_name
    tests = [name for name in names if name != run.dev]
    return tests[-1] if ROWS[row].table == 2 and tests else run.dev
