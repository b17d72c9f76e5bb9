"""etcd's third protocol: what keyplan speaks of its `rpc.proto`, `kv.proto` and `auth.proto` (3.4 and later).

Here because two speak it that do not know one another: the engine, a client over gRPC, and the gateway, a server.
"""

from enum import IntEnum
from typing import Final

from keyplan.protobuf.schema import Schema

__all__ = [
    "ETCD",
    "AlarmAction",
    "AlarmType",
    "CompareResult",
    "CompareTarget",
    "EventType",
    "FilterType",
    "SortOrder",
    "SortTarget",
]


class CompareResult(IntEnum):
    """How a compare compares."""

    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class CompareTarget(IntEnum):
    """What a compare looks at."""

    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3
    LEASE = 4


class SortOrder(IntEnum):
    """Whether a list is sorted, and which way."""

    NONE = 0
    ASCEND = 1
    DESCEND = 2


class SortTarget(IntEnum):
    """What a list is sorted by."""

    KEY = 0
    VERSION = 1
    CREATE = 2
    MOD = 3
    VALUE = 4


class EventType(IntEnum):
    """What happened to a key."""

    PUT = 0
    DELETE = 1


class FilterType(IntEnum):
    """Which events a watch leaves out."""

    NOPUT = 0
    NODELETE = 1


class AlarmType(IntEnum):
    """What an alarm is about."""

    NONE = 0
    NOSPACE = 1
    CORRUPT = 2


class AlarmAction(IntEnum):
    """What is asked about alarms."""

    GET = 0
    ACTIVATE = 1
    DEACTIVATE = 2


_MESSAGES: Final = """
ResponseHeader: 1 cluster_id uint64, 2 member_id uint64, 3 revision int64, 4 raft_term uint64
KeyValue: 1 key bytes, 2 create_revision int64, 3 mod_revision int64, 4 version int64, 5 value bytes, 6 lease int64
Event: 1 type Event.EventType, 2 kv KeyValue, 3 prev_kv KeyValue

RangeRequest: 1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 5 sort_order RangeRequest.SortOrder,
    6 sort_target RangeRequest.SortTarget, 7 serializable bool, 8 keys_only bool, 9 count_only bool, 10 min_mod_revision int64,
    11 max_mod_revision int64, 12 min_create_revision int64, 13 max_create_revision int64
RangeResponse: 1 header ResponseHeader, 2 kvs repeated KeyValue, 3 more bool, 4 count int64
PutRequest: 1 key bytes, 2 value bytes, 3 lease int64, 4 prev_kv bool, 5 ignore_value bool, 6 ignore_lease bool
PutResponse: 1 header ResponseHeader, 2 prev_kv KeyValue
DeleteRangeRequest: 1 key bytes, 2 range_end bytes, 3 prev_kv bool
DeleteRangeResponse: 1 header ResponseHeader, 2 deleted int64, 3 prev_kvs repeated KeyValue

RequestOp: 1 request_range oneof RangeRequest, 2 request_put oneof PutRequest,
    3 request_delete_range oneof DeleteRangeRequest, 4 request_txn oneof TxnRequest
ResponseOp: 1 response_range oneof RangeResponse, 2 response_put oneof PutResponse,
    3 response_delete_range oneof DeleteRangeResponse, 4 response_txn oneof TxnResponse
Compare: 1 result Compare.CompareResult, 2 target Compare.CompareTarget, 3 key bytes, 4 version oneof int64,
    5 create_revision oneof int64, 6 mod_revision oneof int64, 7 value oneof bytes, 8 lease oneof int64, 64 range_end bytes
TxnRequest: 1 compare repeated Compare, 2 success repeated RequestOp, 3 failure repeated RequestOp
TxnResponse: 1 header ResponseHeader, 2 succeeded bool, 3 responses repeated ResponseOp
CompactionRequest: 1 revision int64, 2 physical bool
CompactionResponse: 1 header ResponseHeader

WatchCreateRequest: 1 key bytes, 2 range_end bytes, 3 start_revision int64, 4 progress_notify bool,
    5 filters repeated WatchCreateRequest.FilterType, 6 prev_kv bool, 7 watch_id int64, 8 fragment bool
WatchCancelRequest: 1 watch_id int64
WatchProgressRequest:
WatchRequest: 1 create_request oneof WatchCreateRequest, 2 cancel_request oneof WatchCancelRequest,
    3 progress_request oneof WatchProgressRequest
WatchResponse: 1 header ResponseHeader, 2 watch_id int64, 3 created bool, 4 canceled bool, 5 compact_revision int64,
    6 cancel_reason string, 7 fragment bool, 11 events repeated Event

LeaseGrantRequest: 1 TTL int64, 2 ID int64
LeaseGrantResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 error string
LeaseRevokeRequest: 1 ID int64
LeaseRevokeResponse: 1 header ResponseHeader
LeaseKeepAliveRequest: 1 ID int64
LeaseKeepAliveResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64
LeaseTimeToLiveRequest: 1 ID int64, 2 keys bool
LeaseTimeToLiveResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 grantedTTL int64, 5 keys repeated bytes
LeaseStatus: 1 ID int64
LeaseLeasesRequest:
LeaseLeasesResponse: 1 header ResponseHeader, 2 leases repeated LeaseStatus

AuthenticateRequest: 1 name string, 2 password string
AuthenticateResponse: 1 header ResponseHeader, 2 token string
StatusRequest:
StatusResponse: 1 header ResponseHeader, 2 version string, 3 dbSize int64, 4 leader uint64, 5 raftIndex uint64,
    6 raftTerm uint64
Member: 1 ID uint64, 2 name string, 3 peerURLs repeated string, 4 clientURLs repeated string
AlarmRequest: 1 action AlarmRequest.AlarmAction, 2 memberID uint64, 3 alarm AlarmType
AlarmMember: 1 memberID uint64, 2 alarm AlarmType
AlarmResponse: 1 header ResponseHeader, 2 alarms repeated AlarmMember
MemberListRequest:
MemberListResponse: 1 header ResponseHeader, 2 members repeated Member
"""

ETCD: Final = Schema(
    "etcdserverpb",
    _MESSAGES,
    enums={
        "AlarmRequest.AlarmAction": AlarmAction,
        "AlarmType": AlarmType,
        "Compare.CompareResult": CompareResult,
        "Compare.CompareTarget": CompareTarget,
        "Event.EventType": EventType,
        "RangeRequest.SortOrder": SortOrder,
        "RangeRequest.SortTarget": SortTarget,
        "WatchCreateRequest.FilterType": FilterType,
    },
    services={
        "KV": """
            Range RangeRequest RangeResponse
            Put PutRequest PutResponse
            DeleteRange DeleteRangeRequest DeleteRangeResponse
            Txn TxnRequest TxnResponse
            Compact CompactionRequest CompactionResponse
        """,
        "Watch": "Watch stream WatchRequest stream WatchResponse",
        "Lease": """
            LeaseGrant LeaseGrantRequest LeaseGrantResponse
            LeaseRevoke LeaseRevokeRequest LeaseRevokeResponse
            LeaseKeepAlive stream LeaseKeepAliveRequest stream LeaseKeepAliveResponse
            LeaseTimeToLive LeaseTimeToLiveRequest LeaseTimeToLiveResponse
            LeaseLeases LeaseLeasesRequest LeaseLeasesResponse
        """,
        "Auth": "Authenticate AuthenticateRequest AuthenticateResponse",
        "Cluster": "MemberList MemberListRequest MemberListResponse",
        "Maintenance": """
            Alarm AlarmRequest AlarmResponse
            Status StatusRequest StatusResponse
        """,
    },
)
"""The table. Its classes' package is etcdserverpb throughout, where etcd keeps KeyValue and Event in one of their own."""
