"""Sign and verify a registered version: one file of signed statements proves archives, artifacts, weights and model.

    signatures/<name>-<version>-<key>.intoto.jsonl   DSSE envelopes, one a line: the version's, then each artifact's

The file is enough: verifying needs it, a public key and the files of the model, but no network and no artifact.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, BadData
from infra.guards.path_names import path_below
from infra.site import Site, open_store
from infra.store.files import sha256_of, write_atomically
from infra.store.local import Store
from infra.store.manifest import MANIFEST, Manifest, content_digest
from infra.store.signatures import Untrusted, key_id, read_private_key, read_public_keys, sign, verified_statement
from infra.store.statement import (
    VERSION_TYPE,
    archives_of,
    content_of,
    inputs_of,
    is_adoption,
    parameters_of,
    statement_of,
    subjects_of,
    version_statement,
)
from infra.tracking.model_files import PARTS, VOCABULARY, local_folder
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve

FOLDER = "signatures"
Statement = Mapping[str, Any]


@dataclass(frozen=True)
class Proof:
    """What the signatures prove about a version."""

    version: str
    key: str
    """Id of the key that signed: the sha256 of its DER form."""
    files: int
    """Number of files of the model, each read and as signed."""
    artifacts: tuple[str, ...]
    """``stage/key`` of everything that the version was made from."""
    archives: Mapping[str, Mapping[str, str]]
    """Sums of the downloaded files that it all began with, by path."""
    adopted: tuple[str, ...]
    """Those of the artifacts that existed before: nothing proves what they were made from."""


def sign_version(text: str, key_file: Path, site: Site) -> Path:
    """Sign a version with all that it was made from; gives the file of signatures.

    Raises BadConfiguration for an unusable key or a version of another root, BadData where an artifact is not whole.
    """
    key, store = read_private_key(key_file), open_store(site)
    version = resolve(site.registry, text)
    manifests = _lineage(store, _registration(store, version))
    made_from = {f"{each.stage}/{each.key}": each.content for each in manifests if each.stage in _PARTS_AND_REGISTER}
    statement = version_statement(version.name, version.version, _model_sums(site, version), made_from)
    envelopes = [sign(each, key) for each in (statement, *map(statement_of, manifests))]
    path = _file_of(site, version, key_id(key.public_key()))
    write_atomically(path, "".join(f"{json.dumps(envelope)}\n" for envelope in envelopes))
    store.send(path)
    return path


def verify_version(text: str, keys_file: Path, site: Site) -> Proof:
    """What a signature by one of the keys proves about a version.

    Raises BadData for the first thing that is unsigned, missing, altered or does not fit.
    """
    keys = read_public_keys(keys_file)
    version = resolve(site.registry, text)
    label = f"{version.name}/{version.version}"
    store = open_store(site)
    store.receive(FOLDER)
    path = next((file for key in keys if (file := _file_of(site, version, key)).exists()), None)
    if path is None:
        others = sorted((site.root / FOLDER).glob(f"{version.name}-{version.version}-*"))
        why = "is signed by an unknown key" if others else "is unsigned"
        raise BadData(f"{label} {why}: sign it with `repro sign {label} --key KEY`")
    try:
        envelopes = [json.loads(line) for line in path.read_text().splitlines()]
        first, *rest = [verified_statement(envelope, keys) for envelope in envelopes]
        if first["predicate"]["buildDefinition"]["buildType"] != VERSION_TYPE:
            raise BadData(f"{path}: its first line is not about a version; sign it again")
        if parameters_of(first) != {"name": version.name, "version": version.version}:
            raise BadData(f"{path} is about {parameters_of(first)}, not {label}; sign it again")
        artifacts, archives = _follow(first, rest)
    except Untrusted as untrusted:
        raise BadData(f"{label}: {untrusted} ({path})") from untrusted
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadData(f"{path} cannot be read as signed statements ({error!r}); sign {label} again") from error
    signed, present = subjects_of(first), _model_sums(site, version)
    if wrong := _difference(signed, present):
        raise BadData(f"{label}: {wrong}")
    key = next(key for key in keys if path == _file_of(site, version, key))
    names = (f"{parameters_of(each)['stage']}/{parameters_of(each)['key']}" for each in rest if is_adoption(each))
    return Proof(label, key, len(signed), artifacts, archives, tuple(sorted({*artifacts} & {*names})))


def _follow(version: Statement, statements: Iterable[Statement]) -> tuple[tuple[str, ...], dict[str, dict[str, str]]]:
    """The artifacts from a version back to its archives, and those archives. Raises BadData where a link is broken."""
    known = {f"{parameters_of(each)['stage']}/{parameters_of(each)['key']}": each for each in statements}
    for part, stage in PARTS.items():
        prefix = f"artifacts/{part}/"
        files = {
            name.removeprefix(prefix): sums for name, sums in subjects_of(version).items() if name.startswith(prefix)
        }
        files.pop(MANIFEST, None)
        allowed = {d for name, d in inputs_of(version).items() if name.startswith(f"{stage}/")}
        if part == VOCABULARY:
            allowed |= {_registered_vocabulary(known[name]) for name in inputs_of(version) if name in known}
        if content_digest(files) not in allowed:
            raise BadData(f"the model's {part} are not those of the {stage} artifact that the version was signed with")
    seen: dict[str, None] = {}
    archives: dict[str, dict[str, str]] = {}
    todo = list(inputs_of(version).items())
    while todo:
        name, content = todo.pop()
        statement = known.get(name)
        if statement is None:
            raise BadData(f"{name} is not in the file of signatures, so nothing proves what it was made from")
        if content_of(statement) != content:
            raise BadData(f"the files of {name} are not those that were used: {content_of(statement)}, not {content}")
        if name not in seen:
            seen[name] = None
            todo += inputs_of(statement).items()
            archives |= _checked_archives(name, statement)
    return tuple(sorted(seen)), dict(sorted(archives.items()))


def _registered_vocabulary(statement: Statement) -> str:
    """The content digest of the vocabulary that an artifact of ``register`` holds; "" for one that holds none."""
    prefix = f"{VOCABULARY}/"
    files = {
        name.removeprefix(prefix): sums for name, sums in subjects_of(statement).items() if name.startswith(prefix)
    }
    return content_digest(files) if files else ""


def _checked_archives(name: str, statement: Statement) -> dict[str, dict[str, str]]:
    """The archives of an artifact; one that it holds under its own name must have its published sum."""
    archives, files = archives_of(statement), subjects_of(statement)
    for path, sums in archives.items():
        held = files.get(path.rpartition("/")[2])
        if held and "sha256" in sums and held["sha256"] != sums["sha256"]:
            raise BadData(f"{name} holds {path} with the sum {held['sha256']}, not the published {sums['sha256']}")
    return archives


_PARTS_AND_REGISTER = frozenset({*PARTS.values(), "register"})


def _registration(store: Store, version: Version) -> Manifest:
    """The manifest of the stage that registered the version."""
    for place in (store.local(), store):
        for key in place.keys_of("register"):
            manifest = place.manifest("register", key)
            if manifest and (manifest.facts.get("name"), manifest.facts.get("version")) == (
                version.name,
                version.version,
            ):
                return manifest
    label = f"{version.name}/{version.version}"
    raise BadConfiguration(f"{label} was not registered by this root ({store.root}): sign it where it was made")


def _lineage(store: Store, last: Manifest) -> list[Manifest]:
    """An artifact and everything it was made from, each whole and with the content that was used. Raises BadData."""
    found = {f"{last.stage}/{last.key}": last}
    todo = list(last.inputs.items())
    while todo:
        name, content = todo.pop()
        stage, _, key = name.partition("/")
        manifest = found.get(name) or store.manifest(stage, key)
        if manifest is None:
            raise BadData(f"{name} is {store.refusal(stage, key) or 'missing'}: repeat the run, then sign again")
        if manifest.content != content:
            raise BadData(f"{name} was made again with other content: repeat the run, then sign again")
        if name not in found:
            if damage := store.damage(manifest):
                raise BadData(f"{name}: {damage}; repeat the run, then sign again")
            found[name] = manifest
            todo += manifest.inputs.items()
    return list(found.values())


def _model_sums(site: Site, version: Version) -> dict[str, dict[str, str]]:
    """``sha256`` of every file of the model in MLflow's artifact store, code and settings too, by path."""
    folder = local_folder(site.tracking, version).parent
    return {name: {"sha256": sha256_of(folder / name)} for name in _names(folder)}


def _names(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file())


def _difference(signed: Mapping[str, object], present: Mapping[str, object]) -> str:
    for name in sorted({*signed, *present}):
        if name not in present:
            return f"{name} is missing from the model"
        if name not in signed:
            return f"{name} is in the model's folder and not signed: remove it"
        if signed[name] != present[name]:
            return f"{name} of the model differs from what was signed"
    return ""


def _file_of(site: Site, version: Version, key: str) -> Path:
    return path_below(site.root.absolute() / FOLDER, f"{version.name}-{version.version}-{key[:12]}.intoto.jsonl")
