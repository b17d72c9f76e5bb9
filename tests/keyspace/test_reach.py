"""What grants come to in a store: the key spaces that are, their owners as they change, and nothing of the registry's own."""

from collections.abc import Callable

import pytest

from keyplan.access import EVERYTHING, Grant, OnApplication, OnKeySpace, OnOperation, OnPrefix, Target
from keyplan.engine import ALL_KEYS, Area, Commit, ConfinedEngine, Engine, KeyRange, MemoryEngine, Outside, Put, Reach
from keyplan.errors import AccessDeniedError, HistoryCompactedError
from keyplan.keyspace import DATA_KEYS, GrantedReach, KeySpaces, reach_of
from keyplan.keyspace.fence import fence_key
from keyplan.keyspace.rows import key_of
from keyplan.operations import Act
from tests.keyspace.owners import registry_on
from tests.keyspace.stores import swept

ORDERS = KeyRange.of_prefix(b"\x01")


def on(target: Target, *acts: Act) -> list[Grant]:
    return [Grant(act, target, line) for line, act in enumerate(acts or (Act.READ, Act.WRITE), start=1)]


def reached(engine: Engine, grants: list[Grant]) -> Reach:
    with engine.snapshot() as state:
        return reach_of(grants, state)


def fenced(engine: Engine, name: str) -> tuple[bytes, bytes]:
    raw = engine.value(fence_key(name))
    assert raw is not None
    return fence_key(name), raw


def made(engine: Engine) -> KeySpaces:
    """Prefix 01: orders of shop; 02: carts of shop; 03: ledger of bank."""
    registry = registry_on(engine)
    registry.configure({"reuse-cooldown-seconds": 0})
    for name, application in (("orders", "shop"), ("carts", "shop"), ("ledger", "bank")):
        registry.create(name, application)
    return registry


def test_a_key_space_is_its_prefix_while_its_fence_holds(memory: Engine) -> None:
    made(memory)
    found = reached(memory, on(OnKeySpace("orders")))
    assert found == Reach([Area(ORDERS, can_write=True, fence=fenced(memory, "orders"))])


def test_an_application_is_its_key_spaces_and_no_others(memory: Engine) -> None:
    made(memory)
    areas = [
        Area(KeyRange.of_prefix(prefix), can_write=True, fence=fenced(memory, name))
        for prefix, name in ((b"\x01", "orders"), (b"\x02", "carts"))
    ]
    assert reached(memory, on(OnApplication("shop"))) == Reach(areas)
    assert reached(memory, on(OnApplication("shop"), Act.READ)) == Reach(
        [Area(area.range, fence=area.fence) for area in areas]
    )


@pytest.mark.parametrize("target", [OnKeySpace("nothing"), OnKeySpace("no name/"), OnApplication("nobody")])
@pytest.mark.parametrize("has_registry", [True, False])
def test_what_is_not_there_is_nothing(target: Target, *, has_registry: bool) -> None:
    with MemoryEngine() as engine:
        if has_registry:
            made(engine)
        assert reached(engine, on(target)) == Reach()


@pytest.mark.parametrize("acts", [(), (Act.WRITE,), (Act.ADMINISTER, Act.AUDIT)])
def test_what_may_not_be_read_gives_nothing(memory: Engine, acts: tuple[Act, ...]) -> None:
    made(memory)
    grants = on(OnKeySpace("orders"), *acts) if acts else on(OnOperation("listKeySpaces"))
    assert reached(memory, grants) == Reach()


def test_what_is_read_by_one_grant_is_written_by_another_where_they_meet(memory: Engine) -> None:
    made(memory)
    fence = fenced(memory, "orders")
    inner = KeyRange.of_prefix(b"\x01/mine/")
    narrow = [*on(OnKeySpace("orders"), Act.READ), *on(OnPrefix(b"\x01/mine/"), Act.WRITE)]
    assert reached(memory, narrow) == Reach([Area(ORDERS, fence=fence), Area(inner, can_write=True, fence=fence)])
    wide = [*on(EVERYTHING, Act.READ), *on(OnKeySpace("orders"), Act.WRITE)]
    assert reached(memory, wide) == Reach([Area(DATA_KEYS), Area(ORDERS, can_write=True, fence=fence)])


@pytest.mark.parametrize("target", [EVERYTHING, OnPrefix(b"\x00"), OnPrefix(b"\x00kp")], ids=str)
def test_the_registry_s_own_keys_are_an_administrator_s_alone(memory: Engine, target: Target) -> None:
    made(memory)
    assert reached(memory, on(target)).at(key_of("records", "orders")) is None
    administrator = [*on(target), *on(EVERYTHING, Act.ADMINISTER)]
    assert reached(memory, administrator).at(key_of("records", "orders")) is not None


def test_an_administrator_of_everything_reaches_everything(memory: Engine) -> None:
    assert reached(memory, on(EVERYTHING, Act.READ, Act.WRITE, Act.ADMINISTER)).is_everything
    assert not reached(memory, on(EVERYTHING)).is_everything


# ---- what becomes of key spaces ------------------------------------------------------------------------------------------


def disabled(registry: KeySpaces) -> None:
    registry.disable("orders")


def deleting(registry: KeySpaces) -> None:
    registry.delete("orders")


def gone(registry: KeySpaces) -> None:
    swept(registry, "orders")


def another_s(registry: KeySpaces) -> None:
    swept(registry, "orders")
    registry.create("orders", "bank", prefix="01")


def prefix_of_another(registry: KeySpaces) -> None:
    swept(registry, "orders")
    registry.create("loans", "bank", prefix="01")


@pytest.mark.parametrize("change", [deleting, gone, another_s, prefix_of_another])
def test_what_was_an_application_s_is_not_when_it_is_deleted_and_made_anew(
    memory: Engine, change: Callable[[KeySpaces], object]
) -> None:
    registry = made(memory)
    memory.commit(Commit((), (Put(b"\x01/a", b"ours"),)))
    reach = GrantedReach(memory, lambda: grants)
    grants = tuple(on(OnApplication("shop")))
    shop = ConfinedEngine(memory, reach, renewed=reach.renewed, outside=Outside.REFUSED, who="shop", closes_inner=False)
    assert shop.value(b"\x01/a") == b"ours"
    watch = shop.watch(ORDERS, after=shop.snapshot().revision)
    change(registry)
    memory.commit(Commit((), (Put(b"\x01/a", b"theirs"),)))
    for act in (
        lambda: shop.value(b"\x01/a"),
        lambda: list(shop.snapshot().keys(ORDERS)),
        lambda: shop.commit(Commit((), (Put(b"\x01/a", b"ours again"),))),
        lambda: watch.poll(0),
    ):
        with pytest.raises(AccessDeniedError):
            act()
    assert memory.value(b"\x01/a") == b"theirs"
    assert reach().at(b"\x01/a") is None


def test_who_is_granted_a_name_has_what_has_that_name_now_and_nothing_from_before(memory: Engine) -> None:
    registry = made(memory)
    memory.commit(Commit((), (Put(b"\x01/a", b"before"),)))
    another_s(registry)
    reach = reached(memory, on(OnKeySpace("orders")))
    named = ConfinedEngine(memory, lambda: reach, outside=Outside.REFUSED, closes_inner=False)
    assert named.value(b"\x01/a") is None
    memory.commit(Commit((), (Put(b"\x01/b", b"now"),)))
    assert named.value(b"\x01/b") == b"now"
    with pytest.raises(HistoryCompactedError):
        named.watch(ORDERS, after=0).poll(0)


def test_a_disabled_key_space_may_be_read_alone_until_it_is_enabled(memory: Engine) -> None:
    registry = made(memory)
    reach = GrantedReach(memory, lambda: grants)
    grants = tuple(on(OnKeySpace("orders")))
    engine = ConfinedEngine(memory, reach, renewed=reach.renewed, outside=Outside.REFUSED, closes_inner=False)
    put = Commit((), (Put(b"\x01/a", b"1"),))
    engine.commit(put)
    disabled(registry)
    assert engine.value(b"\x01/a") == b"1"
    with pytest.raises(AccessDeniedError):
        engine.commit(put)
    registry.enable("orders")
    reach.renewed()  # Why: as each request begins; what may be written again is found there.
    engine.commit(put)


@pytest.mark.parametrize("table", ["records", "fences", "holders"])
def test_what_is_damaged_opens_nothing(table: str) -> None:
    with MemoryEngine() as engine:
        made(engine)
        key = key_of(table, b"\x01" if table == "holders" else "orders")
        engine.commit(Commit((), (Put(key, b"?"),)))
        for target in (OnKeySpace("orders"), OnApplication("shop")):
            assert reached(engine, on(target)).at(b"\x01/a") is None


# ---- when it is made again -----------------------------------------------------------------------------------------------


def test_a_reach_is_the_same_object_until_grants_or_registry_change(memory: Engine) -> None:
    registry = made(memory)
    grants = tuple(on(OnApplication("shop")))
    reach = GrantedReach(memory, lambda: grants)
    first = reach()
    memory.commit(Commit((), (Put(b"\x01/a", b"1"),)))
    assert reach() is first
    assert reach.renewed() is first
    registry.create("others", "bank")
    assert reach.renewed() is first, "what was made is another's"
    registry.create("more", "shop")
    assert reach.renewed() is not first
    assert reach().at(b"\x05/a") is not None
    grants = ()
    assert reach() == Reach()


def test_grants_on_prefixes_do_not_look_at_the_registry(memory: Engine) -> None:
    made(memory)
    reach = GrantedReach(memory, lambda: grants)
    grants = tuple(on(OnPrefix(b"/service/")))
    looks = [reach.must_look]  # Nothing is known yet.
    assert reach() == Reach([Area(KeyRange.of_prefix(b"/service/"), can_write=True)])
    looks.append(reach.must_look)
    grants = tuple(on(OnPrefix(b"/service/")))
    looks.append(reach.must_look)
    reach()
    grants = tuple(on(OnKeySpace("orders")))
    reach()
    looks.append(reach.must_look)  # The registry may have changed.
    assert looks == [True, False, True, True]
    grants = tuple(on(OnPrefix(b"/service/")))
    assert not any(key_range == ALL_KEYS for key_range in (part.range for part in reach().stretches))
