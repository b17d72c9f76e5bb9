"""A client of both services: their declared calls as methods, with plain values for the fields of their requests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc

from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.operations import Rpc, rpcs_of

__all__ = ["CALL_SECONDS_MAX", "LIST_SECONDS_MAX", "Connection", "RunmClient"]

CALL_SECONDS_MAX: Final = 60
"""How long a call may take that is not a watch."""

LIST_SECONDS_MAX: Final = 3_600
"""Why more: a list of a hundred thousand objects takes a minute, and ends by itself."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the service is and who calls it. `authority` is the file of a certificate to trust; None: no TLS.

    `certificate` are the files of the caller's own certificate and its key, for a service that knows callers by them.
    """

    host: str
    port: int
    user: str = ""
    project: str = ""
    partition: str = ""
    roles: tuple[str, ...] = ()
    token: str = field(default="", repr=False)
    authority: Path | None = None
    certificate: tuple[Path, Path] | None = None

    @property
    def session(self) -> Mapping[str, Any]:
        """The session of every request."""
        return {"user": self.user, "project": self.project, "partition": self.partition, "roles": list(self.roles)}


class _Spoken:
    """A base class before an interface of calls: its subclasses send the request of each, and give its answer.

    The fields of a request are plain values; the session is added. Raises grpc.RpcError.
    """

    service: ClassVar[str]

    def __init__(self, channel: grpc.Channel, connection: Connection) -> None:
        self._channel = channel
        self._session = connection.session
        self._metadata = (("authorization", f"Bearer {connection.token}"),) if connection.token else ()

    def __init_subclass__(cls) -> None:
        for name, declared in rpcs_of(cls).items():
            setattr(cls, name, _method(declared))

    def send(self, declared: Rpc, fields: Mapping[str, Any]) -> Any:
        """Send the request of a call; return its answer, or the stream of its answers."""
        request_class = getattr(messages, declared.request)
        session = {"session": self._session} if "session" in request_class.DESCRIPTOR.fields_by_name else {}
        make = self._channel.unary_stream if declared.is_stream else self._channel.unary_unary
        invoke: Callable[..., Any] = make(
            RUNM.method(self.service, declared.name).path,
            request_serializer=request_class.SerializeToString,
            response_deserializer=getattr(messages, declared.answer).FromString,
        )
        seconds_max = None if declared.is_endless else LIST_SECONDS_MAX if declared.is_stream else CALL_SECONDS_MAX
        return invoke(request_class(**session, **fields), timeout=seconds_max, metadata=self._metadata)


def _method(declared: Rpc) -> Callable[..., Any]:
    @wraps(declared.function)
    def method(self: _Spoken, **fields: Any) -> Any:
        return self.send(declared, fields)

    return method


class _Metadata(_Spoken, MetadataOperations):
    pass


class _Api(_Spoken, ApiOperations):
    pass


class RunmClient:
    """`client.api.partition_get(filter=...)` and `client.metadata.object_find(any=[...])`; streams are iterators.

    Calls raise grpc.RpcError. Close it, or use it in a `with` block. Raises OSError for a file that cannot be read.
    """

    def __init__(self, connection: Connection) -> None:
        host = f"[{connection.host}]" if ":" in connection.host else connection.host
        address = f"{host}:{connection.port}"
        if connection.authority is None:
            self._channel = grpc.insecure_channel(address)
        else:
            own = connection.certificate
            chain, key = (own[0].read_bytes(), own[1].read_bytes()) if own else (None, None)
            credentials = grpc.ssl_channel_credentials(connection.authority.read_bytes(), key, chain)
            self._channel = grpc.secure_channel(address, credentials)
        self.metadata: MetadataOperations = _Metadata(self._channel, connection)
        self.api: ApiOperations = _Api(self._channel, connection)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> "RunmClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
