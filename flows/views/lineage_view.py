"""Shows a lineage as two trees: the inputs of an artifact, and everything made from it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from flows.inspection.artifact_graph import Name
from flows.inspection.artifacts import Lineage
from flows.views.tables import format_facts, size_text
from tasks.durations import duration


def lineage_text(found: Lineage) -> str:
    """Write the starting point in full, the versions made from it, and a line per artifact of both trees."""
    lines = [found.title, *(f"  {_line(found, name)}" for name in found.start)]
    if len(found.start) == 1:
        lines += [f"  {detail}" for detail in _details(found, found.start[0])]
    versions = found.versions
    lines += ["", f"versions that rest on it: {', '.join(versions) or 'none'}"]
    if started := found.started_from_it:
        lines += [f"versions whose training began with its weights: {', '.join(started)}"]
    sides = {"made from": found.graph.inputs, "used by": lambda name: found.graph.users.get(name, ())}
    for title, step in sides.items():
        lines += ["", title, *(_tree(found, step) or ["  nothing"])]
    return "\n".join(lines)


def _tree(found: Lineage, step: Callable[[Name], Sequence[Name]]) -> list[str]:
    """Draw what ``step`` reaches from the starting points; an artifact has its branches at its first place."""
    seen: set[Name] = set()

    def lines(names: Sequence[Name], indent: str) -> Iterator[str]:
        for place, name in enumerate(names, start=1):
            is_last = place == len(names)
            branches = step(name)
            is_repeated = name in seen and bool(branches)
            line = f"{found.graph.label(name)}  (see above)" if is_repeated else _line(found, name)
            yield f"{indent}{'└─ ' if is_last else '├─ '}{line}"
            if name not in seen:
                seen.add(name)
                yield from lines(branches, f"{indent}{'   ' if is_last else '│  '}")

    return [*lines([name for start in found.start for name in step(start)], "  ")]


def _line(found: Lineage, name: Name) -> str:
    node = found.graph.nodes.get(name)
    label = found.graph.label(name)
    place = "/".join(name)
    first = label if label == place else f"{label}  {place}"
    if node is None:
        return f"{first}  missing: it was removed"
    first = f"{first}  {node.item}" if node.item and node.item not in label else first
    made = f"{datetime.fromisoformat(node.made).astimezone():%Y-%m-%d %H:%M}" if node.made else ""
    registered = ", ".join(f"version {each}" for each in found.registered_as(name))
    facts = [size_text(node.bytes), duration(node.seconds), made, registered]
    return "  ".join([first, *filter(None, facts)])


def _details(found: Lineage, name: Name) -> Iterator[str]:
    node = found.graph.nodes.get(name)
    made_by = found.graph.made_by.get(name)
    state, path = found.state(name)
    yield f"state    {state}"
    yield f"path     {path}"
    if node:
        yield f"machine  {node.machine}"
        yield f"commit   {node.commit}"
        if node.facts:
            yield f"facts    {format_facts(node.facts)}"
    if made_by:
        yield f"made by  {made_by.command}"
    users = dict.fromkeys(each.full_name for each in found.graph.used_by.get(name, ()))
    yield f"runs     {', '.join(users) or 'none on record'}"
