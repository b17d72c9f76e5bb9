"""A deployment that changes at random, well and badly: what several tests compare two readings of.

`python -m tests.apps.runm.changing URL` changes a store once for each line that it reads, and prints one when that is done.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from random import Random
from typing import Final
from uuid import UUID

import keyplan
from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.definitions import remove, set_definition
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import (
    Object,
    ObjectDefinition,
    Partition,
    Property,
    PropertyPermission,
    PropertyPermissions,
    ProviderRecord,
)
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.start import ensure_started
from keyplan.engine import Commit, Put
from keyplan.errors import KeyplanError
from keyplan.layout import BoundTable
from tests.apps.runm.client import EAST, PROJECT, WEST

__all__ = [
    "BOUNDS", "KEYS", "NAMES", "OPERATOR", "PARTITIONS", "PROJECTS", "SESSIONS", "TYPES", "UUIDS",
    "Changing", "changing_process",
]  # fmt: skip

PARTITIONS: Final = (UUID(EAST), UUID(WEST))
TYPES: Final = ("runm.image", "runm.machine", "runm.provider", "runm.provider_group")
PROJECTS: Final = (PROJECT, "p2")
UUIDS: Final = tuple(UUID(int=0xABCDEF << 96 | number) for number in range(6))
NAMES: Final = ("one", "two", "three")
KEYS: Final = ("secret", "os", "site")
SESSIONS: Final = tuple(
    {"user": "u", "partition": partition, "project": project, "roles": roles}
    for partition, project, roles in product(
        ("east", WEST, EAST.upper(), "nowhere"), (PROJECT, "p2", "*"), ((), ("r",))
    )
)
BOUNDS: Final = (
    UNBOUNDED,
    Bounds(partitions=frozenset({WEST}), roles=frozenset({"r"}), has_every_project=True),
    Bounds(projects=frozenset({"p2"}), is_isolated=True, has_every_project=True),
)
OPERATOR: Final = Caller("u", PROJECT, UUID(WEST), frozenset(), UNBOUNDED)


class Changing:
    """A deployment with two partitions, and what anybody may do to its store."""

    def __init__(self, store: keyplan.Store, random: Random) -> None:
        self.random = random
        self.deployment = Deployment(store)
        ensure_started(self.deployment)
        for uuid, name in zip(PARTITIONS, ("east", "west"), strict=True):
            if self.deployment.runm.partitions.get(uuid) is None:
                self.deployment.runm.partitions.insert(uuid, Partition(uuid, name))

    def any_object(self, uuid: UUID) -> Object:
        pick = self.random.choice
        kind = pick(TYPES)
        project = pick(PROJECTS) if kind in {"runm.image", "runm.machine"} or pick((False, False, True)) else ""
        properties = tuple(Property(key, "v") for key in KEYS if pick((True, False)))
        return Object(pick(PARTITIONS), kind, uuid, pick(NAMES), project, properties, ("t",))

    def change(self) -> None:
        """Something that anybody may do to the store, well or badly."""
        self.random.choice((
            *[self.put_object] * 4, self.put_raw_object, self.remove_object,
            self.define, self.define, self.undefine, self.put_partition, self.damage_definition,
        ))()  # fmt: skip

    def put_object(self) -> None:
        record = self.any_object(self.random.choice(UUIDS))
        self.remove_object(record.uuid)
        try:
            self.deployment.runm.objects.insert(record.uuid, record)
        except KeyplanError:
            return  # another has the name
        if record.object_type == "runm.provider":
            kind = self.random.choice(("runm.compute", "runm.storage.block"))
            provider = ProviderRecord(record.partition, kind, record.uuid)
            self.deployment.beside.providers.put(record.uuid, provider)

    def put_raw_object(self) -> None:
        """The value of an object as another program may write it."""
        uuid = self.random.choice(UUIDS)
        record = self.any_object(self.random.choice((uuid, UUIDS[0])))
        table = self.deployment.bound.table("objects")
        raw = table.form.encode(record)
        spellings = (
            raw + b"\xa0\x06\x05",  # a generation of its own
            raw + b"\xa2\x3e\x01x",  # a field that nobody knows
            b"\x2a\x01x" + raw,  # the name twice
            raw.replace(uuid.hex.encode(), uuid.hex.upper().encode()),
            raw[:-1],
            raw + b"\xff",
            b"",
        )
        self.put_raw(table, uuid, self.random.choice(spellings))

    def remove_object(self, uuid: UUID | None = None) -> None:
        self.deployment.runm.objects.delete(uuid or self.random.choice(UUIDS), missing_ok=True, damaged_ok=True)

    def define(self) -> None:
        scope, pick, uuid = self.any_scope(), self.random.choice, UUID(int=self.random.getrandbits(128)).hex
        permissions = tuple(
            PropertyPermissions(
                key,
                tuple(
                    PropertyPermission(pick(("", *PROJECTS)), pick(("", "r")), pick((0, 1, 2, 3)))
                    for _ in range(pick((0, 1, 2)))
                ),
            )
            for key in KEYS
        )
        self.quietly(
            lambda: set_definition(
                self.deployment, OPERATOR, scope, uuid, ObjectDefinition(UUID(int=0), "{}", permissions)
            )
        )

    def undefine(self) -> None:
        scope = self.any_scope()
        self.quietly(lambda: remove(self.deployment, OPERATOR, scope))

    def any_scope(self) -> Scope:
        pick = self.random.choice
        kind = pick(TYPES)
        return Scope(pick((None, *PARTITIONS)), kind, pick(("", "runm.compute")) if kind == "runm.provider" else "")

    def put_partition(self) -> None:
        """Names of partitions wander from one to the other."""
        uuid = self.random.choice(PARTITIONS)
        record = Partition(uuid, self.random.choice(("east", "west", "other")))
        self.quietly(lambda: self.deployment.runm.partitions.put(uuid, record))

    def damage_definition(self) -> None:
        table = self.deployment.bound.table("definitions")
        for uuid in list(self.deployment.runm.definitions.keys(limit=1)):
            self.put_raw(table, uuid, b"\xff")

    def put_raw(self, table: BoundTable, key: object, raw: bytes) -> None:
        self.deployment.store.engine.commit(Commit((), (Put(table.keys.encode(key), raw),)))

    def quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (RefusedError, KeyplanError):
            return


@contextmanager
def changing_process(url: str) -> Iterator[Callable[[], None]]:
    """A process that changes a store; gives what has it do that once, and waits for it."""
    words = [sys.executable, "-m", __name__, url]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, done = process.stdin, process.stdout

        def change() -> None:
            asked.write("\n")
            asked.flush()
            assert done.readline() == "done\n"

        try:
            yield change
        finally:
            asked.close()


def _change_as_asked(url: str) -> None:
    with keyplan.open(url) as store:
        changing = Changing(store, Random(3))
        for _ in sys.stdin:
            changing.change()
            print("done", flush=True)


if __name__ == "__main__":
    _change_as_asked(sys.argv[1])
