"""Writes roots of runs, made up but whole: artifacts, records and registered versions.

A run has a chain of artifacts, each with a manifest, its sum and the file of its lock; a log of its training, scored
sentences and settings that differ, so that the version's page has curves, examples and a card.
"""

import hashlib
import io
import json
import random
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from infra.servers.mlflow_sqlite import SCHEMA_REVISION
from infra.store.manifest import MANIFEST, Manifest, content_digest, manifest_envelope
from infra.tracking.model_version import Version, make_version

STAGES = (
    *(f"download.part-{number}" for number in range(6)),
    *("prepare_sets.dev", "prepare_sets.test", "clean", "learn_bpe", "shard.train", "shard.dev", "shard.test"),
    *("train", "average", "translate.dev", "translate.test", "score.dev", "score.test", "report"),
)
"""The artifacts of a run, each made from the one before."""
MODELS = 4
SENTENCES = 500
LOG_ROWS = 150
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MADE = {
    "at": f"{BEGAN.isoformat()}",
    "machine": "x86_64",
    "commit": "0" * 40,
    "torch": "2.13",
    "modules": {f"tasks.module_{each}": "0" * 12 for each in range(40)},
}
"""What a manifest says of how an artifact was made."""
TABLES = """
CREATE TABLE IF NOT EXISTS alembic_version (version_num TEXT);
CREATE TABLE IF NOT EXISTS model_versions (name TEXT, version INTEGER, creation_time INTEGER, run_id TEXT, source TEXT,
                                           current_stage TEXT, PRIMARY KEY (name, version));
CREATE TABLE IF NOT EXISTS model_version_tags (name TEXT, version INTEGER, key TEXT, value TEXT);
CREATE TABLE IF NOT EXISTS registered_model_aliases (name TEXT, version INTEGER, alias TEXT);
"""
"""The tables of MLflow's SQLite file that lists of versions are read from; all that a new file has."""


def add_runs(root: Path, begin: int, end: int) -> None:
    """Add the runs of these numbers to a root: artifacts, records, and versions of some models."""
    (root / "locks").mkdir(parents=True, exist_ok=True)
    files = {"train": {"metrics.jsonl": log()}, "score.test": {"sentences.parquet": sentences()}}
    found = []
    for number in range(begin, end):
        keys = {stage: hashlib.sha256(f"{stage} {number}".encode()).hexdigest()[:20] for stage in STAGES}
        inputs: dict[str, str] = {}
        for name, key in keys.items():
            contents = files.get(name, {"data.txt": b"x\n"})
            facts = {"seconds": 100.0 + number, "parameters": 10**6}
            content = write_artifact(root, name, key, arguments_of(name, number), inputs, contents, facts)
            inputs = {f"{name.partition('.')[0]}/{key}": content}
        model = f"model-{number % MODELS}"
        write_record(root, model, number, keys)
        found.append(version(model, number // MODELS + 1, number, keys))
    write_registry(root / "mlflow.db", found)


def arguments_of(stage: str, number: int) -> dict[str, Any]:
    """The arguments of a stage that are settings, some of which differ from version to version."""
    training = {"class": "Training", "updates": 1000 + number, "seed": number, "warmup": 80, "batch_tokens": 2000}
    parts = [{"class": "Part", "name": "made-up"}]
    corpus = {"class": "Corpus", "name": "made-up", "source_language": "en", "target_language": "de", "parts": parts}
    of: dict[str, dict[str, Any]] = {
        "train": {"model": {"class": "Model", "layers": 2, "p_drop": number % 5 / 10}, "training": training}
    }
    return {**of, "clean": {"corpus": corpus}}.get(stage, {"text": number})


def write_artifact(
    root: Path,
    name: str,
    key: str,
    arguments: Mapping[str, Any],
    inputs: Mapping[str, str],
    contents: Mapping[str, bytes],
    facts: Mapping[str, Any],
) -> str:
    """Write an artifact of ``stage`` or ``stage.item`` with these files; returns the digest of its content."""
    stage, _, item = name.partition(".")
    folder = root / stage / key
    folder.mkdir(parents=True)
    (root / "locks" / f"{stage}-{key}.lock").touch()
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    files = {file: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)} for file, text in contents.items()}
    digest = content_digest(files)
    manifest = Manifest(stage, key, 1, item, dict(arguments), dict(inputs), digest, dict(facts), files, 1.0, MADE)
    (folder / MANIFEST).write_text(json.dumps(manifest_envelope(manifest), indent=1))
    return digest


def write_record(root: Path, run: str, number: int, keys: Mapping[str, str]) -> None:
    """The record of a run with these artifacts, begun a minute after the one before; every seventh failed."""
    stages = [
        {"stage": stage, "item": item, "key": key, "state": "completed", "seconds": 9.0, "form": {"text": number}}
        for name, key in keys.items()
        for stage, _, item in [name.partition(".")]
    ]
    asked = {"run": run, "from_stage": "", "until": "", "force": [], "site": "local"}
    record: dict[str, Any] = {
        "run": run,
        "outcome": "FINISHED",
        "who": "somebody",
        "commit": "",
        "process": "",
        "asked": asked,
    }
    record |= {"attempt": "", "overrides": [f"training.seed={number}"], "stages": stages}
    if number % 7 == 0:
        record |= {"outcome": "FAILED", "failure": "report failed: no space left"}
    path = root / "runs" / run / f"{BEGAN + timedelta(minutes=number):%Y%m%dT%H%M%S-%f}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1))


def version(model: str, number: int, place: int, keys: Mapping[str, str]) -> Version:
    """A version with the tags that ``register`` writes."""
    tags = {f"key.{stage}": key for stage, key in keys.items() if not stage.startswith(("download", "report"))}
    for name in ("dev", "test"):
        for measure_name in ("bleu", "bleu_low", "bleu_high", "bleu_lc", "bleu_paper", "chrf", "ter", "perplexity"):
            tags[f"{name}.{measure_name}"] = f"{30 + place % 97 / 10}"
        tags |= {f"{name}.references_sha256": "a" * 64, f"{name}.sentences": "500", f"{name}.signature": "tok:13a"}
    tags |= {
        "dev_set": "dev",
        "test_set": "test",
        "git_commit": "0" * 40,
        "modified": "true",
        "decision": "not champion",
    }
    created = int((BEGAN + timedelta(minutes=place)).timestamp() * 1000)
    return make_version(model, number, created, "0" * 32, "", tags, ["champion"] if number == 1 else [])


def write_registry(file: Path, versions: Iterable[Version]) -> None:
    """Add these versions, their tags and aliases to an SQLite file; a new one MLflow itself cannot open."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(TABLES)
        if not connection.execute("SELECT 1 FROM alembic_version").fetchone():
            connection.execute("INSERT INTO alembic_version VALUES (?)", (SCHEMA_REVISION,))
        for each in versions:
            created = int(each.created.timestamp() * 1000)
            row = (each.name, each.version, created, each.run_id, each.source, "None")
            columns = "name, version, creation_time, run_id, source, current_stage"
            connection.execute(f"INSERT INTO model_versions ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
            tags = [(each.name, each.version, key, value) for key, value in each.tags.items()]
            statement = "INSERT INTO model_version_tags (name, version, key, value) VALUES (?, ?, ?, ?)"
            connection.executemany(statement, tags)
            aliases = [(each.name, each.version, alias) for alias in each.aliases]
            statement = "INSERT INTO registered_model_aliases (name, version, alias) VALUES (?, ?, ?)"
            connection.executemany(statement, aliases)


def log() -> bytes:
    """The log of a training."""
    names = ("loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second")
    rows = (
        {"time": row, "done": row, "total": LOG_ROWS, **dict.fromkeys(names, 1 / (row + 1))} for row in range(LOG_ROWS)
    )
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def sentences() -> bytes:
    """Scored sentences of random words."""
    import polars as pl

    chance = random.Random(1)

    def texts() -> Iterator[str]:
        words = ["the", "old", "dog", "sees", "a", "small", "house", "and", "reads", "books", "in", "town"]
        return (" ".join(chance.choices(words, k=12)) for _ in range(SENTENCES))

    columns: dict[str, list[Any]] = {name: [*texts()] for name in ("source", "reference", "hypothesis")}
    columns |= {name: [chance.random() * 100 for _ in range(SENTENCES)] for name in ("bleu", "chrf")}
    file = io.BytesIO()
    pl.DataFrame({"pair_id": [f"test:{row}" for row in range(SENTENCES)], **columns}).write_parquet(file)
    return file.getvalue()
