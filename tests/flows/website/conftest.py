"""A root with versions of three models, some with hostile names and texts, and the site of it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_registry import EVIL, EVIL_MODEL, hostile_lineage, tags, train, version
from made_up_roots import record
from playwright.sync_api import Browser, Page, expect

from benchmarks.large_root import write_registry
from flows.website.write import write_site
from infra.site import Site
from infra.store.local import LocalStore

MILLISECONDS = 60_000
DEVICES = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 812}, "is_mobile": True, "has_touch": True},
}


@pytest.fixture(scope="session")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Three versions of ``ende``, one of a model with a hostile name, one of ``plain`` whose artifacts are gone."""
    root = tmp_path_factory.mktemp("registered")
    store, found = LocalStore(root), []
    moves = {1: "2026-01-01T00:00:00+00:00 root: the first", 2: f"2026-01-02T00:00:00+00:00 root: better {EVIL}", 3: ""}
    for number, p_drop in ((1, 0.1), (2, 0.3), (3, 0.3)):
        key = train(store, f"{number}" * 20, p_drop)
        changed = {"val.references_sha256": "cd" * 32} if number == 3 else {}
        described = tags(30.0 + number, **{"key.train": key, "modified": f"{number > 1}".lower()}, **changed)
        moved = {"promotion.champion": moves[number]} if moves[number] else {}
        found.append(version("ende", number, described | moved, *(["champion"] if number == 2 else [])))
    evil = tags(1.0, source_language=EVIL, target_language="de", decision=EVIL, **hostile_lineage(store, EVIL_MODEL))
    found.append(version(EVIL_MODEL, 1, evil, "candidate"))
    found.append(version("plain", 1, {"key.train": "../../etc/passwd", "val.bleu": "2.0"}))
    write_registry(root / "mlflow.db", found)
    asked = {"overrides": ["model.p_drop=0.3"], "commit": "c0ffee" * 6}
    clean, trained = {"stage": "clean", "state": "cached"}, {"stage": "train", "seconds": 3600.0}
    failed = {"stage": "report", "state": "failed", "failures": ["disk <full>"], "seconds": 1800.0}
    began, failure = datetime(2026, 1, 1, tzinfo=UTC), f"report failed: {EVIL}"
    made = {"stage": "average", "seconds": 1.0}
    limit = {"place": "score val bleu", "limit": "bleu >= 32", "bound": 32.0, "warns": True, "holds": False}
    failed_limits, limits = ([{**limit, "value": value}] for value in (30.5, 31.5))
    record(root, "ende", began, [clean, made, failed], outcome="FAILED", failure=failure, checks=failed_limits, **asked)
    registered_by = {"stage": "register", "key": "f" * 20, "state": "cached"}
    record(root, "ende", began + timedelta(hours=1), [registered_by, trained], checks=limits, **asked)
    in_sweep = {"group": "sweep ende-5eeb", "title": "trial 1 · p_drop 0.2"}
    record(
        root, "ende", began - timedelta(hours=1), [clean], **{**asked, "overrides": ["model.p_drop=0.2"]}, **in_sweep
    )
    return Site(root=root)


@pytest.fixture(scope="session")
def public(registered: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of that root. Copy it before you change it."""
    out = tmp_path_factory.mktemp("site") / "public"
    write_site(registered, out)
    return out


@pytest.fixture
def page(browser: Browser, public: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that fails the test if it reports an error or asks for anything outside the site."""
    context = browser.new_context(**DEVICES[getattr(request, "param", "light")])  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(MILLISECONDS)
    expect.set_options(timeout=MILLISECONDS)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(f"{error}"))
    own = (public.as_uri(), "blob:")
    page.on("request", lambda asked: None if asked.url.startswith(own) else problems.append(asked.url))
    yield page
    title = page.title()
    context.close()
    assert not problems
    assert title not in ("evil", "1"), "text of the registry was executed"
