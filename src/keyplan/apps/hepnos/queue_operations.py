"""The operations of a HEPnOS server on queues, each declared once; `queue_records.py` has what they do.

Bodies are packed as those on databases are: one column of the parameters, in order, numbers as decimal digits.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from keyplan.apps.hepnos.packed import PACKED, pack, unpack, whole
from keyplan.apps.hepnos.queue_records import Place, Taken, lease_checked
from keyplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from keyplan.operations import NOTHING, Act, BodyForm, Change, Need, Schema, needs_of, operation

__all__ = ["NEEDS", "Done", "Entered", "Looked", "QueueNames", "QueueOperations", "Settled"]

_DIGITS_MAX: Final = 18


class Done(msgspec.Struct, frozen=True):
    """That it is done."""

    schema_name = "HepnosDone"


class QueueNames(msgspec.Struct, frozen=True):
    """The queues that there are: of each the name, and the name of its items' type."""

    schema_name = "HepnosQueues"

    queues: list[tuple[str, str]]


class Entered(msgspec.Struct, frozen=True):
    """What names a queue beside others of its name, made before or later."""

    schema_name = "HepnosQueueEntered"

    made_at: int


class Settled(msgspec.Struct, frozen=True):
    """Whether the taker still had the item."""

    schema_name = "HepnosQueueSettled"

    is_own: bool


class Looked(msgspec.Struct, frozen=True):
    """Whether there is no item that nobody has taken."""

    schema_name = "HepnosQueueLooked"

    is_empty: bool


def _text(name: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(source=name, problem="it is no text in UTF-8") from error


def _number(name: str, raw: bytes) -> int:
    if not raw.isdigit() or len(raw) > _DIGITS_MAX:
        raise InvalidInputError(source=name, problem=f"it is a whole number of at most {_DIGITS_MAX} digits")
    return int(raw)


def _seconds(name: str, raw: bytes) -> float:
    return lease_checked(name, _number(name, raw) / 1_000)


def _flag(name: str, raw: bytes) -> bool:
    if raw not in {b"0", b"1"}:
        raise InvalidInputError(source=name, problem="it is 0 or 1")
    return raw == b"1"


_READERS: Final[Mapping[str, Any]] = {
    "made_at": _number,
    "number": _number,
    "lease_seconds": _seconds,
    "volatile": _flag,
    "is_done": _flag,
}
"""How parameters are read that are no text."""


def _written(name: str, value: Any) -> bytes:
    if name == "lease_seconds":
        return b"%d" % max(round(value * 1_000), 1)
    if isinstance(value, bytes):
        return value
    return str(value).encode() if isinstance(value, str) else b"%d" % value


def _body(*names: str, rest: str = "") -> BodyForm:
    """Return a body of so many parameters, and behind them one or more byte strings, as many as there are, of a last one."""
    names = ("name", "type", *names)
    listed = f"{', '.join(names)}{f', one or more {rest}' if rest else ''}"

    def read(body: bytes) -> Mapping[str, Any]:
        (given,) = map(whole, unpack(body, 1))
        if len(given) <= len(names) if rest else len(given) != len(names):
            raise InvalidInputError(source="body", problem=f"the column has {listed}")
        found = {name: _READERS.get(name, _text)(name, raw) for name, raw in zip(names, given, strict=False)}
        return {**found, rest: given[len(names) :]} if rest else found

    def write(fields: Mapping[str, Any]) -> bytes:
        column: Sequence[bytes] = [_written(name, fields[name]) for name in names]
        return pack([*column, *fields[rest]] if rest else column)

    words = f"One column: {listed}."
    return BodyForm(bytes, read, write, schema=Annotated[bytes, Schema(words)], content_type=PACKED)


# Why on nothing: who asks has the queues of what they are granted, which `service_queues.py` looks at.
_TO_READ: Final = Need(Act.READ, NOTHING)
_TO_WRITE: Final = Need(Act.WRITE, NOTHING)
_FAILURES: Final[dict[str, Any]] = {"raises": (InvalidInputError, NotFoundError), "failures": (413, 415)}


def _change(act: str) -> dict[str, Any]:
    return {"change": Change(act, "queues/{name}"), "needs": _TO_WRITE, **_FAILURES}


class QueueOperations:
    """What a server does with queues: what `QueueRecords` and `StoredQueues` do in a store."""

    @operation("GET", "/hepnos/queues", name="listHepnosQueues", needs=_TO_READ, answers="The queues, sorted.")
    def queue_names(self) -> QueueNames:
        """List the queues."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/create",
        name="createHepnosQueue",
        answers="It is there.",
        body=_body("volatile"),
        **{**_change("create-queue"), "raises": (InvalidInputError, AlreadyExistsError)},
    )
    def create_queue(self, *, name: str, type: str, volatile: bool) -> Done:  # noqa: A002  # Why: the document's word.
        """Create a queue."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/destroy",
        name="destroyHepnosQueue",
        answers="It is gone.",
        body=_body(),
        **_change("destroy-queue"),
    )
    def destroy_queue(self, *, name: str, type: str) -> Done:  # noqa: A002  # Why: as above.
        """Remove a queue with its items, also those that somebody has."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/enter",
        name="enterHepnosQueue",
        answers="What names it.",
        body=_body("producer", "lease_seconds"),
        **_change("enter-queue"),
    )
    def enter_queue(self, *, name: str, type: str, producer: str, lease_seconds: float) -> Entered:  # noqa: A002  # Why: as above.
        """Open a queue, as a producer of a name, or with none as a consumer."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/leave",
        name="leaveHepnosQueue",
        answers="It is closed.",
        body=_body("producer", "made_at"),
        **_change("leave-queue"),
    )
    def leave_queue(self, *, name: str, type: str, producer: str, made_at: int) -> Done:  # noqa: A002  # Why: as above.
        """Close a queue as a producer."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/put",
        name="putHepnosItems",
        answers="They are in the queue.",
        body=_body(*Place._fields, "number", rest="items"),
        **_change("put-items"),
    )
    def put_items(
        self,
        *,
        name: str,
        type: str,  # noqa: A002  # Why: as above.
        producer: str,
        made_at: int,
        lease_seconds: float,
        number: int,
        items: Sequence[bytes],
    ) -> Done:
        """Add items at the end, durably, `number` being the first one's; of those that the producer has put none again."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/take",
        name="takeHepnosItem",
        answers="The item, or the queue's state.",
        body=_body("taker", "lease_seconds"),
        **_change("take-item"),
    )
    def take_item(self, *, name: str, type: str, taker: str, lease_seconds: float) -> Taken:  # noqa: A002  # Why: as above.
        """Take an item for a time; the one that a taker of this name has already, so that it may be asked again."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/settle",
        name="settleHepnosItem",
        answers="Whether the taker still had it.",
        body=_body("number", "taker", "is_done"),
        **_change("settle-item"),
    )
    def settle_item(self, *, name: str, type: str, number: int, taker: str, is_done: bool) -> Settled:  # noqa: A002  # Why: as above.
        """Remove a taken item that is done, or give it back to its place."""
        raise NotImplementedError

    @operation(
        "POST",
        "/hepnos/queues/look",
        name="lookAtHepnosQueue",
        needs=_TO_READ,
        answers="Whether there is no item.",
        body=_body(),
        **_FAILURES,
    )
    def look_at_queue(self, *, name: str, type: str) -> Looked:  # noqa: A002  # Why: as above.
        """Tell whether there is no item that nobody has taken."""
        raise NotImplementedError


NEEDS: Final = needs_of(QueueOperations)
"""What each needs, for `keyplan.access`."""
