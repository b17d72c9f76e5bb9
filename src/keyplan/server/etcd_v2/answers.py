"""What the v2 keys API answers: nodes and events as the JSON that etcd writes, and failures with its numbers and sentences."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from keyplan.server.etcd_v2.records import Action

__all__ = [
    "Code",
    "KeysFailure",
    "Node",
    "action_body",
    "bytes_of",
    "event_body",
    "failure_body",
    "get_body",
    "text_of",
]


# ---- failures ---------------------------------------------------------------------------------------------------------


class Code(IntEnum):
    """The `errorCode` of a failure."""

    KEY_NOT_FOUND = 100
    COMPARE_FAILED = 101
    NOT_A_FILE = 102
    NOT_A_DIRECTORY = 104
    KEY_EXISTS = 105
    ROOT_READ_ONLY = 107
    DIRECTORY_NOT_EMPTY = 108
    UNAUTHORIZED = 110
    PREVIOUS_VALUE_REQUIRED = 201
    TTL_NOT_A_NUMBER = 202
    INDEX_NOT_A_NUMBER = 203
    INVALID_FIELD = 209
    INVALID_FORM = 210
    VALUE_ON_REFRESH = 211
    TTL_REQUIRED_ON_REFRESH = 212
    RAFT_INTERNAL = 300
    WATCHER_CLEARED = 400
    EVENT_INDEX_CLEARED = 401


_MESSAGES: Final = {
    Code.KEY_NOT_FOUND: "Key not found",
    Code.COMPARE_FAILED: "Compare failed",
    Code.NOT_A_FILE: "Not a file",
    Code.NOT_A_DIRECTORY: "Not a directory",
    Code.KEY_EXISTS: "Key already exists",
    Code.ROOT_READ_ONLY: "Root is read only",
    Code.DIRECTORY_NOT_EMPTY: "Directory not empty",
    Code.UNAUTHORIZED: "The request requires user authentication",
    Code.PREVIOUS_VALUE_REQUIRED: "PrevValue is Required in POST form",
    Code.TTL_NOT_A_NUMBER: "The given TTL in POST form is not a number",
    Code.INDEX_NOT_A_NUMBER: "The given index in POST form is not a number",
    Code.INVALID_FIELD: "Invalid field",
    Code.INVALID_FORM: "Invalid POST form",
    Code.VALUE_ON_REFRESH: "Value provided on refresh",
    Code.TTL_REQUIRED_ON_REFRESH: "A TTL must be provided on refresh",
    Code.RAFT_INTERNAL: "Raft Internal Error",
    Code.WATCHER_CLEARED: "watcher is cleared due to etcd recovery",
    Code.EVENT_INDEX_CLEARED: "The event in requested index is outdated and cleared",
}

_STATUSES: Final = {
    Code.KEY_NOT_FOUND: 404,
    Code.COMPARE_FAILED: 412,
    Code.NOT_A_FILE: 403,
    Code.KEY_EXISTS: 412,
    Code.DIRECTORY_NOT_EMPTY: 403,
    Code.UNAUTHORIZED: 401,
    Code.RAFT_INTERNAL: 500,
}
"""Of the others, 400."""


class KeysFailure(Exception):  # noqa: N818 # it is an answer, not an error of keyplan
    """A request is answered with this failure. `cause` names what is in the way; `index` is 0 for a malformed request.

    `is_refusal`: nothing was done, also where etcd's number does not tell. `is_last`: the rest of the request was not read, so
    that its connection is of no more use.
    """

    def __init__(
        self, code: Code, cause: str, index: int = 0, *, is_refusal: bool = False, is_last: bool = False
    ) -> None:
        super().__init__(f"{code}: {cause}")
        self.code = code
        self.cause = cause
        self.index = index
        self.is_last = is_last
        self._is_refusal = is_refusal

    @property
    def is_outcome_unknown(self) -> bool:
        """True where it may have been done all the same: etcd's clients are told of a lost answer as of what failed."""
        return self.code is Code.RAFT_INTERNAL and not self._is_refusal

    def again(self) -> "KeysFailure":
        """Return an equal failure. Why: an outcome may be shared, and one error in several tasks would tangle their traces."""
        return KeysFailure(self.code, self.cause, self.index, is_refusal=self._is_refusal)

    @property
    def message(self) -> str:
        """Etcd's constant sentence."""
        return _MESSAGES[self.code]

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUSES.get(self.code, 400)


# ---- nodes and events -------------------------------------------------------------------------------------------------

_SECOND: Final = 1_000_000_000
_MOMENTS_MAX: Final = 1_024
"""Why: keys that are renewed end within one TTL of each other, and a listing shows them all."""
_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


_ESCAPED: Final = re.compile("[<>&\u2028\u2029]")


class Node(NamedTuple):
    """A file or a directory as of one moment. `value` is None for a directory; the root's indexes are 0.

    `nodes` are a listed directory's children; None where they were not asked for.
    """

    path: str
    value: str | None
    """The stored bytes as text: what is no UTF-8 among them is escaped, so that `bytes_of` gives the same bytes again."""
    created: int
    modified: int
    expires_nanoseconds: int = 0
    nodes: "Sequence[Node] | None" = None

    @property
    def is_directory(self) -> bool:
        """True for a directory."""
        return self.value is None


def text_of(raw: bytes) -> str:
    """Return stored bytes as text, from which `bytes_of` makes the same bytes again."""
    return raw.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes that a text of `text_of` stands for."""
    return text.encode("utf-8", "surrogateescape")


def json_text(text: str) -> str:
    """Return a JSON string with the characters escaped that matter inside HTML, as etcd's encoder does.

    Bytes that are no UTF-8 are shown as U+FFFD: only answers show them so, what is stored stays.
    """
    try:
        shown = msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        shown = msgspec.json.encode(bytes_of(text).decode("utf-8", "replace")).decode()
    # Why asked first: most values hold none of them, and translating takes ten times as long as looking.
    return shown.translate(_ESCAPES) if _ESCAPED.search(shown) else shown


@lru_cache(maxsize=_MOMENTS_MAX)
def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _expiry(expires_nanoseconds: int, now_nanoseconds: int) -> str:
    if not expires_nanoseconds:
        return ""
    seconds, rest = divmod(expires_nanoseconds, _SECOND)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    shown = f"{_moment(seconds)}{fraction}Z"
    left_seconds = -((now_nanoseconds - expires_nanoseconds) // _SECOND)
    ttl = f',"ttl":{left_seconds}' if left_seconds > 0 else ""
    return f'"expiration":"{shown}"{ttl},'


def _node_text(node: Node, now_nanoseconds: int, *, has_value: bool = True) -> str:
    if node.path == "/":
        parts = '{"dir":true'
        if node.nodes:
            parts += f',"nodes":[{_list(node.nodes, now_nanoseconds)}]'
        return parts + "}"
    parts = f'{{"key":{json_text(node.path)},'
    if node.value is None:
        parts += '"dir":true,'
    elif has_value:
        parts += f'"value":{json_text(node.value)},'
    parts += _expiry(node.expires_nanoseconds, now_nanoseconds)
    if node.nodes:
        parts += f'"nodes":[{_list(node.nodes, now_nanoseconds)}],'
    return f'{parts}"modifiedIndex":{node.modified},"createdIndex":{node.created}}}'


def _list(nodes: Sequence[Node], now_nanoseconds: int) -> str:
    return ",".join(_node_text(node, now_nanoseconds) for node in nodes)


def get_body(node: Node, now_nanoseconds: int) -> str:
    """Return the answer to a read."""
    return f'{{"action":"get","node":{_node_text(node, now_nanoseconds)}}}\n'


def event_body(action: Action, node: Node, previous: Node | None, now_nanoseconds: int) -> str:
    """Return an event as the writer and the watchers get it: what was deleted or has expired shows no value and no TTL."""
    is_end = action in {Action.DELETE, Action.COMPARE_AND_DELETE, Action.EXPIRE}
    shown = _node_text(node._replace(expires_nanoseconds=0) if is_end else node, now_nanoseconds, has_value=not is_end)
    before = f',"prevNode":{_node_text(previous, now_nanoseconds)}' if previous is not None else ""
    return f'{{"action":"{action}","node":{shown}{before}}}\n'


def action_body(action: Action) -> str:
    """Return the answer to a writer who wants no value back."""
    return f'{{"action":"{action}"}}\n'


def failure_body(failure: KeysFailure) -> str:
    """Return the body of a failure."""
    cause = f'"cause":{json_text(failure.cause)},' if failure.cause else ""
    return (
        f'{{"errorCode":{int(failure.code)},"message":{json_text(failure.message)},{cause}"index":{failure.index}}}\n'
    )
