"""The frames that a HEPnOS server and its clients send each other once a connection is theirs: bytes alone, no socket.

    length u32 | id u32 | kind u8 | flags u8 | number u16 | body           little-endian; length counts what is behind it

A request's `kind` is its operation, and its body begins with where and how, then come the columns that the same request has in
HTTP. An answer has the request's id, the status of HTTP as its number, and the body of HTTP. What each kind means, and who may
send it when: docs/reference/hepnos-frames.md.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import COLUMNS_BYTES_MAX, MODES, DatabaseOperations
from keyplan.apps.hepnos.packed import unpack
from keyplan.apps.hepnos.queue_operations import QueueOperations
from keyplan.errors import InvalidInputError
from keyplan.operations import Operation, operations_of

__all__ = [
    "BODY_BYTES_MAX",
    "FRAMES_PATH",
    "FRAMES_PROTOCOL",
    "IDS_MAX",
    "MORE",
    "OPERATIONS",
    "PART",
    "BrokenFrameError",
    "Frame",
    "FrameKind",
    "FrameOfRequest",
    "FrameReader",
    "SingleGet",
    "Where",
    "check_request",
    "frame",
    "frame_head",
    "key_of_single",
    "kind_of",
    "parts_ahead",
    "read_where",
    "request_body",
    "request_frame",
    "single_answer",
    "single_place",
    "single_value",
]

FRAMES_PATH: Final = "/hepnos/frames"
"""What a client asks for, with FRAMES_PROTOCOL as its `Upgrade`, to have a connection for frames."""

FRAMES_PROTOCOL: Final = "keyplan-hepnos/1"
"""The protocol with its version."""

IDS_MAX: Final = 0xFFFFFFFF

_HEAD: Final = Struct("<IIBBH")
_HEAD_BYTES: Final = _HEAD.size
_LENGTH_BYTES: Final = 4
_REST_OF_HEAD: Final = _HEAD.size - _LENGTH_BYTES

_WHERE: Final = Struct("<BBBxI8s")
"""The kind of the database by its place in _KINDS, options, parts ahead, the limit, and the sum that names the ring."""

_ONE: Final = Struct("<II")
"""A column of one string, before it; see packed.py."""

_SINGLE: Final = Struct("<IIBBH16sII")
"""A request for the value of one key: head, where, and the column before its key."""

_SINGLE_ANSWER: Final = Struct("<IIBBHII")
"""The answer to it: head, and the column before its value."""

_BEFORE_KEY: Final = _SINGLE.size - _HEAD.size
_SUCCESS: Final = 200
_NOTHING: Final = 0xFFFFFFFF

_PIECE_BYTES: Final = 4_096
"""Pieces of a frame that are smaller are joined."""

_PARTS_AT: Final = 2

BODY_BYTES_MAX: Final = COLUMNS_BYTES_MAX + _WHERE.size

_KINDS: Final = (Kind.DATASET, Kind.RUN, Kind.SUBRUN, Kind.EVENT, Kind.PRODUCT)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_REVERSE, _VALUES = 1, 2


class FrameKind(IntEnum):
    """What a frame is. Those up to 15 are operations."""

    DATABASES = 1
    GET = 2
    LIST = 3
    COUNT = 4
    PUT = 5
    COMMIT = 6
    QUEUES = 7
    CREATE_QUEUE = 8
    DESTROY_QUEUE = 9
    ENTER_QUEUE = 10
    LEAVE_QUEUE = 11
    PUT_ITEMS = 12
    TAKE_ITEM = 13
    SETTLE_ITEM = 14
    LOOK_AT_QUEUE = 15
    CANCEL = 16
    CREDIT = 17
    ANSWER = 32
    FAREWELL = 33


_GET: Final = int(FrameKind.GET)
_ANSWER: Final = int(FrameKind.ANSWER)
_ABOUT_OTHERS: Final = frozenset({FrameKind.CANCEL, FrameKind.CREDIT})

PART: Final = 1
"""A flag of an answer: another part of it follows."""

MORE: Final = 2
"""A flag of an answer: the range of its page goes on behind it. Why no enum: its arithmetic takes longer than the read."""

_METHODS: Final = {
    FrameKind.DATABASES: "databases",
    FrameKind.GET: "get_values",
    FrameKind.LIST: "page",
    FrameKind.COUNT: "count",
    FrameKind.PUT: "put",
    FrameKind.COMMIT: "commit",
    FrameKind.QUEUES: "queue_names",
    FrameKind.CREATE_QUEUE: "create_queue",
    FrameKind.DESTROY_QUEUE: "destroy_queue",
    FrameKind.ENTER_QUEUE: "enter_queue",
    FrameKind.LEAVE_QUEUE: "leave_queue",
    FrameKind.PUT_ITEMS: "put_items",
    FrameKind.TAKE_ITEM: "take_item",
    FrameKind.SETTLE_ITEM: "settle_item",
    FrameKind.LOOK_AT_QUEUE: "look_at_queue",
}
_DECLARED: Final = {**operations_of(DatabaseOperations), **operations_of(QueueOperations)}

OPERATIONS: Final[Mapping[int, Operation]] = {int(kind): _DECLARED[name] for kind, name in _METHODS.items()}
"""The operations by the kind of their frames."""

_QUEUES: Final = frozenset(operations_of(QueueOperations))

_KIND_OF: Final = {operation.attribute: kind for kind, operation in OPERATIONS.items()}


class Frame(NamedTuple):
    """A frame as it came."""

    id: int
    kind: int
    flags: int
    number: int
    body: bytes


# Why past Frame's own way: a frame of Python's for each of a hundred thousand a second.
_make: Final = tuple.__new__


class BrokenFrameError(Exception):
    """What came is no frame, or too large a one. `id` is its request's, 0 where it has none. Never leaves this package."""

    def __init__(self, problem: str, *, id: int = 0, is_too_large: bool = False) -> None:  # noqa: A002  # Why: the frame's word.
        super().__init__(problem)
        self.id = id
        self.is_too_large = is_too_large


class Where(NamedTuple):
    """What stands before the columns of a request: which database, of which ring, and how.

    `parts` is how many parts of the answer may be sent ahead; 0: it is one whole.
    """

    arguments: dict[str, Any]
    parts: int


def kind_of(operation: Operation) -> int:
    """Return the kind of the frames that ask for an operation."""
    return _KIND_OF[operation.attribute]


def frame(id: int, kind: int, *parts: bytes, flags: int = 0, number: int = 0) -> bytes:  # noqa: A002  # Why: as above.
    """Return the bytes of a frame whose body is the parts one after the other."""
    return b"".join((frame_head(id, kind, sum(map(len, parts)), flags=flags, number=number), *parts))


def frame_head(id: int, kind: int, body_bytes: int, *, flags: int = 0, number: int = 0) -> bytes:  # noqa: A002  # Why: as above.
    """Return what stands before the body of a frame."""
    return _HEAD.pack(_REST_OF_HEAD + body_bytes, id, kind, flags, number)


FrameOfRequest: TypeAlias = Callable[[int], bytes]
"""Returns the frame that asks for something, by the id that it is given."""


def request_frame(operation: Operation, arguments: Mapping[str, Any], ring: str, *, parts: int = 0) -> FrameOfRequest:
    """Return what makes the frame of a request; see `request_body`. `ring` is the digest of the description."""
    kind, number = kind_of(operation), arguments.get("number", 0)
    body = request_body(operation, arguments, bytes.fromhex(ring), parts=parts)
    return lambda id: frame(id, kind, *body, number=number)  # noqa: A006  # Why: as above.


def request_body(
    operation: Operation, arguments: Mapping[str, Any], ring: bytes, *, parts: int = 0
) -> tuple[bytes, ...]:
    """Return the body of a request, in parts. `arguments` are those of the operation, `ring` the sum of 8 bytes."""
    if operation.body is None:
        return ()
    if not _is_placed(operation):
        return (operation.body.write(arguments),)
    option = 0
    if operation.attribute == "page":
        option = _REVERSE * arguments.get("reverse", False) | _VALUES * arguments.get("values", False)
    elif operation.attribute == "put":
        option = MODES.index(arguments.get("mode", MODES[0]))
    where = _WHERE.pack(_NUMBERS[arguments["kind"]], option, parts, arguments.get("limit", 0), ring)
    return where, operation.body.write(arguments)


class SingleGet:
    """The frames that ask for one value of a database. Why apart: most of what is asked is that."""

    def __init__(self, kind: Kind, number: int, ring: bytes) -> None:
        self._number = number
        self._where = _WHERE.pack(_NUMBERS[kind], 0, 0, 0, ring)

    def frame(self, key: bytes, id: int) -> bytes:  # noqa: A002  # Why: as above.
        """Return the bytes of the frame that asks for the value of a key."""
        size = len(key)
        length = _SINGLE.size - _LENGTH_BYTES + size
        return _SINGLE.pack(length, id, _GET, 0, self._number, self._where, 1, size) + key


def single_place(found: Frame) -> bytes | None:
    """Return where a request is on that asks for one value as a whole; None for any other."""
    where = found.body[: _WHERE.size]
    return where if found.kind == _GET and key_of_single(found, where) is not None and not where[_PARTS_AT] else None


def key_of_single(found: Frame, where: bytes) -> bytes | None:
    """Return the key of a `get` if it asks for one value, of the place that `where` names, as `single_place` returns it."""
    body = found.body
    if len(body) < _BEFORE_KEY or not body.startswith(where):
        return None
    count, length = _ONE.unpack_from(body, _WHERE.size)
    key = body[_BEFORE_KEY:]
    return key if count == 1 and length == len(key) else None


def single_answer(id: int, value: bytes | None) -> tuple[bytes, bytes]:  # noqa: A002  # Why: as above.
    """Return the frame of the success of such a request, in two parts."""
    size = _NOTHING if value is None else len(value)
    body = value or b""
    head = _SINGLE_ANSWER.pack(_SINGLE_ANSWER.size - _LENGTH_BYTES + len(body), id, _ANSWER, 0, _SUCCESS, 1, size)
    return head, body


def single_value(body: bytes) -> bytes | None:
    """Return the value that the success of such a request has. Raises InvalidInputError for what has no one value."""
    if len(body) >= _ONE.size:
        count, length = _ONE.unpack_from(body)
        if count == 1 and length == len(body) - _ONE.size:
            return body[_ONE.size :]
    (column,) = unpack(body, 1)
    if len(column) != 1:
        raise InvalidInputError(source="body", problem=f"one value was asked for, and not {len(column)}")
    return column[0]


def _is_placed(operation: Operation) -> bool:
    """Tell whether an operation is on a database, and not on a queue."""
    return operation.attribute not in _QUEUES


def check_request(found: Frame, body_bytes: int, *, behind: int) -> None:
    """Check what a client sent behind a request with the id `behind`. Raises BrokenFrameError.

    Why of the head alone, as it comes: what a server holds for a frame goes by its id.
    """
    if found.kind in _ABOUT_OTHERS:
        if body_bytes:
            raise BrokenFrameError(f"a frame of kind {found.kind} has no body, and not {body_bytes} bytes", id=found.id)
    elif found.id <= behind:
        raise BrokenFrameError(f"ids ascend: {found.id} came after {behind}", id=found.id)


def parts_ahead(found: Frame) -> int:
    """Return how many parts of its answer a request lets be sent ahead; 0: it is one whole."""
    return found.body[_PARTS_AT] if found.kind <= FrameKind.COMMIT and len(found.body) >= _WHERE.size else 0


def read_where(operation: Operation, found: Frame) -> tuple[Where, bytes | None]:
    """Return where and how a request is on, and its columns, if it has any. Raises InvalidInputError."""
    if operation.body is None:
        return Where({}, 0), None
    if not _is_placed(operation):
        return Where({}, 0), found.body
    if len(found.body) < _WHERE.size:
        raise InvalidInputError(
            source="frame", problem=f"a request begins with {_WHERE.size} bytes: which database, and how"
        )
    kind, option, parts, limit, ring = _WHERE.unpack_from(found.body)
    if kind >= len(_KINDS):
        raise InvalidInputError(source="frame", problem=f"there is no kind of databases {kind}")
    arguments = {"kind": _KINDS[kind], "number": found.number, "ring": ring.hex()}
    options = _OPTIONS.get(operation.attribute)
    if options is not None:
        arguments |= options(option, limit)
    return Where(arguments, parts if operation.is_quick else 0), found.body[_WHERE.size :]


def _page_options(option: int, limit: int) -> dict[str, Any]:
    if not limit or option > _REVERSE | _VALUES:
        raise InvalidInputError(source="frame", problem="a list has a limit from 1 on, and no options but two")
    return {"limit": limit, "reverse": bool(option & _REVERSE), "values": bool(option & _VALUES)}


def _put_options(option: int, _limit: int) -> dict[str, Any]:
    if option >= len(MODES):
        raise InvalidInputError(
            source="frame", problem=f"there is no mode of writing {option}: it is below {len(MODES)}"
        )
    return {"mode": MODES[option]}


_OPTIONS: Final[Mapping[str, Callable[[int, int], dict[str, Any]]]] = {"page": _page_options, "put": _put_options}


class FrameReader:
    """Makes frames of what comes, in whatever pieces. Of a frame that is not whole it has what has come, and no more."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._rest = b""
        self._head: tuple[int, int, int, int, int] | None = None
        self._parts: list[bytes | bytearray] = []
        self._missing = 0
        self._is_skipped = False

    @property
    def has_begun(self) -> bool:
        """Whether a frame has begun and is not whole."""
        return self._head is not None or bool(self._rest)

    @property
    def missing_bytes(self) -> int:
        """How much of the frame that has begun has not come."""
        return self._missing

    @property
    def begun(self) -> Frame | None:
        """The head of the frame that has begun, once it is there, without its body; `body_bytes_of_begun` is its size."""
        if self._head is None:
            return None
        _, id_, kind, flags, number = self._head
        return Frame(id_, kind, flags, number, b"")

    @property
    def body_bytes_of_begun(self) -> int:
        """How large the body of the frame is that has begun."""
        return 0 if self._head is None else self._head[0] - _REST_OF_HEAD

    @property
    def is_skipping(self) -> bool:
        """Whether the frame that has begun is passed over."""
        return self._is_skipped

    def skip_begun(self) -> None:
        """Pass over the frame that has begun: what has come of it is forgotten, and what comes is not kept."""
        self._is_skipped = True
        self._parts.clear()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are whole with this. Raises BrokenFrameError; nothing can be read after that."""
        found: list[Frame] = []
        if self._missing:
            data = self._continued(data, found)
        elif self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        make, unpack, allowed = _make, _HEAD.unpack_from, self._body_bytes_max
        while end - at >= _HEAD_BYTES:
            head = unpack(data, at)
            body_bytes = head[0] - _REST_OF_HEAD
            if not 0 <= body_bytes <= allowed:
                raise self._refusal(head, body_bytes)
            begin = at + _HEAD_BYTES
            at = begin + body_bytes
            if at > end:
                self._head, self._missing = head, at - end
                self._keep(data[begin:])
                return found
            found.append(make(Frame, (head[1], head[2], head[3], head[4], data[begin:at])))
        self._rest = data[at:]
        return found

    def _refusal(self, head: tuple[int, int, int, int, int], body_bytes: int) -> BrokenFrameError:
        if body_bytes < 0:
            return BrokenFrameError(f"a frame has at least {_REST_OF_HEAD} bytes behind its length, and not {head[0]}")
        problem = f"a frame's body has at most {self._body_bytes_max} bytes, and not {body_bytes}"
        return BrokenFrameError(problem, id=head[1], is_too_large=True)

    def _continued(self, data: bytes, found: list[Frame]) -> bytes:
        """Take what belongs to the frame that has begun, and return the rest."""
        own, rest = data[: self._missing], data[self._missing :]
        self._missing -= len(own)
        if not self._is_skipped:
            self._keep(own)
        if not self._missing:
            assert self._head is not None
            _, id_, kind, flags, number = self._head
            if not self._is_skipped:
                found.append(Frame(id_, kind, flags, number, b"".join(self._parts)))
            self._head, self._is_skipped = None, False
            self._parts = []
        return rest

    def _keep(self, own: bytes) -> None:
        """Keep a piece. Why small ones joined: an object of some 40 bytes for each would be many times what has come."""
        if len(own) >= _PIECE_BYTES:
            self._parts.append(own)
        elif self._parts and isinstance(self._parts[-1], bytearray):
            self._parts[-1] += own
        else:
            self._parts.append(bytearray(own))
