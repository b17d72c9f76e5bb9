"""Following a table: a list, then every change; a list again when history is gone. And: nothing is lost or told twice."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.engine import Commit, Delete, MemoryEngine
from keyplan.errors import CorruptionError
from keyplan.layout import Changes
from keyplan.store import Store, open_store
from tests.store.layouts import Blade, BladeKey, Site
from tests.store.watching import (
    CHANGED,
    INSERTED,
    ONE,
    OTHER,
    RAW_ONE,
    REMOVED,
    TWO,
    damaged,
    polled,
    three_in_one_revision,
    told,
)

# ---- following ----------------------------------------------------------------------------------------------------------


def test_following_lists_and_then_tells_every_change(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    site.blades.insert(OTHER, Blade("s2"))
    with site.blades.follow("r1") as changes:
        site.blades.insert(TWO, Blade("s3"))
        site.blades.delete(ONE)
        assert changes.token == ""
        assert polled(changes, 3) == [
            (INSERTED, ONE, None, Blade("s1"), 1),
            (INSERTED, TWO, None, Blade("s3"), 3),
            (REMOVED, ONE, Blade("s1"), None, 4),
        ]
        token = changes.token
    site.blades.insert(ONE, Blade("s4"))
    with site.blades.watch("r1", after=token) as changes:
        assert told(changes.poll()) == [(INSERTED, ONE, None, Blade("s4"), 5)]


@pytest.mark.parametrize("keep_records", [False, True])
def test_following_lists_again_when_history_is_gone_and_tells_the_differences(
    site: Site, store: Store, *, keep_records: bool
) -> None:
    for key in (ONE, TWO, OTHER):
        site.blades.insert(key, Blade(key.slot + key.rack))
    with site.blades.follow(keep_records=keep_records) as changes:
        assert len(polled(changes, 3)) == 3
        site.blades.update(ONE, Blade("between"))
        assert changes.poll()[0].kind is CHANGED
        site.blades.delete(TWO)
        site.blades.update(ONE, Blade("new"))
        site.blades.insert(BladeKey("r2", "1"), Blade("s2"))
        store.engine.compact(7)
        old_one, old_two = (Blade("between"), Blade("2r1")) if keep_records else (None, None)
        assert polled(changes, 3) == [
            (CHANGED, ONE, old_one, Blade("new"), 6),
            (INSERTED, BladeKey("r2", "1"), None, Blade("s2"), 7),
            (REMOVED, TWO, old_two, None, 7),
        ]
        site.blades.delete(ONE)
        assert polled(changes, 1) == [(REMOVED, ONE, Blade("new"), None, 8)]


def test_a_long_list_is_followed_from_one_state(site: Site) -> None:
    keys = [BladeKey("r1", f"{number:04}") for number in range(1_000)]
    for start in range(0, 1_000, 100):  # as many as any engine takes at once
        with site.transaction() as tx:
            for key in keys[start : start + 100]:
                tx.blades.insert(key, Blade())
    with site.blades.follow() as changes:
        assert next(changes).key == keys[0]
        site.blades.delete(keys[999])
        found = [next(changes) for _ in range(1_000)]
    assert [change.key for change in found] == [*keys[1:], keys[999]]
    assert [change.kind for change in found[-2:]] == [INSERTED, REMOVED]


def test_closing_a_follower_in_the_middle_of_its_list_ends_it(site: Site) -> None:
    three_in_one_revision(site)
    changes = site.blades.follow()
    next(changes)
    closing = Thread(target=changes.close)
    closing.start()
    closing.join()
    assert list(changes) == []


def test_a_follower_reports_unreadable_records_and_goes_on(site: Site, store: Store) -> None:
    damaged(store)
    site.blades.insert(TWO, Blade())
    with site.blades.follow() as changes:
        with pytest.raises(CorruptionError):
            next(changes)
        assert next(changes).key == TWO
        store.engine.commit(Commit((), (Delete(RAW_ONE),)))
        assert polled(changes, 1) == [(REMOVED, ONE, None, None, 3)]


# ---- nothing is lost ----------------------------------------------------------------------------------------------------

Step = tuple[str, int, int]
STEPS = st.lists(st.tuples(st.sampled_from("ipudr"), st.integers(0, 3), st.integers(0, 3)), max_size=5)


def write(site: Site, step: Step) -> None:
    """Do one operation that may find nothing to do."""
    verb, number, other = step
    key = BladeKey("r1", str(number))
    blade = Blade(None, ["abcd"[other]], number)
    if verb in "ip":
        site.blades.put(key, blade)
    elif verb == "u" and site.blades.exists(key):
        site.blades.update(key, blade)
    elif verb == "d":
        site.blades.delete(key)
    elif verb == "r" and site.blades.exists(key) and not site.blades.exists(BladeKey("r2", str(other))):
        site.blades.rename(key, BladeKey("r2", str(other)))


@given(
    commits=st.lists(STEPS, max_size=12), takes=st.lists(st.integers(1, 5), min_size=1, max_size=5), tag=st.booleans()
)
def test_changes_from_the_first_revision_on_make_the_state_of_the_store(
    commits: list[list[Step]], takes: list[int], *, tag: bool
) -> None:
    with Store(MemoryEngine()) as store:
        site = Site(store)

        def watch(after: int | str) -> Changes[BladeKey, Blade]:
            return site.by_tag.watch("a", after=after) if tag else site.blades.watch(after=after)

        for steps in commits:
            with site.transaction() as tx:
                for step in steps:
                    write(tx, step)
        replica: dict[BladeKey, Blade] = {}
        position: int | str = 0
        delivered = 0
        with watch(0) as whole:
            everything = whole.poll()
        while delivered < len(everything):
            with watch(position) as changes:
                for _ in range(min(takes[delivered % len(takes)], len(everything) - delivered)):
                    change = next(changes)
                    assert change == everything[delivered]
                    assert (change.kind is INSERTED) == (change.key not in replica)
                    assert tag or change.old == replica.get(change.key)
                    delivered += 1
                    position = change.token
                    if change.kind is REMOVED:
                        del replica[change.key]
                    else:
                        assert change.new is not None
                        replica[change.key] = change.new
        assert replica == dict(site.by_tag.list("a") if tag else site.blades.list())


WRITER = """
import sys
from keyplan.store import open_store
from tests.store.layouts import Blade, BladeKey, Site
with open_store(sys.argv[1]) as store:
    site = Site(store)
    for number in range(200):
        with site.transaction() as tx:
            tx.blades.insert(BladeKey("r1", f"{number:03}"), Blade(None, ["a"], number))
            if number % 2:
                tx.blades.delete(BladeKey("r1", f"{number - 1:03}"))
"""


def test_a_watch_sees_each_commit_of_another_process_once_and_in_order(tmp_path: Path, repository: Path) -> None:
    url = f"lmdb:{tmp_path / 'store'}"
    with open_store(url) as store, Site(store).blades.watch() as changes:
        with subprocess.Popen([sys.executable, "-c", WRITER, url], cwd=repository) as writer:
            found = [next(changes) for _ in range(300)]
        assert writer.returncode == 0
        assert changes.poll() == []
    removed = {f"{number:03}" for number in range(0, 200, 2)}
    assert [change.revision for change in found] == sorted(change.revision for change in found)
    assert sorted(change.key.slot for change in found if change.kind is INSERTED) == [f"{n:03}" for n in range(200)]
    assert {change.key.slot for change in found if change.kind is REMOVED} == removed
