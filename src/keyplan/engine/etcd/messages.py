"""The messages of etcd's third protocol, as classes built at import from the table below; there are no generated files.

Names and numbers are those of etcd's `rpc.proto`, `kv.proto` and `auth.proto` (3.4 and later), less what keyplan never sends or
reads. An enumeration is an int32, which has the same bytes. A line is `number name type`; `*` after a type: repeated; `|`: one
of the group's fields is set. The classes live in a pool of their own, beside those that another client may have loaded.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = [
    "AuthenticateRequest",
    "AuthenticateResponse",
    "CompactionRequest",
    "CompactionResponse",
    "Compare",
    "CompareResult",
    "CompareTarget",
    "LeaseGrantRequest",
    "LeaseGrantResponse",
    "LeaseKeepAliveRequest",
    "LeaseKeepAliveResponse",
    "LeaseLeasesRequest",
    "LeaseLeasesResponse",
    "LeaseRevokeRequest",
    "LeaseRevokeResponse",
    "LeaseTimeToLiveRequest",
    "LeaseTimeToLiveResponse",
    "Message",
    "RangeRequest",
    "RangeResponse",
    "StatusRequest",
    "StatusResponse",
    "TxnRequest",
    "TxnResponse",
    "WatchRequest",
    "WatchResponse",
    "field_table",
]

Message = Any
"""A protobuf message. Why Any: classes that are made at run time have no static type; this package wraps each use."""

_PACKAGE: Final = "keyplan.etcd"

_TABLE: Final = """
ResponseHeader
    1 cluster_id uint64
    2 member_id uint64
    3 revision int64
    4 raft_term uint64
KeyValue
    1 key bytes
    2 create_revision int64
    3 mod_revision int64
    4 version int64
    5 value bytes
    6 lease int64
Event
    1 type int32
    2 kv KeyValue
    3 prev_kv KeyValue
RangeRequest
    1 key bytes
    2 range_end bytes
    3 limit int64
    4 revision int64
    5 sort_order int32
    6 sort_target int32
    7 serializable bool
    8 keys_only bool
    9 count_only bool
    10 min_mod_revision int64
RangeResponse
    1 header ResponseHeader
    2 kvs KeyValue *
    3 more bool
    4 count int64
PutRequest
    1 key bytes
    2 value bytes
    3 lease int64
PutResponse
    1 header ResponseHeader
DeleteRangeRequest
    1 key bytes
    2 range_end bytes
DeleteRangeResponse
    1 header ResponseHeader
    2 deleted int64
RequestOp
    1 request_range RangeRequest |
    2 request_put PutRequest |
    3 request_delete_range DeleteRangeRequest |
ResponseOp
    1 response_range RangeResponse |
    2 response_put PutResponse |
    3 response_delete_range DeleteRangeResponse |
Compare
    1 result int32
    2 target int32
    3 key bytes
    4 version int64 |
    5 create_revision int64 |
    6 mod_revision int64 |
    64 range_end bytes
TxnRequest
    1 compare Compare *
    2 success RequestOp *
    3 failure RequestOp *
TxnResponse
    1 header ResponseHeader
    2 succeeded bool
    3 responses ResponseOp *
CompactionRequest
    1 revision int64
    2 physical bool
CompactionResponse
    1 header ResponseHeader
WatchCreateRequest
    1 key bytes
    2 range_end bytes
    3 start_revision int64
    4 progress_notify bool
    6 prev_kv bool
    8 fragment bool
WatchCancelRequest
    1 watch_id int64
WatchProgressRequest
WatchRequest
    1 create_request WatchCreateRequest |
    2 cancel_request WatchCancelRequest |
    3 progress_request WatchProgressRequest |
WatchResponse
    1 header ResponseHeader
    2 watch_id int64
    3 created bool
    4 canceled bool
    5 compact_revision int64
    6 cancel_reason string
    7 fragment bool
    11 events Event *
LeaseGrantRequest
    1 TTL int64
    2 ID int64
LeaseGrantResponse
    1 header ResponseHeader
    2 ID int64
    3 TTL int64
    4 error string
LeaseRevokeRequest
    1 ID int64
LeaseRevokeResponse
    1 header ResponseHeader
LeaseKeepAliveRequest
    1 ID int64
LeaseKeepAliveResponse
    1 header ResponseHeader
    2 ID int64
    3 TTL int64
LeaseTimeToLiveRequest
    1 ID int64
    2 keys bool
LeaseTimeToLiveResponse
    1 header ResponseHeader
    2 ID int64
    3 TTL int64
    4 grantedTTL int64
    5 keys bytes *
LeaseStatus
    1 ID int64
LeaseLeasesRequest
LeaseLeasesResponse
    1 header ResponseHeader
    2 leases LeaseStatus *
AuthenticateRequest
    1 name string
    2 password string
AuthenticateResponse
    1 header ResponseHeader
    2 token string
StatusRequest
StatusResponse
    1 header ResponseHeader
    2 version string
    3 dbSize int64
    4 leader uint64
    5 raftIndex uint64
    6 raftTerm uint64
"""


class CompareResult:
    """How a compare compares: the numbers of etcd's `Compare.CompareResult`."""

    EQUAL: Final = 0
    GREATER: Final = 1
    LESS: Final = 2


class CompareTarget:
    """What a compare looks at: the numbers of etcd's `Compare.CompareTarget`."""

    VERSION: Final = 0
    CREATE: Final = 1
    MOD: Final = 2


def field_table() -> dict[str, list[tuple[int, str, str, str]]]:
    """Return the table by message: number, name, type, and `*`, `|` or nothing for each field."""
    table: dict[str, list[tuple[int, str, str, str]]] = {}
    fields: list[tuple[int, str, str, str]] = []
    for line in _TABLE.strip().splitlines():
        if not line.startswith(" "):
            fields = table[line] = []
            continue
        number, name, kind, *mark = line.split()
        fields.append((int(number), name, kind, mark[0] if mark else ""))
    return table


def _file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="keyplan/etcd.proto", package=_PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "bool": kinds.TYPE_BOOL, "bytes": kinds.TYPE_BYTES, "int32": kinds.TYPE_INT32,
        "int64": kinds.TYPE_INT64, "string": kinds.TYPE_STRING, "uint64": kinds.TYPE_UINT64,
    }  # fmt: skip
    for message, fields in field_table().items():
        described = file.message_type.add(name=message)
        if any(mark == "|" for *_, mark in fields):
            described.oneof_decl.add(name="choice")
        for number, name, kind, mark in fields:
            label = kinds.LABEL_REPEATED if mark == "*" else kinds.LABEL_OPTIONAL
            field = described.field.add(name=name, number=number, label=label)
            if kind in scalars:
                field.type = scalars[kind]
            else:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            if mark == "|":
                field.oneof_index = 0
    return file


_pool: Final = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_file_descriptor().SerializeToString())


def _class_of(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


AuthenticateRequest: Final = _class_of("AuthenticateRequest")
AuthenticateResponse: Final = _class_of("AuthenticateResponse")
CompactionRequest: Final = _class_of("CompactionRequest")
CompactionResponse: Final = _class_of("CompactionResponse")
Compare: Final = _class_of("Compare")
LeaseGrantRequest: Final = _class_of("LeaseGrantRequest")
LeaseGrantResponse: Final = _class_of("LeaseGrantResponse")
LeaseKeepAliveRequest: Final = _class_of("LeaseKeepAliveRequest")
LeaseKeepAliveResponse: Final = _class_of("LeaseKeepAliveResponse")
LeaseLeasesRequest: Final = _class_of("LeaseLeasesRequest")
LeaseLeasesResponse: Final = _class_of("LeaseLeasesResponse")
LeaseRevokeRequest: Final = _class_of("LeaseRevokeRequest")
LeaseRevokeResponse: Final = _class_of("LeaseRevokeResponse")
LeaseTimeToLiveRequest: Final = _class_of("LeaseTimeToLiveRequest")
LeaseTimeToLiveResponse: Final = _class_of("LeaseTimeToLiveResponse")
RangeRequest: Final = _class_of("RangeRequest")
RangeResponse: Final = _class_of("RangeResponse")
StatusRequest: Final = _class_of("StatusRequest")
StatusResponse: Final = _class_of("StatusResponse")
TxnRequest: Final = _class_of("TxnRequest")
TxnResponse: Final = _class_of("TxnResponse")
WatchRequest: Final = _class_of("WatchRequest")
WatchResponse: Final = _class_of("WatchResponse")
