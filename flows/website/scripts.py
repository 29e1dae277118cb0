"""Data that pages load as scripts, as ``file://`` allows: the index of the search, and two versions to compare."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flows.inspection.artifact_graph import ArtifactGraph
from flows.website.campaign import CampaignPage, anchor
from flows.website.lineage import page_of
from flows.website.registry import ModelEntry, VersionEntry
from infra.tracking.provenance import short_commit

MADE = ("machine", "commit", "python", "torch", "polars", "tokenizers", "sacrebleu")
"""What is compared of how the weights were made, besides the settings."""


def version_script(entry: VersionEntry, curves: Mapping[str, Any]) -> str:
    """A call of ``addVersion``: browsers load no JSON from ``file://``, but they load scripts."""
    text = {name: entry.training.get(name) for name in ("parameters", "device", "ranks")}
    made = {f"made.{name}": entry.made.get(name) for name in MADE}
    digests = {f"digest.{name}": digest[:16] for name, digest in entry.version.digests.items()}
    others = {name: f"{value}" for name, value in {**text, **made, **digests}.items() if value is not None}
    scores = {name: {measure: vars(score) for measure, score in found.items()} for name, found in entry.scores.items()}
    data = {
        "label": entry.label,
        "fields": {**entry.settings, **others},
        "scores": scores,
        "references": {name: entry.references(name) for name in scores},
        "curves": curves,
    }
    return f"addVersion({script_json(data)});\n"


def list_script(models: Iterable[ModelEntry]) -> str:
    """The pages of all versions by label, the newest first."""
    pages = {entry.label: entry.page for model in models for entry in model.versions}
    return f"const versionPages = {script_json(pages)};\n"


def script_json(value: Any) -> str:
    # ASCII alone: the file is right in any encoding that a host says it has.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


ENTRIES_OF_A_FILE = 4000
"""An entry takes some 150 bytes: so a file stays below a megabyte."""
LONGEST_TEXT = 300
"""Of words that are shown below a title. A command stays whole, so that it can be copied."""

Entry = tuple[str, str, str, str]
"""Kind, title, further words that are searched and shown, and the page, "" for none."""


def index_files(
    models: Sequence[ModelEntry],
    campaign: Sequence[CampaignPage],
    graph: ArtifactGraph,
) -> Iterator[tuple[str, str]]:
    """Path and text of each file of the index; ``search.html`` loads them in this order."""
    entries = [*_registered(models), *_runs(campaign), *_artifacts(graph)]
    for number, start in enumerate(range(0, len(entries), ENTRIES_OF_A_FILE), start=1):
        chosen = entries[start : start + ENTRIES_OF_A_FILE]
        yield f"search-{number}.js", f"addEntries({script_json(chosen)});\n"


def _registered(models: Sequence[ModelEntry]) -> Iterator[Entry]:
    for model in models:
        yield "model", model.name, f"{len(model.versions)} versions", model.page
        for entry in model.versions:
            yield "version", entry.label, _words(entry, model.varying), entry.page


def _words(entry: VersionEntry, varying: Sequence[str]) -> str:
    version = entry.version
    settings = [f"{name}={entry.settings[name]}" for name in varying if name in entry.settings]
    languages = [version.tags.get(f"{side}_language", "") for side in ("source", "target")]
    reasons = [f"{move.alias}: {move.why}" for move in version.promotions]
    words = [
        *version.aliases,
        *languages,
        f"{version.created:%Y-%m-%d}",
        short_commit(entry.commit),
        *settings,
        *reasons,
    ]
    return _short(" ".join(filter(None, words)))


def _runs(campaign: Sequence[CampaignPage]) -> Iterator[Entry]:
    for page in campaign:
        for run in page.runs:
            words = [
                f"{run.started:%Y-%m-%d %H:%M}",
                run.outcome.lower(),
                run.part,
                run.who,
                short_commit(run.commit),
                run.failure,
            ]
            yield "run", run.command, _short(" ".join(filter(None, words))), f"{page.name}#{anchor(run)}"


def _artifacts(graph: ArtifactGraph) -> Iterator[Entry]:
    for node in graph.nodes.values():
        named = [f"{name}" for name in graph.names.get(node.name, ())]
        of = graph.versions_of.get(node.name, [])
        where = f"in {', '.join(of[:3])}{f' and {len(of) - 3} more' if len(of) > 3 else ''}" if of else "in no version"
        title = f"{named[0]} {node.key}" if named else " ".join(filter(None, (node.stage, node.item, node.key)))
        words = [node.made[:16].replace("T", " "), where, *named[1:]]
        yield "artifact", title, _short(" ".join(words)), page_of(node.name)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
