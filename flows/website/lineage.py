"""The pages of lineage: a list of artifacts, and a page for each with what it was made from and what rests on it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.inspection.artifact_graph import ArtifactGraph, ArtifactNode, Name, sealed_everywhere, tree
from flows.inspection.model_cards import artifact_file
from flows.website.render import render
from infra.guards.address_secrets import public_text
from infra.guards.path_names import file_name
from infra.store.manifest import Manifest
from infra.store.store import Store
from tasks.cleaning.rejections import first_rejected

INDEX = "lineage.html"
MOST_LISTED = 1000
"""Artifacts on the list, and versions on a page; a page with all of a large root would be megabytes."""
MOST_IN_TREE = 300
MOST_MANIFEST_CHARACTERS = 100_000
REJECTED_SAMPLES = 3


@dataclass(frozen=True)
class LineagePages:
    """Renders the pages; ``reports`` are addresses of reports on the site, by artifact."""

    graph: ArtifactGraph
    store: Store
    reports: Mapping[Name, str]
    about: Mapping[str, Any]

    def pages(self, version_pages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Path and text of each; ``version_pages`` are the addresses of versions by ``demo/3``."""
        yield INDEX, self._index()
        for manifest in sealed_everywhere(self.store):
            if node := self.graph.nodes.get((manifest.stage, manifest.key)):
                yield page_of(node.name), self._artifact(node, manifest, version_pages)

    def _index(self) -> str:
        named = [node for node in self.graph.nodes.values() if node.name in self.graph.names]
        latest = sorted(named, key=lambda node: node.made, reverse=True)[:MOST_LISTED]
        total = len(self.graph.nodes)
        return self._render("lineage.html", INDEX, nodes=latest, total=total)

    def _artifact(self, node: ArtifactNode, manifest: Manifest, version_pages: Mapping[str, str]) -> str:
        versions = self.graph.versions_of.get(node.name, [])
        text = public_text(json.dumps(vars(manifest), indent=1, ensure_ascii=False))
        used_by = self.graph.used_by.get(node.name, [])
        rejected = artifact_file(self.store, manifest, "rejected.parquet")
        return self._render(
            "artifact.html",
            page_of(node.name),
            node=node,
            manifest=text[:MOST_MANIFEST_CHARACTERS],
            is_cut=len(text) > MOST_MANIFEST_CHARACTERS,
            files=manifest.files,
            libraries=manifest.made.get("libraries", {}),
            made_by=self.graph.made_by.get(node.name),
            cached_in=sum(each is not self.graph.made_by.get(node.name) for each in used_by),
            made_from=tree([node.name], self.graph.inputs, MOST_IN_TREE),
            rests_on_it=tree([node.name], lambda name: self.graph.users.get(name, ()), MOST_IN_TREE),
            versions={label: version_pages.get(label, "") for label in versions[:MOST_LISTED]},
            version_count=len(versions),
            report=self.reports.get(node.name, ""),
            rejected=first_rejected(rejected, REJECTED_SAMPLES) if rejected else {},
        )

    def _render(self, template: str, page: str, **values: object) -> str:
        return render(template, page, graph=self.graph, page_of=page_of, **values, **self.about)


def page_of(name: Name) -> str:
    """The page of an artifact that is there."""
    return f"artifacts/{file_name(name[0])}/{file_name(name[1])}.html"
