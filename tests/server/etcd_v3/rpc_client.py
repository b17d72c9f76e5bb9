"""A client of etcd's gRPC for tests, which is asked as the one of JSON is: the same paths, bodies and answers."""

import json
import threading
from collections.abc import Iterator
from queue import Queue, SimpleQueue
from typing import Any, Final, Self

import grpc

from keyplan.protobuf import ETCD, JsonStyle, Method, json_codec
from tests.server.etcd_v3.json_client import b64

__all__ = ["METHODS", "RpcClient", "RpcWatch", "record_of"]

_SECONDS_MAX: Final = 45.0
_STYLE: Final = JsonStyle(is_camel=False)

METHODS: Final = {
    "/v3/kv/range": ETCD.method("KV", "Range"),
    "/v3/kv/put": ETCD.method("KV", "Put"),
    "/v3/kv/deleterange": ETCD.method("KV", "DeleteRange"),
    "/v3/kv/txn": ETCD.method("KV", "Txn"),
    "/v3/kv/compaction": ETCD.method("KV", "Compact"),
    "/v3/lease/grant": ETCD.method("Lease", "LeaseGrant"),
    "/v3/lease/revoke": ETCD.method("Lease", "LeaseRevoke"),
    "/v3/lease/keepalive": ETCD.method("Lease", "LeaseKeepAlive"),
    "/v3/lease/timetolive": ETCD.method("Lease", "LeaseTimeToLive"),
    "/v3/lease/leases": ETCD.method("Lease", "LeaseLeases"),
    "/v3/cluster/member/list": ETCD.method("Cluster", "MemberList"),
    "/v3/maintenance/alarm": ETCD.method("Maintenance", "Alarm"),
    "/v3/maintenance/status": ETCD.method("Maintenance", "Status"),
    "/v3/auth/authenticate": ETCD.method("Auth", "Authenticate"),
}


def record_of(message: str, body: dict[str, Any]) -> Any:
    """The record of a message, of its JSON."""
    return json_codec(getattr(ETCD.records, message), _STYLE).read(body)


def shown(method: Method, raw: bytes) -> Any:
    """An answer's JSON."""
    record = getattr(ETCD.records, method.response)
    return json.loads(json_codec(record, _STYLE).write(ETCD.record_wire.read(record, raw)))


class RpcClient:
    """Calls on one endpoint, HOST:PORT."""

    def __init__(self, endpoint: str, *, token: str | None = None) -> None:
        self.channel = grpc.insecure_channel(endpoint, [("grpc.max_receive_message_length", -1)])
        self.metadata = (("token", token),) if token else ()

    def send(self, path: str, raw: bytes) -> bytes:
        """Return the answer's bytes. Raises grpc.RpcError."""
        call = self.channel.unary_unary(path, bytes, bytes)
        answer: bytes = call(raw, timeout=_SECONDS_MAX, metadata=self.metadata)
        return answer

    def post(self, path: str, body: dict[str, Any]) -> tuple[Any, Any]:
        """Return the status and the answer; of a failure the text."""
        method = METHODS[path]
        try:
            raw = self.send(method.path, ETCD.record_wire.write(record_of(method.request, body)))
        except grpc.RpcError as error:
            failed: Any = error
            return failed.code(), failed.details()
        answer = shown(method, raw)
        return grpc.StatusCode.OK, {"result": answer} if method.is_stream else answer

    def call(self, path: str, body: dict[str, Any]) -> Any:
        """Return an answer that must be a success."""
        status, answer = self.post(path, body)
        assert status is grpc.StatusCode.OK, answer
        return answer

    def put(self, key: str, value: str, **more: Any) -> Any:
        """Write."""
        return self.call("/v3/kv/put", {"key": b64(key), "value": b64(value), **more})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.channel.close()


class RpcWatch:
    """A stream of watches that is read in a thread: `ask` says something, `next()` waits for an answer."""

    _METHOD: Final = ETCD.method("Watch", "Watch")

    def __init__(self, endpoint: str, *requests: dict[str, Any], token: str | None = None) -> None:
        self._client = RpcClient(endpoint, token=token)
        self._asked: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: Queue[Any] = Queue()
        stream = self._client.channel.stream_stream(self._METHOD.path, bytes, bytes)
        self._call: Any = stream(iter(self._asked.get, None), metadata=self._client.metadata)
        for one in requests:
            self.ask(create_request=one)
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, **request: Any) -> None:
        """Say something."""
        self._asked.put(ETCD.record_wire.write(record_of("WatchRequest", request)))

    def ask_no_more(self) -> None:
        """End what is asked: the stream ends with the watches that are open."""
        self._asked.put(None)

    def _read(self) -> None:
        try:
            for raw in self._call:
                self._answers.put({"result": shown(self._METHOD, raw)})
        except grpc.RpcError:
            self._answers.put((self._call.code(), self._call.details()))
        self._answers.put(None)

    def next(self) -> Any:
        """Return the next answer; a status and its text, and then None, at the end."""
        return self._answers.get(timeout=_SECONDS_MAX)

    def events(self, count: int) -> list[Any]:
        """Return so many events, whatever answers they come in."""
        found: list[Any] = []
        while len(found) < count:
            answer = self.next()
            assert isinstance(answer, dict), (answer, found)
            found += answer["result"].get("events", [])
        return found

    def close(self) -> None:
        """Go away."""
        self._asked.put(None)
        self._call.cancel()
        self._client.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.next, None)
