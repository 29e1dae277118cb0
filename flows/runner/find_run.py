"""Finds a run by its name: one of ``flows.runs``, a row of the paper on some corpus, or one in a user's file."""

import re
from functools import partial
from pathlib import Path

from flows.runs import RUNS, Run
from flows.runs.overrides import warn_once
from flows.runs.paper_rows import parse_run_name
from flows.runs.reversal import SWAPPED, swapped_run
from flows.runs.toml_runs import SUFFIX, run_from_toml
from flows.runs.unknown_names import did_you_mean
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.files import sha256_of
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve
from tasks.corpus.catalogue import File, files
from tasks.engine.own_classes import load_user_file

RUN = re.compile(rf"(.*?\.toml|.*?\.py:[^/@]*?)({SWAPPED})?(?=[/@]|\Z)|[^/]*", re.DOTALL)
"""Matches a run at the beginning of a name: a user's file in any folder, else the text before the first slash."""


def find_run(name: str, *, bare: bool = True) -> Run:
    """Find the run ``demo``, ``demo-paper-A1-scale8``, ``my-run.toml`` or ``my_runs.py:NAME``.

    The suffix ``-swapped`` swaps source and target. ``bare``: ``my-run`` may mean ``my-run.toml`` in the working
    folder, if that file holds a run of this name. Raises BadConfiguration for an unknown run.
    """
    if name.endswith(SWAPPED):
        return swapped_run(find_run(name.removesuffix(SWAPPED), bare=bare))
    if name.endswith(SUFFIX):
        return run_from_toml(Path(name), partial(find_run, bare=False))
    if ":" in name:
        return _run_from_file(*name.rsplit(":", 1))
    run = RUNS.get(name) or parse_run_name(name)
    if not run and bare and f"{name}{SUFFIX}" in own_files():
        own = find_run(f"{name}{SUFFIX}")
        run = own if own.name == name else None
    if not run:
        recorded = [each.name for each in (Site.named().root / "runs").glob("*") if each.name != name]
        hint = did_you_mean(name, [*RUNS, *recorded, *own_files()])
        own_file = f"{name}{SUFFIX} in {Path.cwd()} (`repro new` writes one)"
        others = f"`repro show` lists built-in runs; your own would be {own_file}, or give FILE.toml or FILE.py:NAME"
        raise BadConfiguration(f"unknown run {name!r}{hint} {others}" if hint else f"unknown run {name!r}: {others}")
    return run


def own_files() -> list[str]:
    """List the files in the working folder that may hold runs."""
    return [f"{file}" for file in Path().glob(f"*{SUFFIX}")]


def is_file(name: str) -> bool:
    """Whether the name means a run in a user's file."""
    return ".py:" in name or name.removesuffix(SWAPPED).endswith(SUFFIX)


def extendable_name(name: str) -> str:
    """Return the name by which a file can extend a run: ``my-run.toml`` for ``my-run``."""
    bare = name.removesuffix(SWAPPED)
    is_known = is_file(name) or bare in RUNS or parse_run_name(bare)
    return name if is_known else f"{bare}{SUFFIX}{name[len(bare) :]}"


def split_name(text: str) -> tuple[str, str]:
    """Split ``../mine.toml/clean`` into run and rest, here ``/clean``; for a file also ``@champion``."""
    match = RUN.match(text)
    end = match.end() if match else 0
    return text[:end], text[end:]


def recorded_name(text: str) -> str:
    """Replace a run's file by the run's name: ``mine/clean`` for ``../mine.toml/clean``.

    Raises BadConfiguration for a file without that run.
    """
    run, rest = split_name(text)
    return f"{find_run(run).name}{rest}" if is_file(run) else text


def short_name(text: str) -> str:
    """Return ``recorded_name``, but keep the words of a Python file: two of its runs may have one name."""
    return text if ":" in text else recorded_name(text)


def find_version(name: str, site: Site) -> Version:
    """Find the version ``demo@champion``, ``demo/3``, ``demo`` or ``mine.toml``. Raises BadConfiguration."""
    return resolve(site.tracking, recorded_name(name))


def without_path(name: str) -> str:
    """Guess the name of a user's run without reading its file: removes the folder, the file and the suffix."""
    return name.rpartition("/")[2].rpartition(":")[2].replace(SUFFIX, "") if is_file(name) else name


def swapped_name(name: str) -> str:
    """Return the name of the run with swapped sides, or of its artifact if ``name`` is RUN/STAGE."""
    run, place = split_name(name)
    return f"{run}{SWAPPED}{place}"


def check_sets(run: Run) -> None:
    """Warn if a run is scored on sets of another corpus, such as a built-in run whose corpus was replaced, or on sets
    that ``filters.exclude`` does not keep out of the training text.

    Raises BadConfiguration if the other corpus has other languages.
    """
    languages = (run.corpus.source_language, run.corpus.target_language)
    sets = {each for each in run.sets if not each.noise}
    left = [each.name for each in run.sets if each in sets and each.name not in run.filters.exclude]
    if run.filters.exclude and left:  # a run that excludes nothing, such as profile=paper, does so on purpose
        warn_once(f"lines of {', '.join(left)} may be in the training text: filters.exclude does not name them all")
    for other in RUNS.values():
        theirs = [each.name for each in run.sets if each in other.sets]
        if not theirs or run.corpus.parts == other.corpus.parts:
            continue
        if any(each.corpus.parts == run.corpus.parts and sets <= set(each.sets) for each in RUNS.values()):
            continue
        sentence = f"{run.name} is scored on {', '.join(theirs)} of {other.corpus.name}"
        if languages != (other.corpus.source_language, other.corpus.target_language):
            raise BadConfiguration(
                f"{sentence}, which is {other.corpus.source_language}-{other.corpus.target_language}, but translates "
                f"{'-'.join(languages)}; give it sets of its own (sets, dev, filters.exclude)"
            )
        warn_once(f"{sentence}, not of its corpus {run.corpus.name}; sets, dev and filters.exclude name others")
        return


def warn_of_changed_files(run: Run) -> None:
    """Warn if local files of the run differ from the pinned checksums. Reads each file whose size is unchanged."""
    changed = [file.url for file in files(run.corpus, run.sets) if _is_changed(file)]
    if changed:
        warn_once(
            f"{', '.join(changed)} changed after {run.name} pinned it by checksum: cached stages keep the old text, "
            f"a stage that reads the file again fails. For the new text repeat `repro new {run.name} …` with --replace"
        )


def _is_changed(file: File) -> bool:
    path = Path(file.url)
    if not path.is_absolute() or not file.sha256:
        return False
    try:
        size = path.stat().st_size
        return (file.size or size) != size or sha256_of(path) != file.sha256
    except OSError:  # a download that needs the file reports this
        return False


def _run_from_file(file: str, name: str) -> Run:
    path = Path(file)
    if not path.is_file():
        raise BadConfiguration(f"no file {file!r} to take the run {name!r} from")
    if path.suffix != ".py":
        raise BadConfiguration(f"{file!r} is not a Python file")
    try:
        module = load_user_file(path, Run)
    except Exception as error:
        raise BadConfiguration(f"{file}: {type(error).__name__}: {error}") from error
    value_of_name = getattr(module, name, None)
    if not isinstance(value_of_name, Run):
        known = [other for other, value in vars(module).items() if isinstance(value, Run)]
        raise BadConfiguration(f"{file} has no run {name!r}; its runs are: {', '.join(known) or 'none'}")
    return value_of_name
