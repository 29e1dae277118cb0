"""Pages of lineage on the site: both directions, versions, rejected pairs, removed artifacts, a bound on each page."""

import io
import re
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from made_registry import EVIL, version
from made_registry import artifact as with_files
from made_up_roots import artifact, chain, record, row_of

from benchmarks.large_root import write_registry
from flows.inspection.artifact_graph import tree
from flows.website.lineage import MOST_IN_TREE
from flows.website.write import write_site
from infra.site import Site
from infra.store.local import LocalStore


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raw file, text cleaned from it with a rejected pair of hostile text, and two versions of ``demo`` on it."""
    root = tmp_path_factory.mktemp("lineage")
    store = LocalStore(root)
    raw = artifact(store, "download", "d0ffee", item="demo/train.de")
    chains = [chain(store, raw, f"{number}", {"name": "demo", "version": number}) for number in (1, 2)]
    rows = [row_of(each) for each in chains[0]]
    record(root, "demo", datetime(2026, 11, 1, tzinfo=UTC), rows)
    record(root, "demo", datetime(2026, 11, 2, tzinfo=UTC), [{**each, "state": "cached"} for each in rows])
    rejected = pl.DataFrame({"pair_id": ["demo:7"], "source": [EVIL], "target": ["zu lang"], "filter": ["length"]})
    file = io.BytesIO()
    rejected.write_parquet(file)
    facts = {"pairs": 3, "rejected": 1, "rejected_by": {"length": 1}}
    with_files(
        store, "clean", "bad1", {"rejected.parquet": file.getvalue()}, facts=facts, inputs={"download/gone": "0"}
    )
    write_registry(root / "mlflow.db", [version("demo", number, {"val.bleu": "2.0"}) for number in (1, 2)])
    return root


@pytest.fixture(scope="module")
def public(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("public")
    write_site(Site(root=root), out)
    return out


def test_a_raw_file_leads_to_every_version_and_a_score_to_its_raw_file(public: Path) -> None:
    raw = (public / "artifacts/download/d0ffee.html").read_text()
    for number in (1, 2):
        assert f'href="../../versions/demo/{number}.html">demo/{number}</a>' in raw
        assert f'href="../../artifacts/clean/c0ffee{number}.html"' in raw.split("Used by")[1]
    score = (public / "artifacts/score/50ffee1.html").read_text()
    above = score.split("Made from")[1].split("Used by")[0]
    assert all(f"artifacts/{name}.html" in above for name in ("average/a0ffee1", "clean/c0ffee1", "download/d0ffee"))
    assert "a0ffee2" not in score
    assert "cached in 1 run on record" in score
    assert "by repro run demo (ann)" in re.sub(r"<[^>]+>", "", score)


def test_filter_counts_samples_manifest_and_what_is_missing(public: Path) -> None:
    page = (public / "artifacts/clean/bad1.html").read_text()
    assert "zu lang" in page
    assert EVIL not in page
    assert "onerror=&#34;" in page
    assert "download/gone <span" in page
    assert "&#34;rejected_by&#34;: {" in page


def test_a_page_stays_small_whatever_rests_on_an_artifact() -> None:
    many = [("b", f"{n}") for n in range(20_000)]
    assert len(tree([("a", "0")], lambda name: many if name[0] == "a" else (), MOST_IN_TREE)) == MOST_IN_TREE
    names = [("s", f"{n}") for n in range(600)]
    deep = tree([("s", "0")], lambda name: names[int(name[1]) + 1 : int(name[1]) + 3], MOST_IN_TREE)
    assert deep[0].name == ("s", "1")
