"""A layout goes to JSON and comes back the same, and what is no layout is refused."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.layout import Layout, Table, bind_layout, describe, layout_of_description
from tests.layout.layouts import BladeKey, Physics, Site


@pytest.mark.parametrize("layout", [Site, Physics])
def test_a_description_survives_json_and_describes_itself(layout: type[Layout]) -> None:
    described = describe(layout.spec)
    travelled = json.loads(json.dumps(described))
    assert describe(layout_of_description(travelled)) == described


@pytest.mark.parametrize("layout", [Site, Physics])
def test_a_described_layout_has_the_fingerprint_of_its_class(layout: type[Layout]) -> None:
    assert bind_layout(layout_of_description(describe(layout.spec))).fingerprint == layout.bound().fingerprint


def test_a_described_layout_reads_and_writes_the_same_keys() -> None:
    described = bind_layout(layout_of_description(describe(Site.spec)), {"area": "n/"})
    raw = Site.bound(area="n/").tables["blades"].keys.encode(BladeKey("r1", 7))
    assert described.tables["blades"].keys.encode(("r1", 7)) == raw
    assert described.tables["blades"].keys.decode(raw) == ("r1", 7)


def test_the_fingerprint_ignores_notes_and_sees_templates() -> None:
    class First(Layout, root="x/"):
        things = Table("{a}", key=str, value=str, note="one")

    class Second(Layout, root="x/"):
        things = Table("{a}", key=str, value=str, note="other")

    class Third(Layout, root="x/"):
        things = Table("{a}", key=int, value=str)

    assert First.bound().fingerprint == Second.bound().fingerprint
    assert First.bound().fingerprint != Third.bound().fingerprint


def nested(depth: int) -> list[Any]:
    """Lists in lists, as JSON may have them."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"format": "keyplan-layout/2"},
        {"format": "keyplan-layout/1"},
        {**describe(Site.spec), "version": float("inf")},  # 1e400 in JSON
        {**describe(Site.spec), "note": nested(100_000)},
    ],
    ids=["nothing", "another format", "a format alone", "an endless version", "deep"],
)
def test_what_is_no_description_is_refused(described: dict[str, object]) -> None:
    with pytest.raises(KeyplanError):
        layout_of_description(described)


def damaged(name: str, **changes: object) -> dict[str, Any]:
    """The description of Site with some parts of one item replaced."""
    described = copy.deepcopy(describe(Site.spec))
    (item,) = (item for item in described["items"] if item["name"] == name)
    item.update(changes)
    return described


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        (
            damaged("by_tag", template="by-tag/{tag:text}/{state:text}/{blade:decimal}/{rack:text}"),
            "ends in the primary key's fields",
        ),
        (damaged("by_tag", fields=[]), "a source for each field"),
        (damaged("by_serial", fields=[{"from": "key", "path": "shelf", "item": None}]), "does not have"),
        (damaged("by_serial", of="nothing"), "a table that is not there"),
        (damaged("by_serial", when=[{"path": "a", "is": [], "equal": True}]), "a condition compares"),
        (damaged("blades", place=["shelf"]), "is placed by"),
        (damaged("blades", template="{rack.level:u8}{slot:text}"), "derived from what is not there"),
        (damaged("port", template="ports/{a:text}"), "a counter's template has no fields"),
        (damaged("port", start=-1), "a counter starts between"),
    ],
)
def test_a_description_that_cannot_be_compiled_is_refused(described: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        layout_of_description(described)
    assert problem in str(caught.value)


@pytest.mark.parametrize("path", ["x or __import__('os').abort()", "class", "place.def"])
@pytest.mark.parametrize("part", ["fields", "when"])
def test_a_path_in_a_description_is_never_taken_as_python(part: str, path: str) -> None:
    # Why: paths become parts of generated functions, and a description may come from anybody.
    change = (
        {"from": "record", "path": path, "item": None} if part == "fields" else {"path": path, "is": 1, "equal": True}
    )
    with pytest.raises(InvalidInputError, match="a path is names with dots"):
        layout_of_description(damaged("by_serial", **{part: [change]}))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_a_damaged_description_is_refused_or_read_but_never_fails_otherwise(data: st.DataObject) -> None:
    described: Any = copy.deepcopy(describe(Site.spec))
    place = described
    path: list[tuple[Any, Any]] = []
    while isinstance(place, (dict, list)) and place and (not path or data.draw(st.booleans())):
        name = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        path.append((place, name))
        place = place[name]
    holder, name = path[-1]
    holder[name] = data.draw(_JSON)
    try:
        layout_of_description(described)
    except KeyplanError:
        return
