"""Index lists, counts, levels and watches where fields touch: exactly the records whose fields equal the prefix."""

from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from keyplan.engine import MemoryEngine
from keyplan.errors import KeyplanError
from keyplan.layout import Index, Layout, Table, Unique
from keyplan.store import Store

RECORDS = 40
_CODECS = (
    "text(allow='ab',bytes_max=3)",
    "text(allow='ab',bytes_max=2,empty=true)",
    "text(allow='ab/',exclude='',bytes_max=3)",
    "word(words='a ab b/')",
)


class Town(msgspec.Struct):
    name: str = ""
    area: str = ""


class Towns(Layout, root="x/"):
    towns = Table("r/{id}", key=int, value=Town)
    by_name = Index("c/{name:text(allow='a-z')}{id}", of=towns, key=str)


class UniqueKey(NamedTuple):
    name: str
    area: str


def test_a_list_by_york_has_no_yorktown() -> None:
    towns = Towns(Store(MemoryEngine()))
    for number, name in enumerate(["york", "yorktown", "yor", "yorka"]):
        towns.towns.insert(number, Town(name))
    assert list(towns.by_name.list("york")) == [(0, Town("york"))]
    assert list(towns.by_name.keys("york")) == [0]
    assert towns.by_name.count("yor") == 1
    assert list(towns.by_name.keys(starts_with="york")) == [0, 3, 1]


def _layout(rng: Random) -> type[Layout]:
    between = [rng.choice(["", "", "/", "a"]) for _ in range(3)]
    spelled = "".join(
        f"{{{name}:{rng.choice(_CODECS)}}}{literal}" for name, literal in zip(("name", "area"), between, strict=False)
    )
    towns = Table("r/{id}", key=int, value=Town)
    items = {
        "towns": towns,
        "listed": Index("c/" + spelled + "{id:decimal(most=99)}", of=towns, key=UniqueKey),
        "one": Unique("u/" + spelled, of=towns, key=UniqueKey),
    }
    return type("Made", (Layout,), items, root="x/")


@pytest.mark.parametrize("seed", range(30))
def test_random_indexes_list_the_records_that_have_the_prefix(seed: int) -> None:
    rng = Random(seed)
    kind = _layout(rng)
    view: Any = kind(Store(MemoryEngine()))
    stored: dict[int, Town] = {}
    for number in range(RECORDS):
        town = Town(*("".join(rng.choices("ab/", k=rng.randint(0, 3))) for _ in range(2)))
        try:
            view.towns.insert(number, town)
        except KeyplanError:
            continue
        stored[number] = town
    index = kind.bound().indexes["listed"]
    for names in {(town.name,) for town in stored.values()} | {(town.name, town.area) for town in stored.values()}:
        wanted = {number for number, town in stored.items() if (town.name, town.area)[: len(names)] == names}
        # Why by decode: where one entry reads in two ways, it is listed under the reading that the index gives.
        entries = [raw for number, town in stored.items() for raw, _ in index.entries(number, town)]
        split: list[tuple[Any, ...]] = [index.keys.shape.split(index.keys.decode(raw)) for raw in entries]
        read: list[int] = sorted(key[-1] for key in split if key[: len(names)] == names)
        if len(set(split)) == len(split) and all(_is_plain(key, stored) for key in split):
            assert set(read) == wanted
        assert sorted(view.listed.keys(*names)) == read
        assert sorted(number for number, _ in view.listed.list(*names)) == read
        assert view.listed.count(*names) == len(read)
        with view.listed.watch(*names, after=0) as changes:
            assert sorted(change.key for change in changes.poll(0)) == read
        assert set(view.one.keys(*names)) == {
            number for number, town in stored.items() if _unique_key(kind, number, town)[: len(names)] == names
        }


def _is_plain(key: tuple[Any, ...], stored: dict[int, Town]) -> bool:
    """Whether an entry's key reads as the record that it is of."""
    town = stored.get(key[-1])
    return town is not None and (town.name, town.area) == key[:2]


def _unique_key(kind: type[Layout], number: int, town: Town) -> tuple[Any, ...]:
    """The fields of a record's unique entry, as the index reads them."""
    index = kind.bound().indexes["one"]
    ((raw, _),) = index.entries(number, town)
    return index.keys.shape.split(index.keys.decode(raw))
