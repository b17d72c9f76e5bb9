"""A client of the service for tests: calls by name with plain values, over a real channel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
import pytest

from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.grpc_status import GrpcStatus
from keyplan.operations import rpcs_of

__all__ = ["EAST", "GROUP", "I1", "I2", "PROJECT", "SW", "WEST", "Client", "refused"]

EAST: Final = "d3873f99a21f45f5bce156c1f8b84b03"
WEST: Final = "d79706e01fbd4e48aae89209061cdb71"
PROJECT: Final = "eff883565999408dbec3eb5070d5ecf5"
I1: Final = "54b8d8d7e24c43799bbf70c16e921e52"
I2: Final = "60b53edd16764f6abc081ddb0a73e69c"
GROUP: Final = "3bf3e700f11b4a7cb99244c554b3a856"

SW: Final = {"user": "admin", "project": PROJECT, "partition": WEST}

_TIMEOUT_SECONDS: Final = 60

_OF_ANY_CALL: Final = frozenset(
    {
        GrpcStatus.FAILED_PRECONDITION,
        GrpcStatus.UNAUTHENTICATED,
        GrpcStatus.PERMISSION_DENIED,
        GrpcStatus.RESOURCE_EXHAUSTED,
        GrpcStatus.INTERNAL,
        GrpcStatus.UNAVAILABLE,
        GrpcStatus.DATA_LOSS,
        GrpcStatus.CANCELLED,
        GrpcStatus.DEADLINE_EXCEEDED,
    }
)
"""What docs/reference/runm-grpc.md says of every call, but for a request that is no message."""


class Client:
    """`client.object_find(session, any=[...])` gives a list of messages; a unary call gives its message.

    A status that the call does not declare fails the test that met it.
    """

    def __init__(self, address: str, service: str = "RunmMetadata", token: str = "") -> None:
        self.channel = grpc.insecure_channel(address)
        self._service = RUNM.full_name(service)
        self._calls = {call.name: call for call in RUNM.services[service]}
        (self._declared,) = (rpcs_of(one) for one in (MetadataOperations, ApiOperations) if one.service == service)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def __getattr__(self, name: str) -> Any:
        call = self._calls[name]
        request_class, response_class = getattr(messages, call.request), getattr(messages, call.response)
        path = f"/{self._service}/{call.name}"
        make = self.channel.unary_stream if call.is_stream else self.channel.unary_unary
        invoke = make(
            path, request_serializer=request_class.SerializeToString, response_deserializer=response_class.FromString
        )

        def invoked(session: dict[str, Any] | None = None, **fields: Any) -> Any:
            request = request_class(**fields) if session is None else request_class(session=session, **fields)
            try:
                answer: Any = invoke(request, timeout=_TIMEOUT_SECONDS, metadata=self._metadata)
                return list(answer) if call.is_stream else answer
            except grpc.RpcError as error:
                status = GrpcStatus(error.code().value[0])
                assert status in {*_OF_ANY_CALL, *self._declared[name].statuses}, f"{name} does not declare {status!r}"
                raise

        return invoked

    def stream(self, name: str, session: dict[str, Any], **fields: Any) -> Any:
        """Open a stream, and give its call: an iterator that can be cancelled."""
        call = self._calls[name]
        request_class = getattr(messages, call.request)
        open_stream = self.channel.unary_stream(
            f"/{self._service}/{name}",
            request_serializer=request_class.SerializeToString,
            response_deserializer=getattr(messages, call.response).FromString,
        )
        return open_stream(request_class(session=session, **fields), timeout=_TIMEOUT_SECONDS, metadata=self._metadata)

    def raw(self, name: str, request: bytes) -> grpc.RpcError | bytes | list[bytes]:
        """Send bytes, and give the answer's bytes or the error."""
        call = self._calls[name]
        make = self.channel.unary_stream if call.is_stream else self.channel.unary_unary
        try:
            invoke: Any = make(f"/{self._service}/{name}", request_serializer=bytes, response_deserializer=bytes)
            answer: Any = invoke(request, timeout=_TIMEOUT_SECONDS, metadata=self._metadata)
            return list(answer) if call.is_stream else answer
        except grpc.RpcError as error:
            return error

    def close(self) -> None:
        self.channel.close()


@contextmanager
def refused(status: str, text: str | None = None) -> Iterator[None]:
    """The block's call is answered with this status, and this text."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert caught.value.code().name == status, caught.value.details()
    if text is not None:
        assert caught.value.details() == text
