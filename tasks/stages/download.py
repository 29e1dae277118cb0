"""Downloads one file of the catalogue: input is a ``File``, output is a folder with that file under its own name."""

import shutil
from pathlib import Path

from tasks.corpus.catalogue import File
from tasks.corpus.fetching import fetch_file
from tasks.engine.stage import Facts, site, stage

MAX_CONCURRENT_DOWNLOADS = 4


@stage(version=1, resume=True)
def download(out: Path, file: File) -> Facts:
    """Download ``file`` and check its checksum."""
    facts = fetch_file(file, out, site().mirrors)
    for stray in out.iterdir():  # an interrupted attempt may have left other files
        if stray.name != file.name:
            shutil.rmtree(stray) if stray.is_dir() else stray.unlink()
    return facts
