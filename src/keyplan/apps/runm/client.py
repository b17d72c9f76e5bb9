"""A client of both services: calls by name, with plain values for the fields of their requests."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from keyplan.apps.runm.wire_table import RUNM, messages

__all__ = ["CALL_SECONDS_MAX", "LIST_SECONDS_MAX", "Connection", "RunmClient"]

CALL_SECONDS_MAX: Final = 60
"""How long a call may take that is not a watch."""

LIST_SECONDS_MAX: Final = 3_600
"""Why more: a list of a hundred thousand objects takes a minute, and ends by itself."""

_API: Final = "RunmAPI"
_METADATA: Final = "RunmMetadata"


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the service is and who calls it. `authority` is the file of a certificate to trust; None: no TLS."""

    host: str
    port: int
    user: str = ""
    project: str = ""
    partition: str = ""
    roles: tuple[str, ...] = ()
    token: str = ""
    authority: Path | None = None

    @property
    def session(self) -> Mapping[str, Any]:
        """The session of every request."""
        return {"user": self.user, "project": self.project, "partition": self.partition, "roles": list(self.roles)}


class RunmClient:
    """`client.api("partition_get", filter=...)` and `client.metadata("object_find", any=[...])`; streams are iterators.

    Raises grpc.RpcError. Close it, or use it in a `with` block.
    """

    def __init__(self, connection: Connection) -> None:
        self._session = connection.session
        self._metadata = (("authorization", f"Bearer {connection.token}"),) if connection.token else ()
        host = f"[{connection.host}]" if ":" in connection.host else connection.host
        address = f"{host}:{connection.port}"
        if connection.authority is None:
            self._channel = grpc.insecure_channel(address)
        else:
            credentials = grpc.ssl_channel_credentials(connection.authority.read_bytes())
            self._channel = grpc.secure_channel(address, credentials)

    def api(self, name: str, /, **fields: Any) -> Any:
        """Call the front end."""
        return self._call(_API, name, fields)

    def metadata(self, name: str, /, **fields: Any) -> Any:
        """Call the metadata service."""
        return self._call(_METADATA, name, fields)

    def watch(self, **fields: Any) -> Iterator[Any]:
        """Watch objects: `object_watch`, without end."""
        request = self._request("ObjectWatchRequest", fields)
        events: Iterator[Any] = self._invoke(_METADATA, "object_watch")(request, metadata=self._metadata)
        return events

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> "RunmClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, service: str, name: str, fields: Mapping[str, Any]) -> Any:
        call, invoke = RUNM.method(service, name), self._invoke(service, name)
        seconds_max = LIST_SECONDS_MAX if call.is_stream else CALL_SECONDS_MAX
        return invoke(self._request(call.request, fields), timeout=seconds_max, metadata=self._metadata)

    def _invoke(self, service: str, name: str) -> Callable[..., Any]:
        call = RUNM.method(service, name)
        make = self._channel.unary_stream if call.is_stream else self._channel.unary_unary
        invoke: Callable[..., Any] = make(
            call.path,
            request_serializer=getattr(messages, call.request).SerializeToString,
            response_deserializer=getattr(messages, call.response).FromString,
        )
        return invoke

    def _request(self, name: str, fields: Mapping[str, Any]) -> Any:
        request_class = getattr(messages, name)
        has_session = "session" in request_class.DESCRIPTOR.fields_by_name
        return request_class(session=self._session, **fields) if has_session else request_class(**fields)
