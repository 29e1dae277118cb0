"""Notices files of a user's text that changed after ``repro new`` pinned them."""

from pathlib import Path

from flows.runs import Run
from flows.runs.overrides import warn_once
from infra.store.files import sha256_of
from tasks.corpus.catalogue import File, files


def warn_of_changed_files(run: Run) -> None:
    """Warn if files of the run on this machine are no longer those that it pins. Reads each file whose size fits."""
    changed = [file.url for file in files(run.corpus, run.sets) if _is_changed(file)]
    if changed:
        warn_once(
            f"{', '.join(changed)} changed after {run.name} pinned it by checksum: stages that are cached keep the old "
            f"text, a download of it stops. For the new text repeat `repro new {run.name} …` with --replace"
        )


def _is_changed(file: File) -> bool:
    path = Path(file.url)
    if not path.is_absolute() or not file.sha256:
        return False
    try:
        size = path.stat().st_size
        return (file.size or size) != size or sha256_of(path) != file.sha256
    except OSError:  # downloads say so, where they need it
        return False
