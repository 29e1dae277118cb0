"""The written site: links lead somewhere, nothing comes from elsewhere, foreign text is text, other files stay."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_registry import EVIL_MODEL, PIXEL, tags, version

from flows.website.contents import Root, contents
from flows.website.plots import MOST_POINTS, over_versions, training_curves
from flows.website.registry import ModelEntry, Score, VersionEntry, read_registry
from flows.website.render import render
from flows.website.scripts import version_script
from flows.website.write import write_site
from infra.errors import BadConfiguration
from infra.guards.path_names import file_name
from infra.site import Site
from infra.store.manifest import Manifest

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr", "source"}
ABOUT = {"written": datetime(2026, 1, 1, tzinfo=UTC), "commit": ""}
ADDRESSES = ("href", "src", "srcset", "action", "poster", "data")


class Checked(HTMLParser):
    """Collects the addresses, ids and problems of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.problems: list[str] = []
        self.feed(text)
        self.close()
        if self.open:
            self.problems.append(f"not closed: {self.open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if identity := named.get("id"):
            self.ids.append(identity)
        self.addresses += [named[name] or "" for name in ADDRESSES if name in named]
        if tag == "script" and "src" not in named and named.get("type") != "application/json":
            self.problems.append("a script in the page, which the policy of `repro serve` refuses")
        self.problems += [f"{tag} has {name}" for name in named if name == "style" or name.startswith("on")]
        if tag in ("iframe", "object", "embed", "form", "style"):
            self.problems.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")


def pages(public: Path) -> dict[str, Checked]:
    return {f"{path.relative_to(public)}": Checked(path.read_text()) for path in public.rglob("*.html")}


def test_pages_are_well_formed_and_every_link_leads_to_a_file_of_the_site(public: Path) -> None:
    found = pages(public)
    assert {"index.html", "models/ende.html", "models/plain.html", "versions/ende/3.html"} < found.keys()
    for name, page in found.items():
        assert not page.problems, (name, page.problems)
        assert len(page.ids) == len(set(page.ids)), name
        for address in page.addresses:
            path, _, fragment = address.partition("#")
            target = (public / name).parent / path if path else public / name
            assert not re.match(r"[a-z]+:|/", path), (name, address)
            assert target.resolve().is_relative_to(public.resolve()), (name, address)
            assert target.is_file(), (name, address)
            if fragment and target.name != "compare.html":  # it reads two versions from there
                assert fragment in found[f"{target.resolve().relative_to(public.resolve())}"].ids, (name, address)


def test_programs_and_styles_name_no_other_host(public: Path) -> None:
    for file in (public / "static").iterdir():
        text = file.read_text()
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}\S*", text))
        allowed = {"https://github.com/leeoniya/uPlot"}  # in its head
        assert addresses <= allowed or file.name == "icon.svg", (file.name, addresses)
    assert (public / "static" / "uPlot.LICENSE.txt").read_text().startswith("The MIT License")


def test_hostile_sentences_are_shown_as_text_and_the_report_is_copied(public: Path) -> None:
    place = public / "versions" / file_name(EVIL_MODEL)
    text = (place / "1.html").read_text()
    assert "<mark>&lt;img" in text
    assert "captions of photographs" in text
    assert "the report" in (place / "1-report.html").read_text()
    assert 'src="1-attention.png"' in text
    assert "upper half of the layers" in text, "as the picture of the report"
    assert (place / "1-attention.png").read_bytes() == PIXEL
    assert "<h2>Attention" not in (public / "versions" / "ende" / "1.html").read_text(), "it has no report here"
    assert not list((public / "versions" / "plain").glob("*report*"))
    card = (place / "1.md").read_text()
    text = card[card.index("\n# ") :]  # after the front matter
    assert not [line for line in text.splitlines() if "<script>" in line and not line.startswith("    ")]
    assert "a \\| b" in card


def test_a_version_whose_training_was_removed_is_sorted_last(public: Path) -> None:
    pages = ((public / "models" / f"{name}.html").read_text() for name in ("ende", "plain"))
    assert [re.findall(r'data-sort="(.*?)"', page) for page in pages] == [["7260.0"] * 3, [""]]


def test_a_score_without_case_says_so() -> None:
    found = tags(30.0, **{"val.bleu_lc": "35.0", "val.source_input": "lower-cased"})
    lower = VersionEntry(version("lower", 1, found), {}, {}, {}, dict)
    cased = VersionEntry(version("cased", 1, tags(30.0)), {}, {}, {}, dict)
    page = render("index.html", "index.html", models=[ModelEntry(e.version.name, [e]) for e in (cased, lower)], **ABOUT)
    values = [cell for cell in re.findall(r"<td class=.number.>(.*?)</td>", page, re.DOTALL) if "val" in cell]
    assert ["lower-cased" in cell for cell in values] == [False, True]
    assert "35.00" in values[1]


def test_a_set_whose_name_begins_with_anothers_has_its_own_measures() -> None:
    entry = VersionEntry(version("sets", 1, tags(30.0, **{"test.2016.bleu": "20.0"})), {}, {}, {}, dict)
    assert entry.scores["test"] == {"bleu": Score(25.0)}
    assert entry.scores["test.2016"] == {"bleu": Score(20.0)}


def test_settings_with_the_fewest_values_come_first() -> None:
    settings = [{"training.seed": f"{n}", "model.layers": "2", "model.p_drop": f"{n == 3}"} for n in (1, 2, 3)]
    entries = [VersionEntry(version("m", n, {}), each, {}, {}, dict) for n, each in enumerate(settings, 1)]
    assert ModelEntry("m", entries).varying == ["model.p_drop", "training.seed"]


def test_versions_are_compared_by_the_libraries_of_every_stage() -> None:
    made = {"clean": {"polars": "1.0"}, "train": {"torch": "2.12"}, "average": {"torch": "2.13"}}
    lineage = {
        stage: Manifest(stage, "k", 1, "", {}, {}, "", {}, {}, 1.0, {"libraries": libraries})
        for stage, libraries in made.items()
    }
    script = version_script(VersionEntry(version("m", 1, {}), {}, {}, lineage["train"].made, lambda: lineage), {})
    fields = json.loads(script.removeprefix("addVersion(").removesuffix(");\n"))["fields"]
    assert fields == {"library.polars": "1.0", "library.torch": "2.12, 2.13"}


def test_scores_over_other_references_are_another_series(registered: Site) -> None:
    model = next(model for model in read_registry(registered) if model.name == "ende")
    plot = over_versions(model)
    assert plot["x"] == [1, 2, 3]
    bleu = plot["measures"][0]
    assert bleu["name"] == "bleu"
    assert {each["name"]: each["values"] for each in bleu["series"]} == {
        "val (references abababab)": [31.0, 32.0, None],
        "val (references cdcdcdcd)": [None, None, 33.0],
        "test": [26.0, 27.0, 28.0],
    }
    assert bleu["series"][0]["low"] == [30.0, 31.0, None]
    measures = {each["name"]: each["series"][0]["values"] for each in plot["measures"]}
    assert measures["training hours"] == pytest.approx([7260 / 3600] * 3)
    assert "sentences" not in measures


def test_a_later_site_removes_its_own_old_pages_and_nothing_else(
    public: Path, registered: Site, tmp_path: Path
) -> None:
    out = tmp_path / "public"
    shutil.copytree(public, out)
    (out / "models" / "gone.html").write_text("an old page")
    (out / "CNAME").write_text("the user's")
    (tmp_path / "outside.txt").write_text("the user's")
    known = json.loads((out / "site.json").read_text())
    (out / "site.json").write_text(json.dumps([*known, "models/gone.html", "../outside.txt"]))
    write_site(registered, out)
    assert not (out / "models" / "gone.html").exists()
    assert (out / "CNAME").exists()
    assert (tmp_path / "outside.txt").exists()
    assert json.loads((out / "site.json").read_text()) == known


def test_a_folder_with_other_files_is_refused(registered: Site, tmp_path: Path) -> None:
    (tmp_path / "thesis.html").write_text("the user's")
    with pytest.raises(BadConfiguration, match="--out"):
        write_site(registered, tmp_path)
    for below in ("", "public", "public/site"):
        with pytest.raises(BadConfiguration, match="--out"):
            write_site(registered, tmp_path / "thesis.html" / below)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.html"]
    (tmp_path / "site.json").write_text('{"title": "my thesis", "thesis.html": 1}')
    with pytest.raises(BadConfiguration, match="no site of this program"):
        write_site(registered, tmp_path)


def test_a_report_belongs_to_its_version_and_is_not_copied_if_the_licence_forbids_it(registered: Site) -> None:
    root = Root.read(registered)
    entry = next(model for model in root.models if model.name == EVIL_MODEL).versions[0]
    manifests = entry.read_lineage()
    assert root.report(entry, manifests)
    corpus = {**manifests["clean"].arguments["corpus"], "copies": False}
    closed = {**manifests, "clean": replace(manifests["clean"], arguments={"corpus": corpus})}
    assert root.report(entry, closed) is None
    other = replace(entry.version, tags={**entry.version.tags, "key.average": "of another registry"})
    assert root.report(replace(entry, version=other), manifests) is None


def test_the_newest_champion_is_compared_with_the_version_before(registered: Site) -> None:
    root = Root.read(registered)
    model = next(model for model in root.models if model.name == "ende")
    pages = dict(contents(replace(root, models=[replace(model, versions=model.versions[1:])])))
    assert "compare.html#ende/2%20ende/1" in str(pages["models/ende.html"])


@pytest.mark.parametrize("updates", [3, 2 * MOST_POINTS + 1])
def test_every_dev_check_is_drawn_where_a_training_row_has_the_same_update(updates: int, tmp_path: Path) -> None:
    rows = [{"done": update, "loss": 2.0, "perplexity": 7.5} for update in range(1, updates + 1)]
    checks = [{"done": update, "dev_perplexity": float(update)} for update in (2, updates)]
    repeated = [{"done": 2, "loss": 1.0, "perplexity": 6.5}]  # of a training that was resumed
    written = rows[:2] + checks[:1] + repeated + rows[2:] + checks[1:]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in written))
    drawn = training_curves(tmp_path / "metrics.jsonl", "demo/1")
    assert drawn["x"] == sorted(set(drawn["x"]))
    values = {
        each["name"]: dict(zip(drawn["x"], each["series"][0]["values"], strict=True)) for each in drawn["measures"]
    }
    assert {x: y for x, y in values["dev_perplexity"].items() if y is not None} == {2: 2.0, updates: float(updates)}
    assert values["loss"][2] == 1.0
    assert [each["name"] for each in drawn["measures"] if each["log"]] == ["perplexity", "dev_perplexity"]


def test_a_training_that_ended_early_ends_at_its_last_update(tmp_path: Path) -> None:
    rows = [{"done": 1, "total": 900, "loss": 2.0}, {"done": 900, "total": 900, "facts": {"updates": 1}}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert training_curves(tmp_path / "metrics.jsonl", "demo/1")["x"] == [1]
