"""Digests the code of classes that users write, such as a filter in a file of runs; a stage's key contains it.

For example, ``my_runs.py`` defines a filter that uses ``my_words.py`` beside it. Every edit of either file changes the
key of ``clean``, except edits of comments, docstrings, formatting or runs (``tasks.engine.own_files`` defines what
counts). The same text is digested and executed: all files are read once, and modules are executed from that text, also
when a method imports one later. For the project's own classes the version of their stage is used instead.
"""

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from infra.errors import BadConfiguration
from infra.processes.children import PROJECT_ROOT
from infra.processes.identity import started_ticks
from tasks.engine.own_files import PROJECT_PACKAGES, Source, digest, read_sources
from tasks.engine.stage_code import DIGITS

_BOOT = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
PROCESS_START = _BOOT + int(started_ticks(os.getpid())) / os.sysconf("SC_CLK_TCK")
"""When this process began, in seconds since 1970."""


@dataclass(eq=False)
class _UserFile:
    """A loaded file: its text, the text of its neighbours, and their digest."""

    sources: Mapping[str, Source]
    module: ModuleType
    digest: str = ""


class _TextLoader(SourceLoader):
    """Executes a module from the text that was read; a bytecode cache could hold an older version."""

    def __init__(self, source: Source, file: _UserFile) -> None:
        self.source = source
        self.file = file

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002
        return f"{self.source.path}"

    def get_data(self, path: str) -> bytes:  # noqa: ARG002
        return self.source.text


class _Loaded(MetaPathFinder):
    """Holds the file that was loaded last, and finds the neighbours that were read with it."""

    def __init__(self) -> None:
        self.file: _UserFile | None = None
        self.folder: Path | None = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        source = self.file.sources.get(name) if self.file else None
        return spec_from_loader(name, _TextLoader(source, self.file)) if self.file and source else None

    def forget(self) -> None:
        """Let the next import read the neighbours again."""
        packages = {name.partition(".")[0] for name in self.file.sources} if self.file else set()
        for name, module in [*sys.modules.items()]:
            is_folder = getattr(module, "__file__", None) is None  # a package without __init__.py
            is_own = is_folder or isinstance(getattr(module, "__loader__", None), _TextLoader)
            if name.partition(".")[0] in packages and is_own:
                del sys.modules[name]
        self.file = None

    def search(self, folder: Path) -> None:
        """Make this folder's files importable for workers and computed imports, and those of the last folder not.

        The folder comes after the project's packages: an editable install finds these only after all of ``sys.path``.
        """
        if self.folder not in (None, folder):
            sys.path.remove(f"{self.folder}")
            self.forget()
        self.folder = folder
        sys.path += [place for place in (f"{PROJECT_ROOT}", f"{folder}") if place not in sys.path]


_loaded = _Loaded()


def load_user_file(path: Path, run: type) -> ModuleType:
    """Execute the present text of a user's file and of the files beside it that it can import.

    A file that has not changed since it was loaded is not executed again. Values of type ``run`` do not count as code.
    Raises what the file raises.
    """
    path = path.absolute()
    if _loaded not in sys.meta_path:
        sys.meta_path.insert(0, _loaded)
    _loaded.search(path.parent)
    sources = read_sources(path)
    if _loaded.file and _loaded.file.sources == sources:
        return _loaded.file.module
    _loaded.forget()
    content = hashlib.sha256(f"{path} {sorted(sources.items())}".encode()).hexdigest()[:DIGITS]
    name = f"_runs_of_{path.stem}_{content}"
    file = _UserFile(sources, ModuleType(name))
    loader = _TextLoader(sources[""], file)
    spec = spec_from_loader(name, loader)
    assert spec, "a loader with a file name has a spec"
    file.module = sys.modules[name] = module_from_spec(spec)  # dataclasses in the file look it up here
    _loaded.file = file
    try:
        loader.exec_module(file.module)
        file.digest = digest(sources, vars(file.module), run)
    except BaseException:
        _loaded.forget()
        raise
    return file.module


def own_code(kind: type) -> str:
    """Digest the user's file of a class and the files beside it that it can import; "" for a class of this project.

    The digest of a class of another module than the run file, or inside another class, has its whole name too: two of
    one name are two. Raises TypeError if no file defines the class, BadConfiguration if the file may be newer than the
    class, or for a class inside a function.
    """
    if kind.__module__.partition(".")[0] in PROJECT_PACKAGES:
        return ""
    module = sys.modules.get(kind.__module__)
    path = getattr(module, "__file__", None)
    if not module or not path:
        raise TypeError(f"{kind.__qualname__} is defined in no file: write the class into one, so that its code counts")
    if "<locals>" in kind.__qualname__:
        raise BadConfiguration(
            f"{kind.__qualname__} is defined inside a function, whose values are not in its code: define the class at "
            f"the top of {path}, with a field for each value"
        )
    loader = getattr(module, "__loader__", None)
    if not isinstance(loader, _TextLoader):
        found = _code_of_import(kind, Path(path).absolute())
        return _with_name(found, kind, is_alone="." not in kind.__module__)
    if loader.file is not _loaded.file or not _is_in(module, kind):
        raise BadConfiguration(
            f"{kind.__qualname__} is of an older text of {path}, or another file was loaded since: take the run from "
            "its file again"
        )
    return _with_name(loader.file.digest, kind, is_alone=module is loader.file.module)


def _with_name(found: str, kind: type, is_alone: bool) -> str:
    """The digest, with the class's whole name unless its module is the only one of the digest and defines it at its
    top."""
    if is_alone and kind.__qualname__ == kind.__name__:
        return found
    module = "" if is_alone else kind.__module__  # that of the run file has its path and comments in it
    return hashlib.sha256(f"{found} {module}.{kind.__qualname__}".encode()).hexdigest()[:DIGITS]


@cache
def _code_of_import(kind: type, path: Path) -> str:
    """The digest for a class that Python's import system loaded. Python keeps no text: the file must be unchanged."""
    paths, found = _imported_sources(path, kind.__module__)
    for source in paths:
        status = source.stat()
        changed = max(status.st_mtime, status.st_ctime)  # a copy may keep st_mtime
        if changed > PROCESS_START:
            raise BadConfiguration(
                f"{source} changed after this process began, so {kind.__qualname__} may be older here than in the"
                f" file: name the run as FILE.py:NAME, or start a new process (in a notebook: restart the kernel)"
            )
    return found


@cache
def _imported_sources(path: Path, module: str) -> tuple[list[Path], str]:
    """The files that a module's code is in, and their digest."""
    sources = read_sources(path, module)
    return [source.path for source in sources.values()], digest(sources)


def _is_in(module: ModuleType, kind: type) -> bool:
    """Whether the module has this class, not another of the same name."""
    found: object = module
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind
