"""The lines of key spaces: the registry's acts in pairs and threes, sessions beside deletion, restores beside acts."""

import io
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import combinations, combinations_with_replacement
from pathlib import Path

from keyplan.engine import ALL_KEYS, MemoryEngine
from keyplan.errors import KeyplanError
from keyplan.keyspace import (
    Founding,
    KeySpaceRegistry,
    KeySpaces,
    KeySpaceStore,
    Session,
    SessionKey,
    State,
    Sweeper,
    open_key_space,
)
from keyplan.maintenance import OnConflict, RestorePolicy, back_up_key_spaces, restore_key_spaces
from keyplan.store import Backoff, Store
from keyplan.testing.schedules import Outcome, Preemptions, Scenario, actor
from tests.keyspace.stores import Item, Shop
from tests.schedules.lines import Line, line_name

__all__ = [
    "ACTS",
    "KEYSPACE_GROUPS",
    "NAME",
    "NO_WAIT",
    "backup_path",
    "hospital",
    "is_sound",
    "never",
    "one_key_space",
    "open_session",
    "opened",
    "registry_on",
    "restore",
    "sweep",
]

FOUNDING = Founding(prefix_codec="uvarint", profile="none", skip_printable=False)
NO_WAIT = Backoff(sleep=lambda _seconds: None, chance=lambda: 0.5)
NAME, APPLICATION = "busy", "shop"


def registry_on(store: Store) -> KeySpaces:
    return KeySpaces(store.engine, founding=FOUNDING, backoff=NO_WAIT)


def opened(store: Store, name: str = NAME, application: str = APPLICATION, *, create: bool = False) -> KeySpaceStore:
    """A handle without a session: its thread would be one that no actor is."""
    return open_key_space(
        store.engine,
        name,
        application,
        session_seconds=None,
        registry=registry_on(store),
        backoff=NO_WAIT,
        create_if_missing=create,
    )


def one_key_space(store: Store, *, grace_seconds: int = 0) -> None:
    """A key space with two records, whose prefix and name may be used again at once."""
    registry = registry_on(store)
    registry.ensure(NAME, APPLICATION)
    registry.configure({"reuse-cooldown-seconds": 0, "max-client-lease-seconds": grace_seconds})
    items = Shop(opened(store)).items
    for number in "12":
        items.insert(number, Item("x"))


def sweep(store: Store) -> None:
    """Go on with the deletion as far as it goes: to its end, or to a session that it waits for."""
    sweeper = Sweeper(registry_on(store), batch_keys=1, pause=never)
    before = None
    while (progress := sweeper.step(NAME)) != before:
        before = progress


def never(seconds: float) -> None:
    raise AssertionError(f"a sweep waits {seconds} s")


def _delete(store: Store) -> None:
    registry_on(store).delete(NAME)


def _delete_and_sweep(store: Store) -> None:
    _delete(store)
    sweep(store)


def _handle_transaction(store: Store) -> None:
    with opened(store).transaction() as transaction:
        items = Shop(transaction).items
        items.put("9", Item(f"{len(list(items.list()))}"))


ACTS: dict[str, Callable[[Store], object]] = {
    "create": lambda store: registry_on(store).create("fresh", APPLICATION),
    "create again": lambda store: registry_on(store).create(NAME, "hospital"),
    "disable": lambda store: registry_on(store).disable(NAME),
    "enable": lambda store: registry_on(store).enable(NAME),
    "delete": _delete,
    "undelete": lambda store: registry_on(store).undelete(NAME),
    "sweep": sweep,
    "delete and sweep": _delete_and_sweep,
    "write": lambda store: Shop(opened(store)).items.put("9", Item("w")),
    "transaction": _handle_transaction,
    "set quota": lambda store: registry_on(store).set_quota(NAME, keys=5),
    "open or make": lambda store: Shop(opened(store, create=True)).items.put("8", Item("o")),
}


def is_sound(outcome: Outcome) -> None:
    """The doctor finds nothing, and the chain of the audit log is whole."""
    registry = KeySpaces(outcome.engine, founding=FOUNDING, backoff=NO_WAIT)
    faults = registry.diagnose().faults
    assert not faults, f"{faults[0].kind.value}: {faults}"
    verdict = registry.verify_audit()
    assert verdict.is_whole, f"audit: {verdict}"


def of_acts(names: tuple[str, ...]) -> Scenario:
    return Scenario(
        *[actor(ACTS[name], name) for name in names],
        setup=one_key_space,
        invariants=[is_sound],
        only_raises=(KeyplanError,),
    )


def acts() -> Iterator[Line]:
    """Every two acts of the registry, and writers through handles."""
    for names in combinations_with_replacement(ACTS, 2):
        # Why a bound: two sweeps are two maintainers of one kind, which move one another's cursor again and again.
        bound = Preemptions(2) if all("sweep" in name for name in names) else None
        yield Line(line_name(*names), partial(of_acts, names), bound, is_long=bound is not None)


def threes() -> Iterator[Line]:
    """Every three different ones."""
    for names in combinations(ACTS, 3):
        if sum("sweep" in name for name in names) < 2:
            yield Line(line_name(*names), partial(of_acts, names), is_long=True)


# ---- sessions --------------------------------------------------------------------------------------------------------------


def open_session(store: Store) -> bytes | None:
    """Take part in a key space as a handle with a session does: the leased record under the fence, and then a read."""
    keyspace = registry_on(store).get(NAME)
    lease = store.lease(60, keep_alive=False)

    def work(registry: KeySpaceRegistry) -> None:
        fence = registry.fences.require(NAME)
        if fence.state is not State.ENABLED or fence.generation != keyspace.generation:
            raise ClosedError
        session = Session(application=APPLICATION, generation=keyspace.generation, opened_at="2026-01-01T00:00:00Z")
        registry.sessions.insert(SessionKey(NAME, lease.id), session, lease=lease)

    KeySpaceRegistry(store).run(work)
    return store.engine.value(keyspace.raw_prefix + b"/shop/items/1")


class ClosedError(KeyplanError):
    """The fence does not let a session in."""

    code = "closed"
    summary = "the key space is closed"


def _is_held_by_its_session(outcome: Outcome) -> None:
    """Whoever has a session reads what is there: the data goes only when nobody has one."""
    if "session" in outcome.answers:
        assert outcome.answers["session"] is not None, "swept: a session was registered, and its data was gone"
    is_sound(outcome)


def _beside_session(names: tuple[str, ...]) -> Scenario:
    return Scenario(
        actor(open_session, "session"),
        *[actor(ACTS[name], name) for name in names],
        setup=partial(one_key_space, grace_seconds=60),
        invariants=[_is_held_by_its_session],
        only_raises=(KeyplanError,),
    )


def sessions() -> Iterator[Line]:
    """A session that begins beside deletion, undeletion and sweeps."""
    for names in [("delete",), ("delete and sweep",), ("disable",), ("undelete",)]:
        yield Line(line_name("session", *names), partial(_beside_session, names))
    for pair in [("delete and sweep", "undelete"), ("delete", "sweep")]:
        yield Line(line_name("session", *pair), partial(_beside_session, pair), is_long=True)


# ---- restores --------------------------------------------------------------------------------------------------------------

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@cache
def backup_path() -> Path:
    """A backup of the key space; its folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="keyplan-schedules-")
    _FOLDERS.append(folder)
    path = Path(folder.name) / "busy"
    file = io.BytesIO()
    with Store(MemoryEngine()) as store:
        one_key_space(store)
        back_up_key_spaces(store.engine, file)
    path.write_bytes(file.getvalue())
    return path


def restore(store: Store) -> None:
    policy = RestorePolicy(on_conflict=OnConflict.OVERWRITE)
    restore_key_spaces(store.engine, backup_path(), policy=policy, backoff=NO_WAIT)


def hospital(store: Store) -> str:
    """Delete the key space, and make one of the same name for another application, with a record."""
    registry = registry_on(store)
    registry.delete(NAME)
    Sweeper(registry, pause=never).sweep(NAME)
    registry.create(NAME, "hospital")
    Shop(opened(store, application="hospital")).items.put("patient", Item("p"))
    return "acknowledged"


def _protect(store: Store) -> None:
    registry_on(store).configure({"protected": [NAME]})


def _keeps_what_others_made(outcome: Outcome) -> None:
    """Another owner's key space, once it was acknowledged, is not taken away by a restore that planned for the one before."""
    is_sound(outcome)
    if outcome.answers.get("hospital") == "acknowledged":
        registry = KeySpaces(outcome.engine, founding=FOUNDING, backoff=NO_WAIT)
        owner = registry.get(NAME).application
        assert owner == "hospital", f"ownership: the restore gave the key space to {owner}"


def _beside_restore(name: str, act: Callable[[Store], object]) -> Scenario:
    return Scenario(
        actor(restore, "restore"),
        actor(act, name),
        setup=one_key_space,
        invariants=[_keeps_what_others_made],
        only_raises=(KeyplanError,),
    )


def restores_of_key_spaces() -> Iterator[Line]:
    """A restore that overwrites beside acts of the registry."""
    beside: dict[str, Callable[[Store], object]] = {
        "set quota": ACTS["set quota"],
        "protect": _protect,
        "disable": ACTS["disable"],
        "write": ACTS["write"],
        "delete": ACTS["delete"],
        "create": ACTS["create"],
    }
    for name, act in beside.items():
        yield Line(line_name("restore", name), partial(_beside_restore, name, act), is_long=True)
    yield Line("restore x hospital", partial(_beside_restore, "hospital", hospital), is_long=True)


# ---- handles that have not heard of it -----------------------------------------------------------------------------------


def _hand_over(store: Store) -> None:
    """Delete the key space with all its data; another one gets its prefix, and writes at the same key."""
    _delete_and_sweep(store)
    registry_on(store).create("bank", "hospital", prefix="01")
    Shop(opened(store, "bank", "hospital")).items.put("1", Item("theirs"))


def _watched(handle: KeySpaceStore) -> object:
    watch = handle.engine.watch(ALL_KEYS, after=handle.revision)
    try:
        return [watch.poll(0), watch.poll(0)]
    finally:
        watch.close()


_READS: dict[str, Callable[[KeySpaceStore], object]] = {
    "get": lambda handle: [Shop(handle).items.get("1"), Shop(handle).items.get("1")],
    "list": lambda handle: [list(Shop(handle).items.list()), list(Shop(handle).items.list())],
    "watch": _watched,
    "commit": lambda handle: Shop(handle).items.modify("1", lambda item: Item(f"{item}")),
}


def _reads_its_own(outcome: Outcome) -> None:
    """A handle of the key space that was there first has seen nothing of the next one's, and written nothing into it."""
    assert "theirs" not in repr(outcome.answers.get("stale handle")), "read: the next owner's record"
    found = outcome.engine.value(b"\x01/shop/items/1")
    assert "hand over" not in outcome.answers or found == b'{"note":"theirs"}', f"written: {found!r}"
    is_sound(outcome)


def _stale_handle(read: str) -> Scenario:
    return Scenario(
        actor(lambda store: repr(_READS[read](opened(store))), "stale handle"),
        actor(_hand_over, "hand over"),
        setup=one_key_space,
        invariants=[_reads_its_own],
        only_raises=(KeyplanError,),
    )


def stale_handles() -> Iterator[Line]:
    """A handle without a session reads, watches and writes while its prefix becomes another's."""
    for read in _READS:
        yield Line(line_name("stale handle", read), partial(_stale_handle, read), Preemptions(2))


KEYSPACE_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "key spaces": acts,
    "key spaces in threes": threes,
    "sessions": sessions,
    "restores of key spaces": restores_of_key_spaces,
    "stale handles": stale_handles,
}
