"""The registry's operations over HTTP, with the signatures and errors of `keyplan.keyspace.KeySpaces`."""

import builtins
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from keyplan.client.conversation import ENGINE, Conversation
from keyplan.errors import CommitOutcomeUnknownError, InvalidInputError, KeySpaceNotFoundError
from keyplan.keyspace import (
    AUDIT_LIMIT_MAX,
    AuditEntry,
    AuditItem,
    AuditVerdict,
    Configuration,
    Diagnosis,
    Ensured,
    Fault,
    Header,
    KeySpace,
    KeySpaceIdentity,
    KeySpacePage,
    Quota,
    RegistryOperations,
    State,
    SweepProgress,
    Usage,
)

__all__ = ["HttpKeySpaces"]

T = TypeVar("T")

_TIMEOUT_SECONDS: Final = 10.0
_NAME_CHARACTERS_MAX: Final = 1_000
"""Why: longer ones are no key space's, and a URL has an end."""

_WORK_SECONDS: Final = 600.0
"""Why: what reads or removes key by key takes a second for a million keys, and more."""


class HttpKeySpaces(RegistryOperations):
    """The registry of a keyplan server. Close it, or use it in a `with` block. Safe for use by several threads.

    `url` is http://HOST:PORT, https://HOST or unix:PATH. `verify` is an ssl.SSLContext for a private authority. Every method
    raises what the same method of `KeySpaces` raises, and EngineUnavailableError, CommitOutcomeUnknownError or ForbiddenError
    for what can go wrong on the way. Nothing is sent twice.
    """

    def __init__(
        self, url: str, *, token: str | None = None, timeout_seconds: float = _TIMEOUT_SECONDS, verify: Any = True
    ) -> None:
        self._http = Conversation(url, token=token, timeout_seconds=timeout_seconds, verify=verify)

    def close(self) -> None:
        """Close the connections. Closing twice is harmless."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- making ---------------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        application: str,
        *,
        description: str = "",
        prefix: str | None = None,
        if_not_exists: bool = False,
        adopt_existing_data: bool = False,
        allow_legacy_prefix: bool = False,
    ) -> KeySpace:
        flags = {
            "if_not_exists": if_not_exists,
            "adopt_existing_data": adopt_existing_data,
            "allow_legacy_prefix": allow_legacy_prefix,
        }
        asked = {"name": name, "application": application, "description": description, "prefix": prefix}
        return self._created({**asked, **flags}).keyspace

    def ensure(self, name: str, application: str, *, description: str = "", prefix: str | None = None) -> Ensured:
        asked = {"name": name, "application": application, "description": description, "prefix": prefix}
        return self._created({**asked, "if_not_exists": True})

    def _created(self, asked: Mapping[str, object]) -> Ensured:
        status, found = self._http.ask("POST", "keyspaces", body=asked)
        return Ensured(_done(found, KeySpace.from_json), status == 201)

    # ---- reading --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> KeySpace:
        return KeySpace.from_json(self._http.ask("GET", "keyspaces", _named(name))[1])

    def list(
        self,
        *,
        name: str | None = None,
        prefix: str | None = None,
        key: str | None = None,
        application: str | None = None,
        state: State | None = None,
        include_deleted: bool = False,
        limit: int | None = None,
        page_token: str = "",
    ) -> KeySpacePage:
        asked = {
            "name": name,
            "prefix": prefix,
            "key": key,
            "application": application,
            "state": state,
            "include": "all" if include_deleted else None,
            "limit": limit,
            "page_token": page_token or None,
        }
        query = {word: str(value) for word, value in asked.items() if value is not None}
        _, found = self._http.ask("GET", "keyspaces", query=query)
        page = _converted(found, _Page)
        return KeySpacePage(page.keyspaces, page.next_page_token, tuple(page.damaged))

    def history(self, name: str) -> builtins.list[KeySpace]:
        _, found = self._http.ask("GET", "keyspaces", _named(name), "history")
        return _converted(found, _Page).keyspaces

    def usage(self, name: str) -> Usage:
        _, found = self._http.ask("GET", "keyspaces", _named(name), "usage", timeout_seconds=_WORK_SECONDS)
        return _converted(found, Usage)

    # ---- moves ----------------------------------------------------------------------------------------------------------

    def update(
        self,
        name: str,
        description: str | None,
        sent: Mapping[str, object] | None = None,
        *,
        expected: KeySpaceIdentity | None = None,
    ) -> KeySpace:
        return self._one("PUT", name, body={**(sent or {}), "description": description}, expected=expected)

    def disable(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        return self._one("POST", name, verb="disable", expected=expected)

    def enable(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        return self._one("POST", name, verb="enable", expected=expected)

    def delete(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        return self._one("DELETE", name, expected=expected)

    def undelete(self, name: str, *, expected: KeySpaceIdentity | None = None) -> KeySpace:
        return self._one("POST", name, verb="undelete", expected=expected)

    def sweep(self, name: str) -> SweepProgress:
        _, found = self._http.ask("POST", "keyspaces", _named(name), verb="sweep", timeout_seconds=_WORK_SECONDS)
        return _done(found, SweepProgress.from_json)

    def quota(self, name: str) -> Quota:
        return _converted(self._http.ask("GET", "keyspaces", _named(name), "quota")[1], Quota)

    def set_quota(
        self,
        name: str,
        *,
        keys: int | None = None,
        bytes: int | None = None,  # noqa: A002  # Why: the unit.
        expected: KeySpaceIdentity | None = None,
    ) -> Quota:
        body, query = {"keys": keys, "bytes": bytes}, _query_of(expected)
        _, found = self._http.ask("PUT", "keyspaces", _named(name), "quota", query=query, body=body)
        return _done(found, lambda answer: msgspec.convert(answer, Quota))

    def _one(
        self,
        method: str,
        name: str,
        *,
        verb: str = "",
        body: object = None,
        expected: KeySpaceIdentity | None = None,
    ) -> KeySpace:
        query = _query_of(expected)
        _, found = self._http.ask(method, "keyspaces", _named(name), verb=verb, query=query, body=body)
        return _done(found, KeySpace.from_json)

    # ---- the registry ---------------------------------------------------------------------------------------------------

    def header(self) -> Header | None:
        try:
            return _converted(self._http.ask("GET", "registry")[1], Header)
        except KeySpaceNotFoundError:
            return None

    def init(
        self, *, prefix_codec: str | None = None, profile: str | None = None, skip_printable: bool | None = None
    ) -> Header:
        asked = {"prefix_codec": prefix_codec, "profile": profile, "skip_printable": skip_printable}
        _, found = self._http.ask("POST", "registry", verb="init", body=asked)
        return _done(found, lambda answer: msgspec.convert(answer, Header))

    def diagnose(self, *, with_unmanaged: bool = True) -> Diagnosis:
        query = {} if with_unmanaged else {"unmanaged": "off"}
        _, found = self._http.ask("GET", "registry", "diagnosis", query=query, timeout_seconds=_WORK_SECONDS)
        return _read(found, Diagnosis.from_json)

    def repair(self) -> builtins.list[Fault]:
        _, found = self._http.ask("POST", "registry", verb="repair", timeout_seconds=_WORK_SECONDS)
        return _done(found, lambda answer: [Fault.from_json(fault) for fault in answer["repaired"]])

    def configuration(self) -> Configuration:
        return _converted(self._http.ask("GET", "config")[1], Configuration)

    def configure(self, changes: Mapping[str, object]) -> Configuration:
        _, found = self._http.ask("PATCH", "config", body=dict(changes))
        return _done(found, lambda answer: msgspec.convert(answer, Configuration))

    def audit(self, *, after: int = 0, limit: int | None = None) -> Iterator[AuditItem]:
        remaining = limit
        while remaining is None or remaining > 0:
            size = AUDIT_LIMIT_MAX if remaining is None else min(remaining, AUDIT_LIMIT_MAX)
            _, found = self._http.ask("GET", "audit", query={"after": str(after), "limit": str(size)})
            items = _read(found, lambda answer: [_item_of(entry) for entry in answer["entries"]])
            for item in items:
                if item.number <= after:
                    # Why: a list that does not ascend would be asked for again and again.
                    raise InvalidInputError(source="the server's answer", problem="the log's numbers do not ascend")
                yield item
                after = item.number
            if len(items) < size:
                return
            remaining = None if remaining is None else remaining - size

    def verify_audit(self) -> AuditVerdict:
        _, found = self._http.ask("POST", "audit", verb="verify", timeout_seconds=_WORK_SECONDS)
        verdict = _converted(found, _Verdict)
        return AuditVerdict(**msgspec.structs.asdict(verdict))


def _named(name: str) -> str:
    """Return a name that can stand in a path. Raises KeySpaceNotFoundError for one that cannot, or would mean another path."""
    is_path = name in {"", ".", ".."} or "/" in name
    if is_path or len(name) > _NAME_CHARACTERS_MAX or not name.isprintable():
        raise KeySpaceNotFoundError(name=name)
    return name


def _query_of(expected: KeySpaceIdentity | None) -> dict[str, str]:
    """Return the query parameters that say which key space of a name is meant."""
    if expected is None:
        return {}
    return {"expected": f"{expected.generation}/{expected.application}"}


class _Page(msgspec.Struct):
    keyspaces: list[KeySpace]
    next_page_token: str
    damaged: list[str] = []


class _Verdict(msgspec.Struct):
    """The fields of an AuditVerdict, as JSON has them."""

    is_whole: bool
    entries: int
    broken_at: int | None
    problem: str
    head: str


class _Numbered(msgspec.Struct):
    """What an entry of the log is listed with."""

    number: int
    digest: str


def _item_of(entry: Any) -> AuditItem:
    listed = msgspec.convert(entry, _Numbered)
    return AuditItem(listed.number, msgspec.convert(entry, AuditEntry), listed.digest)


def _done(found: Any, read: Callable[[Any], T]) -> T:
    """Read the answer to an act. Raises CommitOutcomeUnknownError: it says that the act was done, and cannot be read."""
    try:
        return _read(found, read)
    except InvalidInputError as error:
        raise CommitOutcomeUnknownError(engine=ENGINE, mutations=1) from error


def _converted(found: Any, kind: type[T]) -> T:
    return _read(found, lambda answer: msgspec.convert(answer, kind))


def _read(found: Any, read: Callable[[Any], T]) -> T:
    try:
        return read(found)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(source="the server's answer", problem=str(error)) from error
