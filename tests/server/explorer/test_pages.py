"""What the pages show, and that each of them has a JSON twin which says the same."""

from base64 import b64encode
from collections.abc import Callable
from html import escape
from urllib.parse import quote

import pytest

from keyplan.codec import Automaton
from keyplan.engine import Commit, Delete, Engine, MemoryEngine, Put
from keyplan.keyspace import KeySpaces, open_key_space
from keyplan.layout import BoundIndex, BoundLayout, BoundTable
from keyplan.store import Store, installed_layouts
from tests.server.explorer.conftest import TOKEN, Explorer, links_of
from tests.server.explorer.shop import NAME, Item, ItemKey, Shop

IN = "/explore/in/-"


def key_page(raw_key: bytes, area: str = "-") -> str:
    return f"/explore/in/{area}/key?hex={raw_key.hex()}"


# ---- by meaning --------------------------------------------------------------------------------------------------------


def test_a_level_lists_the_values_of_the_next_field_and_leads_to_what_is_behind_them(explorer: Explorer) -> None:
    level = explorer.data(f"{IN}/tree/Shop/items")
    assert [(one["value"], one["has_more"]) for one in level["values"]] == [("a", True), ("b", True)]
    below = explorer.data(level["values"][0]["href"])
    assert below["field"] == "item"
    assert [(one["value"], one["href"]) for one in below["values"]] == [
        ("1", key_page(b"shop/items/a/1")),
        ("2", key_page(b"shop/items/a/2")),
    ]
    assert [field["value"] for field in below["place"]["fields"]] == ["a", None]


def test_a_list_holds_the_records_below_a_place(explorer: Explorer) -> None:
    found = explorer.data(f"{IN}/list/Shop/items?field=a")
    assert [(row["fields"], row["key"], row["summary"]) for row in found["rows"]] == [
        (["a", "1"], "shop/items/a/1", "title=Ada's notes  colour=red"),
        (["a", "2"], "shop/items/a/2", "title=Bolts  colour=red"),
    ]


def test_pages_are_continued_by_tokens_until_the_last_one(explorer: Explorer) -> None:
    found, path = [], f"{IN}/list/Shop/items?limit=1"
    for _ in range(3):
        data = explorer.data(path)
        found += [row["key"] for row in data["rows"]]
        path = data["next"]
    assert path == ""
    assert found == ["shop/items/a/1", "shop/items/a/2", "shop/items/b/1"]


def test_a_level_can_be_narrowed_by_how_values_begin(explorer: Explorer) -> None:
    assert [one["value"] for one in explorer.data(f"{IN}/tree/Shop/by_title?starts_with=Bo")["values"]] == ["Bolts"]


def test_an_index_leads_from_entries_to_records(explorer: Explorer) -> None:
    rows = explorer.data(f"{IN}/list/Shop/by_colour")["rows"]
    assert [(row["fields"], row["points_at"]) for row in rows] == [
        (["red", "a", "1"], "shop/items/a/1"),
        (["red", "a", "2"], "shop/items/a/2"),
    ]
    assert rows[0]["points_at_href"] == key_page(b"shop/items/a/1")
    assert rows[0]["summary"].startswith("title=Ada")


# ---- one key -----------------------------------------------------------------------------------------------------------


def test_a_record_is_shown_with_its_fields_history_and_index_entries(explorer: Explorer) -> None:
    data = explorer.data(key_page(b"shop/items/a/1"))
    (reading,) = data["readings"]
    assert (reading["kind"], reading["item"], reading["problem"]) == ("record", "items", "")
    assert [(field["name"], field["value"]) for field in reading["fields"]] == [("shelf", "a"), ("item", "1")]
    assert reading["record"] == {"title": "Ada's notes", "colour": "red"}
    assert [(entry["index"], entry["key"], entry["state"], entry["href"]) for entry in reading["entries"]] == [
        ("by_title", "shop/titles/Ada's notes", "present", key_page(b"shop/titles/Ada's notes")),
        ("by_colour", "shop/colours/red/a/1", "present", key_page(b"shop/colours/red/a/1")),
    ]
    stored = data["stored"]
    assert (stored["revision"], stored["create_revision"], stored["version"], stored["lease"]) == (1, 1, 1, 0)
    assert bytes.fromhex(stored["value_hex"]) == b'{"title":"Ada\'s notes","colour":"red"}'


def test_an_entry_leads_back_to_its_record_and_a_missing_one_is_named(explorer: Explorer, engine: Engine) -> None:
    (reading,) = explorer.data(key_page(b"shop/titles/Bolts"))["readings"]
    assert (reading["kind"], reading["points_at"], reading["points_at_state"]) == (
        "index entry",
        "shop/items/a/2",
        "present",
    )
    engine.commit(Commit((), (Delete(b"shop/titles/Bolts"),)))
    (reading,) = explorer.data(reading["points_at_href"])["readings"]
    assert [entry["state"] for entry in reading["entries"]] == ["missing", "present"]
    assert 'class="problem">missing' in explorer.page(key_page(b"shop/items/a/2"))


def test_a_lease_is_shown_with_the_seconds_that_are_left(explorer: Explorer, engine: Engine, shop: Shop) -> None:
    shop.visitors.insert("eve", "hello", lease=engine.lease(1_000.0))
    stored = explorer.data(key_page(b"shop/visitors/eve"))["stored"]
    assert stored["lease"] > 0
    assert stored["lease_ttl_seconds"] == 1_000.0
    assert 0 < stored["lease_seconds_left"] <= 1_000.0


def test_a_counter_tells_its_next_number(explorer: Explorer) -> None:
    assert explorer.data(key_page(b"shop/orders"))["readings"][0]["next_number"] == 8


def test_an_unknown_key_is_shown_with_the_nearest_template(explorer: Explorer) -> None:
    data = explorer.data(key_page(b"shop/items/a/1/x"))
    (reading,) = data["readings"]
    assert data["stored"] is None
    assert (reading["is_known"], reading["item"], reading["departs_at"]) == (False, "items", 14)
    assert "Nearest is <b>items</b>" in explorer.page(key_page(b"shop/items/a/1/x"))


def test_a_record_that_cannot_be_read_is_shown_with_what_is_stored(explorer: Explorer, engine: Engine) -> None:
    engine.commit(Commit((), (Put(b"shop/items/c/1", b"{oops"),)))
    (reading,) = explorer.data(key_page(b"shop/items/c/1"))["readings"]
    assert reading["has_record"] is False
    assert reading["problem"]
    assert explorer.data(f"{IN}/list/Shop/items?field=c")["rows"][0]["problem"]


@pytest.mark.parametrize(
    ("asked", "raw_key"),
    [
        ("key=shop/items/a/1", b"shop/items/a/1"),
        ("key=73686f70&as=hex", b"shop"),
        (f"key={quote(chr(92))}x00a", b"\x00a"),
    ],
)
def test_any_raw_key_can_be_asked_for(explorer: Explorer, asked: str, raw_key: bytes) -> None:
    answer = explorer.get(f"/explore/find?{asked}")
    assert (answer.status_code, answer.headers["location"]) == (303, key_page(raw_key))


# ---- without a layout, and in key spaces -------------------------------------------------------------------------------


def test_without_a_layout_raw_keys_are_a_tree_of_slashes(
    explore: Callable[..., Explorer], engine: Engine, shop: Shop
) -> None:
    explorer = explore(engine)
    top = explorer.data(f"{IN}/raw")
    assert [(one["text"], one["is_key"]) for one in top["children"]] == [("shop/", False)]
    below = explorer.data(top["children"][0]["href"])
    assert [(one["text"], one["is_key"]) for one in below["children"]] == [
        ("colours/", False),
        ("items/", False),
        ("orders", True),
        ("sign", True),
        ("titles/", False),
    ]
    assert explorer.data(key_page(b"shop/sign"))["readings"] == []
    assert explorer.data("/explore/")["layouts"] == []


@pytest.fixture
def spaces(engine: Engine) -> KeySpaces:
    """A shop in a key space, one of an installed application, and a key of nobody."""
    registry = KeySpaces(engine)
    registry.ensure("toys", "shop")
    registry.ensure("chambers", "cloudchamber")
    with open_key_space(engine, "toys", "shop", session_seconds=None) as store:
        Shop(store).items.insert(ItemKey("a", "1"), Item("Ball"))
    registry.set_quota("toys", keys=4)
    engine.commit(Commit((), (Put(b"\xf0stray", b""),)))
    return registry


def test_the_overview_tells_who_owns_what_and_how_full_it_is(
    explore: Callable[..., Explorer], engine: Engine, spaces: KeySpaces
) -> None:
    data = explore(engine, layout__toys=NAME).data("/explore/")
    found = [(one["name"], one["application"], one["layouts"], one["keys"]["number"]) for one in data["keyspaces"]]
    chambers = ["cloudchamber", "cloudchamber-go", "cloudchamber-indexed"]
    assert found == [("toys", "shop", ["Shop"], 2), ("chambers", "cloudchamber", chambers, 0)]
    assert data["keyspaces"][0]["full"] == 0.5
    assert [one["first_key"] for one in data["unmanaged"]] == ["\\xf0stray"]


def test_a_key_of_a_key_space_is_found_by_its_raw_key_and_read_by_the_layout_there(
    explore: Callable[..., Explorer], engine: Engine, spaces: KeySpaces
) -> None:
    explorer = explore(engine, layout__toys=NAME)
    raw_key = spaces.get("toys").raw_prefix + b"shop/items/a/1"
    answer = explorer.get(f"/explore/find?key={raw_key.hex()}&as=hex")
    assert answer.headers["location"] == key_page(b"shop/items/a/1", "toys")
    assert explorer.data(answer.headers["location"])["readings"][0]["record"] == {"title": "Ball", "colour": None}
    owner = explorer.data(key_page(raw_key))["owner"]
    assert owner == {"kind": "keyspace", "keyspace": "toys", "href": key_page(b"shop/items/a/1", "toys")}
    explorer.crawl(start="/explore/in/toys/", pages_max=15)


# ---- every page, every link --------------------------------------------------------------------------------------------


def usable_layouts() -> list[str]:
    return [name for name, entry in installed_layouts().items() if not set_of_missing(entry.load())]


def set_of_missing(kind: type) -> set[str]:
    spec = kind.spec  # type: ignore[attr-defined] # a Layout class
    return set(spec.root.field_names) - set(spec.parameters)


# Why by hand: parts that depend on one another, and numbers with bounds, are not spelled by following an automaton.
MORE_KEYS = {
    "hepnos-datasets": [b"\x00ab", b"\x01ab/cd"],
    "hepnos-products": [bytes(40) + b"label#std::vector<int>"],
    "runm-registry": [b"api/h1:8080"],
}


def some_keys(bound: BoundLayout, *, each: int = 2) -> list[bytes]:
    """Keys of every table and index: the first ones that their templates' automata spell."""
    found = [counter.raw_key for counter in bound.counters.values()]
    items: list[BoundTable | BoundIndex] = [*bound.tables.values(), *bound.indexes.values()]
    for item in items:
        automaton = Automaton.of([part.language for part in item.keys.template.parts])
        paths: list[tuple[int, bytes]] = [(0, b"")]
        own: list[bytes] = []
        for _ in range(4_000):
            # Why no longer ones: what has no key of 100 bytes has none that is found so, and long ones take long to be judged.
            if not paths or len(own) == each or len(paths[0][1]) > 100:
                break
            state, raw = paths.pop(0)
            if state in automaton.accepting and item.keys.decode(raw) is not None:
                own.append(raw)
            for follower in sorted(set(automaton.followers[state]) & automaton.live):
                allowed = automaton.classes[follower]
                printing = allowed >> 0x30 << 0x30
                lowest = printing or allowed
                paths.append((follower, raw + bytes([(lowest & -lowest).bit_length() - 1])))
            # Why: one way to each state is enough, and keeps this short.
            paths = list({state: (state, raw) for state, raw in reversed(paths)}.values())[::-1]
        found += own
    return sorted(set(found))


@pytest.mark.slow
@pytest.mark.parametrize("name", usable_layouts())
def test_every_link_of_every_page_of_a_shipped_layout_leads_somewhere(
    explore: Callable[..., Explorer], engine: Engine, name: str
) -> None:
    bound = installed_layouts()[name].load().bound()
    keys = [*some_keys(bound), *(bound.root + raw_key for raw_key in MORE_KEYS.get(name, ()))]
    assert any(bound.meaning(raw_key).is_known for raw_key in keys)
    engine.commit(Commit((), tuple(Put(raw_key, b"{}") for raw_key in keys)))
    pages = explore(engine, layout=name).crawl(pages_max=40)
    assert len(pages) > len(bound.spec.items)


@pytest.mark.slow
def test_each_page_says_what_its_json_twin_says(explorer: Explorer) -> None:
    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for inner in value.values() for text in texts(inner)]
        if isinstance(value, list):
            return [text for inner in value for text in texts(inner)]
        return [value] if isinstance(value, str) else []

    pages = explorer.crawl()
    assert len(pages) > 20
    for path, page in pages.items():
        if "/static/" in path or "format=json" in path or not page:
            continue
        data = explorer.data(path)
        hrefs = {text.partition("#")[0] for text in texts(data) if text.startswith("/explore/")}
        missing = {href for href in hrefs if "/changes" not in href} - {*links_of(page), path}
        assert {
            href for href in missing if "/raw" not in href and "/list/" not in href and "/tree/" not in href
        } == set()
        for name in ("key", "value", "text", "summary", "first_key", "points_at"):
            for text in named(data, name):
                assert str(escape(text, quote=False)).replace("'", "&#39;") in page, (path, name, text)


def named(value: object, name: str) -> list[str]:
    """The texts of that name anywhere in JSON."""
    found: list[str] = []
    if isinstance(value, dict):
        found += [value[name]] if isinstance(value.get(name), str) else []
        return found + [text for inner in value.values() for text in named(inner, name)]
    if isinstance(value, list):
        return [text for inner in value for text in named(inner, name)]
    return found


# ---- who may look, and what is refused ---------------------------------------------------------------------------------


def test_other_machines_need_a_token_which_browsers_give_as_a_password(explorer: Explorer) -> None:
    refused = explorer.get("/explore/", client="192.0.2.7")
    assert refused.status_code == 401
    assert "Basic" in refused.headers["www-authenticate"]
    basic = "Basic " + b64encode(f"anybody:{TOKEN}".encode()).decode()
    assert explorer.get("/explore/", client="192.0.2.7", authorization=basic).status_code == 200


def test_an_explorer_for_administrators_refuses_others(explore: Callable[..., Explorer], engine: Engine) -> None:
    explorer = explore(engine, role="admin")
    assert explorer.get("/explore/").status_code == 403
    assert explorer.get("/explore/", authorization=f"Bearer {TOKEN}").status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"{IN}/tree/Shop/none", 404, "unknown_name"),
        (f"{IN}/tree/none/items", 404, "unknown_name"),
        ("/explore/in/none/", 404, "keyspace_not_found"),
        (f"{IN}/tree/Shop/items?field=a&field=1", 400, "invalid_argument"),
        (f"{IN}/tree/Shop/items?field=a&field=1&field=2", 400, "invalid_key"),
        (f"{IN}/list/Shop/items?page=none", 400, "invalid_page_token"),
        (f"{IN}/list/Shop/items?limit=0", 400, "invalid_argument"),
        (f"{IN}/list/Shop/items?misspelt=1", 400, "invalid_argument"),
        (f"{IN}/raw?hex=zz", 400, "invalid_argument"),
        (f"{IN}/raw?hex=61&page=62", 400, "invalid_argument"),
        (f"/explore/find?key={quote(chr(92))}q", 400, "invalid_argument"),
        ("/explore/?format=xml", 400, "invalid_argument"),
    ],
)
def test_what_cannot_be_answered_is_a_page_and_json(explorer: Explorer, path: str, status: int, code: str) -> None:
    page = explorer.get(path)
    assert (page.status_code, code in page.text) == (status, True)
    assert page.headers["content-type"].startswith("text/html")
    data = explorer.get(path, accept="application/json")
    assert (data.status_code, data.json()["error"]["code"]) == (status, code)


def test_a_page_token_belongs_to_its_list(explorer: Explorer) -> None:
    following = explorer.data(f"{IN}/list/Shop/items?limit=1")["next"]
    assert explorer.get(following.replace("/items?", "/by_title?")).status_code == 400


def test_nothing_can_be_written(explorer: Explorer) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert explorer.get("/explore/", method=method).status_code in {405, 415}


def test_a_layout_that_is_not_there_keeps_the_server_from_starting(
    explore: Callable[..., Explorer], engine: Engine
) -> None:
    with pytest.raises(Exception, match="there is nothing of that name"):
        explore(engine, layout="none")


def test_parameters_of_a_root_stand_behind_the_layouts_name(explore: Callable[..., Explorer]) -> None:
    with MemoryEngine() as engine:
        engine.commit(Commit((), (Put(b"/CloudChamber/V0.1/Test/t1/racks/r1", b"{}"),)))
        explorer = explore(engine, layout="cloudchamber,cloudchamber?namespace=Test/t1/")
        roots = [(one["label"], one["root"]) for one in explorer.data("/explore/")["layouts"]]
        assert roots == [("cloudchamber", "/CloudChamber/V0.1/"), ("cloudchamber-2", "/CloudChamber/V0.1/Test/t1/")]
        assert Store(engine).revision == 1
        values = explorer.data(f"{IN}/tree/cloudchamber-2/racks")["values"]
        assert [one["value"] for one in values] == ["r1"]


def test_the_number_of_a_counter_is_the_next_one(explorer: Explorer, engine: Engine) -> None:
    def number() -> object:
        (shown,) = explorer.data(f"{IN}/")["layouts"]
        return next(item["number"] for item in shown["items"] if item["name"] == "orders")

    assert number() == {"number": 8, "is_more": False}
    engine.commit(Commit((), (Delete(b"shop/orders"),)))
    assert number() == {"number": Shop.bound().counters["orders"].start, "is_more": False}
    engine.commit(Commit((), (Put(b"shop/orders", b"{oops"),)))
    assert number() is None
    assert '<td class="number">?</td>' in explorer.page(f"{IN}/")


@pytest.mark.parametrize(
    "pasted", [" shop/items/a/1\n", "'shop/items/a/1'", '"shop/items/a/1"', "b'shop/items/a\\x2f1'"]
)
def test_a_key_may_be_pasted_as_it_was_printed(explorer: Explorer, pasted: str) -> None:
    answer = explorer.get(f"/explore/find?key={quote(pasted)}")
    assert (answer.status_code, answer.headers["location"]) == (303, key_page(b"shop/items/a/1"))
