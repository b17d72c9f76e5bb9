"""What the v2 keys API answers when it cannot: etcd's numbers, sentences and statuses."""

from enum import IntEnum
from typing import Final

__all__ = ["Code", "KeysFailure"]


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
    """A request is answered with this failure. `cause` names what is in the way; `index` is 0 for a malformed request."""

    def __init__(self, code: Code, cause: str, index: int = 0) -> None:
        super().__init__(f"{code}: {cause}")
        self.code = code
        self.cause = cause
        self.index = index

    @property
    def message(self) -> str:
        """Etcd's constant sentence."""
        return _MESSAGES[self.code]

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUSES.get(self.code, 400)
