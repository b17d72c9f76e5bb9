"""Keys and values are anybody's bytes: whatever they spell, a page is the page that the template says."""

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from keyplan.engine import Commit, Engine, Put
from keyplan.store import Store
from tests.server.explorer.conftest import Explorer
from tests.server.explorer.shop import NAME, Item, ItemKey, Shop

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&#60;i&#62;",
    "</title></pre></textarea><svg onload=alert(1)>",
    "\u202egnirts\u2066",
    "line\u2028separator",
]
_TAGS = (
    "html head meta title link script body a header form label input select option button main footer p nav ol ul li h1 h2 h3"
    " dl div dt dd table caption thead tbody tr th td code span section pre details summary meter b noscript br"
)
_ELEMENTS = frozenset(_TAGS.split())


class Judge(HTMLParser):
    """Notes whatever a template of ours does not write."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag not in _ELEMENTS or any(name.startswith("on") or name == "style" for name in names):
            self.found.append(str(self.get_starttag_text()))
        for name in ("href", "src", "action"):
            if not (names.get(name) or "/explore/").startswith(("/explore/", "#content")):
                self.found.append(str(self.get_starttag_text()))
        if tag == "script" and "src" not in names:
            self.found.append("an inline script")


def judged(page: str) -> list[str]:
    judge = Judge()
    judge.feed(page)
    return judge.found + re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


def test_the_judge_finds_what_was_not_escaped() -> None:
    for text in [*HOSTILE[:2], HOSTILE[6], HOSTILE[7], "<a href='javascript:x'>"]:
        assert judged(f"<p>{text}</p>")


@pytest.fixture
def hostile(explore: Callable[..., Explorer], engine: Engine) -> Explorer:
    shop = Shop(Store(engine))
    for number, text in enumerate(HOSTILE):
        shelf = text.replace("/", "")
        shop.items.insert(ItemKey(shelf, f"i{number}"), Item(shelf + " title", shelf))
    raw = [b"\xff\xfe<b>\x00", b"plain/<script>/x", b"\x1b[31m\r\n", b"\xed\xa0\x80", b"%00%0d%0aSet-Cookie: a=b"]
    engine.commit(Commit((), tuple(Put(key, key * 3) for key in raw)))
    return explore(engine, layout=NAME)


@pytest.mark.slow
def test_no_page_holds_markup_of_keys_or_records(hostile: Explorer) -> None:
    pages = hostile.crawl(pages_max=120)
    assert len(pages) > 100
    assert {path: judged(page) for path, page in pages.items() if page.startswith("<!") and judged(page)} == {}


def test_answers_forbid_scripts_of_others_and_tell_nobody_where_they_came_from(hostile: Explorer) -> None:
    for path in ("/explore/", "/explore/in/none/", "/explore/?format=json", "/explore/static/explorer.js"):
        headers = hostile.get(path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_huge_value_is_cut(explore: Callable[..., Explorer], engine: Engine) -> None:
    engine.commit(Commit((), (Put(b"shop/sign", b"x" * 400_000),)))
    explorer = explore(engine, layout=NAME)
    data = explorer.data(f"/explore/in/-/key?hex={b'shop/sign'.hex()}")
    assert (data["readings"][0]["is_record_cut"], data["readings"][0]["record"]) == (True, None)
    assert (data["stored"]["is_cut"], len(data["stored"]["value_hex"])) == (True, 4_096)
    assert len(explorer.data("/explore/in/-/list/Shop/sign")["rows"][0]["summary"]) == 200
