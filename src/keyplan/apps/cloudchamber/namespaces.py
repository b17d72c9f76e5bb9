"""Test name spaces: which one a configuration means, its cleaning at the start, and what an operator does with all of them.

    /CloudChamber/V0.1/Test/Standard/...                             the shared one
    /CloudChamber/V0.1/Test/2026-11-21T12:00:00.000000000Z/...       one of its own for each run (UseUniqueInstance)
    /CloudChamber/v0.1/Test/2021-03-04T10:11:12.5-08:00/...          the same of the Go program, by its own clock

What lists, cleans or purges tests does so for both programs' keys. Whatever removes, removes whole components: never
`Test/StandardX` with `Test/Standard`, and never anything outside `Test/`. R12 to R15 are the rulings in this folder's README.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, NamedTuple

from keyplan.apps.cloudchamber.configuration import StoreSettings
from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.layout_keys import NAMESPACE, TESTS
from keyplan.engine import SYSTEM_CLOCK, Clock, Commit, DeleteRange, Engine, KeyRange
from keyplan.errors import InvalidInputError, InvalidKeyError

__all__ = [
    "STANDARD",
    "NamespaceInstance",
    "check_production_key",
    "instance_timestamp",
    "instances_of_tests",
    "namespace_named",
    "namespace_of",
    "pre_clean",
    "purge_instances",
    "purge_production",
    "purge_tests",
    "range_of_tests",
    "ranges_of",
    "started_at",
    "timestamp_of_this_process",
    "will_pre_clean",
]

STANDARD: Final = "Standard"
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_NANOSECONDS: Final = 10**9
_INSTANCES_OF_A_COMMIT: Final = 100


class NamespaceInstance(NamedTuple):
    """One test name space: its name, how many keys it has, and when it was begun, where its name tells (UTC).

    `side` says whose keys they are; an instance that both programs use is two of these.
    """

    name: str
    keys: int
    started_at: datetime | None
    side: LayoutSide = LayoutSide.DOCUMENT


# ---- which name space ---------------------------------------------------------------------------------------------------


def instance_timestamp(clock: Clock = SYSTEM_CLOCK) -> str:
    """Return the name of an instance that begins now: RFC 3339 in UTC with nine digits, so that names sort by time (R13)."""
    seconds, nanoseconds = divmod(round(clock.wall() * _NANOSECONDS), _NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


@cache
def timestamp_of_this_process() -> str:
    """Return the one timestamp of this process, taken when it was first asked for: all its stores share an instance."""
    return instance_timestamp()


def started_at(instance: str) -> datetime | None:
    """Return when an instance named by a timestamp began, to the microsecond; None for any other name.

    The Go program's has as many digits as are no zeros, and the zone of its machine.
    """
    match = _TIMESTAMP.fullmatch(instance)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00")).astimezone(UTC)
        return whole + timedelta(microseconds=int((match[2] or "").ljust(9, "0")) // 1_000)
    except (ValueError, OverflowError):
        return None


def namespace_of(settings: StoreSettings) -> str:
    """Return the layout's `namespace` for a configuration: "" in production, "Test/Standard/", or one of its own.

    Without UseTestNamespace the other options mean nothing (D15). Raises InvalidInputError for an instance that is named
    "Standard" or holds a "/" (R13), or for a name given without UseUniqueInstance.
    """
    if not settings.use_test_namespace:
        return ""
    if not settings.use_unique_instance:
        if settings.test_instance:
            problem = "an instance has a name of its own only with UseUniqueInstance"
            raise InvalidInputError(source="KEYPLAN_STORE_TEST_INSTANCE", problem=problem)
        return _namespace(STANDARD)
    instance = settings.test_instance or timestamp_of_this_process()
    if instance == STANDARD:
        problem = f"{STANDARD!r} is the instance that is shared: choose another name"
        raise InvalidInputError(source="KEYPLAN_STORE_TEST_INSTANCE", problem=problem)
    return _namespace(instance)


def namespace_named(text: str) -> str:
    """Return a name space as the layout spells it: "" for production, else "Test/NAME/", given with or without outer slashes.

    Raises InvalidInputError for anything else.
    """
    name = text.strip("/")
    if not name:
        return ""
    if not name.startswith(TESTS):
        raise InvalidInputError(source="namespace", problem=f"{text!r} is neither empty, for production, nor Test/NAME")
    return _namespace(name.removeprefix(TESTS))


def _namespace(instance: str) -> str:
    namespace = f"{TESTS}{instance}/"
    try:
        NAMESPACE.encode(namespace)
    except InvalidKeyError as error:
        problem = f"{instance!r} cannot name an instance: one component of at most 64 bytes, without '/'"
        raise InvalidInputError(source="test instance", problem=problem) from error
    return namespace


def check_production_key(raw_key: bytes) -> None:
    """Raise InvalidKeyError for a key below `Test/`, which a handle of production neither reads nor writes (R14)."""
    if raw_key in range_of_tests():
        raise InvalidKeyError(problem="the key belongs to a test name space", raw_key=raw_key.hex())


def ranges_of(namespace: str, side: LayoutSide = LayoutSide.DOCUMENT) -> tuple[KeyRange, KeyRange]:
    """Return the keys of one name space and of no other: of production those around the tests (R14).

    Of a test, also its root's name without the slash, which nothing of ours writes and `purge_tests` removes.
    """
    whole = KeyRange.of_prefix(side.bound(namespace).root)
    if namespace:
        return KeyRange.of_key(whole.start[:-1]), whole
    tests = range_of_tests(side=side)
    assert tests.end is not None, "a prefix that ends in a slash has a successor"
    return KeyRange(whole.start, tests.start), KeyRange(tests.end, whole.end)


# ---- what is there, and its end -------------------------------------------------------------------------------------------


def range_of_tests(instance: str | None = None, side: LayoutSide = LayoutSide.DOCUMENT) -> KeyRange:
    """Return the keys of all tests of one program, or of one instance; whole components."""
    root = side.bound().root + TESTS.encode()
    return KeyRange.of_prefix(root if instance is None else side.bound(_namespace(instance)).root)


def instances_of_tests(engine: Engine) -> Iterator[NamespaceInstance]:
    """Yield the test name spaces, the document's and then the Go program's, in the order of their names.

    Costs a read and a count for each, however many keys it has.

    A key directly below `Test/`, without a component after it, is shown as an instance of one key.
    """
    return (instance for instance, _ in _instances_with_ranges(engine))


def _instances_with_ranges(engine: Engine) -> Iterator[tuple[NamespaceInstance, KeyRange]]:
    with engine.snapshot() as snapshot:
        for side in LayoutSide:
            whole = range_of_tests(side=side)
            prefix_bytes = len(whole.start)
            position = whole.start
            while True:
                first = next(iter(snapshot.scan(KeyRange(position, whole.end), limit=1, keys_only=True)), None)
                if first is None:
                    break
                name, slash, _ = first.key[prefix_bytes:].partition(b"/")
                instance = whole.start + name
                own = KeyRange.of_prefix(instance + b"/") if slash else KeyRange.of_key(instance)
                text = name.decode(errors="backslashreplace")
                yield NamespaceInstance(text, snapshot.count(own), started_at(text), side), own
                assert own.end is not None, "a prefix that ends in a slash has a successor"
                position = own.end


def purge_tests(engine: Engine, instance: str | None = None) -> int:
    """Delete every test key of both programs, or those of one instance, in one commit; production is not touched.

    Returns how many there were, as of the moment before. `etcdctl del --prefix` of `/CloudChamber/V0.1/Test/` and
    `/CloudChamber/v0.1/Test/` does the same on etcd (R15).
    """
    removed = [range_of_tests(instance, side) for side in LayoutSide]
    if instance is not None:
        removed += [KeyRange.of_key(one.start[:-1]) for one in removed]
    with engine.snapshot() as snapshot:
        found = [one for one in removed if snapshot.count(one)]
        keys = sum(snapshot.count(one) for one in found)
    if found:
        # Why only of those: a server may have the keys of one program alone.
        engine.commit(Commit((), tuple(map(DeleteRange, found))))
    return keys


def purge_instances(engine: Engine, is_chosen: Callable[[NamespaceInstance], bool]) -> dict[str, int]:
    """Delete the test name spaces that are chosen, and no other: not one that began meanwhile. Return keys by name.

    The numbers are those of the moment before. Commits of so many instances as every engine takes.
    """
    chosen = [found for found in _instances_with_ranges(engine) if is_chosen(found[0])]
    for start in range(0, len(chosen), _INSTANCES_OF_A_COMMIT):
        part = chosen[start : start + _INSTANCES_OF_A_COMMIT]
        engine.commit(Commit((), tuple(DeleteRange(own) for _, own in part)))
    removed: dict[str, int] = {}
    for instance, _ in chosen:
        removed[instance.name] = removed.get(instance.name, 0) + instance.keys
    return removed


def purge_production(engine: Engine, *, is_dry_run: bool = False) -> int:
    """Delete every key of production under the document's keys in one commit, and no test (R15); return how many there were."""
    around = ranges_of("")
    with engine.snapshot() as snapshot:
        keys = sum(snapshot.count(part) for part in around)
    if keys and not is_dry_run:
        engine.commit(Commit((), tuple(DeleteRange(part) for part in around)))
    return keys


def pre_clean(engine: Engine, settings: StoreSettings) -> int:
    """Begin a test pass as the configuration asks: with PreCleanStore remove everything of both programs' `Test/Standard`.

    Return how many keys there were. Does nothing without UseTestNamespace and PreCleanStore: production is never cleaned (D15).
    """
    return purge_tests(engine, STANDARD) if will_pre_clean(settings) else 0


def will_pre_clean(settings: StoreSettings) -> bool:
    """Tell whether `pre_clean` removes what is in `Test/Standard`."""
    return settings.use_test_namespace and settings.pre_clean_store and not settings.use_unique_instance
