"""Registered versions for tests of the site: tags as ``register`` writes them, and hostile names and texts."""

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import polars as pl
from sealing import sealed

from infra.store.store import Store
from infra.tracking.model_version import Version, make_version

EVIL = "<img src=x onerror=\"document.title='evil'\"></script><script>document.title='evil'</script>"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture of one point."""
EVIL_MODEL = '"><script>document.title=1<'


def tags(dev: float, **more: str) -> dict[str, str]:
    """Tags of a version as ``register`` writes them."""
    low, high = {"val.bleu_low": f"{dev - 1}"}, {"val.bleu_high": f"{dev + 1}"}
    sets = {"dev_set": "val", "test_set": "test", "dev_signature": "tok:13a", "val.references_sha256": "ab" * 32}
    scores = {"val.bleu": f"{dev}", "test.bleu": f"{dev - 5}", "val.chrf": "50.5", "val.sentences": "1014"}
    return {**sets, **scores, **low, **high, "git_commit": "c0ffee" * 6, "modified": "false"} | more


def artifact(store: Store, stage: str, key: str, files: Mapping[str, bytes], **described: Any) -> str:
    """Seal an artifact with these files; returns its key."""
    sealed(store, key, dict(files), stage=stage, **{"facts": {}, "seconds": 1.0, **described})
    return key


def train(store: Store, key: str, p_drop: float) -> str:
    """Seal a training with this setting; returns its key."""
    arguments = {
        "model": {"class": "Model", "layers": 2, "p_drop": p_drop},
        "start": {"artifact": "average", "key": "k"},
    }
    rows = [{"time": 1, "done": done, "total": 4, "loss": 3.0 / done} for done in (2, 4)]
    log = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    facts = {"seconds": 7260.0, "parameters": 852736}
    return artifact(store, "train", key, {"metrics.jsonl": log}, arguments=arguments, facts=facts)


def hostile_lineage(store: Store, name: str) -> dict[str, str]:
    """Seal a cleaned corpus with a hostile name, scored sentences of hostile text, and a report; returns key tags."""
    parts = [{"class": "Part", "name": EVIL}, {"class": "Part", "name": "multi30k"}]
    corpus = {"class": "Corpus", "name": EVIL, "source_language": "en", "target_language": EVIL, "parts": parts}
    facts = {"read": 1200, "pairs": 1000, "rejected": 200, "rejected_by": {"length": 200}}
    clean = artifact(store, "clean", "c" * 20, {}, arguments={"corpus": corpus}, facts=facts)
    texts = pl.DataFrame({"pair_id": [f"test:{number}" for number in range(4)]}).with_columns(
        source=pl.lit(EVIL), reference=pl.lit("a | b"), hypothesis=pl.lit(f"a {EVIL} b"), bleu=1.5, chrf=2.5
    )
    file = io.BytesIO()
    texts.write_parquet(file)
    score = artifact(store, "score", "d" * 20, {"sentences.parquet": file.getvalue()}, item="test")
    report = artifact(
        store,
        "report",
        "e" * 20,
        {"report.html": b"<!doctype html><title>the report</title>", "attention_0.png": PIXEL},
    )
    weights = "9" * 20
    arguments = {"report": {"artifact": "report", "key": report}, "weights": {"artifact": "average", "key": weights}}
    artifact(store, "register", "f" * 20, {}, arguments=arguments, facts={"name": name, "version": 1})
    return {"key.clean": clean, "key.score.test": score, "key.average": weights}


def version(name: str, number: int, described: Mapping[str, str], *aliases: str) -> Version:
    """A version that was registered ``number`` hours after the first of January."""
    return make_version(name, number, 1_767_225_600_000 + number * 3_600_000, "5" * 32, "", described, aliases)
