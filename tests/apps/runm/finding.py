"""A deployment that changes at random, its finds by both of their ways, and a slow reader, which decodes every record.

The reader asks for an object's definition anew each time.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

from msgspec import structs

from keyplan.apps.runm import object_calls
from keyplan.apps.runm.answers import object_message
from keyplan.apps.runm.bounds import Bounds
from keyplan.apps.runm.calls import GivenCall, performer
from keyplan.apps.runm.definitions import resolved
from keyplan.apps.runm.deployment import PROVIDER, Deployment, Stored
from keyplan.apps.runm.permission import rules_of
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import Object
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.wire_table import messages
from keyplan.errors import CorruptionError
from keyplan.layout import BoundTable
from keyplan.store import Store
from tests.apps.runm.changing import (
    KEYS,
    NAMES,
    PARTITIONS,
    PROJECTS,
    SESSIONS,
    TYPES,
    UUIDS,
    Changing,
)
from tests.apps.runm.client import EAST, WEST

__all__ = ["Scene", "SlowReader"]

WITH_PROJECTS = {"runm.image", "runm.machine"}
ALIKE = [one for one in SESSIONS if one["project"] != "*" and one["partition"] in {"east", WEST}]


class Scene(Changing):
    """A deployment that changes, its finds, and the slow reader."""

    def __init__(self, store: Store, random: Random) -> None:
        super().__init__(store, random)
        handler = object_calls.object_find.runm_handler[1]  # type: ignore[attr-defined]
        self.find, self.short = performer(self.deployment, handler), handler.short(self.deployment)

        self.alike = Random(1)

    def change(self) -> None:
        super().change()
        if self.random.choice((True, False, False)):
            self.put_raw_object()
        if self.random.random() < 0.05:
            self.deployment.runm.partitions.delete(self.random.choice(PARTITIONS), missing_ok=True)
        elif self.random.random() < 0.5:
            self.put_partition()

    def any_object(self, uuid: UUID) -> Object:
        """Why none of a project where its type has none: such stores are not served (`names.py`)."""
        record = super().any_object(uuid)
        return record if record.object_type in WITH_PROJECTS else structs.replace(record, project="")

    def put_raw_object(self) -> None:
        """Write the value of an object as another program may spell it, which its index entries still lead to."""
        table = self.deployment.bound.table("objects")
        uuid = self.random.choice(UUIDS)
        record = self.record_of(table, uuid)
        if record is None:
            return
        raw, other = table.form.encode(record), self.random.choice(UUIDS)
        spellings = (
            raw + b"\xa0\x06\x05",  # a generation of its own
            raw + b"\xa2\x3e\x01x",  # a field that nobody knows
            raw + b"\xab\x06\xac\x06",  # a group, which protobuf's code passes over
            b"\x2a\x01x" + raw,  # the name twice
            raw.replace(uuid.hex.encode(), other.hex.encode()),
            raw.replace(uuid.hex.encode(), uuid.hex.upper().encode()),
            raw.replace(record.partition.hex.encode(), record.partition.hex.upper().encode()),
            raw[:-1],
            raw + b"\xff",
            b"",
        )
        self.put_raw(table, uuid, self.random.choice(spellings))

    def record_of(self, table: BoundTable, uuid: UUID) -> Object | None:
        with self.deployment.store.engine.snapshot() as snapshot:
            raw = snapshot.value(table.keys.encode(uuid))
        try:
            record: Any = None if raw is None else table.form.decode(raw)
        except CorruptionError:
            return None
        return record if record is None or isinstance(record, Object) else None

    def request(self) -> Any:
        pick = self.random.choice
        options: dict[str, Any] = {}
        if pick((True, False)):
            options = {"limit": pick((0, 1, 2, 5)), "marker": pick(("", UUIDS[2].hex, UUIDS[0].hex.upper()))}
        return messages.ObjectFindRequest(
            session=pick(SESSIONS), options=options, any=[self.filter(pick) for _ in range(pick((0, 1, 1, 1, 2)))]
        )

    def request_like_others(self) -> Any:
        """A request that differs from others in the text that is looked for, and in little else."""
        pick = self.alike.choice
        given: dict[str, Any] = {"object_type_filter": {"code_filter": {"code": pick(TYPES)}}}
        given |= pick((
            {"property_filter": {"require_items": [{"key": pick(KEYS), "value": pick(("v", "v", "w"))}]}},
            {"tag_filter": {"require": [pick(("t", "t", "u"))]}},
            {"name_filter": {"name": pick(NAMES)}},
            {},
        ))  # fmt: skip
        if pick((True, False, False, False)):
            given = {**self.filter(pick), **given}
        options = pick(({}, {}, {"limit": 1}, {"limit": 2, "marker": UUIDS[1].hex}))
        return messages.ObjectFindRequest(session=pick(ALIKE), options=options, any=[given])

    def filter(self, pick: Callable[[Any], Any]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if pick((True, True, False)):
            code, use_prefix = pick([*((kind, False) for kind in TYPES), ("runm.", True), ("runm.provider", True)])
            given["object_type_filter"] = {"code_filter": {"code": code, "use_prefix": use_prefix}}
        if pick((True, False, False)):
            given["partition_filter"] = {"uuids": pick(([EAST], [WEST, "x"], [EAST, WEST, "0" * 32]))}
        if pick((True, False, False)):
            given["name_filter"] = {"name": pick((*NAMES, "t", "o")), "use_prefix": pick((True, False))}
        if pick((True, False, False, False)):
            uuid = pick(UUIDS).hex
            given["uuid_filter"] = pick(({"uuid": uuid}, {"uuid": uuid[:30], "use_prefix": True}))
        if pick((True, False, False)):
            given["project"] = pick(PROJECTS)
        if pick((True, False)):
            items = [{"key": key, "value": pick(("v", "v", "w"))} for key in KEYS if pick((True, False, False))]
            words = ("require_items", "forbid_items", "any_items")
            given["property_filter"] = {pick(words): items}
            given["property_filter"][pick(("require_keys", "forbid_keys", "any_keys"))] = [pick(KEYS)][: pick((0, 1))]
        if pick((True, False, False)):
            given["tag_filter"] = {pick(("require", "forbid", "any")): [pick(("t", "t", "u"))]}
        return given


class SlowReader:
    """The objects that fit, by their records one after the other, in the store's one state as nobody changes it meanwhile."""

    def __init__(self, store: Store) -> None:
        self.deployment = Deployment(store)
        self.left_out = 0
        """How many objects' rules could not be read."""

    def found(self, request: Any, bounds: Bounds) -> Iterator[bytes]:
        """Yield the answers. Objects are left out that cannot be read, and those of which nobody knows what may be shown."""
        options = request.options
        after = UUID(options.marker).int if options.marker else -1
        with self.deployment.reading() as state:
            call = GivenCall(self.deployment, request, bounds, bool).checked(state)
            fitting = (self.fitting(call, stored) for uuid, stored in self.stored() if uuid.int > after)
            every = (object_message(one).SerializeToString() for one in fitting if one is not None)
            yield from islice(every, options.limit or None)

    def stored(self) -> Iterator[tuple[UUID, Stored]]:
        table = self.deployment.bound.table("objects")
        with self.deployment.store.engine.snapshot() as snapshot:
            for uuid in UUIDS:
                entry = snapshot.get(table.keys.encode(uuid))
                try:
                    record: Any = None if entry is None else table.form.decode(entry.value)
                except CorruptionError:
                    continue
                if entry is not None:
                    yield uuid, Stored(record, entry.version, entry.mod_revision)

    def fitting(self, call: Any, stored: Stored) -> Stored | None:
        record, caller = stored.record, call.caller
        held = [one for one in call.request.any or [None] if self.is_there(record, caller, call.state, one)]
        if not held:
            return None
        try:
            beside = self.deployment.beside.providers.get(record.uuid) if record.object_type == PROVIDER else None
            found = resolved(
                call.state, Scope(record.partition, record.object_type, beside.provider_type if beside else "")
            )
        except CorruptionError:
            self.left_out += 1
            return None
        reader = caller.reader.at(record.project) if caller.has_every_project else caller.reader
        shown = rules_of(None if found is None else found[1], reader).visible(record)
        if any(one is None or has_decorations(shown, one) for one in held):
            return stored._replace(record=shown)
        return None

    def is_there(self, record: Object, caller: Caller, state: Any, given: Any) -> bool:
        """Whether the place of an object is one that the filter asks for, and the caller sees."""
        if given is None or not given.partition_filter.uuids:
            partitions = {caller.partition}
        else:
            known = [UUID(text) for text in given.partition_filter.uuids if len(text) == 32]
            partitions = {uuid for uuid in known if state.partitions.get(uuid) is not None}
        if record.partition not in partitions or record.object_type not in TYPES:
            return False
        if record.object_type in WITH_PROJECTS:
            named = given.project if given is not None else ""
            if caller.has_every_project and not named:
                allowed = caller.bounds.projects
                if allowed is not None and record.project not in allowed:
                    return False
            elif record.project != (named or caller.project):
                return False
        if given is None:
            return True
        code = given.object_type_filter.code_filter
        if code.code and not is_like(record.object_type, code.code, is_start=code.use_prefix):
            return False
        if given.uuid_filter.uuid and not record.uuid.hex.startswith(given.uuid_filter.uuid):
            return False
        name = given.name_filter
        return not name.name or is_like(record.name, name.name, is_start=name.use_prefix)


def is_like(text: str, wanted: str, *, is_start: bool) -> bool:
    return text.startswith(wanted) if is_start else text == wanted


def has_decorations(record: Object, given: Any) -> bool:
    items = [(one.key, one.value) for one in record.properties]
    there: dict[str, list[Any]] = {"_items": items, "_keys": [key for key, _ in items], "": list(record.tags)}
    for ending, values in there.items():
        holder = given.property_filter if ending else given.tag_filter
        wanted = {
            word: [(one.key, one.value) if ending == "_items" else one for one in getattr(holder, word + ending)]
            for word in ("require", "forbid", "any")
        }
        if not all(one in values for one in wanted["require"]) or any(one in values for one in wanted["forbid"]):
            return False
        if wanted["any"] and not any(one in values for one in wanted["any"]):
            return False
    return True
