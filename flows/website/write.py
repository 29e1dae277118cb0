"""Writes the site into a folder: writes the new files, then removes outdated files of an earlier site."""

import json
from contextlib import suppress
from pathlib import Path

from flows.website.contents import Root, contents
from infra.errors import BadConfiguration
from infra.guards.path_names import is_path_name, path_below
from infra.site import Site

LIST = "site.json"
"""Lists the files of the site, so that the next writing removes only outdated files."""
BEGUN = "site.begun"
"""Lists, one per line, the files of a running or interrupted writing; the next writing repeats it."""


def write_site(site: Site, out: Path) -> tuple[int, int, int]:
    """Write the site of a root into ``out``; return the numbers of its models, versions and files.

    It replaces an earlier site. Raises BadConfiguration if the folder holds files but no site.
    """
    known = _known_files(out)
    root = Root.read(site)
    written = {LIST}
    out.mkdir(parents=True, exist_ok=True)
    with (out / BEGUN).open("a") as begun:
        for name, content in contents(root):
            path = path_below(out, name)
            begun.write(f"{name}\n")
            begun.flush()
            _write(path, content.encode() if isinstance(content, str) else content.read_bytes())
            written.add(name)
    _write(out / LIST, json.dumps(sorted(written), indent=0).encode())
    for name in known - written:
        (out / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder holds other files
            (out / name).parent.rmdir()
    (out / BEGUN).unlink(missing_ok=True)
    return len(root.models), sum(len(model.versions) for model in root.models), len(written)


def _known_files(out: Path) -> set[str]:
    """List the files of an existing or unfinished site; empty for a new or an empty folder."""
    if any(each.exists() and not each.is_dir() for each in (out, *out.parents)):
        raise BadConfiguration(f"--out is {out}, which is a file or lies below one, allowed is a folder")
    if not out.is_dir() or not any(out.iterdir()):
        return set()
    begun = out / BEGUN
    try:
        names = begun.read_text().split("\n")[:-1] if begun.exists() else []  # the last line may be cut off
        listed = json.loads((out / LIST).read_text()) if (out / LIST).exists() or not begun.exists() else []
        return set(filter(is_path_name, names + listed))
    except (OSError, ValueError, TypeError) as error:
        raise BadConfiguration(
            f"--out is {out}, which holds files that are no site of this program: name a new or an empty folder"
        ) from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)  # so that a web server never sends half a page
