"""The errors of everything but key spaces, grouped by who can do something about it.

    KeyplanError                        code, summary (a constant sentence), facts, is_retryable, statuses
    ├── LayoutError                     the declaration is wrong: fix the code
    │   ├── TemplateError                 a key template cannot be read
    │   ├── LintError                     a layout has findings without a waiver, or stale waivers
    │   └── UnknownNameError              no such table, index, field or codec
    ├── RecordError                     this value does not fit: fix the input
    │   ├── InvalidKeyError               a key part is out of range, of the wrong type, or forbidden
    │   ├── InvalidRecordError            a record misses a field, or has one of the wrong type
    │   ├── InvalidPageTokenError         a page token is not ours, or leaves its list
    │   ├── InvalidWatchTokenError        a watch token is not ours, or not of this list
    │   └── InvalidInputError             a file or an argument cannot be read
    ├── NotFoundError                   no record at this key
    ├── ConflictError                   the world is not as assumed: decide
    │   ├── AlreadyExistsError            a record is there already
    │   ├── UniqueViolationError          another record holds this unique entry
    │   ├── StaleRecordError              the record is not at the expected revision
    │   ├── IndexNotReadyError            the index is not built yet
    │   ├── LayoutMismatchError           the store is in another layout
    │   ├── RestoreConflictError          a backup does not fit what the store holds
    │   ├── TargetNotEmptyError           there are keys where something is to be brought
    │   ├── TargetTakenError              another process does the same work now
    │   ├── MigrationRefusedError         something stands in the way of a migration
    │   ├── MigrationUnderWayError        a migration of these keys is under way
    │   └── CommitConflictError           a guard failed                                   retryable
    ├── EngineError                     the engine could not
    │   ├── EngineUnavailableError        it cannot be reached, or is closed               retryable
    │   │   └── WriterBusyError             another process does not stop writing           retryable
    │   ├── CommitOutcomeUnknownError     it may have been applied: look before writing again
    │   ├── HistoryCompactedError         a watch must start again from a list
    │   ├── LeaseNotFoundError            the lease expired or never was
    │   ├── EngineLimitError              larger than the engine's profile allows
    │   ├── EngineRefusedError            it will not: no permission, no space
    │   ├── UnsupportedByEngineError      a capability that the engine does not claim
    │   ├── PlacementDriverError          PD answered otherwise than asked
    │   └── EngineOpenError               the file, folder or address cannot be opened
    │       ├── StoreMissingError           there is no store, and none was to be made
    │       └── StoreUnreachableError       no server answers there, or not yet
    ├── AccessDeniedError               nothing that was granted allows it: see access.py
    ├── UnauthorizedError               a server does not know who asks
    ├── AuditLogError                   what is to be told before a change cannot be: nothing was changed
    │   └── AuditLogIncompleteError       the change was made, and the log does not say so yet
    ├── SecretKeyError                  the key of a sealed secret is not here: hand it in
    ├── CorruptionError                 stored bytes break an invariant: run `keyplan check`
    │   └── UnopenedSecretError           a sealed secret does not open with this key: hand in the right one
    ├── StoppedError                    long work was told to stop between two batches: begin it again
    └── KeySpaceError                   the registry of key spaces: see keyspaces.py

A summary never varies, so that errors can be counted and searched; what varies is in `facts`, which are printed after
it. Facts hold names, keys, revisions and limits, never a record's value: a value may be secret.

Each class states once how commands and servers report it: exit code, HTTP status, gRPC status. What a class does not state, it
takes from its first base class.
"""

from typing import Any, ClassVar

from keyplan.grpc_status import GrpcStatus

__all__ = [
    "AlreadyExistsError",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "CorruptionError",
    "EngineError",
    "EngineLimitError",
    "EngineOpenError",
    "EngineRefusedError",
    "EngineUnavailableError",
    "HistoryCompactedError",
    "IndexNotReadyError",
    "InvalidInputError",
    "InvalidKeyError",
    "InvalidPageTokenError",
    "InvalidRecordError",
    "InvalidWatchTokenError",
    "KeyplanError",
    "LayoutError",
    "LayoutMismatchError",
    "LeaseNotFoundError",
    "LintError",
    "MigrationRefusedError",
    "MigrationUnderWayError",
    "NotFoundError",
    "PlacementDriverError",
    "RecordError",
    "RestoreConflictError",
    "SourceUnfinishedError",
    "StaleRecordError",
    "StoppedError",
    "StoreMissingError",
    "StoreUnreachableError",
    "TargetNotEmptyError",
    "TargetTakenError",
    "TemplateError",
    "UniqueViolationError",
    "UnknownNameError",
    "UnsupportedByEngineError",
    "WriterBusyError",
]


class KeyplanError(Exception):
    """The root of every error that keyplan raises on purpose.

    `code` is stable and has a paragraph in docs/reference/errors.md. `facts` are the named details of this one case; each is
    also an attribute, so that a caller writes `error.expected_revision` rather than parsing text. A command that fails ends
    with `exit_code`; a server answers with `http_status` or `grpc_status`.
    """

    code: ClassVar[str] = "keyplan"
    summary: ClassVar[str] = "keyplan could not do what was asked"
    is_retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 70
    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[GrpcStatus] = GrpcStatus.INTERNAL

    def __init__(self, **facts: object) -> None:
        super().__init__()
        self.facts: dict[str, object] = facts

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no fact {name!r}")

    def __str__(self) -> str:
        if not self.facts:
            return self.summary
        return f"{self.summary}: " + ", ".join(f"{name}={_shown(fact)}" for name, fact in self.facts.items())

    def plain_facts(self) -> dict[str, Any]:
        """Return the facts as JSON has them: bytes in hex; what JSON has no form for, as Python writes it."""
        return {name: _plain(fact) for name, fact in self.facts.items()}

    def __reduce__(self) -> tuple[object, ...]:
        # Why: errors cross process boundaries in worker pools; keyword arguments do not survive the default pickling.
        return (_rebuild, (type(self), self.facts))


def _rebuild(kind: type[KeyplanError], facts: dict[str, object]) -> KeyplanError:
    return kind(**facts)


def _plain(fact: object) -> object:
    match fact:
        case None | bool() | int() | float() | str():
            return fact
        case bytes():
            return fact.hex()
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in fact]
        case dict():
            return {str(name): _plain(item) for name, item in fact.items()}
        case _:
            return str(fact)


def _shown(fact: object) -> str:
    """Sentences as they are; names, keys and numbers as Python writes them."""
    return fact if isinstance(fact, str) and " " in fact else repr(fact)


class LayoutError(KeyplanError):
    """The declaration of a layout is wrong. Facts: `layout`, `table`, and what is wrong with them."""

    code = "layout"
    summary = "the layout is declared wrongly"
    exit_code = 6


class TemplateError(LayoutError):
    """A key template cannot be read. Facts: `template`, `position`, `problem`."""

    code = "template"
    summary = "the key template cannot be read"


class LintError(LayoutError):
    """A layout has findings that no waiver names, or waivers that match nothing. Facts: `layout`, `findings`."""

    code = "lint"
    summary = "the layout has findings that are not waived"


class UnknownNameError(LayoutError):
    """No such table, index, field, codec or layout. Facts: `kind`, `name`, `known`."""

    code = "unknown-name"
    summary = "there is nothing of that name"
    http_status = 404


class RecordError(KeyplanError):
    """A value given by the caller does not fit the layout."""

    code = "record"
    summary = "the value does not fit the layout"
    exit_code = 5
    http_status = 400
    grpc_status = GrpcStatus.INVALID_ARGUMENT


class InvalidKeyError(RecordError):
    """A part of a key is of the wrong type, out of range or spelled with forbidden bytes. Facts: `problem`, `value`, ..."""

    code = "invalid-key"
    summary = "the key is not valid"


class InvalidRecordError(RecordError):
    """A record lacks a field or has one of the wrong type. Facts: `table`, `problem`."""

    code = "invalid-record"
    summary = "the record is not valid"


class InvalidPageTokenError(RecordError):
    """A page token was not made by this list, by this layout, or points outside the list. Facts: `problem`."""

    code = "invalid-page-token"
    summary = "the page token is not valid"


class InvalidWatchTokenError(RecordError):
    """A watch token was not made by this list of this layout, or not by this store. Facts: `problem`."""

    code = "invalid-watch-token"
    summary = "the watch token is not valid"


class InvalidInputError(RecordError):
    """A file or an argument cannot be read as what it should be. Facts: `source`, `problem`."""

    code = "invalid-input"
    summary = "the input is not valid"


class NotFoundError(KeyplanError):
    """There is no record at the key. Facts: `table`, `key`."""

    code = "not-found"
    summary = "there is no such record"
    exit_code = 3
    http_status = 404
    grpc_status = GrpcStatus.NOT_FOUND


class ConflictError(KeyplanError):
    """The store is not in the state that the caller assumed. Nothing was written."""

    code = "conflict"
    summary = "the store is not as assumed"
    exit_code = 4
    http_status = 409
    grpc_status = GrpcStatus.ABORTED


class AlreadyExistsError(ConflictError):
    """Insert found a record at its key. Facts: `table`, `key`, `revision` of the record that is there."""

    code = "already-exists"
    summary = "the record exists already"
    grpc_status = GrpcStatus.ALREADY_EXISTS


class UniqueViolationError(ConflictError):
    """Another record holds an entry of a unique index. Facts: `index`, `key` of the index, `holder`: the other primary key."""

    code = "unique-violation"
    summary = "another record holds this unique entry"
    grpc_status = GrpcStatus.ALREADY_EXISTS


class StaleRecordError(ConflictError):
    """The record is not at the expected revision. Facts: `table`, `key`, `expected_revision`, `actual_revision` (0: absent)."""

    code = "stale-record"
    summary = "the record is not at the expected revision"


class IndexNotReadyError(ConflictError):
    """An index was read that is not built yet. Facts: `layout`, `index`, its `state`, the `records` gone through so far."""

    code = "index-not-ready"
    summary = "the index is not built yet, so that reading it would leave records out"
    grpc_status = GrpcStatus.FAILED_PRECONDITION


class LayoutMismatchError(ConflictError):
    """A layout was bound to a store that notes another one for its root. Nothing was read or written by it.

    Facts: `layout` and `stored`, each a name and a fingerprint; `root`; `problem`: how it came to that; `differences`: a tuple
    of sentences, from the stored layout to the bound one; `advice`.
    """

    code = "layout-mismatch"
    summary = "the layout is not the one that the store is in"
    grpc_status = GrpcStatus.FAILED_PRECONDITION


class RestoreConflictError(ConflictError):
    """A backup does not fit what the store holds. Facts: `conflicts`, a tuple of errors' sentences, one for each key space."""

    code = "restore-conflict"
    summary = "the backup does not fit what is there, and nothing was written"


class TargetNotEmptyError(ConflictError):
    """There are keys where a copy or a restore is to write. Facts: `prefix` and `first_key`, raw; `advice`."""

    code = "target-not-empty"
    summary = "the target is not empty"


class TargetTakenError(ConflictError):
    """Another process does the same copy, restore or build now, or its key space was taken away.

    Facts: `prefix`, raw; `problem`; `index` of a build.
    """

    code = "target-taken"
    summary = "this work was taken over"


class SourceUnfinishedError(ConflictError):
    """What is to be backed up, copied or written to is a part: a restore or a copy into it has not ended.

    Facts: `prefix`, raw, that of the work; `problem`; `advice`.
    """

    code = "source-unfinished"
    summary = "these keys are a part of what they shall be"


class MigrationRefusedError(ConflictError):
    """A migration cannot go on. Nothing was written. Facts: `obstacles`, a tuple of sentences."""

    code = "migration-refused"
    summary = "something stands in the way of the migration, and nothing was written"


class MigrationUnderWayError(ConflictError):
    """Keys are to be replaced of which a migration is under way. Facts: `root`, raw; `old` and `new`: the layouts."""

    code = "migration-under-way"
    summary = "a migration of these keys is under way, and nothing was written: finish it first"


class CommitConflictError(ConflictError):
    """At least one guard of a commit did not hold. Nothing was written.

    Facts: `failed`, a tuple of engine.FailedGuard; at the end of a transaction, where it is about one of its writes, that one's
    `table` and `key`, and `index` where it is about an index entry.
    """

    code = "commit-conflict"
    summary = "a guard of the commit did not hold"
    is_retryable = True


class EngineError(KeyplanError):
    """The engine could not do what its contract promises."""

    code = "engine"
    summary = "the engine failed"
    exit_code = 7
    grpc_status = GrpcStatus.UNAVAILABLE


class EngineUnavailableError(EngineError):
    """The engine cannot be reached, or was closed. Nothing was written. Facts: `engine`, `problem`."""

    code = "engine-unavailable"
    summary = "the engine cannot be reached"
    http_status = 503
    is_retryable = True


class WriterBusyError(EngineUnavailableError):
    """Another process has been writing for longer than this one may wait. Nothing was written. Facts: `engine`, `problem`."""

    code = "writer-busy"
    summary = "another process is writing"


class CommitOutcomeUnknownError(EngineError):
    """The answer to a commit was lost: it may have been applied. Facts: `engine`, `mutations`. Never retried blindly."""

    code = "commit-outcome-unknown"
    summary = "the commit may or may not have been applied"
    exit_code = 9
    http_status = 504
    grpc_status = GrpcStatus.DEADLINE_EXCEEDED


class HistoryCompactedError(EngineError):
    """The history asked for is gone: compacted, or lost when the store went back to an older state. List again.

    Facts: `revision` asked for, `compacted_revision`.
    """

    code = "history-compacted"
    summary = "the history after this revision is not kept: list again, and watch from there"
    http_status = 410
    grpc_status = GrpcStatus.OUT_OF_RANGE


class LeaseNotFoundError(EngineError):
    """The lease expired, was revoked, or never was. Facts: `lease`."""

    code = "lease-not-found"
    summary = "there is no such lease"
    http_status = 404


class EngineLimitError(EngineError):
    """Larger than the engine takes; raised before anything is written. Facts: `limit` (its name), `allowed`, `actual`."""

    code = "engine-limit"
    summary = "the engine's limit is exceeded"
    http_status = 413
    grpc_status = GrpcStatus.INVALID_ARGUMENT


class EngineRefusedError(EngineError):
    """A server refused the request: no permission, no space left. Nothing was written. Facts: `engine`, `problem`."""

    code = "engine-refused"
    summary = "the engine refused the request"


class UnsupportedByEngineError(EngineError):
    """The engine's profile does not claim this capability. Facts: `engine`, `capability`."""

    code = "unsupported"
    summary = "the engine does not support this"
    http_status = 501
    grpc_status = GrpcStatus.UNIMPLEMENTED


class PlacementDriverError(EngineError):
    """PD, which keeps a TiKV cluster's regions, answered with an error. Facts: `route`, `status`, `problem`: what it says."""

    code = "placement-driver"
    summary = "PD did not do what was asked"


class EngineOpenError(EngineError):
    """The file, folder or address cannot be opened. Facts: `url` (without secrets), `problem`."""

    code = "engine-open"
    summary = "the store cannot be opened"


class StoreMissingError(EngineOpenError):
    """There is no store at this place, and it was opened without leave to make one. Facts: `url`, `problem`."""

    code = "store-missing"
    summary = "there is no such store"


class StoreUnreachableError(EngineOpenError):
    """No server answers at any of the addresses; one may later. Facts: `url` (without secrets), `problem`.

    With the fact `unresolved`, a list of them, no name there has an address: waiting is of little use.
    """

    code = "store-unreachable"
    summary = "the store cannot be reached"


class CorruptionError(KeyplanError):
    """Stored bytes break an invariant. Facts: `raw_key` in hex, `problem`; never the value."""

    code = "corruption"
    summary = "stored bytes are damaged"
    exit_code = 8
    grpc_status = GrpcStatus.DATA_LOSS


class StoppedError(KeyplanError):
    """Long work was told to stop, and ended between two batches: what it has done stays, and its job stays open.

    The same call, by whatever process, goes on with it. Facts: `problem`, which names the work; `remedy`.
    """

    code = "stopped"
    summary = "the work was stopped before its end"
    exit_code = 130  # as shells count what Ctrl-C has ended
    http_status = 503
    grpc_status = GrpcStatus.CANCELLED
