"""Stores translations of a set by another system, so that ``score`` scores them like those of a run's model.

It writes hypotheses.parquet (pair_id, hypothesis). It is not a stage of a run: ``repro score`` calls it.
"""

from dataclasses import dataclass
from pathlib import Path

from infra.store.store import Artifact
from model.config.keying import unkeyed
from tasks.engine.stage import Facts, stage
from tasks.lazy_libraries import pl


@dataclass(frozen=True)
class Translations:
    """The translations of one set by the system ``name``, with the checksum of their lines."""

    name: str
    sha256: str = ""
    lines: tuple[str, ...] = unkeyed(())
    files: str = unkeyed("")
    """Where they came from."""
    on: str = unkeyed("")
    """The set as its user named it: ``demo/test``."""


@stage(version=1)
def receive(out: Path, translations: Translations, pairs: Artifact) -> Facts:
    """Write the translations beside the ids of the set ``pairs``, in its order."""
    ids = pl.read_parquet(pairs.path() / "pairs.parquet", columns=["pair_id"])
    table = ids.with_columns(hypothesis=pl.Series(translations.lines, dtype=pl.String))
    table.write_parquet(out / "hypotheses.parquet", compression="zstd")
    return {"system": translations.name, "on": translations.on, "files": translations.files, "pairs": len(table)}
