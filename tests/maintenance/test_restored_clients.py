"""Clients that had key spaces open when their store was lost: restored in its place, it is to them as if nothing had been.

The same life is lived twice. One store stays, as the model; the other is backed up and lost, and what is restored stands where
it was, behind the same handles. As in a cluster that was set up anew at its old address, revisions begin again there.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.engine import Clock, Commit, Engine, MemoryEngine, Put, Snapshot, WrappedEngine, WrappedSnapshot
from keyplan.errors import CommitConflictError, GenerationMismatchError, KeyplanError
from keyplan.keyspace import KeySpaceStore, State, Sweeper, open_key_space
from keyplan.maintenance import restore_key_spaces
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import Item, Shop, raw_content
from tests.maintenance.registry_lives import ACTS, NAMES, World, backed_up

SYSTEM = b"\x00"
GONE = (State.DELETING, State.RESTORING)
"""What a backup has no data of: a restore leaves their tombstones."""


class Address(WrappedEngine):
    """A place where a store is reached. Later another may stand there, of another epoch, with small revisions."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryEngine(clock=clock))
        self.stores = [self.inner]

    def move(self, engine: Engine) -> None:
        self.stores.append(engine)
        self.inner = engine

    def snapshot(self) -> Snapshot:
        return _Seen(self.inner.snapshot(), str(len(self.stores)))

    def value(self, key: bytes) -> bytes | None:
        return self.inner.value(key)

    def commit(self, commit: Commit) -> int:
        if commit.epoch and commit.epoch != str(len(self.stores)):
            raise CommitConflictError(failed=())
        return self.inner.commit(commit)

    def close(self) -> None:
        for engine in self.stores:
            engine.close()


class _Seen(WrappedSnapshot):
    def __init__(self, inner: Snapshot, epoch: str) -> None:
        super().__init__(inner)
        self._epoch = epoch

    @property
    def epoch(self) -> str:
        return self._epoch


class Life(World):
    """A world in which clients fall back as well, and quotas are tight."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.address = Address(clock)
        super().__init__(self.address, clock)
        self.registry.configure({"max-client-lease-seconds": 0, "reuse-cooldown-seconds": 0})

    def do(self, act: str, name: str, number: int) -> None:
        more: dict[str, Callable[[], object]] = {
            "fall back": lambda: self.fall_back(name, number),
            "tighten": lambda: self.registry.set_quota(name, keys=number % 4),
        }
        if act not in more:
            super().do(act, name, number)
            return
        try:
            more[act]()
        except KeyplanError:
            return

    def fall_back(self, name: str, number: int) -> None:
        self.registry.configure({"keyspace-api-enabled": False})
        prefix = b"/x/" if number % 2 else b"/y/" + name.encode()
        self.handles.append(
            open_key_space(self.engine, name, f"app{number % 2}", default_prefix=prefix, session_seconds=None)
        )

    def lose(self, path: Path) -> None:
        """Back the store up, and restore the backup where it was; with the keys of nobody, of which it has none."""
        backed_up(self.engine, path)
        held = (SYSTEM, *(one.raw_prefix for one in self.registry.all()))
        nobody = {key: value for key, value in raw_content(self.engine).items() if not key.startswith(held)}
        target = MemoryEngine(clock=self.clock)
        restore_key_spaces(target, path, clock=self.clock)
        target.commit(Commit((), tuple(Put(key, value) for key, value in nobody.items())))
        self.address.move(target)

    def tried(self) -> list[tuple[str, Any]]:
        """What each handle meets when it writes, reads and lists."""
        return [(self.written(handle), self.read(handle)) for handle in self.handles]

    @staticmethod
    def written(handle: KeySpaceStore) -> str:
        try:
            Shop(handle).items.put("late", Item("late"))
        except KeyplanError as error:
            return error.code
        return "written"

    @staticmethod
    def read(handle: KeySpaceStore) -> Any:
        items = Shop(handle).items
        try:
            return [items.get("late"), list(items.list())]
        except KeyplanError as error:
            return error.code

    def end_what_was_going_on(self, gone: list[str]) -> None:
        """Delete to their end those that a backup has no data of: the restored store begins where that ends."""
        for name in gone:
            self.registry.delete(name)
            Sweeper(self.registry).sweep(name)
        self.clock.advance(3600.0)

    def seen(self) -> dict[str, Any]:
        registry = self.registry
        spaces = list(registry.all(include_deleted=True))
        return {
            "names": [
                (one.name, one.application, one.prefix, one.generation, one.state, one.description, one.created_at)
                for one in spaces
            ],
            "history": {one.name: [past.generation for past in registry.history(one.name)] for one in spaces},
            "fences": {one.name: self.fence(one.name) for one in spaces},
            "quotas": {one.name: msgspec.to_builtins(registry.quota(one.name)) for one in spaces},
            "usage": {one.name: (registry.usage(one.name).keys, registry.usage(one.name).bytes) for one in spaces},
            "marks": [
                (prefix, mark.kind, mark.epoch, mark.until is None, mark.first_key) for prefix, mark in registry.marks()
            ],
            "switches": registry.configuration(),
            "faults": registry.diagnose(with_unmanaged=False).faults,
        }

    def fence(self, name: str) -> tuple[int, State, bool]:
        """What a fence says, and whether it is of this registry: each world has one of its own."""
        fence, header = self.registry.fence(name), self.registry.header()
        assert fence is not None
        assert header is not None
        return fence.generation, fence.state, fence.cluster == header.cluster

    def made_next(self, name: str) -> Any:
        """What a creation of the name answers, exactly."""
        try:
            made = self.registry.create(name, "next")
        except KeyplanError as error:
            return error.code
        return made.prefix, made.prefix_number, made.generation, self.fence(name), self.registry.quota(name)

    def close(self) -> None:
        for handle in self.handles:
            handle.close()
        self.address.close()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


MORE = st.one_of(
    ACTS, st.tuples(st.sampled_from(["fall back", "tighten", "open"]), st.sampled_from(NAMES), st.integers(0, 7))
)


@settings(max_examples=40, deadline=None)
@given(acts=st.lists(MORE, max_size=30), later=st.lists(MORE, max_size=10), number=st.integers(0, 1 << 60))
def test_clients_from_before_go_on_as_if_nothing_had_been(
    folder: Path, acts: list[Any], later: list[Any], number: int
) -> None:
    lost, model = Life(), Life()
    for act in acts:
        lost.do(*act)
        model.do(*act)
    gone = [one.name for one in model.registry.all(include_deleted=True) if one.state in GONE]
    path = folder / f"{number}.kpb"
    path.unlink(missing_ok=True)
    lost.lose(path)
    # Why before the clients: the restored store begins where what was going on has ended.
    lost.end_what_was_going_on([])
    model.end_what_was_going_on(gone)
    for handle, was, meant in zip(lost.handles, lost.tried(), model.tried(), strict=True):
        assert was == meant, (handle.mode, handle.keyspace, handle.prefix)
    assert lost.seen() == model.seen()
    for act in later:
        lost.do(*act)
        model.do(*act)
    assert lost.seen() == model.seen()
    for name in (*NAMES, "d"):
        assert lost.made_next(name) == model.made_next(name)
    lost.close()
    model.close()


def revision_of(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.revision


def counted_to(engine: Engine, revision: int) -> None:
    """Commit until the store is at this revision."""
    while revision_of(engine) < revision:
        engine.commit(Commit((), (Put(b"\x7fcount", b""),)))


@pytest.mark.parametrize("has_read", [False, True], ids=["blind", "reading"])
def test_a_fence_of_the_lost_store_holds_in_no_other_whatever_its_revision(tmp_path: Path, *, has_read: bool) -> None:
    """The generation is another, and the fence stands at the very revision at which it stood for the handle."""
    life = Life()
    life.registry.create("a", "app0")
    counted_to(life.engine, 500)
    life.registry.disable("a")
    life.registry.enable("a")
    handle = open_key_space(life.engine, "a", "app0", session_seconds=None)
    known = revision_of(life.engine)
    life.registry.delete("a")
    Sweeper(life.registry).sweep("a")
    life.registry.create("a", "app1")
    life.lose(tmp_path / "full.kpb")
    life.registry.disable("a")
    counted_to(life.engine, known - 1)
    life.registry.enable("a")
    assert revision_of(life.engine) == known
    blind = Commit((), (Put(b"late", b""),))
    with pytest.raises(GenerationMismatchError):
        _ = Shop(handle).items.put("late", Item("late")) if has_read else handle.engine.commit(blind)
    assert life.engine.value(b"\x01late") is None
    handle.close()
    life.close()


def test_a_handle_of_the_same_generation_goes_on_in_the_restored_store(tmp_path: Path) -> None:
    life = Life()
    life.registry.create("a", "app0")
    handle = open_key_space(life.engine, "a", "app0", session_seconds=None)
    life.lose(tmp_path / "full.kpb")
    handle.engine.commit(Commit((), (Put(b"blind", b""),)))
    Shop(handle).items.put("1", Item("x"))
    assert life.engine.value(b"\x01blind") == b""
    handle.close()
    life.close()
