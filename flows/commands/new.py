"""``repro new``."""

import dataclasses
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from cyclopts import Parameter

from flows.runner.find_run import extendable_name, find_run
from flows.runner.update_time import time_of_update
from flows.runs import RUNS, Run, own_text
from flows.runs.own_text import TextFile, TextReport, remarks_on_columns, remarks_on_set, remarks_on_text
from flows.runs.paper_rows import RUN_NAME
from flows.runs.piped_text import save_pipes
from flows.runs.reversal import SWAPPED
from flows.runs.text_settings import OTHER_SHARE, OTHER_STAGES, fitting, for_pairs, within
from flows.runs.toml_runs import SUFFIX, toml_of
from flows.views.terminal import say
from infra.errors import BadConfiguration, Fault, bad_values
from infra.store.files import write_atomically
from model.config.keying import require_name
from model.config.normalise import UNEVEN
from tasks.cleaning.filters import SIDES, NotIn
from tasks.cleaning.line_shift import find_line_shift
from tasks.durations import duration, seconds_of

Pair = tuple[str, str]
POOR_UPDATES = 600
"""Fewer updates give a poor model (measured in docs/own-text.md)."""


def new(
    name: str,
    *,
    source: Annotated[
        str,
        Parameter(
            help="training text to translate from: FILE, or FILE:COLUMN of a table, JSONL or TMX; - is a pipe",
            allow_leading_hyphen=True,
        ),
    ],
    target: Annotated[
        str, Parameter(help="its translation, line by line: FILE or FILE:COLUMN", allow_leading_hyphen=True)
    ],
    dev: Annotated[
        Pair | None,
        Parameter(help="source and target of the dev set; without it 5 % of the pairs are held out, from 200 to 1,000"),
    ] = None,
    test: Annotated[tuple[Pair, ...], Parameter(help="source and target of a test set; repeatable")] = (),
    languages: Annotated[
        Pair | None, Parameter(help="ISO 639-1 codes, such as en de; by default from file names or the text")
    ] = None,
    size: Annotated[
        Literal["tiny", "small", "base"] | None, Parameter(help="of the model; by default the number of pairs decides")
    ] = None,
    budget: Annotated[
        str, Parameter(help="time limit of the whole run here, such as 30m: sets updates, may choose a smaller model")
    ] = "",
    like: Annotated[str, Parameter(help="take model and training of this run, in place of --size")] = "",
    replace: Annotated[bool, Parameter(help="write over an existing NAME.toml")] = False,
) -> None:
    """Write NAME.toml, a run of your own text, and report on the text.

    Text may be plain, .gz, .xz, .bz2, .zst, .tsv, .csv, .jsonl, .parquet or .tmx, or a dataset on the Hugging Face Hub,
    whose revision is pinned. The file pins the text by checksum. Edit the file, then use it like a built-in run. The
    number of pairs decides model and training; a few updates are timed here to estimate how long the run takes.

    For example:

    repro new my-run --source train.en.gz --target train.de.gz --dev dev.en dev.de --test test.en test.de

    repro new my-run --source pairs.tsv:1 --target pairs.tsv:2 --languages en de --budget 30m

    zstd -dc pairs.jsonl.zst | repro new my-run --source -:translation.en --target -:translation.de

    repro new my-run --source hf://datasets/ME/MINE/train.parquet:en --target hf://datasets/ME/MINE/train.parquet:de
    """
    with bad_values():
        require_name(name, "name")
    if name in RUNS or name.endswith(SWAPPED) or RUN_NAME.fullmatch(name):
        raise BadConfiguration(f"{name} is the name of a built-in or swapped run; give another name")
    if size and like:
        raise BadConfiguration("--size and --like exclude each other; give one of them")
    file = Path(f"{name}{SUFFIX}")
    if file.exists() and not replace:
        raise BadConfiguration(f"{file} exists; give another name, or --replace")
    seconds = seconds_of(budget) or 0.0
    if budget and not seconds:
        raise BadConfiguration(f"--budget is {budget!r}, allowed are hours and minutes, such as 30m or 1h30m")
    source, target = save_pipes([source, target], name, replace)
    sides = TextFile.parse(source, "--source"), TextFile.parse(target, "--target")
    if sides[0] == sides[1]:
        raise BadConfiguration(f"--source and --target are both {source!r}; give the two sides of the text")
    first = next(own_text.read(*sides), None)
    if first is None:
        raise BadConfiguration(f"{source} and {target} hold no line")
    known = _languages(languages, sides, first)
    pairs, length = own_text.measure(*sides)
    likes = [find_run(like)] if like else fitting(pairs, size or "")
    tests = {"test" if len(test) == 1 else f"test{n}": _files(each, "--test") for n, each in enumerate(test, 1)}
    filters = own_text.filters_of(likes[0], known, ("dev", *tests))
    any_file = dataclasses.replace(sides[0], shards=sides[0].shards[:1], urls=sides[0].urls[:1])
    with bad_values(f"--like {like}: " if like else ""):  # before held-out pairs are written
        own_text.run_of(name, likes[0], known, sides, {"dev": (any_file, any_file)} | tests, filters)
    sets = dict(tests)
    if dev:
        sets = {"dev": _files(dev, "--dev")} | tests
        if (count := own_text.measure(*sets["dev"])[0]) < own_text.FEWEST_DEV:
            raise BadConfiguration(f"--dev has {count} pairs, allowed are at least {own_text.FEWEST_DEV}")
    frames = {each: pl.concat([first.head(0), *own_text.read(*pair)]) for each, pair in sets.items()}
    if empty := [each for each, frame in frames.items() if not frame.height]:
        raise BadConfiguration(f"the files of {empty[0]} hold no line")
    held = None
    if not dev:
        paths = _held_out_paths(name, known, sides, replace)
        held = own_text.hold_out(*sides, pairs, filters, list(frames.values()))
        frames["dev"] = held
    shifts = {each: find_line_shift(*frame.select(SIDES)) for each, frame in frames.items()}
    say(f"checking {pairs:,} pairs ...")
    report = own_text.look(*sides, pairs, filters, list(frames.values()), held)
    _say_report(report)
    remarks = [*remarks_on_columns(sides, first.row(0)), *remarks_on_text(report, filters, known)]
    for each, frame in frames.items():
        remarks += remarks_on_set(each, frame, filters, known, shifts[each])
    for remark in remarks:
        say(f"warning: {remark}")
    fitted = _fit_time([for_pairs(each, pairs) for each in likes], length, seconds)
    if held is not None:
        sets = {"dev": _held_out(paths, held)} | tests
    with bad_values():
        run = own_text.run_of(name, fitted, known, sides, sets, filters)
    base = find_run(like or fitted.name)
    text = toml_of(run, base, like and extendable_name(like))
    if file.exists() and file.read_text("utf-8") != text:
        names = (Path(f"{file}.before{number}") for number in ("", *range(2, 1000)))
        kept = next(each for each in names if not each.exists())
        write_atomically(kept, file.read_text("utf-8"))
        say(f"{kept} is the earlier {file}: what you changed there by hand is not in the new one")
    write_atomically(file, text)
    model = run.model
    training = run.training
    batch = f"{training.batch_sentences:,} pairs" if training.batch_sentences else f"{training.batch_tokens:,} tokens"
    most = "at most " if training.minutes else ""
    trained = f"{training.epochs} epochs in" if training.epochs else f"{most}{training.updates:,}"
    say(
        f"wrote {file.absolute()}: {known[0]}-{known[1]}, {pairs:,} pairs, {model.layers} layers of {model.d_model}, "
        f"dropout {model.p_drop:g}, {run.vocabulary.size:,} pieces, {trained} updates of "
        f"{batch}; the rest as in {base.name}"
    )
    if report.shift or any(shifts.values()):
        say("next: mend the text and repeat this with --replace")
        return
    if remarks:
        say(f"after you correct the text or the command, --replace writes {file} again")
    say(f"next: repro plan {file}, then repro run {file}")


def _fit_time(runs: list[Run], length: int, budget: float) -> Run:
    """Choose the first run that learns enough within the ``budget`` (seconds; 0: no limit); say how long it trains."""
    like = runs[0]
    if not budget and (like.training.epochs or like.training.minutes or like.synthetic or like.decoding.ensemble):
        return like
    measured = partial(time_of_update, length=length)
    say("timing updates of the model on this machine ...")
    try:
        run, time = within(budget, runs, measured) if budget else (runs[0], measured(runs[0]))
    except ValueError as error:
        raise BadConfiguration(f"--budget does not fit --like: {error}") from error
    except Fault as fault:
        if budget or isinstance(fault, BadConfiguration):
            raise
        say(f"how long the training takes could not be measured: {fault}")
        return runs[0]
    most = run.training.updates
    updates = min(most, int(60 * run.training.minutes / time.seconds)) if budget else most
    whole = duration(time.seconds * updates * (1 + OTHER_SHARE) + OTHER_STAGES)
    alone = f"{time.seconds / time.slowdown:.2f} s without the machine's other work"
    say(f"the run takes about {whole} here: {updates:,} updates of {time.seconds:.2f} s ({alone}), and other stages")
    if updates < POOR_UPDATES:
        say(f"expect a poor model: {updates:,} updates; docs/own-text.md shows what budgets reach")
    if run.model != (usual := runs[0].model):
        chosen = f"{run.model.layers} layers of {run.model.d_model}, not {usual.layers} of {usual.d_model}"
        say(f"at this time of an update the budget chose a smaller model: {chosen} (docs/own-text.md)")
    if budget:
        end = f"{duration(60 * run.training.minutes)}, or after {most:,} updates if they come sooner"
        say(f"the training ends after {end}; other work costs updates, and slows the stages without a limit")
    return run


def _files(words: Pair, option: str) -> tuple[TextFile, TextFile]:
    return TextFile.parse(words[0], option), TextFile.parse(words[1], option)


def _languages(given: Pair | None, sides: tuple[TextFile, TextFile], first: pl.DataFrame) -> Pair:
    for each in given or ():
        if not re.fullmatch("[a-z]{2,3}", each):
            raise BadConfiguration(f"--languages has {each!r}, allowed are ISO 639 codes, such as en and de")
    if given and given[0] == given[1]:
        raise BadConfiguration(f"--languages has {given[0]!r} twice; give two languages")
    if given:
        return given
    source, target = (own_text.guess_language(side, first, name) for side, name in zip(sides, SIDES, strict=True))
    if not source or not target or source == target:
        raise BadConfiguration(
            f"the languages cannot be told from {sides[0].path.name} and {sides[1].path.name}; "
            "give them, for example --languages en de"
        )
    return source, target


def _held_out_paths(name: str, languages: Pair, sides: tuple[TextFile, TextFile], replace: bool) -> list[Path]:
    """Name the files beside NAME.toml for the held-out pairs."""
    paths = [Path(f"{name}.dev.{language}") for language in languages]
    for path in filter(Path.exists, paths):
        if any(path.samefile(file) for side in sides for file in side.files):
            raise BadConfiguration(f"{path}, which the dev set would be written to, is the text itself; rename it")
        if not replace:
            raise BadConfiguration(f"{path} exists; give it by --dev, or give another name, or --replace")
    return paths


def _held_out(paths: list[Path], frame: pl.DataFrame) -> tuple[TextFile, TextFile]:
    """Write the held-out pairs; the rule NotIn removes them from the training text."""
    for path, side in zip(paths, SIDES, strict=True):
        lines = frame[side].str.replace_all(UNEVEN, " ").str.strip_chars(" ")
        write_atomically(path, "".join(f"{line}\n" for line in lines))
    say(
        f"no --dev: held out {frame.height:,} pairs, chosen by seed {own_text.SEED}, as {paths[0]} and {paths[1]}; "
        "they are removed from the training text"
    )
    return TextFile(paths[0]), TextFile(paths[1])


def _say_report(report: TextReport) -> None:
    """Report on the text, and on what the filters would reject."""
    share = report.rejected / max(1, report.looked_at)
    held = f", {report.held_out:,} of them in the held-out set" if report.held_out else ""
    say(
        f"{report.pairs:,} pairs{held}; filters reject {report.rejected:,} ({share:.1%}) of "
        f"{'the first ' * (report.pairs > own_text.LOOKED_AT)}{report.looked_at:,}"
        f"{'; `clean` leaves them out, nothing to do unless a warning follows' * (report.rejected > 0)}"
    )
    also = ", and so are the held-out pairs, which `clean` counts with them" if held else ""
    if known := report.rejected_by.get(NotIn().name):
        say(f"  training pairs with a line of a dev or test set: {known:,}; they are left out too{also}")
    for rule, count in sorted(report.rejected_by.items(), key=lambda each: -each[1]):
        if rule == NotIn().name:
            continue
        source, target = (text if len(text) <= 60 else text[:57] + "..." for text in report.samples[rule])
        say(f"  {rule}: {count:,}, for example {source!r} | {target!r}")
    if report.control:
        say(f"  control characters in {report.control:,} pairs; they are removed (filters.normalise.control)")
    if report.repeated:
        say(f"  repeated pairs: {report.repeated:,}; one of each stays")
