"""Protobuf messages, declared once: of a table of fields come the protobuf package's classes, records, and proto3 JSON.

Read `declaration.py` first: how a message is declared. Nothing here needs the protobuf package, but `Schema.classes` and
`Schema.record_wire`.
"""

from keyplan.protobuf.declaration import Field, Method
from keyplan.protobuf.etcd import (
    ETCD,
    AlarmAction,
    AlarmType,
    CompareResult,
    CompareTarget,
    EventType,
    FilterType,
    SortOrder,
    SortTarget,
)
from keyplan.protobuf.json_form import JsonStyle, ProtoJson, json_codec
from keyplan.protobuf.record_wire import RecordWire
from keyplan.protobuf.records import Message, unknown_field_paths, with_unknown_fields_of
from keyplan.protobuf.scalars import INT64_MAX, INT64_MIN, SCALARS, MisfitError
from keyplan.protobuf.schema import Schema

__all__ = [
    "ETCD",
    "INT64_MAX",
    "INT64_MIN",
    "SCALARS",
    "AlarmAction",
    "AlarmType",
    "CompareResult",
    "CompareTarget",
    "EventType",
    "Field",
    "FilterType",
    "JsonStyle",
    "Message",
    "Method",
    "MisfitError",
    "ProtoJson",
    "RecordWire",
    "Schema",
    "SortOrder",
    "SortTarget",
    "json_codec",
    "unknown_field_paths",
    "with_unknown_fields_of",
]
