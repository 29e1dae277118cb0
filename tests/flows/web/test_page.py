"""Tests of the page in a real browser, also on a phone, in dark mode and by keyboard."""

import re
import threading
from collections.abc import Iterator

import pytest
from keyboard import walk
from playwright.sync_api import Browser, Page, Route, expect
from web_fake import Fake, Site, served

from model.config import Decoding

SECONDS = 30_000
TEXT = "One dog. Two dogs.\n\nA cat."
EVIL = "<img src=x onerror=document.title='evil'><script>document.title='evil'</script>"


@pytest.fixture(scope="module")
def fakes() -> list[Fake]:
    other = Fake(name="other/2", aliases=("candidate",), answer=lambda text: text.upper().replace("DOG", "HOUND"))
    return [Fake(), other, Fake(name="evil/1", aliases=(), answer=lambda _: EVIL)]


@pytest.fixture(scope="module")
def site(fakes: list[Fake]) -> Iterator[Site]:
    with served(fakes) as site:
        yield site


class Watched:
    """A page that collects its errors, foreign requests and dialogs."""

    def __init__(self, browser: Browser, site: Site, **device: object) -> None:
        self.context = browser.new_context(**device)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SECONDS)
        expect.set_options(timeout=SECONDS)
        self.problems: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(f"{error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on(
            "request",
            lambda asked: None if asked.url.startswith((site.url, "blob:")) else self.problems.append(asked.url),
        )


@pytest.fixture
def watched(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Watched]:
    made = Watched(browser, site, **getattr(request, "param", {}))
    yield made
    problems = made.problems
    made.context.close()
    assert not problems


@pytest.fixture
def page(watched: Watched, site: Site) -> Page:
    watched.page.goto(site.url)
    expect(watched.page.locator("#model option")).to_have_count(3)
    return watched.page


def translate(page: Page, text: str = TEXT) -> None:
    page.locator("#text").fill(text)
    page.get_by_role("button", name="Translate", exact=True).click()
    expect(page.locator("#status")).to_contain_text(" in ")
    expect(page.locator("#rows .piece").first).to_be_visible()


def paragraphs(page: Page, side: int = 0) -> list[str]:
    return [text.strip() for text in page.locator(f"#out-{side} p").all_text_contents()]


def test_paragraphs_are_kept_and_attention_of_a_sentence_is_shown(page: Page) -> None:
    page.locator("#nbest").fill("3")
    translate(page)
    assert paragraphs(page) == ["ONE DOG. TWO DOGS.", "", "A CAT."]
    expect(page.get_by_role("status").first).to_contain_text("3 sentences in")
    expect(page.locator("#engines")).to_have_text("Searched: fake/1 by fake")
    page.get_by_role("button", name="TWO DOGS.").first.click()
    expect(page.locator("#inside-name")).to_have_text("Inside: “Two dogs.”")
    expect(page.locator("#hypotheses button")).to_have_count(3)
    expect(page.locator("#columns .piece")).to_have_text(["Two", "dogs.", "</s>"])
    page.locator("#layer").select_option("2")
    page.locator("#head").select_option("3")
    page.locator("#rows .piece").nth(1).hover()
    expect(page.locator("#looks")).to_have_text("5 attends to Two 33 %, dogs. 33 %, </s> 33 %")
    assert page.locator("#columns .piece").first.evaluate("e => e.style.getPropertyValue('--weight')") == "0.333"
    expect(page.locator("#map")).to_have_attribute("aria-label", re.compile("layer 2, head 3"))
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the picture").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    page.locator("#kind").select_option("encoder")
    expect(page.locator("#rows .piece")).to_have_text(["Two", "dogs.", "</s>"])


def test_sentences_appear_as_they_are_translated(page: Page, fakes: list[Fake]) -> None:
    page.locator("#text").fill("a. b. c. d.")
    first = threading.Event()
    translated = fakes[0].answer

    def slow(text: str) -> str:
        if text != "a.":
            first.wait(60)
        return translated(text)

    fakes[0].answer = slow
    try:
        page.get_by_role("button", name="Translate", exact=True).click()
        expect(page.locator("#out-0 .sentence").first).to_have_text("A.")
        expect(page.locator("#out-0 .waits")).to_have_count(3)
    finally:
        first.set()
        fakes[0].answer = translated
    expect(page.locator("#out-0 .waits")).to_have_count(0)


def test_two_versions_or_searches_are_compared_with_their_differences_marked(page: Page) -> None:
    translate(page)
    page.locator("#beside").select_option("other/2")
    expect(page.locator("#out-1 .sentence[aria-pressed]")).to_have_count(3)
    assert paragraphs(page, 1) == ["ONE HOUND. TWO HOUNDS.", "", "A CAT."]
    expect(page.locator("#out-0 mark")).to_have_text(["DOG.", "DOGS."])
    expect(page.locator("#out-1 mark")).to_have_text(["HOUND.", "HOUNDS."])
    page.locator("#beside").select_option("@greedy")
    expect(page.locator("#name-1")).to_have_text("fake/1, greedy")
    expect(page.locator("#out-1 p").last).to_contain_text("A CAT. greedily")
    expect(page.locator("#out-1 mark").first).to_be_visible()
    page.locator("#beside").select_option("")
    page.locator("#model").select_option("other/2")
    expect(page.locator("#name-0")).to_have_text("other/2")
    expect(page.locator("#out-0")).to_contain_text("TWO HOUNDS.")


def test_the_search_as_scored_beside_another_has_no_setting_of_the_form(page: Page, fakes: list[Fake]) -> None:
    page.locator("#beam").select_option("6")
    page.locator("#alpha").fill("0")
    page.locator("#nbest").fill("9")
    page.locator("#beside").select_option("@beam")
    fakes[0].batches.clear()
    translate(page, "One dog.")
    expect(page.locator("#name-1")).to_have_text("fake/1, beam 4")
    expect(page.locator("#out-1 .sentence")).to_have_text("ONE DOG.")
    searches = {(search.decoding.beam, search.decoding.alpha, n) for _, search, n in fakes[0].batches}
    assert searches == {(6, 0.0, 9), (4, Decoding().alpha, 7)}


def test_a_link_restores_the_same_view(page: Page, browser: Browser, site: Site) -> None:
    page.locator("#beam").select_option("2")
    page.locator("#alpha").fill("0")
    page.locator("#nbest").fill("2")
    page.locator("#beside").select_option("other/2")
    translate(page, 'Ä & "<b>" #1.\nTwo dogs.')
    expect(page.locator("#out-1 .sentence[aria-pressed]")).to_have_count(2)
    page.locator("#out-1 .sentence").nth(1).click()
    page.locator("#hypotheses button").nth(1).click()
    page.locator("#kind").select_option("encoder")
    page.locator("#layer").select_option("1")
    expect(page.locator("#map")).to_have_attribute("aria-label", re.compile("itself, layer 1, .* other/2"))
    seen = page.locator("#map").evaluate("map => map.toDataURL()")
    page.get_by_role("button", name="Copy link").click()
    address = page.url
    again = browser.new_page()
    again.goto(address)
    expect(again.locator("#map")).to_have_attribute("aria-label", re.compile("itself, layer 1, .* other/2"))
    assert again.locator("#map").evaluate("map => map.toDataURL()") == seen
    expect(again.locator("#text")).to_have_value('Ä & "<b>" #1.\nTwo dogs.')
    expect(again.locator("#alpha")).to_have_value("0")
    expect(again.locator("#hypotheses button").nth(1)).to_have_attribute("aria-pressed", "true")
    assert paragraphs(again, 1) == paragraphs(page, 1)
    again.goto("about:blank")
    again.goto(f"{site.url}/#text=a&model=..%2Fx&beam=99&layer=-1&head=x&sentence=9.9&kind=x")
    expect(again.locator("#out-0")).to_contain_text("A")
    expect(again.locator("#trouble")).to_have_text("A version that this link names is not served here.")
    again.close()


def test_a_link_to_a_version_that_is_not_served_says_so(page: Page, site: Site) -> None:
    for named in ("model=fake%2F9", "beside=fake%2F9", "model=other%2F2&beside=fake%40x"):
        page.goto(f"{site.url}/docs")  # or the next address would be a place on the page that is open
        page.goto(f"{site.url}/#text=A%20cat.&{named}")
        expect(page.locator("#out-0 .sentence")).to_have_text("A CAT.")
        expect(page.get_by_role("alert")).to_have_text("A version that this link names is not served here.")
        expect(page.locator("#pane-1")).to_be_hidden()


def test_hostile_text_is_shown_as_text(page: Page) -> None:
    page.locator("#model").select_option("evil/1")
    translate(page, EVIL)
    expect(page.locator("#out-0 .sentence").first).to_have_text(EVIL)
    expect(page.locator("#columns")).to_contain_text("onerror=document.title='evil'>")
    assert page.title() == "Translate, and look inside"
    assert page.locator("main img").count() == 0


def test_a_refused_request_shows_one_sentence(watched: Watched, page: Page) -> None:
    page.locator("#text").fill("word " * 31)
    page.locator("#text").press("Control+Enter")
    expect(page.get_by_role("alert")).to_have_text(
        "line 1 has a sentence of 31 pieces, allowed are 30; split the sentence"
    )
    assert [said for said in watched.problems if "422" not in said] == []
    watched.problems.clear()


def test_refused_attention_leaves_none_of_another_sentence(watched: Watched, page: Page) -> None:
    translate(page)
    refused = '{"error": "the sentence has 121 pieces, allowed are 120"}'
    page.route("**/api/attention", lambda route: route.fulfill(status=422, body=refused))
    page.get_by_role("button", name="TWO DOGS.").first.click()
    expect(page.get_by_role("alert")).to_have_text("the sentence has 121 pieces, allowed are 120")
    expect(page.locator("#rows .piece, #columns .piece")).to_have_count(0)
    assert page.locator("#map").evaluate("map => map.width") == 0
    page.unroute("**/api/attention")
    page.get_by_role("button", name="ONE DOG.").first.click()
    expect(page.locator("#columns .piece").first).to_have_text("One")
    expect(page.locator("#trouble")).to_have_text("")
    assert page.locator("#map").evaluate("map => map.width") > 0
    assert [said for said in watched.problems if "422" not in said] == []
    watched.problems.clear()


def test_the_page_works_by_keyboard(page: Page) -> None:
    page.locator("#text").focus()
    page.keyboard.type("One dog. Two dogs.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("2 sentences in")
    expect(page.locator("#rows .piece").first).to_be_visible()
    page.locator("#text").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator("#out-0 .sentence").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#inside-name")).to_have_text("Inside: “Two dogs.”")
    page.locator("#rows [tabindex='0']").focus()
    for key, row in (("ArrowRight", 1), ("End", 2), ("ArrowRight", 0), ("ArrowLeft", 2), ("Home", 0)):
        page.keyboard.press(key)
        expect(page.locator("#rows .piece").nth(row)).to_be_focused()
        expect(page.locator("#rows .piece").nth(row)).to_have_attribute("aria-checked", "true")


def test_everything_is_reached_by_keyboard_in_order_with_a_visible_focus(page: Page) -> None:
    assert walk(page)[0] == "A  API"
    page.locator("#beside").select_option("other/2")
    translate(page)
    expect(page.locator("#out-1 .sentence[aria-pressed]")).to_have_count(3)
    translated = walk(page)
    for control in ("INPUT nbest", "TEXTAREA text", "SPAN  ONE HOUND.", "BUTTON link", "SELECT head", "BUTTON save"):
        assert any(name.startswith(control) for name in translated), control
    page.get_by_role("link", name="API").press("Enter")
    expect(page.locator("#calls section")).to_have_count(5)
    assert walk(page) == ["A  Translate", "A  openapi.json"]


def test_the_focus_stays_when_another_sentences_attention_arrives(page: Page) -> None:
    page.locator("#text").fill("One dog. Two dogs.")
    page.locator("#text").press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("2 sentences in")
    expect(page.locator("#rows .piece").first).to_be_visible()
    held: list[Route] = []
    page.route("**/attention", lambda route: held.append(route))
    with page.expect_request("**/attention"):
        page.locator("#out-0 .sentence").nth(1).press("Enter")
    page.locator("#rows [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.evaluate("document.querySelectorAll('#rows .piece').forEach(piece => piece.dataset.old = true)")
    held[0].continue_()
    expect(page.locator("#rows [data-old]")).to_have_count(0)
    expect(page.locator("#rows .piece").nth(1)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#rows .piece").nth(2)).to_be_focused()


PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize(
    "watched", [{}, {"color_scheme": "dark"}, PHONE], indirect=True, ids=["light", "dark", "phone"]
)
def test_the_page_is_accessible_and_fits_the_screen(watched: Watched, page: Page) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.locator("#beside").select_option("other/2")
    translate(page)
    expect(page.locator("#out-1 .sentence[aria-pressed]")).to_have_count(3)
    if page.evaluate("navigator.maxTouchPoints"):
        page.locator("#rows .piece").nth(1).tap()
        expect(page.locator("#rows .piece").nth(1)).to_have_attribute("aria-checked", "true")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    corner = page.locator("#map").evaluate("map => map.getContext('2d').getImageData(0, 0, 1, 1).data[0]")
    assert (corner < 128) == dark
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.goto(page.url.split("#")[0] + "docs")
    expect(page.locator("#calls section")).to_have_count(5)
    assert Axe().run(page).violations_count == 0
