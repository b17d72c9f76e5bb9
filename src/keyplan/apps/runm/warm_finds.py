"""The call that finds objects, by a way that is short where calls are alike: the same session, the same filter but for a text.

The text is what the objects are looked up by: the value of a property, a tag, or a name; a page of a type has none. All else
is worked out once, by the functions that all finds use, and kept with the values that it was made from, as for gets
(warm_gets.py). A call compares these in its own state, and reads there one index, and the objects by the bytes of its keys.
Whatever is not as expected is left to the long way, which has the errors and the other indexes: so this one raises none, and
answers nothing that the other would not.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter, methodcaller
from typing import Any, Final, NamedTuple
from uuid import UUID

from keyplan.apps.runm.bounds import UNBOUNDED, Bounds
from keyplan.apps.runm.calls import GivenCall
from keyplan.apps.runm.constraint import ITEM, Constraint, constraints_of, range_of_digits
from keyplan.apps.runm.deployment import PROVIDER, Deployment, generation_of
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.kept_rules import bytes_of
from keyplan.apps.runm.objects import RulesByScope
from keyplan.apps.runm.permission import PropertyRules
from keyplan.apps.runm.read_ahead import Scope, remember
from keyplan.apps.runm.records import ObjectTypeScope
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.session import Caller
from keyplan.apps.runm.shown import spelled_generation, whole_object
from keyplan.apps.runm.walk import BATCH_MIN, TURN, WANTED_MAX, walked
from keyplan.apps.runm.wire_table import messages
from keyplan.engine import Entry, Fences, KeyRange, Snapshot
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.layout import BoundIndex
from keyplan.store import NotedState, index_state_key

__all__ = ["WarmFind"]

_SHAPE_BYTES_MAX: Final = 2_000
"""Bytes of a find without its text that is kept. Why: clients write them, and thousands are kept."""

_FENCE_BYTES_MAX: Final = 10_000
"""Bytes of the values that it is kept with. Why: a definition may have four megabytes, and each find has its own."""

_ITEM, _TAG, _NAME, _TYPE = range(4)
"""What objects are looked up by."""

_INDEXES: Final = {_ITEM: "objects_by_property", _TAG: "objects_by_tag"}
"""What they are looked up in; which index has a name hangs on its type."""

_TURNS_MAX: Final = 4
"""Turns that a page takes of candidates before it is left to the long way, where a shorter index may win."""

_DIGITS: Final = 32
_are_uuids: Final = re.compile(rb"(?:[0-9a-f]{32},)*[0-9a-f]{32}").fullmatch
_spelled: Final[Callable[[Any], bytes]] = methodcaller("SerializeToString")
_NOTHING: Final = b"\xff"
"""What no object's bytes begin with: 0xff is no field of a message."""

Fits = Callable[[Any], bool]
"""Whether an Object that is where it is looked for is one of those that are looked for."""


class _Find(NamedTuple):
    """A find without its text, in every state in which the fences hold.

    `fields` are those before the text in the keys of the index that is `read`; a page of a type reads the objects. `constraint`
    is all that is asked for beside the text; `is_all` says that this is the place alone. `head` is what the bytes of objects
    there begin with, up to the UUID. `is_sparse`: a page was looked for, and few objects fitted: other indexes are shorter.
    """

    by: int
    read: BoundIndex | None
    fields: tuple[Any, ...]
    caller: Caller
    constraint: Constraint
    is_all: bool
    head: bytes
    rules: PropertyRules
    fences: Fences
    is_sparse: bool = False

    def with_text(self, text: str) -> Constraint:
        """Return all that is asked for."""
        constraint = self.constraint
        if self.by == _NAME:
            return constraint._replace(name=text)
        if self.by == _TAG:
            return constraint._replace(tags=constraint.tags._replace(require=frozenset({text})))
        if self.by == _ITEM:
            items = frozenset({(self.fields[-1], text)})
            return constraint._replace(properties=constraint.properties._replace(require_items=items))
        return constraint

    def fits(self, text: str) -> Fits | None:
        """Return what says whether the properties, tags and name of an object fit; None where all do."""
        if self.by == _TYPE:
            return None
        if self.by == _NAME:
            return lambda message: message.name == text
        if not self.is_all:
            return self.with_text(text).holds_rest
        if self.by == _TAG:
            return lambda message: text in message.tags
        item = self.fields[-1], text
        return lambda message: item in map(ITEM, message.properties)


class _Batch(NamedTuple):
    """Some of what was found, and the last UUID that was looked at; `is_whole`: there are no others."""

    found: list[bytes]
    after: UUID | None
    is_whole: bool


class WarmFind:
    """`object_find`: takes a request and what it may reach, gives the answers' bytes or None. For several threads at once."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._engine = deployment.store.engine
        self._is_near = self._engine.profile.has_local_reads
        self._finds: dict[object, _Find] = deployment.ahead.finds
        self._objects = deployment.bound.table("objects").keys
        self._beginning = self._objects.prefix(())
        sample, indexes = UUID(int=0xA), deployment.bound.indexes
        assert self._objects.encode(sample) == self._beginning + sample.hex.encode(), (
            "an object's key ends with its digits"
        )
        assert indexes["objects_by_property"].keys.listed((sample, "a", "a", "a")).last, "so do these, and nothing else"
        assert indexes["objects_by_tag"].keys.listed((sample, "a")).last, "and these"

    def __call__(self, request: Any, bounds: Bounds) -> Iterable[bytes] | None:
        # Why near ones alone: where a read waits, the long way asks for what it needs in fewer of them.
        if not self._is_near or len(request.any) != 1:
            return None
        by, text = _sought(request.any[0])
        options = request.options
        marker, limit = options.marker, options.limit
        after = parsed_uuid(marker) if marker else None
        # Why no marker without a limit: the long way looks for the shortest list from its beginning. So it does for a type.
        if (marker and after is None) or not (limit or (text and not marker)) or not (text or by == _TYPE):
            return None
        if options.sort_fields:
            return None
        shape = _without(request, by)
        # Why `by`: without its name, a find by name is spelled as a page of a type whose filter of names is there, and empty.
        spelled: object = (by, shape) if bounds is UNBOUNDED else (by, shape, bounds)
        find = self._finds.get(spelled)
        if find is not None and find.is_sparse:
            return None
        with self._engine.snapshot() as snapshot:
            if find is None:
                find = self._learnt(request, bounds, by, snapshot)
                if find is None:
                    return None
                if len(shape) <= _SHAPE_BYTES_MAX and bytes_of(find.fences) <= _FENCE_BYTES_MAX:
                    remember(self._finds, spelled, find)
            elif not snapshot.holds(find.fences):
                self._finds.pop(spelled, None)
                return None
            first = self._first(find, snapshot, text, after, limit)
        if first is None:
            if by == _TYPE and spelled in self._finds:
                remember(self._finds, spelled, find._replace(is_sparse=True))
            return None
        found = first.found
        if first.is_whole or not limit or len(found) >= limit:
            return found[:limit] if limit else found
        return chain(found, self._gone_on(find, text, first.after, limit - len(found)))

    def _first(self, find: _Find, snapshot: Snapshot, text: str, after: UUID | None, limit: int) -> "_Batch | None":
        """Return what is found at first: all, or as many as are wanted at once; None where the long way has to say it."""
        wanted = min(limit, WANTED_MAX)
        size = max(wanted, BATCH_MIN) if limit else TURN
        found: list[bytes] = []
        for _ in range(_TURNS_MAX if limit else 1):
            batch = self._batch(find, snapshot, text, after, size)
            if batch is None:
                return None
            found += batch.found
            after = batch.after
            if batch.is_whole or (limit and len(found) >= wanted):
                return _Batch(found, after, batch.is_whole)
        return None

    def _gone_on(self, find: _Find, text: str, after: UUID | None, wanted: int) -> Iterator[bytes]:
        """Go on behind a page, each batch in the state that is the latest then, as the long way does (walk.py)."""
        while wanted > 0:
            with self._engine.snapshot() as snapshot:
                batch = self._batch(find, snapshot, text, after, WANTED_MAX) if snapshot.holds(find.fences) else None
            if batch is None:
                with self._deployment.reading() as state:
                    found = walked(self._deployment, find.caller, state, [find.with_text(text)], after, wanted)
                yield from map(_spelled, islice(found, wanted))
                return
            yield from batch.found[:wanted]
            if batch.is_whole:
                return
            wanted -= len(batch.found)
            after = batch.after

    def _batch(self, find: _Find, snapshot: Snapshot, text: str, after: UUID | None, size: int) -> _Batch | None:
        """Return what is found among so many candidates behind a UUID; None where the long way has to say it.

        The fences hold in the snapshot.
        """
        try:
            entries: Sequence[Entry | None]
            if find.read is None:
                digits, entries = self._all(snapshot, after, size)
            else:
                digits = _candidates(find, find.read, snapshot, text, after, size)
                entries = snapshot.get_many(list(map(self._beginning.__add__, digits)))
            # Why the list alone and not each: an entry that leads nowhere is rare, and the long way passes it over.
            if digits and not _are_uuids(b",".join(digits)):
                return None
            found = _found(find, digits, entries, text)
        except (CorruptionError, InvalidKeyError):
            return None
        if found is None:
            return None
        return _Batch(found, UUID(digits[-1].decode()) if digits else after, len(digits) < size)

    def _all(self, snapshot: Snapshot, after: UUID | None, size: int) -> tuple[list[bytes], Sequence[Entry]]:
        """Return objects behind a UUID, by their digits."""
        first, below = (None, None) if after is None else range_of_digits("", after)
        start, end = self._objects.range((), at_least=first, below=below)
        entries = list(snapshot.scan(KeyRange(start, end), limit=size))
        begin = len(self._beginning)
        return [one.key[begin:] for one in entries], entries

    def _learnt(self, request: Any, bounds: Bounds, by: int, snapshot: Snapshot) -> _Find | None:
        """Work out what a find is but for its text, as the long way does; None for one that is refused, or needs that way."""
        given, deployment = request.any[0], self._deployment
        code_filter = given.object_type_filter.code_filter
        code = code_filter.code
        # Why no provider: what holds for one hangs on a record beside it.
        if not code or code_filter.use_prefix or code == PROVIDER or given.uuid_filter.uuid:
            return None
        if given.partition_filter.uuids:
            return None
        # Why first: while an index waits to be built, which may be long, each find would be worked out in vain.
        if by in _INDEXES and snapshot.value(index_state_key(deployment.bound.indexes[_INDEXES[by]])) is not None:
            return None
        noted = NotedState.over(snapshot, self._engine, secrets=deployment.store.secrets)
        state = deployment.over(noted)
        try:
            call = GivenCall(deployment, request, bounds, bool).checked(state)
            caller = call.caller
            # Why not every project: each has rules of its own.
            if caller.has_every_project:
                return None
            (constraint,) = constraints_of(deployment, caller, call.state, request.any)
            # Why read: whether its objects have projects is kept with the rest, while the type is as it is. Why compared with
            # the constraint: another thread may read the types anew meanwhile.
            kind = state.runm.object_types.get(code)
            if kind is None or constraint.scopes != {code: kind.scope is ObjectTypeScope.PROJECT}:
                return None
            rules = RulesByScope(state, caller.reader).of_scope(Scope(caller.partition, code), caller.project)
        except (RefusedError, CorruptionError):
            return None
        # Why its own: what a session of one project asks for is of that project, or it is refused.
        project = caller.project if constraint.scopes[code] else ""
        index, fields = self._looked_up(by, caller.partition, code, project, given)
        if index is not None and noted.reader.value(index_state_key(index)) is not None:
            return None
        fences = noted.fences()
        if fences is None:
            return None
        return _Find(
            by=by,
            read=index,
            fields=fields,
            caller=caller,
            constraint=_without_text(constraint, by),
            is_all=_is_all(constraint, by),
            head=_head_of(caller.partition, code, project) if by == _NAME or not constraint.name else _NOTHING,
            rules=rules,
            fences=fences,
        )

    def _looked_up(
        self, by: int, partition: UUID, code: str, project: str, given: Any
    ) -> tuple[BoundIndex | None, tuple[Any, ...]]:
        """Return the index that a find reads, and the fields of its keys before the text."""
        indexes = self._deployment.bound.indexes
        if by == _TYPE:
            return None, ()
        if by == _ITEM:
            return indexes[_INDEXES[by]], (partition, code, given.property_filter.require_items[0].key)
        if by == _TAG:
            return indexes[_INDEXES[by]], (partition,)
        if project:
            return indexes["objects_by_project_and_name"], (partition, code, project)
        return indexes["objects_by_name"], (partition, code)


def _candidates(
    find: _Find, index: BoundIndex, snapshot: Snapshot, text: str, after: UUID | None, size: int
) -> list[bytes]:
    """Return the digits of so many UUIDs that an index has for a text behind a UUID, in order.

    Raises InvalidKeyError for a text that no key can have.
    """
    fields = (*find.fields, text)
    if find.by == _NAME:
        digits = snapshot.value(index.keys.encode(fields))
        return [] if digits is None or (after is not None and digits <= after.hex.encode()) else [digits]
    start, end = index.keys.range(fields)
    begin = len(start)
    if after is not None:
        first, below = range_of_digits("", after)
        start, end = index.keys.range(fields, at_least=first, below=below)
    return list(map(itemgetter(slice(begin, None)), snapshot.keys(KeyRange(start, end), limit=size)))


def _found(find: _Find, digits: Sequence[bytes], entries: Sequence[Entry | None], text: str) -> list[bytes] | None:
    """Return the answers that objects are; None where there is one that is not spelled as it should be."""
    found: list[bytes] = []
    head, constraint, rules, fits = find.head, find.constraint, find.rules, find.fits(text)
    hides = rules.hides
    for one, entry in zip(digits, entries, strict=True):
        if entry is None:
            continue
        raw = entry.value
        message = whole_object(raw)
        if message is None:
            return None
        if not raw.startswith(head + one):
            if message.uuid != one.decode():
                return None
            if not constraint.holds_place(message):
                continue
        if hides:
            rules.hide(message.properties)
        if fits is None or fits(message):
            generation = entry.version or generation_of(0, entry.mod_revision)
            if hides:
                message.generation = generation
                found.append(message.SerializeToString())
            else:
                found.append(raw + spelled_generation(generation))
    return found


def _sought(given: Any) -> tuple[int, str]:
    """Return what the objects of a filter are looked up by, and its text; no text where it is not one of these alone."""
    if given.HasField("property_filter"):
        items = given.property_filter.require_items
        return _ITEM, items[0].value if len(items) == 1 else ""
    if given.HasField("tag_filter"):
        tags = given.tag_filter.require
        return _TAG, tags[0] if len(tags) == 1 else ""
    name = given.name_filter
    if not name.name:
        return _TYPE, ""
    return _NAME, "" if name.use_prefix else name.name


def _without(request: Any, by: int) -> bytes:
    """Return the bytes of a request without its text and its options: what is the same from call to call."""
    shape = messages.ObjectFindRequest()
    shape.CopyFrom(request)
    shape.ClearField("options")
    given = shape.any[0]
    if by == _ITEM:
        given.property_filter.require_items[0].value = ""
    elif by == _TAG:
        given.tag_filter.require[0] = ""
    elif by == _NAME:
        given.name_filter.name = ""
    raw: bytes = shape.SerializeToString()
    return raw


def _without_text(constraint: Constraint, by: int) -> Constraint:
    """Return what is asked for beside the text. Why: the text may have four megabytes, and is not the next call's."""
    if by == _NAME:
        return constraint._replace(name="")
    if by == _TAG:
        return constraint._replace(tags=constraint.tags._replace(require=frozenset()))
    if by == _ITEM:
        return constraint._replace(properties=constraint.properties._replace(require_items=frozenset()))
    return constraint


def _is_all(constraint: Constraint, by: int) -> bool:
    """Whether a filter asks for nothing of properties and tags but for its text, which is the first field of either."""
    properties, tags = constraint.properties, constraint.tags
    return not (any(properties[by == _ITEM :]) or any(tags[by == _TAG :]))


def _head_of(partition: UUID, code: str, project: str) -> bytes:
    """Return what the bytes of each object of a place begin with, up to the digits of its UUID."""
    sample = messages.Object(partition=partition.hex, object_type=code, project=project, uuid="0" * _DIGITS)
    raw: bytes = sample.SerializeToString()
    return raw[:-_DIGITS]
