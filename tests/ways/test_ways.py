"""The usual operations, and the most frames of ours that each may take: so that detours do not creep back.

A bound is what was measured when it was set. Who makes a way shorter lowers it; who needs more says why in the commit.
"""

from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import count
from pathlib import Path

import pytest

from keyplan.apps.cloudchamber import CloudChamber
from keyplan.cli import read
from keyplan.cli.items import LayoutOptions, RevealOptions
from keyplan.engine import Commit, Put
from keyplan.maintenance import explain_key
from keyplan.store import Store, open_store
from tests.store.layouts import Blade, BladeKey, Site
from tests.ways.frames import frames_of


@pytest.fixture(params=["memory", "lmdb", "lmdb-raw"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    lmdb = f"lmdb:{tmp_path}?durability=none"
    urls = {"memory": "memory:", "lmdb": lmdb, "lmdb-raw": f"{lmdb}&history=off"}
    with open_store(urls[request.param]) as store:
        blades = Site(store).blades
        blades.insert(BladeKey("r1", "b1"), Blade(serial="s1", tags=["red"]))
        blades.insert(BladeKey("r1", "b2"), Blade(serial="s2", tags=["red"]))
        yield store


def assert_short(work: Callable[[], object], *, at_most: int) -> None:
    """Hold work that was done once to a number of frames.

    Why the shortest of three: on LMDB, the first commit after 10 ms looks whether the file is in its place.
    """
    work()
    frames = min((frames_of(work) for _ in range(3)), key=len)
    assert len(frames) <= at_most, "\n".join([f"{len(frames)} frames, at most {at_most}", *frames])


def test_a_frame_that_is_added_is_counted() -> None:
    shape = Site.bound().tables["blades"].keys
    key = BladeKey("r1", "b1")

    assert frames_of(lambda: shape.encode(key)) == ["encode"]
    assert frames_of(lambda: [shape.encode(key), shape.decode(b"/site/rack/r1/blades/b1")]) == ["encode", "decode"]


def test_a_get(store: Store) -> None:
    blades = Site(store).blades
    assert_short(lambda: blades.get(BladeKey("r1", "b1")), at_most=5)


def test_a_list_of_two_records(store: Store) -> None:
    blades = Site(store).blades
    assert len(list(blades.list("r1"))) == 2
    assert_short(lambda: list(blades.list("r1")), at_most=26)


def test_a_list_of_two_records_by_an_index(store: Store) -> None:
    by_tag = Site(store).by_tag
    assert len(list(by_tag.list("red"))) == 2
    assert_short(lambda: list(by_tag.list("red")), at_most=52)


def test_a_look_up_by_a_unique_index(store: Store) -> None:
    by_serial = Site(store).by_serial
    assert_short(lambda: by_serial.one("s1"), at_most=25)


def test_explaining_a_key(store: Store) -> None:
    site = Site(store)
    raw_key = Site.bound().tables["blades"].keys.encode(BladeKey("r1", "b1"))
    assert_short(lambda: explain_key(store.engine, site, raw_key), at_most=109)


def test_explaining_a_key_below_a_root_with_parameters(store: Store) -> None:
    chamber = CloudChamber(store)
    raw_key = CloudChamber.bound().tables["racks"].keys.encode("rack1")
    store.engine.commit(Commit((), (Put(raw_key, b"{}"),)))
    # Why some more than without: the layout has an index, whose state is looked at.
    assert_short(lambda: explain_key(store.engine, chamber, raw_key), at_most=60)
    assert_short(lambda: explain_key(store.engine, chamber, raw_key + b"/strange"), at_most=133)


def test_an_insert_in_a_transaction(store: Store) -> None:
    slots = count()

    def insert() -> None:
        number = next(slots)
        with store.transaction() as transaction:
            Site(transaction).blades.insert(BladeKey("r2", f"b{number}"), Blade(serial=f"t{number}", tags=["red"]))

    assert_short(insert, at_most=69 if store.engine.profile.name == "memory" else 68)


def test_an_insert(store: Store) -> None:
    slots, blades = count(), Site(store).blades

    def insert() -> None:
        number = next(slots)
        blades.insert(BladeKey("r2", f"b{number}"), Blade(serial=f"t{number}", tags=["red"]))

    assert_short(insert, at_most=30 if store.engine.profile.name == "memory" else 29)


def test_a_put_of_a_record_with_index_entries(store: Store) -> None:
    """Two reads of the engine: the record with its unique entry, then the entries that stay."""
    blades = Site(store).blades
    changed = Blade(serial="s1", tags=["red"], watts=7)
    assert_short(
        lambda: blades.put(BladeKey("r1", "b1"), changed), at_most=67 if store.engine.profile.name == "memory" else 77
    )


def test_the_command_get(tmp_path: Path) -> None:
    """Counted from the command's own function on, when its words were read. The store is opened and closed in it."""
    url = f"memory:{tmp_path}"
    with open_store(url) as store:
        Site(store).blades.insert(BladeKey("r1", "b1"), Blade(serial="s1", tags=["red"]))
        assert_short(lambda: _get_blade(url), at_most=88)


def test_the_command_get_from_files(tmp_path: Path) -> None:
    """As above; a third of the frames look whether the files are whole, whose they are and which store they hold."""
    url = f"lmdb:{tmp_path / 'store'}?durability=none"
    with open_store(url) as store:
        Site(store).blades.insert(BladeKey("r1", "b1"), Blade(serial="s1", tags=["red"]))
    assert_short(lambda: _get_blade(url), at_most=126)


def _get_blade(url: str) -> None:
    with redirect_stdout(StringIO()) as printed:
        read.get_command(
            "blades",
            ["r1", "b1"],
            at=LayoutOptions(store=url, layout="tests.store.layouts:Site"),
            reveals=RevealOptions(),
        )
    assert printed.getvalue() == '{"serial": "s1", "tags": ["red"], "watts": 0}\n'
