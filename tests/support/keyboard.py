"""Walks a page with Tab, as somebody without a mouse does."""

from playwright.sync_api import Page

SETUP = """() => {
  // What can be used: links, fields, buttons, what takes the focus, and whatever shows a pointer to the mouse.
  const own = "a[href], button, input, select, textarea, summary, [tabindex]";
  const usable = (each) => !each.disabled && each.tabIndex >= 0 && each.matches(own);
  const known = "a, button, summary, label, [role=button], [role=radio]";
  const pointed = (each) => getComputedStyle(each).cursor === "pointer";
  const clickable = (each) => pointed(each) && !each.closest(known) && !pointed(each.parentElement);
  const shown = (each) => each.checkVisibility({ visibilityProperty: true });
  const all = [...document.body.querySelectorAll("*")];
  window.usable = all.filter((each) => shown(each) && (usable(each) || clickable(each)));
  document.body.tabIndex = -1;
  document.body.focus(); // Tab begins at the top
  document.body.removeAttribute("tabindex");
  return window.usable.map((each) => `${each.tagName} ${each.id} ${(each.ariaLabel || each.textContent).trim()}`);
}"""
FOCUSED = """() => {
  const found = document.activeElement, box = found.getBoundingClientRect();
  const outlined = [found, found.parentElement].some((each) => each && getComputedStyle(each).outlineStyle !== "none");
  const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth && box.width > 0;
  return [window.usable.indexOf(found), found === document.body, outlined && inside];
}"""


def walk(page: Page) -> list[str]:
    """Press Tab through the page and back; returns what can be used on it, in this order.

    Fails unless each is reached in the order of the page, once, with a visible focus in the window, both ways.
    """
    names: list[str] = page.evaluate(SETUP)
    for key, expected in (("Tab", range(len(names))), ("Shift+Tab", reversed(range(len(names))))):
        reached = []
        for _ in range(len(names) + 1):
            page.keyboard.press(key)
            number, left, visible = page.evaluate(FOCUSED)
            if left or number in reached[:1]:  # the end: the browser begins again
                break
            assert number >= 0, f"{page.url}: the focus is on something that is not listed"
            assert visible, f"{page.url}: the focus on {names[number]} is not visible"
            reached.append(number)
        missed = [names[number] for number in set(range(len(names))) - set(reached)]
        assert reached == list(expected), f"{page.url}: {key} misses {missed}, or takes another order: {reached}"
    return names
