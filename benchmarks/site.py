"""CPU seconds and sizes of ``repro site`` on a root with many versions, each with its own artifacts and a record.

Versions, artifacts and records are made up, but whole: each version has a log of its training, scored sentences and
settings that differ, so that its page has curves, examples and a card.
"""

import argparse
import io
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT_ROOT))

from benchmarks.large_root import cpu_seconds, write_artifact, write_record  # noqa: E402
from benchmarks.machine import aligned, parser, run_program, settings  # noqa: E402
from infra.servers.mlflow_sqlite import SCHEMA_REVISION  # noqa: E402
from infra.tracking.model_version import Version, make_version  # noqa: E402

STAGES = (
    *(f"download.part-{number}" for number in range(6)),
    *("prepare_sets.dev", "prepare_sets.test", "clean", "learn_bpe", "shard.train", "shard.dev", "shard.test"),
    *("train", "average", "translate.dev", "translate.test", "score.dev", "score.test", "report"),
)
"""The artifacts of a version, each made from the one before."""
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
CREATE TABLE alembic_version (version_num TEXT);
CREATE TABLE model_versions (name TEXT, version INTEGER, creation_time INTEGER, run_id TEXT, source TEXT,
                             current_stage TEXT, PRIMARY KEY (name, version));
CREATE TABLE model_version_tags (name TEXT, version INTEGER, key TEXT, value TEXT);
CREATE TABLE registered_model_aliases (name TEXT, version INTEGER, alias TEXT);
"""
"""The tables of MLflow's SQLite file that lists of versions are read from."""
EXAMPLES = "for example: python benchmarks/site.py --versions 1000"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("site.py", __doc__, EXAMPLES)
    options.add_argument("--versions", type=int, default=1000, help=f"each has {len(STAGES)} artifacts and a record")
    return options.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Write the root and its site; the seconds and sizes of the site."""
    asked = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="large-site-") as folder:
        root = Path(folder, "root")
        out = Path(folder, "public")
        make_root(root, asked.versions)
        seconds = cpu_seconds(root, "site", "--out", str(out))
        sizes = {path.relative_to(out): path.stat().st_size for path in out.rglob("*") if path.is_file()}
        pages = {path: size for path, size in sizes.items() if path.suffix == ".html"}
        largest = max(pages, key=lambda path: pages[path])
        return {
            **settings("site.py", arguments, asked),
            "artifacts": asked.versions * len(STAGES),
            "seconds": seconds,
            "files": len(sizes),
            "megabytes": sum(sizes.values()) / 1e6,
            "largest_page": {"name": str(largest), "megabytes": pages[largest] / 1e6},
        }


def make_root(root: Path, versions: int) -> None:
    """Write a registry with so many versions of some models, their artifacts and the records of their runs."""
    root.mkdir(parents=True)
    files = {"train": {"metrics.jsonl": log()}, "score.test": {"sentences.parquet": sentences()}}
    found = []
    for number in range(versions):
        keys = {stage: sha256(f"{stage} {number}".encode()).hexdigest()[:20] for stage in STAGES}
        for stage, before in zip(STAGES, (None, *STAGES), strict=False):
            inputs = {f"{before.partition('.')[0]}/{keys[before]}": "0" * 64} if before else {}
            contents = files.get(stage, {"data.txt": b"x\n"})
            facts = {"seconds": 100.0 + number, "parameters": 10**6}
            write_artifact(root, stage, keys[stage], arguments_of(stage, number), inputs, contents, facts, MADE)
        model = f"model-{number % MODELS}"
        record(root, model, number, keys)
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
    created = int((BEGAN + timedelta(hours=place)).timestamp() * 1000)
    return make_version(model, number, created, "0" * 32, "", tags, ["champion"] if number == 1 else [])


def record(root: Path, model: str, number: int, keys: Mapping[str, str]) -> None:
    """The record of the run that made the version; every seventh failed at first."""
    rows = [
        {"stage": stage, "item": item, "key": key, "state": "completed", "seconds": 9.0, "form": {"text": number}}
        for name, key in keys.items()
        for stage, _, item in [name.partition(".")]
    ]
    failed = {"outcome": "FAILED", "failure": "report failed: no space left"} if number % 7 == 0 else {}
    overrides = [f"training.seed={number}"]
    write_record(root, model, BEGAN + timedelta(hours=number), overrides=overrides, stages=rows, **failed)


def write_registry(file: Path, versions: Iterable[Version]) -> None:
    """Write a new SQLite file with these versions, their tags and aliases; MLflow itself cannot open it."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(TABLES)
        connection.execute("INSERT INTO alembic_version VALUES (?)", (SCHEMA_REVISION,))
        for each in versions:
            created = int(each.created.timestamp() * 1000)
            row = (each.name, each.version, created, each.run_id, each.source, "None")
            connection.execute("INSERT INTO model_versions VALUES (?, ?, ?, ?, ?, ?)", row)
            tags = [(each.name, each.version, key, value) for key, value in each.tags.items()]
            connection.executemany("INSERT INTO model_version_tags VALUES (?, ?, ?, ?)", tags)
            aliases = [(each.name, each.version, alias) for alias in each.aliases]
            connection.executemany("INSERT INTO registered_model_aliases VALUES (?, ?, ?)", aliases)


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


def table(report: Mapping[str, Any]) -> str:
    """The report as text."""
    largest = report["largest_page"]
    rows = [
        ("versions, artifacts", f"{report['versions']:,}, {report['artifacts']:,}"),
        ("CPU seconds", f"{report['seconds']:.1f}"),
        ("files, MB", f"{report['files']:,}, {report['megabytes']:.1f}"),
        ("largest page, MB", f"{largest['name']}, {largest['megabytes']:.2f}"),
    ]
    return "\n".join(aligned(rows))


if __name__ == "__main__":
    run_program(measure, table, parse)
