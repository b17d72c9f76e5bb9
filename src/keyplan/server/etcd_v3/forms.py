"""In what the gateway is spoken: etcd's messages as JSON over HTTP, and as protobuf over gRPC. The calls are the same."""

from typing import Any, Final, Protocol

from msgspec import json
from starlette.responses import Response

from keyplan.grpc_status import GrpcStatus
from keyplan.protobuf import ETCD, MisfitError
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.messages import encoded, message_in
from keyplan.server.rpc import RpcAnswer, RpcFailure

__all__ = ["JSON_HEADERS", "JsonForm", "MessageForm", "ProtobufForm"]

JSON_HEADERS: Final = {"Grpc-Metadata-Content-Type": "application/grpc"}


class MessageForm(Protocol):
    """How a call's message and its answer are spelled. Messages are records of the etcd table."""

    def read(self, body: bytes, record: Any) -> Any:
        """Return the message of a body. Raises CallFailure."""
        ...

    def write(self, answer: Any) -> bytes:
        """Return an answer's bytes."""
        ...

    def answered(self, body: bytes) -> Response:
        """Return the response that has them."""
        ...

    def failed(self, failure: CallFailure) -> Response:
        """Return the response to a call that failed."""
        ...


class JsonForm:
    """As grpc-gateway does it."""

    def read(self, body: bytes, record: Any) -> Any:
        return message_in(body, record)

    def write(self, answer: Any) -> bytes:
        return encoded(answer)

    def answered(self, body: bytes) -> Response:
        return Response(body, media_type="application/json", headers=JSON_HEADERS)

    def failed(self, failure: CallFailure) -> Response:
        headers = {"Connection": "close"} if failure.is_last else {}
        return Response(json.encode(failure.body), failure.status, headers, "application/json")


class ProtobufForm:
    """As gRPC does it."""

    def read(self, body: bytes, record: Any) -> Any:
        try:
            return ETCD.record_wire.read(record, body)
        except MisfitError as misfit:
            problem = f"keyplan: the request is no message of this call: {misfit.place or misfit.problem}"
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, problem) from misfit

    def write(self, answer: Any) -> bytes:
        return ETCD.record_wire.write(answer)

    def answered(self, body: bytes) -> Response:
        return RpcAnswer(body)

    def failed(self, failure: CallFailure) -> Response:
        return RpcFailure(failure.code, failure.message, http_status=failure.status)
