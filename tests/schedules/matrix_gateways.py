"""The lines of the etcd v2 gateway: gateways, other writers and ends of leases on one store, whose events are counted once."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations_with_replacement

import msgspec

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Commit, Delete, Event, Put
from keyplan.server.etcd_v2.backfill import Counted, Inbox
from keyplan.server.etcd_v2.ledger import Ledger
from keyplan.server.etcd_v2.operations import Done, Operation
from keyplan.server.etcd_v2.records import Action, EventRecord, State
from keyplan.server.etcd_v2.tree import path_of
from keyplan.store import Store
from keyplan.testing.schedules import Actor, Outcome, Preemptions, Scenario, actor, compacts, passes
from tests.schedules.lines import Line, line_name

__all__ = ["GATEWAY_GROUPS"]

_TTL_SECONDS = 5


class PumpedLedger(Ledger):
    """A ledger whose follower is asked by whoever needs it: its thread would be no actor."""

    def _follow(
        self, inbox: Inbox, after: int, sink: Callable[[Sequence[Counted], bool], None]
    ) -> None:  # as the gateway's own, without a thread
        watch = self._engine.watch(ALL_KEYS, after=after)
        known = inbox.pending

        def pending(state: State, revision: int) -> list[object]:
            while watch.revision < revision:
                events: Sequence[Event] = watch.poll(0.0)
                counted, is_waiting = inbox.add(events, watch.revision)
                sink(counted, is_waiting)
            return list(known(state, revision))

        inbox.pending = pending  # type: ignore[assignment,method-assign]  # Why: here the changes are fetched.


def ledger_of(store: Store) -> tuple[PumpedLedger, list[EventRecord]]:
    """A gateway's ledger that has started, and the events that it knows of."""
    ledger = PumpedLedger(store.engine, SYSTEM_CLOCK, history_events=1_000)
    told: list[EventRecord] = []
    history = ledger.start(lambda counted, _: told.extend(record for each in counted for record in each.records))
    told += history.records
    return ledger, told


def _gateway(*operations: Operation) -> Callable[[Store], object]:
    """A gateway that starts, and is asked for these at once; the answers are the indexes of their events, or codes."""

    def serve(store: Store) -> list[tuple[int, str] | int]:
        ledger, _ = ledger_of(store)
        outcomes = ledger.run(operations)
        return [
            (outcome.index, outcome.action.value) if isinstance(outcome, Done) else outcome.code.value
            for outcome in outcomes
        ]

    return serve


def _counts(store: Store) -> None:
    """A gateway that has nobody to serve, and numbers what others did."""
    ledger_of(store)[0].run([])


def _writes(key: bytes, value: bytes | None) -> Callable[[Store], object]:
    mutation = Delete(key) if value is None else Put(key, value)
    return lambda store: store.engine.commit(Commit((), (mutation,), ""))


def one_file(store: Store) -> None:
    ledger_of(store)[0].run([Operation(Action.SET, "/a", "old"), Operation(Action.SET, "/d/x", "old")])


def leased(store: Store) -> None:
    """A file and a directory that end."""
    ledger_of(store)[0].run(
        [
            Operation(Action.SET, "/a", "old", ttl_seconds=_TTL_SECONDS),
            Operation(Action.SET, "/d", is_directory=True, ttl_seconds=_TTL_SECONDS),
        ]
    )
    ledger_of(store)[0].run([Operation(Action.SET, "/d/x", "old")])


ACTS: dict[str, Callable[[Store], object]] = {
    "set": _gateway(Operation(Action.SET, "/a", "set")),
    "create": _gateway(Operation(Action.CREATE, "/b", "created")),
    "swap": _gateway(Operation(Action.COMPARE_AND_SWAP, "/a", "swapped", previous_value="old")),
    "delete": _gateway(Operation(Action.DELETE, "/a")),
    "delete all below": _gateway(Operation(Action.DELETE, "/d", is_directory=True, is_recursive=True)),
    "in order": _gateway(Operation(Action.CREATE, "/d", "first", is_unique=True)),
    "two": _gateway(Operation(Action.SET, "/a", "two"), Operation(Action.SET, "/d/x", "two")),
    "raw write": _writes(b"/a", b"raw"),
    "raw write below": _writes(b"/d/y", b"raw"),
    "raw delete": _writes(b"/a", None),
    "count": _counts,
}


def _of_gateways(names: Sequence[str], setup: Callable[[Store], None], *more: Actor) -> Scenario:
    seen: dict[str, int] = {}
    actors: list[Actor] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        actors.append(actor(ACTS[name], name if seen[name] == 1 else f"{name} {seen[name]}"))
    return Scenario(*actors, *more, setup=setup, invariants=[_each_change_is_counted_once])


def _each_change_is_counted_once(outcome: Outcome) -> None:
    """The next gateway knows events without gap or repeat; they lead to what is stored, and are those that clients know."""
    _counts(outcome.store)
    _, told = ledger_of(outcome.store)
    indexes = [record.index for record in told]
    assert indexes == [indexes[0] + place for place in range(len(indexes))], f"events {indexes}"
    by_index = {record.index: msgspec.json.decode(record.body)["action"] for record in told}
    answered = [each for answer in outcome.answers.values() if isinstance(answer, list) for each in answer]
    done = [each for each in answered if isinstance(each, tuple)]
    assert len({index for index, _ in done}) == len(done), f"one number twice: {done}"
    if "compacts" in outcome.scenario.names:
        return  # what could no longer be told is left out, with its numbers
    for index, action in done:
        assert by_index.get(index) == action, f"a client was told of {action} {index}, others of {by_index.get(index)}"
    stored = {path: raw for key, raw, _ in outcome.stored()[0] if (path := path_of(key)) is not None}
    assert _as_told(told) == {path: raw.decode() for path, raw in stored.items()}


def _as_told(records: Sequence[EventRecord]) -> dict[str, str]:
    """What a client knows who has heard every event."""
    known: dict[str, str] = {}
    for record in records:
        event = msgspec.json.decode(record.body)
        if event["action"] in {"delete", "expire", "compareAndDelete"}:
            below = record.path + "/"
            known = {path: value for path, value in known.items() if path != record.path and not path.startswith(below)}
        elif not event["node"].get("dir"):
            known[record.path] = event["node"]["value"]
    return known


def gateways() -> Iterator[Line]:
    """What clients ask of two gateways, and what other writers do, in pairs; ends of leases and a compaction beside them."""
    for names in combinations_with_replacement(ACTS, 2):
        yield Line(line_name(*names), partial(_of_gateways, names, one_file))
    for name in ("set", "swap", "delete", "delete all below", "in order", "raw write below", "count"):
        end = passes(2.0 * _TTL_SECONDS)
        yield Line(line_name(name, "ends of leases"), partial(_of_gateways, (name,), leased, end))
    for name in ("set", "count"):
        yield Line(
            line_name(name, "raw write", "compaction"), partial(_of_gateways, (name, "raw write"), one_file, compacts())
        )
    threes = [
        ("set", "raw write", "count"),
        ("two", "delete", "raw write"),
        ("in order", "in order", "delete all below"),
    ]
    for three in threes:
        yield Line(line_name(*three), partial(_of_gateways, three, one_file), Preemptions(2))


GATEWAY_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {"etcd v2": gateways}
