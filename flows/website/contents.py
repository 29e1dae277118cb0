"""Every file of the site: pages, the data that programs in them load, model cards and reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.inspection.artifact_graph import ArtifactGraph, read_graph
from flows.inspection.model_cards import artifact_file, version_card
from flows.runner.recorded_runs import RecordedRun
from flows.runner.systems import ForeignScore, foreign_scores
from flows.website.campaign import campaign_pages, totals
from flows.website.lineage import LineagePages, page_of
from flows.website.plots import over_versions, training_curves
from flows.website.registry import ModelEntry, VersionEntry, read_registry
from flows.website.render import render, static_files
from flows.website.scripts import list_script, version_script
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.provenance import commit
from tasks.registration.differences import Lineage, differing_fields
from tasks.registration.model_card import as_markdown
from tasks.stages.gap import PAGE


@dataclass(frozen=True)
class Root:
    """What the site shows of a root."""

    store: Store
    models: Sequence[ModelEntry]
    graph: ArtifactGraph
    systems: Sequence[ForeignScore]
    gaps: Sequence[Manifest] = ()
    """Of the stage ``gap``, the newest last."""

    @staticmethod
    def read(site: Site) -> "Root":
        """Read registry, records and manifests. Raises NetworkFault."""
        store = open_store(site)
        gaps = sorted(store.list("gap"), key=lambda each: f"{each.made.get('at')}")
        return Root(store, read_registry(site), read_graph(site), foreign_scores(store), gaps)

    def beside(self, *entries: VersionEntry) -> list[ForeignScore]:
        """The scores of other systems by the same references as some score of these versions."""
        references = {entry.references(name) for entry in entries for name in entry.scores}
        return [each for each in self.systems if each.score.facts["references_sha256"] in references]

    @property
    def runs(self) -> Sequence[RecordedRun]:
        return self.graph.runs


def contents(root: Root) -> Iterator[tuple[str, str | Path]]:
    """Path and text of every file; for a file that is copied, where it is."""
    about = {"written": datetime.now(UTC), "commit": commit()}
    yield "index.html", render("index.html", "index.html", models=root.models, **about)
    yield "compare.html", render("compare.html", "compare.html", **about)
    yield "versions.js", list_script(root.models)
    registrations = _registrations(root.store)
    reports = _reports(root, registrations)
    for model in root.models:
        plot = over_versions(model)
        yield (
            model.page,
            render("model.html", model.page, model=model, plot=plot, systems=root.beside(*model.versions), **about),
        )
        preferred = model.preferred.read_lineage()
        for entry in model.versions:
            yield from _version(root, model, preferred, entry, reports.get(entry.label), about)
    yield from _campaign(root, registrations, about)
    yield from _lineage(root, registrations, reports, about)
    yield from static_files().items()


def _version(
    root: Root,
    model: ModelEntry,
    preferred: Lineage,
    entry: VersionEntry,
    report: Path | None,
    about: Mapping[str, Any],
) -> Iterator[tuple[str, str | Path]]:
    store = root.store
    manifests = entry.read_lineage()
    card = version_card(entry.version, manifests, store)
    curves = training_curves(artifact_file(store, manifests.get("train"), "metrics.jsonl"), entry.label)
    values = {"model": model, "entry": entry, "card": card, "curves": curves, "report": report}
    values["differs"] = differing_fields([preferred, manifests]) if preferred and manifests else []
    values["systems"] = root.beside(entry)
    attention = _attention(report)
    values["attention"] = attention is not None
    values["gaps"] = gaps = _gaps(root, entry.label)
    values["artifacts"] = [page_of(name) for name in root.graph.registration(entry.label)]
    values["made_from"] = {name: each for name, each in manifests.items() if (each.stage, each.key) in root.graph.nodes}
    yield entry.page, render("version.html", entry.page, page_of=page_of, **values, **about)
    place = entry.page.removesuffix(".html")
    yield f"{place}.md", as_markdown(card)
    yield f"{place}.js", version_script(entry, curves)
    if report:
        yield _report_page(entry), report
    yield from ((f"{place}-gap-{each.key}.html", file) for each, file in gaps)
    if attention:
        yield f"{place}-attention.png", attention


def _gaps(root: Root, label: str) -> list[tuple[Manifest, Path]]:
    """The newest page of ``repro gap`` for each claim and set of a version."""
    newest = {(each.facts["claim"], each.item): each for each in root.gaps if each.facts["system"] == label}
    files = ((each, artifact_file(root.store, each, PAGE)) for each in newest.values())
    return [(each, file) for each, file in files if file]


def _report_page(entry: VersionEntry) -> str:
    return f"{entry.page.removesuffix('.html')}-report.html"


def _attention(report: Path | None) -> Path | None:
    """The first picture of attention beside a report, if it has one."""
    found = report.parent / "attention_0.png" if report else None
    return found if found and found.is_file() else None


def _campaign(
    root: Root, registrations: Mapping[str, Manifest], about: Mapping[str, Any]
) -> Iterator[tuple[str, str | Path]]:
    pages = campaign_pages(root.runs)
    sums = totals(root.runs)
    entries = {entry.label: entry for model in root.models for entry in model.versions}
    registered = {manifest.key: entries[label] for label, manifest in registrations.items() if label in entries}
    for page in pages:
        values = {"pages": pages, "here": page, "totals": sums, "registered": registered}
        yield page.name, render("campaign.html", page.name, **values, **about)


def _lineage(
    root: Root, registrations: Mapping[str, Manifest], reports: Mapping[str, Path], about: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    entries = [entry for model in root.models for entry in model.versions]
    shown = {
        ("report", registrations[entry.label].arguments["report"]["key"]): _report_page(entry)
        for entry in entries
        if entry.label in reports
    }
    pages = LineagePages(root.graph, root.store, shown, about)
    yield from pages.pages({entry.label: entry.page for entry in entries})


def _registrations(store: Store) -> dict[str, Manifest]:
    """The manifest of the stage ``register`` that made each version, by label as ``demo/3``."""
    found = store.local().list("register")
    return {f"{each.facts.get('name')}/{each.facts.get('version')}": each for each in found}


def _reports(root: Root, registrations: Mapping[str, Manifest]) -> dict[str, Path]:
    """The report of each version with an alias: one takes megabytes, so those that nobody points at are left out."""
    aliased = [entry.label for model in root.models for entry in model.versions if entry.version.aliases]
    named = {label: registrations[label].arguments["report"] for label in aliased if label in registrations}
    manifests = {label: root.store.find(each["artifact"], each["key"]) for label, each in named.items()}
    found = {label: artifact_file(root.store, each, "report.html") for label, each in manifests.items()}
    return {label: path for label, path in found.items() if path}
