"""Examines a user's own text and makes a run of it (``repro new``)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import expanduser
from pathlib import Path

import polars as pl

from flows.runs.built_in_runs import DATA_LIMITS
from flows.runs.hugging_face import SCHEME, hub_files
from flows.runs.languages import SCRIPT_OF, WITHOUT_SPACES, standard_filters
from flows.runs.run import Run
from infra.errors import BadConfiguration, BadData
from infra.guards.path_names import is_path_name
from infra.store.files import sha256_of
from tasks.cleaning.filters import KNOWN, SIDES, Filters, InvalidUnicode, Length, NotIn
from tasks.cleaning.language_filters import STOP_WORDS, Language, Swapped
from tasks.cleaning.line_shift import LineShift, find_line_shift
from tasks.cleaning.partitions import first_rejecting_rule, normalise_sides, shuffle_positions
from tasks.corpus.catalogue import ARCHIVES, COMPRESSED, TABLES, Corpus, EvaluationSet, File, Part, Text, text_suffix
from tasks.corpus.reading import read_pairs
from tasks.stages.clean import FEWEST_JUDGED

LOOKED_AT = 200_000
"""Pairs that the rules are tried on."""
HELD_OUT = 1_000
HELD_OUT_SHARE = 0.05
FEWEST_HELD_OUT = 200
SEED = 1
"""Held-out dev set: HELD_OUT_SHARE of the pairs, from FEWEST_HELD_OUT to HELD_OUT pairs; SEED chooses them."""
FEWEST_DEV = 50
"""Fewest pairs of a dev set that a user gives: with fewer, BLEU is too noisy."""
MARKUP = r"(?i)</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|<!--|&(?:[a-z][a-z0-9]{1,7}|#[0-9]{1,6}|#x[0-9a-f]{1,6});"
CONTROL = r"[\p{Cc}--\s]"
"""Control characters except white space."""
CHARACTERS_OF_PIECE = 4
"""A rough mean, to estimate the time of an update."""
MANY = 0.2
"""Above this share of pairs, swapped sides and lines of a dev or test set are reported."""
MANY_BROKEN = 0.01
"""Above this share of pairs, broken characters are reported: a few are usual."""


@dataclass(frozen=True)
class TextFile:
    """A user's file, a column of it (``pairs.tsv:2``), or files of a dataset on the Hugging Face Hub."""

    path: Path
    column: str = ""
    shards: tuple[Path, ...] = ()
    """Local paths of the dataset's files; empty if ``path`` is a file."""
    urls: tuple[str, ...] = ()
    """The addresses of the dataset's files."""

    @classmethod
    def parse(cls, words: str, option: str) -> "TextFile":
        """Parse ``FILE`` or ``FILE:COLUMN``. Raises BadConfiguration for a file or column that does not fit."""
        if words.startswith(SCHEME):
            return cls._on_hub(words, option)
        whole = Path(expanduser(words))  # noqa: PTH111 - leaves ~data alone; Path.expanduser raises
        file, _, column = words.rpartition(":")
        path = Path(expanduser(file))  # noqa: PTH111
        if whole.exists() or not file:
            path = whole
            column = ""
        if not path.is_file():
            raise BadConfiguration(f"{option} is {words!r}, allowed is an existing FILE, or FILE:COLUMN")
        if not is_path_name(path.name):
            raise BadConfiguration(f"{option} is {words!r}; rename the file: too long, or an unusual character in it")
        if path.name.lower().endswith(ARCHIVES):
            raise BadConfiguration(f"{option} is {words!r}, an archive; unpack it and give the file of text in it")
        if text_suffix(path.name) in TABLES and not column:
            raise BadConfiguration(
                f"{option} is {words!r}, a table; add its column: {words}:{2 if option == '--target' else 1}, "
                f"{words}:english, for TMX the language, for JSONL a field such as translation.en"
            )
        if column and text_suffix(path.name) not in TABLES:
            raise BadConfiguration(f"{option} is {words!r}, allowed is a column of a table: {', '.join(TABLES)}")
        return cls(path, column)

    @classmethod
    def _on_hub(cls, words: str, option: str) -> "TextFile":
        address, _, column = words.rpartition(":")
        if address == SCHEME[:2]:
            address = words
            column = ""
        if text_suffix(address) in TABLES and not column:
            raise BadConfiguration(f"{option} is {words!r}, a table; add its column: {words}:translation.en")
        places, urls = hub_files(address, option)
        return cls(Path(address.removeprefix(SCHEME)), column, places, urls)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the text, in order."""
        return self.shards or (self.path,)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each file, as a run names it."""
        return self.urls or tuple(map(_address, self.files))

    def texts(self, run: str, addresses: Collection[str]) -> list[Text]:
        """Return the texts for a run, one per file; ``addresses`` are those of all files of the run."""
        files = (
            File(f"{run}/{short_name(url, addresses)}", url, sha256_of(path), size=path.stat().st_size)
            for path, url in zip(self.files, self.addresses, strict=True)
        )
        return [Text(file, column=self.column) for file in files]


def short_name(address: str, addresses: Collection[str]) -> str:
    """Return the shortest end of the path that no other address shares: ``train.en``, else ``a/train.en``."""
    parts = address.removeprefix(SCHEME).lstrip("/").split("/")
    names = ("/".join(parts[-count:]) for count in range(1, len(parts)))
    unique = (name for name in names if sum(f"/{each}".endswith(f"/{name}") for each in addresses) == 1)
    return next(unique, "/".join(parts))


def _address(path: Path) -> str:
    """Return the path, relative if it is below the working folder: NAME.toml and text can move together."""
    absolute = path.parent.resolve() / path.name  # a link keeps its name, whose suffix tells the format
    here = Path.cwd()
    return f"{absolute.relative_to(here) if absolute.is_relative_to(here) else absolute}"


@dataclass
class TextReport:
    """What ``look`` found in the training text."""

    pairs: int = 0
    looked_at: int = 0
    """Pairs that shares are of, as in ``clean``: also those in the held-out dev set."""
    rejected_by: dict[str, int] = field(default_factory=dict)
    samples: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each rule, a pair that it rejects."""
    repeated: int = 0
    """Repeated pairs among those that the rules keep."""
    marked: Sequence[pl.Series] = ()
    """Source and target lines with HTML, also those that a rule rejects or that are held out."""
    control: int = 0
    """Pairs with control characters before normalisation."""
    held_out: int = 0
    """Pairs that are also in the held-out dev set, repeated ones too; no rule is tried on them."""
    shift: LineShift | None = None

    @property
    def rejected(self) -> int:
        """Pairs that a rule rejects, except pairs with a line of a dev or test set."""
        return sum(self.rejected_by.values()) - self.rejected_by.get(NotIn().name, 0)


def read(source: TextFile, target: TextFile) -> Iterator[pl.DataFrame]:
    """Yield frames of aligned pairs. Raises BadData if the sides differ in length or a file cannot be read."""

    def text(path: Path, column: str) -> Text:
        return Text(File(f"own/{path.name}", sha256="0" * 64), column=column)  # reading needs no checksum

    if len(source.files) != len(target.files):
        counts = f"{len(source.files)} and {len(target.files)} files"
        raise BadData(f"{source.path} and {target.path} have {counts}: give two columns of one dataset")
    for paths in zip(source.files, target.files, strict=True):
        yield from read_pairs((text(paths[0], source.column), text(paths[1], target.column)), paths)


def measure(source: TextFile, target: TextFile) -> tuple[int, int]:
    """Count the pairs, and estimate the pieces per source sentence. BadData names the place of a lost line."""
    pairs = characters = 0
    begin = pl.DataFrame(schema=dict.fromkeys(SIDES, pl.String))
    try:
        for frame in read(source, target):
            pairs += frame.height
            characters += int(frame["source"].str.len_chars().sum())
            begin = pl.concat([begin, frame.head(LOOKED_AT - begin.height)])
    except BadData as error:
        if shift := find_line_shift(begin["source"], begin["target"]):
            raise BadData(f"{error}; {_shifted(shift, paired=False)}") from error
        raise
    return pairs, max(4, characters // max(1, CHARACTERS_OF_PIECE * pairs))


def look(
    source: TextFile,
    target: TextFile,
    pairs: int,
    filters: Filters,
    known: Sequence[pl.DataFrame],
    held_out: pl.DataFrame | None = None,
) -> TextReport:
    """Try the rules on the first ``LOOKED_AT`` of the text's ``pairs``.

    ``known``: the evaluation sets; ``held_out``: the evaluation set that was taken from this text.
    """
    report = TextReport(pairs)
    frames = list[pl.DataFrame]()
    for frame in read(source, target):
        frames.append(frame)
        if sum(each.height for each in frames) >= LOOKED_AT:
            break
    frame = pl.concat(frames).head(LOOKED_AT)
    report.control = frame.select(pl.any_horizontal(pl.col(SIDES).str.contains(CONTROL)).sum()).item()
    frame = normalise_sides(frame, filters.normalise)
    report.shift = find_line_shift(frame["source"], frame["target"])
    report.looked_at = frame.height
    report.marked = [frame[side].filter(frame[side].str.contains(MARKUP)) for side in SIDES]
    if held_out is not None:
        frame = frame.join(normalise_sides(held_out, filters.normalise), on=SIDES, how="anti", maintain_order="left")
        report.held_out = report.looked_at - frame.height
    frame = frame.with_columns(_known_line(known, filters))
    verdict = first_rejecting_rule(frame, filters)
    for at, rule in enumerate(filters.rules):
        if (hit := frame.filter(verdict == at)).height:
            report.rejected_by[rule.name] = hit.height
            report.samples[rule.name] = (hit["source"][0], hit["target"][0])
    kept = frame.filter(verdict == len(filters.rules))
    report.repeated = kept.height - kept.select(SIDES).unique().height
    return report


def _known_line(known: Sequence[pl.DataFrame], filters: Filters) -> pl.Expr:
    """Whether a side of a normalised pair is in one of the evaluation sets."""
    empty = pl.DataFrame(schema=dict.fromkeys(SIDES, pl.String))
    sets = normalise_sides(pl.concat([empty, *(each.select(SIDES) for each in known)]), filters.normalise)
    return pl.any_horizontal(pl.col(side).is_in(sets[side].unique().implode()) for side in SIDES).alias(KNOWN)


def guess_language(file: TextFile, frame: pl.DataFrame, side: str) -> str:
    """Guess the language from the file's name (``train.de.gz``) or from common words; "" if unknown."""
    name = file.path.name
    for packed in COMPRESSED:
        name = name.removesuffix(packed)
    for piece in reversed([*name.split(".")[1:], *file.column.split(".")]):
        if len(piece) == 2 and piece.isalpha() and piece.islower():
            return piece
    counts = {each: frame.select(Language.common(pl.col(side), each).sum()).item() for each in STOP_WORDS}
    best = max(counts, key=lambda each: counts[each])
    return best if counts[best] > frame.height // 4 else ""


def hold_out(
    source: TextFile, target: TextFile, pairs: int, filters: Filters, known: Sequence[pl.DataFrame]
) -> pl.DataFrame:
    """Choose pairs for a dev set by seed, unchanged, among those that the filters keep: none of the sets ``known``."""
    count = max(FEWEST_HELD_OUT, min(HELD_OUT, int(HELD_OUT_SHARE * pairs)))
    best = pl.DataFrame()
    first = 0
    is_known = _known_line(known, filters)
    for frame in read(source, target):
        order = pl.Series("order", shuffle_positions("dev", first, frame.height, SEED))
        judged = normalise_sides(frame, filters.normalise).with_columns(is_known)
        fresh = frame.with_columns(order).filter(first_rejecting_rule(judged, filters) == len(filters.rules))
        both = pl.concat([best, fresh] if best.height else [fresh]).unique("source", keep="first", maintain_order=True)
        best = both.sort("order").head(count)
        first = first + frame.height
    if pairs < 2 * FEWEST_HELD_OUT or best.height < FEWEST_HELD_OUT:
        few = f"{source.path.name} has {pairs} pairs, too few to hold out {FEWEST_HELD_OUT} for a dev set"
        raise BadConfiguration(f"{few}; give one by --dev")
    return best.select(SIDES)


def run_of(
    name: str,
    like: Run,
    languages: tuple[str, str],
    train: tuple[TextFile, TextFile],
    sets: Mapping[str, tuple[TextFile, TextFile]],
    filters: Filters,
) -> Run:
    """Make a run of this text with the model and training of ``like``; the first set is the dev set."""
    addresses = {address for pair in (train, *sets.values()) for file in pair for address in file.addresses}
    text = partial(_only_text, name, addresses)
    texts = list(zip(*(file.texts(name, addresses) for file in train), strict=True))
    parts = [Part(name if len(texts) == 1 else f"{name}-{n}", *pair) for n, pair in enumerate(texts)]
    evaluation = tuple(
        EvaluationSet(each, text(each, source), text(each, target)) for each, (source, target) in sets.items()
    )
    return replace(
        like,
        name=name,
        about=f"{languages[0]}-{languages[1]}, own text, model and training of {like.name}",
        corpus=Corpus(name, *languages, tuple(parts)),
        sets=evaluation,
        dev=evaluation[0].name,
        evaluate=(),
        filters=filters,
        expect=DATA_LIMITS,  # the scores of a model of this text are unknown
    )


def _only_text(run: str, addresses: Collection[str], name: str, file: TextFile) -> Text:
    """Return the text of one side of the evaluation set ``name``."""
    if (count := len(file.files)) > 1:
        raise BadConfiguration(f"{name} is {file.path}, in {count} files, allowed is one: save it as one shard")
    return file.texts(run, addresses)[0]


def filters_of(like: Run, languages: tuple[str, str], exclude: tuple[str, ...]) -> Filters:
    """Choose rules for these languages, with the length limits of ``like``."""
    words = next((rule for rule in like.filters.rules if isinstance(rule, Length)), Length(1, 150))
    filters = standard_filters(*languages, words, exclude)
    # Not a standard filter: its entry would change the keys of every training of a built-in run.
    swapped = [Swapped(*languages)] if STOP_WORDS.keys() >= {*languages} else []
    return replace(filters, rules=(*swapped, *filters.rules))


def remarks_on_text(report: TextReport, filters: Filters, languages: tuple[str, str]) -> Iterator[str]:
    """Yield warnings about the training text."""
    looked_at = report.looked_at
    rejected_by = report.rejected_by
    for each in languages:
        if each not in SCRIPT_OF and each not in WITHOUT_SPACES:
            yield f"the language {each!r} is unknown here: no filter checks its script; --languages names another"
    if (swapped := rejected_by.get("swapped", 0)) > MANY * looked_at:
        yield _exchanged(f"in {swapped:,} pairs", languages, "exchange --source and --target, or --languages")
    if report.shift:
        yield _shifted(report.shift)
    if (broken := rejected_by.get(InvalidUnicode().name, 0)) > MANY_BROKEN * looked_at:
        yield f"{broken:,} pairs are not UTF-8; convert the file, for example by iconv -f latin1 -t utf-8"
    if any(map(len, report.marked)):
        counts = " and ".join(f"{len(lines):,} {side}" for side, lines in zip(SIDES, report.marked, strict=True))
        way = "grep -nE '</?[a-z]|&[a-z]+;' FILE lists lines, docs/own-text.md has a command that removes tags"
        first = next(lines[0] for lines in report.marked if len(lines))
        yield f"{counts} lines have HTML (tags, &amp;), which no rule rejects: {way}; the first: {first}"
    if (known := rejected_by.get(NotIn().name, 0)) > MANY * looked_at:
        yield f"{known:,} pairs have a line of a dev or test set; is a file given twice?"
    most = filters.max_rejected
    if looked_at >= FEWEST_JUDGED and report.rejected / looked_at > most:
        yield (
            f"the run would stop at clean: its filters reject {report.rejected / looked_at:.1%}, filters.max_rejected "
            f"allows {most:.0%}; correct the text or the languages, or raise filters.max_rejected"
        )


def remarks_on_set(
    name: str, frame: pl.DataFrame, filters: Filters, languages: tuple[str, str], shift: LineShift | None
) -> Iterator[str]:
    """Yield warnings about a dev or test set; ``frame`` holds its pairs, ``shift`` what find_line_shift found."""
    looks_swapped = (~rule.keep() for rule in filters.rules if isinstance(rule, Swapped))
    count = frame.select(pl.any_horizontal(pl.lit(value=False), *looks_swapped).sum()).item()
    if count > MANY * frame.height:
        yield f"{name}: " + _exchanged(f"in {count:,} pairs", languages, "give its files in the other order")
    if shift:
        yield f"{name}: {_shifted(shift)}"
    if broken := frame.select(pl.any_horizontal(pl.col(SIDES).str.contains("\ufffd", literal=True)).sum()).item():
        yield f"{name}: {broken:,} pairs are not UTF-8; convert the file, for example by iconv -f latin1 -t utf-8"


def remarks_on_columns(sides: tuple[TextFile, TextFile], first: tuple[str, str]) -> Iterator[str]:
    """Warn if the columns are given by number and the ``first`` row looks like column names."""
    if all(side.column.isdecimal() for side in sides) and all(value.isidentifier() for value in first):
        yield (
            f"the first row, {first[0]!r} and {first[1]!r}, may be the names of the columns; if so, give these in "
            "place of numbers"
        )


def _exchanged(where: str, languages: tuple[str, str], way_out: str) -> str:
    source, target = languages
    return f"the sides look exchanged: {where} the source looks like {target} and the target like {source}; {way_out}"


def _shifted(shift: LineShift, *, paired: bool = True) -> str:
    """Name the place; ``paired``: the sides have equally many lines, so that a line elsewhere is one too many."""
    way = f"{abs(shift.by)} {'later' if shift.by > 0 else 'earlier'}"
    short = "source" if shift.by > 0 else "target"
    unpaired = f", and delete from the {short} the line near {shift.last:,} without a counterpart, often the last"
    return (
        f"from about line {shift.first:,} to {shift.last:,} the sides do not correspond: the translation of a source "
        f"line seems to stand {way} in the target. If the {short} lost a line near {shift.first:,}, put an empty line "
        f"there{unpaired * paired}"
    )
