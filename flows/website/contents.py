"""Makes every file of the site: pages, data for their scripts, model cards and reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.inspection.model_cards import artifact_file, version_card
from flows.runner.systems import ForeignScore, foreign_scores
from flows.website.plots import over_versions, training_curves
from flows.website.registry import ModelEntry, VersionEntry, read_registry
from flows.website.render import FOLDER, render
from flows.website.scripts import list_script, version_script
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.provenance import commit
from tasks.corpus.catalogue import may_copy
from tasks.evaluation import html
from tasks.registration.differences import Lineage, differing_fields
from tasks.registration.lineage import keys_of
from tasks.registration.model_card import as_markdown
from tasks.stages.gap import PAGE


@dataclass(frozen=True)
class Root:
    """The data of a root that the site shows."""

    store: Store
    models: Sequence[ModelEntry]
    systems: Sequence[ForeignScore]
    gaps: Sequence[Manifest] = ()
    """Manifests of the stage ``gap``, the newest last."""
    about: Mapping[str, Any] = field(default_factory=lambda: {"written": datetime.now(UTC), "commit": commit()})
    """Facts about the site for every page."""

    @staticmethod
    def read(site: Site) -> "Root":
        """Read registry and manifests. Raises NetworkFault."""
        store = open_store(site)
        gaps = sorted(store.list("gap"), key=lambda each: f"{each.made.get('at')}")
        return Root(store, read_registry(site), foreign_scores(store), gaps)

    def beside(self, *entries: VersionEntry) -> list[ForeignScore]:
        """Find scores of other systems with the same references as a score of these versions."""
        references = {entry.references(name) for entry in entries for name in entry.scores}
        return [each for each in self.systems if each.score.facts["references_sha256"] in references]

    @cached_property
    def registrations(self) -> Mapping[tuple[str, str], Manifest]:
        """The ``register`` manifest of each version, by its label and the key of its weights.

        Another registry of this root may have other versions with the same labels.
        """
        found = {}
        for each in (*self.store.list("register"), *self.store.local().list("register")):
            label = f"{each.facts.get('name')}/{each.facts.get('version')}"
            found[label, each.arguments["weights"]["key"]] = each
        return found

    def report(self, entry: VersionEntry, manifests: Lineage) -> Path | None:
        """Find the report of a version with an alias; others are left out, since a report takes megabytes.

        A report quotes sentences, so it is also left out if the licence of a text forbids copies.
        """
        registered = self.registrations.get((entry.label, entry.version.tags.get("key.average", "")))
        may_show = entry.version.aliases and may_copy(each.arguments for each in manifests.values())
        if registered is None or not may_show:
            return None
        report = registered.arguments["report"]
        return artifact_file(self.store, self.store.find(report["artifact"], report["key"]), "report.html")


def contents(root: Root) -> Iterator[tuple[str, str | Path]]:
    """Yield the path of every file with its text, or with the source of a file to copy."""
    about = root.about
    yield "index.html", render("index.html", "index.html", models=root.models, **about)
    yield "compare.html", render("compare.html", "compare.html", **about)
    yield "versions.js", list_script(root.models)
    for model in root.models:
        values = {"model": model, "plot": over_versions(model), "systems": root.beside(*model.versions)}
        yield model.page, render("model.html", model.page, **values, **about)
        preferred = model.preferred.read_lineage()
        for entry in model.versions:
            yield from _version(root, model, preferred, entry)
    yield "static/base.css", html.BASE / "base.css"
    yield from ((f"static/{file.name}", file) for file in (FOLDER / "static").rglob("*") if file.is_file())


def _version(
    root: Root, model: ModelEntry, preferred: Lineage, entry: VersionEntry
) -> Iterator[tuple[str, str | Path]]:
    store = root.store
    manifests = entry.read_lineage()
    report = root.report(entry, manifests)
    card = version_card(entry.version, manifests, store)
    curves = training_curves(artifact_file(store, manifests.get("train"), "metrics.jsonl"), entry.label)
    values = {"model": model, "entry": entry, "card": card, "curves": curves, "report": report}
    values["differs"] = differing_fields([preferred, manifests]) if preferred and manifests else []
    values["systems"] = root.beside(entry)
    attention = report.parent / "attention_0.png" if report else None  # the first picture, if any
    values["attention"] = has_attention = attention is not None and attention.is_file()
    values["gaps"] = gaps = _gaps(root, entry)
    yield entry.page, render("version.html", entry.page, made_from=manifests, **values, **root.about)
    place = entry.page.removesuffix(".html")
    yield f"{place}.md", as_markdown(card)
    yield f"{place}.js", version_script(entry, curves)
    if report:
        yield f"{place}-report.html", report
    yield from ((f"{place}-gap-{each.key}.html", file) for each, file in gaps)
    if attention and has_attention:
        yield f"{place}-attention.png", attention


def _gaps(root: Root, entry: VersionEntry) -> list[tuple[Manifest, Path]]:
    """Find the newest page of ``repro gap`` for each claim, its score and set of a version."""
    keys = {name.removeprefix("score."): key for name, key in keys_of(entry.version.tags).items()}
    own = [
        each
        for each in root.gaps
        if each.facts["system"] == entry.label and each.arguments["score"]["key"] == keys.get(each.item)
    ]
    newest = {(each.facts["claim"], each.facts["claimed"], each.item): each for each in own}
    files = ((each, artifact_file(root.store, each, PAGE)) for each in newest.values())
    return [(each, file) for each, file in files if file]
