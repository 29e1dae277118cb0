"""What differs between runs or model versions: settings, code, libraries and machine, read from the manifests of each.

A field has the name that ``--set`` takes (``model.p_drop``, ``filters.rules.Length.max``), or starts with ``code``,
``library`` or ``machine``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.store.manifest import Manifest
from infra.tracking.provenance import short_commit

INITIAL_WEIGHTS = "start"
"""The argument of a training that starts from other weights."""
SAID_ELSEWHERE = ("set_name", "language")
"""Arguments of stages that repeat the name of the item or a field of the corpus."""
ALWAYS_PRESENT = ("clean", "learn_bpe", "shard", "train", "average", "translate")
"""Stages of every run: if one has no manifest, its artifact was removed."""
GROUPS = ("corpus", "sets", "filters", "vocabulary", "sharding", "model", "training", "averaging", "decoding")
"""The order in which fields are shown; others follow, then code, libraries and machine."""
ORDER = " (order)"
"""The end of the name of the field that holds the order of a list's members."""
NONE = "none"
DEFAULT = "default"
REMOVED = "removed"
LAST_GROUPS = ("stage", "code", "library", "machine", REMOVED)
MODULES_SHOWN = 3

Lineage = Mapping[str, Manifest]
"""Manifests by ``stage`` or ``stage.item``, as ``tasks.registration.lineage`` returns them."""


@dataclass(frozen=True)
class DifferingField:
    """A field and its value in each system.

    Besides values there are: ``default`` for a setting that was not stated, ``none`` for a part that the system does
    not have, ``removed`` where its artifact no longer exists.
    """

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len({*self.values} - {REMOVED}) > 1


def differing_fields(systems: Sequence[Lineage]) -> list[DifferingField]:
    """The fields in which two or more systems differ, in the order corpus, settings, code, libraries, machine.

    If only some systems have a part (a filter, a corpus part), the part is listed, not each of its fields.
    """
    settings = [_settings(system) for system in systems]
    fields = []
    for name, path, entries in _named_fields(settings):
        values = (_value(system, own, path, entries) for system, own in zip(systems, settings, strict=True))
        fields.append(DifferingField(name, tuple(values)))
    shown = _without_parts_of_others([field for field in fields if field.differs])
    others = [*_made_by(systems), DifferingField(REMOVED, tuple(_removed(system) or NONE for system in systems))]
    return sorted([*shown, *(field for field in others if field.differs)], key=lambda field: _place(field.name))


def settings_of(system: Lineage) -> dict[str, str]:
    """The settings of one system by field, with the names that ``differing_fields`` gives them."""
    own = _settings(system)
    fields = [field for field in _named_fields([own]) if field[1] not in GROUPS and not field[1].startswith("stage.")]
    fields.sort(key=lambda field: field[1].endswith(ORDER))  # long texts that seldom differ alone
    return {name: own[path][entries[0]] for name, path, entries in fields}


Settings = dict[str, dict[str, str]]
"""By the path of the field: its values by lineage entry."""


def _settings(system: Lineage) -> Settings:
    settings: Settings = {}
    for entry, manifest in system.items():
        if manifest.stage == "download" or (manifest.stage == "shard" and manifest.item != "train"):
            continue
        settings.setdefault(f"stage.{manifest.stage}", {})[entry] = f"version {manifest.version}"
        for name, value in manifest.arguments.items():
            if name in SAID_ELSEWHERE:
                continue
            root = f"sets.{manifest.item}" if manifest.stage == "prepare_sets" else name
            for path, text in _flat(value, root):
                settings.setdefault(path, {})[entry] = text
    return settings


def _named_fields(systems: Sequence[Settings]) -> Iterator[tuple[str, str, list[str]]]:
    """Name and path of each field, and the lineage entries that have it.

    A field occurs once, or once for each entry if a system has several values.
    """
    for path in dict.fromkeys(path for settings in systems for path in settings):
        entries = [*dict.fromkeys(entry for settings in systems for entry in settings.get(path, ()))]
        if all(len({*settings.get(path, {}).values()}) <= 1 for settings in systems):
            yield path, path, entries
        else:
            yield from ((f"{entry}: {path}", path, [entry]) for entry in entries)


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and text of each field below a canonical argument. Of artifacts, only initial weights are settings."""
    if isinstance(value, Mapping) and set(value) == {"artifact", "key"}:
        if path.startswith(INITIAL_WEIGHTS):
            yield path, f"{value['artifact']}/{value['key']}"
    elif isinstance(value, Mapping):
        if kind := value.get("class"):
            yield path, "yes" if path.endswith(f".{value.get('name', kind)}") else kind
        for name, inner in value.items():
            if name != "class":
                yield from _flat(inner, f"{path}.{name}")
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        names = [each.get("name") or each.get("class") if isinstance(each, Mapping) else None for each in value]
        names = [f"{name} {names[:n].count(name) + 1}" if name in names[:n] else name for n, name in enumerate(names)]
        unique = None not in names
        for place, each in enumerate(value):
            yield from _flat(each, f"{path}.{names[place] if unique else place}")
        if unique:
            yield f"{path}{ORDER}", ", ".join(f"{name}" for name in names)
    elif isinstance(value, list):
        yield path, ", ".join(f"{each}" for each in value) or NONE
    else:
        yield path, f"{value}"


def _value(system: Lineage, settings: Settings, path: str, entries: Sequence[str]) -> str:
    values = settings.get(path, {})
    if known := [values[entry] for entry in entries if entry in values]:
        return known[0]
    if entries[0].partition(".")[0] in _removed(system):
        return REMOVED
    parent = settings.get(path.rpartition(".")[0], {})
    return DEFAULT if any(entry in parent for entry in entries) else NONE


def _removed(system: Lineage) -> str:
    present = {manifest.stage for manifest in system.values()}
    return ", ".join(stage for stage in ALWAYS_PRESENT if stage not in present)


def _without_parts_of_others(found: Sequence[DifferingField]) -> list[DifferingField]:
    """Leave out fields below a differing field, and the order of lists that do not have the same members."""
    differing = {field.name for field in found}

    def is_covered(name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[:n]) in differing for n in range(1, len(parts)))

    kept = [field for field in found if not is_covered(field.name)]
    orders = [field for field in kept if field.name.endswith(ORDER)]
    others = [field for field in orders if len({tuple(sorted(v.split(", "))) for v in field.values}) > 1]
    return [field for field in kept if field not in others]


def _made_by(systems: Sequence[Lineage]) -> Iterator[DifferingField]:
    """What made the artifacts: code by stage, versions of libraries, machine and device."""
    for entry in dict.fromkeys(entry for system in systems for entry in system):
        yield DifferingField(f"code.{entry}", _codes([system.get(entry) for system in systems]))
    libraries = [library_versions(system) for system in systems]
    for name in sorted({name for each in libraries for name in each}):
        yield DifferingField(f"library.{name}", tuple(each.get(name, NONE) for each in libraries))
    machines = ({f"{manifest.made.get('machine', '')}" for manifest in system.values()} for system in systems)
    yield DifferingField("machine", tuple(", ".join(sorted(names)) for names in machines))
    for fact in ("device", "ranks"):
        values = (system["train"].facts.get(fact, "") if "train" in system else REMOVED for system in systems)
        yield DifferingField(f"machine.{fact}", tuple(f"{value}" for value in values))


def _codes(made: Sequence[Manifest | None]) -> tuple[str, ...]:
    """The commit of each, with the modules that differ from the first one's; all empty if no module differs.

    A system without the stage counts as equal: its settings show that the stage is missing.
    """
    first = next((manifest.made for manifest in made if manifest), {})
    texts = []
    for manifest in made:
        modules = (manifest.made if manifest else first).get("modules", {})
        before = first.get("modules", {})
        names = [name for name in sorted({*modules, *before}) if modules.get(name) != before.get(name)]
        more = f" and {len(names) - MODULES_SHOWN} more" if len(names) > MODULES_SHOWN else ""
        text = short_commit(f"{manifest.made.get('commit', '')}") if manifest else ""
        texts.append((names, f"{text} ({', '.join(names[:MODULES_SHOWN])}{more})" if names else text))
    return tuple(text for _, text in texts) if any(names for names, _ in texts) else ("",) * len(texts)


def library_versions(system: Lineage) -> dict[str, str]:
    """Each library's versions over the stages of a system."""
    found: dict[str, set[str]] = {}
    for manifest in system.values():
        for name, version in manifest.made.get("libraries", {}).items():
            found.setdefault(name, set()).add(f"{version}")
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def _place(name: str) -> int:
    root = name.rpartition(": ")[2].partition(".")[0].partition(" ")[0]
    known = (*GROUPS, "", *LAST_GROUPS)
    return known.index(root if root in known else "")
