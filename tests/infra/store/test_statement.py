"""A manifest as an in-toto statement: files, inputs and archives by digest, and how they were made."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

from sealing import manifest_of, sealed

from infra.store.local import Store
from infra.store.manifest import MANIFEST, digest_of
from infra.store.statement import is_adoption, manifest_sum, statement_of

MADE = {"at": "2026-11-22T12:00:10+00:00", "commit": "ab12+", "machine": "x86_64, Linux 6", "python": "3.11.4"}
ARGUMENTS = {
    "corpus": {
        "class": "Corpus",
        "parts": [{"file": {"class": "File", "path": "en.gz", "sha256": "e" * 64, "md5": ""}}],
    },
    "archives": {"en.gz": {"artifact": "download", "key": "d1"}},
}


def test_a_statement_names_files_inputs_archives_and_source_by_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sealed(store, arguments=ARGUMENTS, inputs={"download/d1": "c" * 64}, made=MADE, seconds=10.0)
    manifest = manifest_of(store)
    statement = json.loads(json.dumps(statement_of(manifest)))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [
        {"name": name, "digest": {"sha256": manifest.files[name]["sha256"]}}
        for name in ("a.txt", "deep/b.bin", "metrics.jsonl")
    ]
    definition, details = (statement["predicate"][name] for name in ("buildDefinition", "runDetails"))
    assert definition["resolvedDependencies"] == [
        {"name": "download/d1", "digest": {"dirHash1": "c" * 64}},
        {"name": "en.gz", "digest": {"sha256": "e" * 64}},
        {"name": "attention-repro", "digest": {"gitCommit": "ab12"}, "annotations": {"modified": True}},
    ]
    asked = {"stage": "clean", "version": 1, "item": "", "key": "k1", "arguments": ARGUMENTS}
    assert definition["externalParameters"] == asked
    assert definition["internalParameters"] == {"machine": "x86_64, Linux 6"}
    assert details["builder"]["version"] == {"python": "3.11.4"}
    assert details["metadata"] == {
        "invocationId": "clean/k1",
        "startedOn": "2026-11-22T12:00:00Z",
        "finishedOn": "2026-11-22T12:00:10Z",
    }


def test_a_statement_about_adopted_work_claims_no_origin(tmp_path: Path) -> None:
    store = Store(tmp_path)
    origin = {"from": "/old/text", "by": "ada", "on": "2026-11-22"}
    sealed(store, arguments=ARGUMENTS, made={"at": MADE["at"], "adopted": origin})
    assert manifest_of(store).adopted == "adopted from /old/text, by ada, on 2026-11-22"
    statement = statement_of(manifest_of(store))
    definition = statement["predicate"]["buildDefinition"]
    assert is_adoption(statement)
    assert definition["resolvedDependencies"] == []
    assert definition["internalParameters"] == {"adopted": origin}
    sealed(store, "k2", made=MADE)
    assert not is_adoption(statement_of(manifest_of(store, key="k2")))


def test_the_content_digest_is_in_totos_directory_digest(tmp_path: Path) -> None:
    """The command is the one by which in-toto's specification defines dirHash1; log files are left out."""
    folder = sealed(Store(tmp_path)).path()
    files = f"find . -type f ! -name metrics.jsonl ! -name {MANIFEST}"
    command = f"{files} | cut -c3- | LC_ALL=C sort | xargs -r sha256sum | sha256sum | cut -f1 -d' '"
    said = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert said.strip() == manifest_of(Store(tmp_path)).content


def test_a_statement_is_tied_to_every_field_of_its_manifest(tmp_path: Path) -> None:
    sealed(Store(tmp_path))
    manifest = manifest_of(Store(tmp_path))
    assert manifest_sum(statement_of(manifest)) == digest_of(vars(manifest))
    other = replace(manifest, facts={"pairs": 4})
    assert manifest_sum(statement_of(other)) != manifest_sum(statement_of(manifest))
    assert manifest_sum({}) == ""
