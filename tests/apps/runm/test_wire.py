"""Stored values are the original's bytes, and the two encoders, ours for records and protobuf's for messages, agree."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.apps.runm import (
    Object,
    ObjectDefinition,
    ObjectType,
    ObjectTypeScope,
    Partition,
    Property,
    PropertyPermission,
    PropertyPermissions,
    ProviderType,
    Runm,
)
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.codec import ValueForm
from keyplan.errors import CorruptionError, InvalidRecordError
from tests.apps.runm.golden import GOLDEN

EAST: Final = UUID("d3873f99a21f45f5bce156c1f8b84b03")
WEST: Final = UUID("d79706e01fbd4e48aae89209061cdb71")
RHEL: Final = UUID("54b8d8d7e24c43799bbf70c16e921e52")
DEBIAN: Final = UUID("60b53edd16764f6abc081ddb0a73e69c")
GROUP: Final = UUID("3bf3e700f11b4a7cb99244c554b3a856")
PROJECT: Final = "eff883565999408dbec3eb5070d5ecf5"


def image(uuid: UUID, name: str, architecture: str) -> Object:
    return Object(WEST, "runm.image", uuid, name, PROJECT, (Property("architecture", architecture),), ("unicorn",))


RECORDS: Final[dict[str, Any]] = {
    "H1": Partition(EAST, "us-east.example.com"),
    "H2": Partition(WEST, "us-west.example.com"),
    "H3": ObjectType("runm.image", "A bootable bunch of bits", ObjectTypeScope.PROJECT),
    "H4": ObjectType(
        "runm.machine",
        "Created by a user, a machine consumes compute resources from one of more providers",
        ObjectTypeScope.PROJECT,
    ),
    "H5": ObjectType("runm.provider", "A provider of some resources, e.g. a compute node or an SR-IOV NIC"),
    "H6": ObjectType("runm.provider_group", "A group of providers"),
    "H7": ProviderType("runm.compute", "A provider of CPU, memory, local block storage, etc"),
    "H8": ProviderType("runm.storage.block", "A provider of block storage"),
    "H9": image(RHEL, "rhel7.5.2", "x86_64"),
    "H10": image(DEBIAN, "debian-sid", "arm64"),
    "H11": Object(WEST, "runm.provider_group", GROUP, "us-east1-row1-rack2", tags=("rainbow",)),
    "H12": ObjectDefinition(
        UUID("f3823e51dbfd420f807f3a1daac674f0"),
        "{}",
        (
            PropertyPermissions(
                "architecture", (PropertyPermission(project="proj0", permission=3), PropertyPermission(permission=1))
            ),
        ),
    ),
}


def form_at(key: str) -> ValueForm[Any]:
    """The form of the table whose key this is, below the default root."""
    runm = Runm.bound()
    return runm.table(str(runm.meaning(b"runm/metadata/" + key.encode()).item)).form


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_is_stored_as_the_original_stores_it(name: str) -> None:
    key, value = GOLDEN[name]
    assert form_at(key).encode(RECORDS[name]) == value
    assert form_at(key).decode(value) == RECORDS[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_message_classes_write_the_same_bytes(name: str) -> None:
    _, value = GOLDEN[name]
    message = getattr(messages, type(RECORDS[name]).__name__).FromString(value)
    assert message.SerializeToString(deterministic=True) == value


texts = st.text(st.characters(codec="utf-8"), max_size=200)
objects = st.builds(
    Object,
    partition=st.uuids(),
    object_type=texts,
    uuid=st.uuids(),
    name=texts,
    project=texts,
    properties=st.lists(st.builds(Property, texts, texts), max_size=4).map(tuple),
    tags=st.lists(texts, max_size=4).map(tuple),
)


@given(objects)
def test_our_encoding_of_an_object_is_protobufs(record: Object) -> None:
    message = messages.Object(
        partition=record.partition.hex,
        object_type=record.object_type,
        project=record.project,
        uuid=record.uuid.hex,
        name=record.name,
        properties=[messages.Property(key=one.key, value=one.value) for one in record.properties],
        tags=record.tags,
    )
    raw = RUNM.wire_form(Object).encode(record)
    assert raw == message.SerializeToString(deterministic=True)
    assert RUNM.wire_form(Object).decode(raw) == record


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_damage(raw: bytes) -> None:
    for kind in (Object, ObjectType, ObjectDefinition):
        try:
            record = RUNM.wire_form(kind).decode(raw)
        except CorruptionError:
            continue
        else:
            assert isinstance(record, kind)


@given(objects, st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_damage_to_a_stored_object_never_raises_anything_else(record: Object, place: int, damage: bytes) -> None:
    raw = RUNM.wire_form(Object).encode(record)
    with suppress(CorruptionError):
        RUNM.wire_form(Object).decode(raw[:place] + damage + raw[place + len(damage) :])


def test_fields_that_are_unknown_or_out_of_order_are_read_as_proto3_reads_them() -> None:
    name, uuid = b"\x12\x01a", b"\x0a\x20" + EAST.hex.encode()
    later = (
        b"\xa0\x06\x07" + b"\x7d\x00\x00\x00\x00" + b"\x81\x01" + bytes(8)
    )  # 100: a number; 15: 4 bytes; 16: 8 bytes
    assert RUNM.wire_form(Partition).decode(name + later + uuid + b"\x12\x01b") == Partition(EAST, "b")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="no uuid"),
        pytest.param(b"\x0a\x20" + b"D" * 32, id="upper case"),
        pytest.param(b"\x0a\x08notauuid", id="as the original stored any text"),
        pytest.param(b"\x0a\x21" + b"d" * 32, id="cut off"),
        pytest.param(b"\x0a\x20" + b"d" * 32 + b"\x12\x01\xff", id="not UTF-8"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\xff" * 11, id="a number that does not end"),
    ],
)
def test_what_is_no_partition_is_damage(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        RUNM.wire_form(Partition).decode(raw)


@pytest.mark.parametrize(
    "record",
    [
        Object(WEST, "t", RHEL, 7),  # type: ignore[arg-type]  # Why: the mistake that is to be found.
        Object("west", "t", RHEL, "n"),  # type: ignore[arg-type]  # Why: as above.
        Object(WEST, "t", RHEL, "lone \ud800"),
        Object(WEST, "t", RHEL, "n", tags=(1,)),  # type: ignore[arg-type]  # Why: as above.
        Object(WEST, "t", RHEL, "n", properties=("k",)),  # type: ignore[arg-type]  # Why: as above.
    ],
)
def test_a_record_with_a_field_of_the_wrong_type_is_refused_before_it_is_written(record: Object) -> None:
    with pytest.raises(InvalidRecordError):
        RUNM.wire_form(Object).encode(record)


# ---- the contract ------------------------------------------------------------------------------------------------------

CONTRACT: Final = (Path(__file__).parent / "contract.txt").read_text().splitlines()
EXTENSIONS: Final = {"Object": {100}, "ObjectFilter": {7}, "Session": {4}}
KINDS: Final = {4: "uint64", 8: "bool", 9: "string", 12: "bytes", 13: "uint32"}


def shown_type(field: Any) -> str:
    repeated = "repeated " if field.is_repeated else ""
    own = field.message_type or field.enum_type
    return repeated + (KINDS[field.type] if own is None else own.name)


@pytest.mark.parametrize("line", CONTRACT, ids=lambda line: line.partition(":")[0])
def test_a_message_has_the_contracts_numbers_names_and_types(line: str) -> None:
    """`contract.txt` lists the original's messages."""
    name, _, fields = line.partition(": ")
    found = [
        f"{field.number} {field.name} {shown_type(field)}"
        for field in messages.pool.FindMessageTypeByName(f"runm.{name}").fields
        if field.number not in EXTENSIONS.get(name, ())
    ]
    # Why: some lines have the name first, some the type; the contract is the same.
    assert [sorted(one.split()) for one in found] == [sorted(one.split()) for one in fields.split("; ")]


ORIGINAL_CALLS: Final = [
    *("partition_get_by_uuid", "partition_get_by_name", "partition_find", "partition_create"),
    *("object_type_get_by_code", "object_type_find", "object_get_by_uuid", "object_get_by_name"),
    *("object_delete_by_uuids", "object_create", "object_find", "provider_type_get_by_code", "provider_type_find"),
    *("provider_definition_get_global_default", "provider_definition_get_by_partition"),
    *("provider_definition_get_by_type", "provider_definition_get_by_partition_and_type", "provider_definition_set"),
]


def test_the_service_has_the_originals_eighteen_calls_first_and_four_of_them_stream() -> None:
    methods = messages.pool.FindServiceByName("runm.RunmMetadata").methods
    assert [method.name for method in methods][:18] == ORIGINAL_CALLS
    streams = [method.name for method in methods[:18] if method.server_streaming]
    assert streams == ["partition_find", "object_type_find", "object_find", "provider_type_find"]
    assert not any(method.client_streaming for method in methods)


def test_every_call_of_the_front_end_is_there() -> None:
    methods = [method.name for method in messages.pool.FindServiceByName("runm.RunmAPI").methods]
    assert re.sub(r"\s+", " ", " ".join(methods)) == (
        "partition_get partition_list partition_create provider_type_get provider_type_list provider_definition_get"
        " provider_definition_set provider_get provider_list provider_create provider_delete"
    )
