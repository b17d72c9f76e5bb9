"""The message table agrees with what another client's generated files say, and with bytes that etcd's own client sends."""

import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from keyplan.engine.etcd.grpc_transport import _GrpcStream
from keyplan.engine.etcd.transport import WATCH, TransportError, messages
from keyplan.protobuf import ETCD
from keyplan.testing.engine_suite.promise import eventually

SCALARS = {8: "bool", 12: "bytes", 3: "int64", 9: "string", 4: "uint64"}
"""Numbers of protobuf's types."""


def generated() -> dict[str, Any]:
    """The messages of aetcd's generated files by name."""
    found: dict[str, Any] = {}
    for module in ("rpc_pb2", "kv_pb2"):
        try:
            loaded = importlib.import_module(f"aetcd.rpc.{module}")
        except ImportError:
            pytest.skip("needs aetcd, which the extra bench brings")
        found |= dict(loaded.DESCRIPTOR.message_types_by_name)
    return found


class BrokenChannel:
    """A channel whose stream ends by a fault that nobody has thought of."""

    def stream_stream(self, *_: object, **__: object) -> Callable[..., Iterator[object]]:
        def answers() -> Iterator[object]:
            yield 1 // 0

        return lambda *_, **__: answers()


def test_who_receives_is_told_whatever_ended_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    forgotten: list[object] = []
    stream = _GrpcStream(cast("Any", BrokenChannel()), WATCH, (), forgotten.append)
    with pytest.raises(TransportError, match="ended the stream"):
        stream.receive(60)
    eventually(lambda: forgotten == [stream])


def test_every_field_has_the_number_and_type_that_generated_files_give_it() -> None:
    theirs = generated()
    compared = 0
    for message, fields in ETCD.messages.items():
        described = theirs.get(message)
        if described is None:
            continue  # aetcd leaves some out
        for number, name, kind, is_repeated, is_choice in fields:
            field = described.fields_by_number[number]
            own = field.message_type or field.enum_type
            their_kind = own.name if own else SCALARS[field.type]
            their_repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
            assert (field.name, their_kind, their_repeated) == (name, kind.rpartition(".")[2], is_repeated), (
                message,
                number,
            )
            assert (field.containing_oneof is not None) == is_choice, (message, number)
            if field.enum_type:
                their_values = {value.name: value.number for value in field.enum_type.values}
                assert {member.name: member.value for member in ETCD.enums[kind]} == their_values
            compared += 1
    assert compared > 80


def test_messages_are_these_bytes() -> None:
    request = messages.RangeRequest(
        key=b"k",
        range_end=b"l",
        limit=3,
        revision=300,
        sort_order=2,
        serializable=True,
        keys_only=True,
        count_only=True,
    )
    assert request.SerializeToString().hex() == "0a016b12016c180320ac022802380140014801"
    watch = messages.WatchRequest()
    watch.create_request.key = b"k"
    watch.create_request.start_revision = 5
    watch.create_request.progress_notify = watch.create_request.prev_kv = watch.create_request.fragment = True
    assert watch.SerializeToString().hex() == "0a0b0a016b1805200130014001"
    progress = messages.WatchRequest()
    progress.progress_request.SetInParent()
    assert progress.SerializeToString().hex() == "1a00"
    answer = messages.RangeResponse.FromString(bytes.fromhex("0a021807120e0a016b1005180720022a0176300918012002"))
    (pair,) = answer.kvs
    assert (pair.key, pair.create_revision, pair.mod_revision, pair.version, pair.value, pair.lease) == (
        b"k", 5, 7, 2, b"v", 9,
    )  # fmt: skip
    assert (answer.header.revision, answer.more, answer.count) == (7, True, 2)


def test_a_field_that_is_unknown_here_is_passed_over() -> None:
    answer = messages.StatusResponse.FromString(bytes.fromhex("1205" + b"3.9.1".hex() + "e83f01"))
    assert answer.version == "3.9.1"
