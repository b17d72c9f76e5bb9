"""The lines of applications: ports of clusters, racks and their parts, indexes begun beside a writer that keeps none."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations_with_replacement

from keyplan.apps.cloudchamber import Blade, BladeKey, CloudChamber, Rack, User
from keyplan.apps.cloudchamber.chamber import Chamber, RackContents
from keyplan.apps.cloudchamber.indexed import INDEXES, CloudChamberIndexed, begin_indexes
from keyplan.apps.cloudchamber.namespace_store import DeletePolicy
from keyplan.apps.patroni import Broker
from keyplan.apps.patroni.ports import PortAllocator, PortRange
from keyplan.apps.patroni.refusals import NoPortsLeftError, RefusedError
from keyplan.errors import KeyplanError
from keyplan.maintenance import list_indexes
from keyplan.server.etcd_member import Identity
from keyplan.server.etcd_v3.calls import Calls
from keyplan.server.etcd_v3.messages import RECORDS, read_message
from keyplan.store import Store
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, Preemptions, Scenario, actor, as_in_some_order, healthy
from tests.schedules.lines import Line, line_name

__all__ = ["APPLICATION_GROUPS"]

# ---- ports of clusters -----------------------------------------------------------------------------------------------------

RANGE = PortRange(33000, 33002)


def _allocates(instance: str) -> Callable[[Store], int]:
    return lambda store: PortAllocator(store, RANGE).allocate(instance)


def _frees(store: Store) -> None:
    Broker(store).allocations.delete("first")


def one_port(store: Store) -> None:
    PortAllocator(store, RANGE).allocate("first")


def two_ports(store: Store) -> None:
    one_port(store)
    PortAllocator(store, RANGE).allocate("second")


def _each_port_is_one_instances(outcome: Outcome) -> None:
    allocated = dict(Broker(outcome.store).allocations.list())
    assert len(set(allocated.values())) == len(allocated), f"twice: {allocated}"
    for name, port in outcome.answers.items():
        if port is not None:
            assert allocated.get(name) == port, f"lost: {name} was told {port}, and {allocated} is stored"


def _none_is_refused_a_free_port(outcome: Outcome) -> None:
    """Who was told that no port is left was told so in a run in which every port was taken at some time."""
    if not any(isinstance(error, NoPortsLeftError) for error in outcome.errors.values()):
        return
    allocations = Broker.bound().tables["allocations"].keys
    keys = {allocations.encode(name) for name in ("first", "second", *outcome.scenario.names)}
    taken: set[bytes] = set()
    most = 0
    for event in outcome.history():
        if event.key in keys:
            (taken.discard if event.entry is None else taken.add)(event.key)
            most = max(most, len(taken))
    assert most == 3, f"refused: no port was left, it was said, and {most} of 3 were taken at most"


def _of_ports(names: tuple[str, ...], setup: Callable[[Store], None]) -> Scenario:
    actors = [actor(_frees if name == "free" else _allocates(name), name) for name in names]
    return Scenario(
        *actors,
        setup=setup,
        layouts=[Broker],
        invariants=[healthy(Broker), _each_port_is_one_instances, _none_is_refused_a_free_port],
        only_raises=(*ACTOR_ERRORS, RefusedError, NoPortsLeftError),
    )


def ports() -> Iterator[Line]:
    """Allocators beside one another and one that frees; the last port of the range."""
    for names in [("a", "b"), ("a", "free"), ("a", "b", "free")]:
        for setup in (one_port, two_ports):
            yield Line(line_name(*names, setup.__name__), partial(_of_ports, names, setup), is_long=len(names) > 2)
    yield Line("one instance, asked for twice", _asked_twice)


def _asked_twice() -> Scenario:
    def same_port(outcome: Outcome) -> None:
        assert len(set(outcome.answers.values())) == 1, f"two: {outcome.answers}"

    return Scenario(
        actor(_allocates("a"), "asked"),
        actor(_allocates("a"), "asked again"),
        setup=one_port,
        invariants=[healthy(Broker), same_port],
    )


# ---- racks and blades ------------------------------------------------------------------------------------------------------

Layouts = type[CloudChamber]


def one_rack(layout: Layouts, store: Store) -> None:
    chamber = Chamber(store, layout=layout)
    chamber.create_rack("rack1", RackContents(Rack(), {}, {}, {1: Blade(), 2: Blade()}))


CHAMBER_ACTS: dict[str, Callable[[Chamber], object]] = {
    "delete cascade": lambda chamber: chamber.delete_rack("rack1"),
    "delete restrict": lambda chamber: chamber.delete_rack("rack1", delete_policy=DeletePolicy.RESTRICT),
    "create rack": lambda chamber: chamber.create_rack("rack1", RackContents(Rack(), {}, {}, {3: Blade()})),
    "insert blade": lambda chamber: chamber.layout.blades.insert(BladeKey("rack1", 4), Blade()),
    "modify blade": lambda chamber: chamber.layout.blades.modify(BladeKey("rack1", 1), lambda blade: blade),
    "delete blade": lambda chamber: chamber.layout.blades.delete(BladeKey("rack1", 1)),
    "read": lambda chamber: chamber.read_rack("rack1"),
}


def _of_chamber(names: tuple[str, ...], layout: Layouts) -> Scenario:
    actors = [actor(partial(_chamber_act, name, layout), name) for name in names]
    return Scenario(*actors, setup=partial(one_rack, layout), layouts=[layout], only_raises=(KeyplanError,))


def _chamber_act(name: str, layout: Layouts, store: Store) -> None:
    CHAMBER_ACTS[name](Chamber(store, layout=layout))


def racks() -> Iterator[Line]:
    """What is done to a rack and its blades, in pairs, with and without secondary indexes."""
    for layout in (CloudChamber, CloudChamberIndexed):
        for names in combinations_with_replacement(CHAMBER_ACTS, 2):
            yield Line(line_name(*names, layout.__name__), partial(_of_chamber, names, layout))


def one_user(store: Store) -> None:
    Chamber(store).layout.users.insert("old", User(name="old"))


def _begins(store: Store) -> None:
    begin_indexes(store)


def _plain_user(store: Store) -> None:
    """A server of the layout without indexes, which was started before they were begun."""
    chamber = Chamber(store)
    chamber.layout.users.insert("new", User(name="new"))


def _no_user_is_left_out(outcome: Outcome) -> None:
    """An index that can be read has every record."""
    begin_indexes(outcome.store)
    assert all(index.is_readable for index in list_indexes(outcome.store, CloudChamberIndexed.bound()))
    healthy(CloudChamberIndexed)(outcome)


def _index_states_are_honest(outcome: Outcome) -> None:
    """As it stands after the run: every index that says that it can be read is whole."""
    bound = CloudChamberIndexed.bound()
    if all(index.is_readable for index in list_indexes(outcome.store, bound)):
        note = CloudChamberIndexed(outcome.store).indexes_begun.count()
        if note:
            healthy(CloudChamberIndexed)(outcome)


def _beginning() -> Scenario:
    assert INDEXES
    return Scenario(
        actor(_begins, "begin indexes"),
        actor(_plain_user, "plain writer"),
        setup=one_user,
        invariants=[_index_states_are_honest, _no_user_is_left_out],
        only_raises=(KeyplanError,),
    )


def beginnings() -> Iterator[Line]:
    """Secondary indexes are begun beside a writer that keeps none: it is refused, or its record is in them."""
    yield Line("begin indexes x plain writer", _beginning, Preemptions(1, is_hashed=False), is_long=True)


# ---- transactions of the etcd v3 gateway -----------------------------------------------------------------------------------

IDENTITY = Identity(1, 1, 1)


def _coded(raw: bytes) -> str:
    return b64encode(raw).decode()


def _put_request(key: bytes, value: bytes) -> dict[str, object]:
    return {"requestPut": {"key": _coded(key), "value": _coded(value)}}


def _swap_if(key: bytes, value: bytes, other: bytes) -> Callable[[Store], object]:
    """Put another key when the first one has a value, else say what it has."""

    def transact(store: Store) -> object:
        compare = {"key": _coded(key), "target": "VALUE", "result": "EQUAL", "value": _coded(value)}
        body = {
            "compare": [compare],
            "success": [_put_request(other, b"taken")],
            "failure": [{"requestRange": {"key": _coded(key)}}],
        }
        return bool(Calls(store.engine, IDENTITY).transact(read_message(body, RECORDS.TxnRequest)).succeeded)

    return transact


def _puts(key: bytes, value: bytes) -> Callable[[Store], object]:
    def put(store: Store) -> None:
        Calls(store.engine, IDENTITY).put(
            read_message({"key": _coded(key), "value": _coded(value)}, RECORDS.PutRequest)
        )

    return put


def _deletes(key: bytes) -> Callable[[Store], object]:
    def delete(store: Store) -> None:
        Calls(store.engine, IDENTITY).delete_range(read_message({"key": _coded(key)}, RECORDS.DeleteRangeRequest))

    return delete


V3_ACTS = {
    "a takes b": _swap_if(b"/a", b"free", b"/b"),
    "b takes a": _swap_if(b"/b", b"free", b"/a"),
    "put a": _puts(b"/a", b"held"),
    "put b": _puts(b"/b", b"held"),
    "delete a": _deletes(b"/a"),
}


def two_free(store: Store) -> None:
    for key in (b"/a", b"/b"):
        _puts(key, b"free")(store)


def _of_v3(names: tuple[str, ...]) -> Scenario:
    actors = [actor(V3_ACTS[name], name, answers=True) for name in names]
    return Scenario(*actors, setup=two_free, invariants=[as_in_some_order])


def gateway_transactions() -> Iterator[Line]:
    """Transactions that compare one key and write another, in pairs and threes."""
    for count in (2, 3):
        for names in combinations_with_replacement(V3_ACTS, count):
            yield Line(line_name(*names), partial(_of_v3, names))


APPLICATION_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "ports": ports,
    "racks": racks,
    "beginnings of indexes": beginnings,
    "etcd v3": gateway_transactions,
}
