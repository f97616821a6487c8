"""The documentation's site in a real browser, on a wide screen and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.browser import browser
from helpers.site import build_site, served

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

#: Tables that reach over the text's margins, and what reaches over the window's unless something scrolls it.
TOO_WIDE = """
const margin = document.querySelector("article").getBoundingClientRect().right + 1;
const right = element => element.getBoundingClientRect().right;
const scrolls = element => ["auto", "scroll", "hidden"].includes(getComputedStyle(element).overflowX);
const scrolled = element => {
    for (let parent = element.parentElement; parent.tagName !== "ARTICLE"; parent = parent.parentElement)
        if (scrolls(parent) && right(parent) <= innerWidth) return true;
    return false;
};
return [...document.querySelectorAll("article *")]
    .filter(element => element.tagName === "TABLE" ? right(element) > margin : right(element) > innerWidth && !scrolled(element))
    .map(element => `${element.tagName} ${element.innerText}`.slice(0, 60));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("width", [1280, 390])
def test_what_is_wide_scrolls_within_the_text(site: Path, width: int) -> None:
    pages = sorted(page.parent.name for page in site.glob("*/index.html"))
    assert "configuration" in pages
    with served(site) as address, browser(width=width, mobile=width < 500) as window:
        tables = 0
        for page in pages:
            window.open(f"{address}/{page}/")
            window.wait("document.querySelectorAll('article table').length == document.querySelectorAll('.md-typeset__table').length")
            assert window.run(TOO_WIDE) == [], page
            assert window.run("return document.documentElement.scrollWidth <= window.innerWidth"), page
            tables += window.run(
                "return [...document.querySelectorAll('article table')].filter(table => table.scrollWidth > table.clientWidth).length"
            )
        assert width > 500 or tables > 10, "the tables that are wider than a phone"
