"""A handle that is made first and connected later, as the original's store is (3.1): the rest of keyplan opens when it makes.

Its operations are those of conditions.py, chamber.py and watches.py, for programs that hold one handle for their whole life.
"""

from collections.abc import Mapping
from threading import Lock
from types import TracebackType
from typing import Any, ClassVar, Self

import keyplan
from keyplan.apps.cloudchamber.chamber import Chamber
from keyplan.apps.cloudchamber.conditions import (
    Address,
    RevisionCondition,
    RevisionRead,
    delete_records,
    list_records,
    read_records,
    write_records,
)
from keyplan.apps.cloudchamber.configuration import StoreSettings
from keyplan.apps.cloudchamber.indexed import layout_in_use
from keyplan.apps.cloudchamber.layout_choice import require_document
from keyplan.apps.cloudchamber.namespaces import namespace_named, namespace_of
from keyplan.apps.cloudchamber.watches import RecordWatch
from keyplan.engine import EngineUrl
from keyplan.errors import ConflictError, EngineUnavailableError
from keyplan.protobuf import Message

__all__ = ["AlreadyConnectedError", "Connection", "NotConnectedError"]


class NotConnectedError(EngineUnavailableError):
    """The handle has no store: it was never connected, or is disconnected. Nothing was asked of any store. Fact: `asked`."""

    code: ClassVar[str] = "not-connected"
    summary: ClassVar[str] = "the handle is not connected"
    is_retryable: ClassVar[bool] = False


class AlreadyConnectedError(ConflictError):
    """The handle is connected, and this needs one that is not. Nothing was changed. Fact: `asked`."""

    code: ClassVar[str] = "already-connected"
    summary: ClassVar[str] = "the handle is connected already"


class Connection:
    """CloudChamber's store at a URL under one name space, once it is connected. Safe for use by several threads.

    `namespace` is "" for production or, as the original's suffix, "Test/NAME", with or without slashes around it. URL and name
    space can be changed while there is no connection. Every operation raises NotConnectedError then, before anything is read
    or written anywhere.
    """

    def __init__(self, url: str, *, namespace: str = "", is_beside_go: bool = False) -> None:
        """Note where the store is; nothing is opened. Raises InvalidInputError for a name space that cannot be.

        `is_beside_go`: it may have keys of the Go program and none of the document's, beside which these begin.
        """
        self._lock = Lock()
        self._chamber: Chamber | None = None
        self._url = url
        self._namespace = namespace_named(namespace)
        self._is_beside_go = is_beside_go

    @classmethod
    def of_settings(cls, settings: StoreSettings) -> "Connection":
        """Return a handle for the store and the name space that a configuration means; `pre_clean` is a call of its own."""
        return cls(settings.url, namespace=namespace_of(settings))

    # ---- what it is connected to -----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the store is. Setting it raises AlreadyConnectedError while there is a connection."""
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        with self._lock:
            self._require_disconnected("url")
            self._url = url

    @property
    def namespace(self) -> str:
        """The name space as the layout spells it: "" or "Test/NAME/". Setting it raises AlreadyConnectedError as above."""
        return self._namespace

    @namespace.setter
    def namespace(self, namespace: str) -> None:
        with self._lock:
            self._require_disconnected("namespace")
            self._namespace = namespace_named(namespace)

    @property
    def is_connected(self) -> bool:
        """Whether operations reach a store."""
        return self._chamber is not None

    @property
    def chamber(self) -> Chamber:
        """The store's whole things and tables, for as long as the connection stands. Raises NotConnectedError."""
        return self._connected("chamber")

    def connect(self) -> None:
        """Open the store. Raises AlreadyConnectedError and EngineOpenError; then the handle is as it was.

        And InvalidInputError for a name space with keys of the Go program alone, of which this handle knows nothing.
        """
        with self._lock:
            self._require_disconnected("connect")
            store = keyplan.open(self._url)
            try:
                if not self._is_beside_go:
                    url = EngineUrl.parse(self._url).text
                    require_document(store.engine, self._namespace, who="Connection", url=url)
                layout = layout_in_use(store, self._namespace)
                self._chamber = Chamber(store, namespace=self._namespace, layout=layout, is_beside_go=True)
            except BaseException:
                store.close()
                raise

    def disconnect(self) -> None:
        """Close the store; its watches end. Harmless when there is no connection."""
        with self._lock:
            chamber, self._chamber = self._chamber, None
        if chamber is not None:
            chamber.store.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    # ---- operations ------------------------------------------------------------------------------------------------------

    def read(self, wanted: Mapping[Address, RevisionCondition]) -> RevisionRead:
        """Read records as of one revision; see `read_records`."""
        return read_records(self._connected("read").layout, wanted)

    def write(self, writes: Mapping[Address, tuple[Message, RevisionCondition]]) -> int:
        """Write records in one commit; see `write_records`."""
        return write_records(self._connected("write").layout, writes)

    def delete(self, deletes: Mapping[Address, RevisionCondition]) -> int:
        """Delete records in one commit; see `delete_records`."""
        return delete_records(self._connected("delete").layout, deletes)

    def list(self, table: str, *prefix: Any) -> RevisionRead:
        """Read the records of a table whose first key fields equal `prefix`, as of one revision."""
        return list_records(self._connected("list").layout, table, *prefix)

    def delete_listed(self, table: str, *prefix: Any) -> int:
        """Delete what `list` reads, with all parts, in one commit; return how many; see `Chamber.delete_listed`."""
        return self._connected("delete_listed").delete_listed(table, *prefix)

    def watch(self, table: str | None = None, *prefix: Any, after: int | None = None) -> RecordWatch:
        """Watch a table, part of it, or the whole name space; see `Chamber.watch`."""
        return self._connected("watch").watch(table, *prefix, after=after)

    def _connected(self, asked: str) -> Chamber:
        chamber = self._chamber
        if chamber is None:
            raise NotConnectedError(asked=asked)
        return chamber

    def _require_disconnected(self, asked: str) -> None:
        if self._chamber is not None:
            raise AlreadyConnectedError(asked=asked)
