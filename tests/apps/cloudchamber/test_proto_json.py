"""Values as the Go program writes and reads them: bytes known from it, and the rules one by one (2.2, R18)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan import Secret
from keyplan.apps.cloudchamber import (
    Accelerator,
    AcceleratorV100,
    Affinity,
    Blade,
    BladeDetails,
    BootInfo,
    BootSource,
    Capacity,
    Condition,
    DeviceDetails,
    Hardware,
    HardwareType,
    Instance,
    InstanceTarget,
    Pdu,
    Port,
    Rack,
    RackDetails,
    RequiredCapacity,
    Rights,
    User,
    Volume,
    VolumeAttribute,
    Workload,
)
from keyplan.errors import CorruptionError, InvalidRecordError
from keyplan.protobuf import Message, ProtoJson

RACK = Rack(
    details=RackDetails(
        enabled=True,
        condition=Condition.OPERATIONAL,
        location="Pacific NW, rack 1",
        notes="rack definition, 1 pdu, 1 tor, 8 blades",
    )
)
RACK_BYTES = (
    b'{"details":{"enabled":true,"condition":"operational","location":"Pacific NW, rack 1",'
    b'"notes":"rack definition, 1 pdu, 1 tor, 8 blades"}}'
)
BLADE = Blade(
    details=BladeDetails(enabled=True, condition=Condition.OPERATIONAL),
    capacity=Capacity(cores=16, memory_in_mb=16384, disk_in_gb=240, network_bandwidth_in_mbps=2048, arch="X64"),
    boot_on_power_on=True,
    boot_info=BootInfo(
        source=BootSource.NETWORK, image="standard.vhdx", version="latest", parameters="-version=1 -node=R1Z1R1B1"
    ),
)
BLADE_BYTES = (
    b'{"details":{"enabled":true,"condition":"operational"},"capacity":{"cores":"16","memoryInMb":"16384","diskInGb":"240",'
    b'"networkBandwidthInMbps":"2048","arch":"X64"},"bootOnPowerOn":true,"bootInfo":{"source":"network",'
    b'"image":"standard.vhdx","version":"latest","parameters":"-version=1 -node=R1Z1R1B1"}}'
)
PDU = Pdu(
    details=DeviceDetails(enabled=True, condition=Condition.OPERATIONAL),
    ports={
        0: Port(wired=True, item=Hardware(type=HardwareType.TOR)),
        **{number: Port(wired=True, item=Hardware(type=HardwareType.BLADE, id=number)) for number in range(1, 9)},
    },
)


@pytest.mark.parametrize(
    ("record", "raw", "length"), [(RACK, RACK_BYTES, 136), (BLADE, BLADE_BYTES, 300)], ids=["rack", "blade"]
)
def test_a_record_of_the_standard_inventory_has_the_bytes_that_the_go_program_writes(
    record: Message, raw: bytes, length: int
) -> None:
    form = ProtoJson(type(record))
    assert len(raw) == length
    assert form.encode(record) == raw
    assert form.decode(raw) == record


def test_the_pdu_of_the_standard_inventory_leaves_out_what_is_zero() -> None:
    raw = ProtoJson(Pdu).encode(PDU)
    assert len(raw) == 521
    assert raw.startswith(
        b'{"details":{"enabled":true,"condition":"operational"},"ports":{"0":{"wired":true,"item":{"type":"tor"}},'
        b'"1":{"wired":true,"item":{"type":"blade","id":"1"}},'
    )


def test_a_user_has_its_hash_in_base64_and_its_obsolete_right_in_its_old_place() -> None:
    user = User(
        name="Admin", password_hash=Secret(b"\xfb\xff$2a"), can_manage_accounts=True, rights=Rights(can_step_time=True)
    )
    raw = b'{"name":"Admin","passwordHash":"+/8kMmE=","canManageAccounts":true,"rights":{"canStepTime":true}}'
    assert ProtoJson(User).encode(user) == raw
    assert ProtoJson(User).decode(raw) == user


def test_an_empty_message_is_an_empty_object_and_one_that_was_given_stays_given() -> None:
    assert ProtoJson(Rack).encode(Rack()) == b"{}"
    assert ProtoJson(Rack).encode(Rack(details=RackDetails())) == b'{"details":{}}'
    assert ProtoJson(Rack).decode(b'{"details":{}}') == Rack(details=RackDetails())


def test_maps_are_sorted_by_number_and_by_text() -> None:
    ports = {10: Port(), 2: Port(wired=True), -1: Port(), 1: Port()}
    assert ProtoJson(Pdu).encode(Pdu(ports=ports)) == b'{"ports":{"-1":{},"1":{},"2":{"wired":true},"10":{}}}'
    volumes = {"b": Volume(), "B": Volume(attribute=VolumeAttribute.WRITE_LOCKED), "a10": Volume(), "a2": Volume()}
    raw = b'{"volumes":{"B":{"attribute":"Write_locked"},"a10":{},"a2":{},"b":{}}}'
    assert ProtoJson(Instance).encode(Instance(volumes=volumes)) == raw


def test_texts_are_escaped_as_go_escapes_them() -> None:
    location = '<a>&"\\\n\r\t\b\x0c\x1f\x7f\u2028\u2029é😀'
    raw = (
        b'{"details":{"location":"\\u003ca\\u003e\\u0026\\"\\\\\\n\\r\\t\\u0008\\u000c\\u001f\x7f\\u2028\\u2029'
        + "é😀".encode()
        + b'"}}'
    )
    record = Rack(details=RackDetails(location=location))
    assert ProtoJson(Rack).encode(record) == raw
    assert ProtoJson(Rack).decode(raw) == record


@pytest.mark.parametrize(
    ("cores", "spelled"),
    [
        (1.0, b"1"),
        (0.5, b"0.5"),
        (-3.0, b"-3"),
        (1e20, b"100000000000000000000"),
        (1e21, b"1e+21"),
        (1e-6, b"0.000001"),
        (1.5e-7, b"1.5e-7"),
        (float("inf"), b'"Infinity"'),
        (float("-inf"), b'"-Infinity"'),
    ],
)
def test_floats_are_spelled_as_go_spells_them(cores: float, spelled: bytes) -> None:
    form = ProtoJson(RequiredCapacity)
    assert form.encode(RequiredCapacity(cores=cores)) == b'{"cores":' + spelled + b"}"
    assert form.decode(b'{"cores":' + spelled + b"}").cores == cores


@pytest.mark.parametrize(
    ("message", "raw", "record"),
    [
        (Capacity, b'{"cores":16}', Capacity(cores=16)),
        (Capacity, b'{"cores":"-9223372036854775808"}', Capacity(cores=-(2**63))),
        (Capacity, b'{"memory_in_mb":"1","disk_in_gb":2}', Capacity(memory_in_mb=1, disk_in_gb=2)),
        (Capacity, b' {"cores" : null, "arch":\n"X64"} ', Capacity(arch="X64")),
        (RackDetails, b'{"condition":3}', RackDetails(condition=Condition.OUT_FOR_REPAIR)),
        (Workload, b'{"affinity":"Weak_AntiAffinity"}', Workload(affinity=Affinity.WEAK_ANTI_AFFINITY)),
        (User, b'{"passwordHash":"-_8"}', User(password_hash=Secret(b"\xfb\xff"))),
        (RequiredCapacity, b'{"cores":"2.5"}', RequiredCapacity(cores=2.5)),
        (Capacity, b'{"accelerators":[{"v100":{}}]}', Capacity(accelerators=[Accelerator(v100=AcceleratorV100())])),
    ],
)
def test_reading_is_more_generous_than_writing(message: type[Message], raw: bytes, record: Message) -> None:
    assert ProtoJson(message).decode(raw) == record


def test_unknown_fields_are_kept_at_every_depth_behind_the_known_ones() -> None:
    raw = b'{"colour":"<red>","details":{"slot":{"u":[1,2.5,null]},"enabled":true},"ports":{"3":{"speed":"10G"}}}'
    pdu = ProtoJson(Pdu).decode(raw)
    assert pdu.unknown_fields == {"colour": "<red>"}
    assert ProtoJson(Pdu).encode(pdu) == (
        b'{"details":{"enabled":true,"slot":{"u":[1,2.5,null]}},"ports":{"3":{"speed":"10G"}},"colour":"\\u003cred\\u003e"}'
    )


def test_a_strict_form_refuses_unknown_fields_in_both_directions() -> None:
    strict = ProtoJson(Pdu, is_strict=True)
    assert strict.decode(b'{"ports":{"1":{"wired":true}}}') == Pdu(ports={1: Port(wired=True)})
    with pytest.raises(CorruptionError, match=r"unknown field at ports\.1"):
        strict.decode(b'{"ports":{"1":{"speed":"10G"}}}')
    with pytest.raises(InvalidRecordError):
        strict.encode(Pdu(unknown_fields={"colour": "red"}))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'"\xff"',
        b"[" * 100_000,
        b'{"details":[]}',
        b'{"ports":{"x":{}}}',
        b'{"ports":{"01":{}}}',
        b'{"ports":{"1":1}}',
        b'{"details":{"enabled":"true"}}',
        b'{"details":{"enabled":1}}',
        b'{"details":{"condition":"secret"}}',
        b'{"details":{"condition":6}}',
        b'{"details":{"condition":true}}',
        b'{"ports":{"9223372036854775808":{}}}',
    ],
)
def test_bytes_that_are_no_record_are_damage_and_are_not_quoted(raw: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        ProtoJson(Pdu).decode(raw)
    assert "secret" not in str(caught.value)


def wrong(record: Any) -> Any:
    return record


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (Blade(capacity=Capacity(cores=2**63)), "capacity.cores"),
        (Blade(capacity=Capacity(cores=wrong("16"))), "capacity.cores"),
        (Blade(capacity=Capacity(cores=wrong(True))), "capacity.cores"),
        (Blade(capacity=Capacity(arch=wrong(None))), "capacity.arch"),
        (Blade(boot_on_power_on=wrong(0)), "boot_on_power_on"),
        (Blade(details=wrong(DeviceDetails())), "details"),
        (Blade(details=BladeDetails(condition=wrong("operational"))), "details.condition"),
        (Blade(capacity=Capacity(accelerators=[wrong(None)])), "capacity.accelerators.0"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_name_before_it_is_written(record: Blade, field: str) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        ProtoJson(Blade).encode(record)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "record",
    [
        Rack(),
        InstanceTarget(rackid="\ud800"),
        InstanceTarget(unknown_fields={"generation": 1}),
        InstanceTarget(unknown_fields={"desired_state": "x"}),
        InstanceTarget(unknown_fields={"x": {1}}),
        InstanceTarget(unknown_fields={"x": float("nan")}),
        InstanceTarget(unknown_fields=wrong({1: "x"})),
    ],
)
def test_what_would_not_be_read_back_is_refused(record: Any) -> None:
    with pytest.raises(InvalidRecordError):
        ProtoJson(InstanceTarget).encode(record)


def test_a_password_hash_is_not_printed_with_its_record() -> None:
    assert "secret" not in repr(User(name="alice", password_hash=Secret(b"secret")))


def test_the_form_describes_every_field_and_enumerator_for_comparing_layouts() -> None:
    assert ProtoJson(Pdu).describe() == {
        "form": "proto3-json",
        "type": "Pdu",
        "is_strict": False,
        "types": {
            "Pdu": {"details": "DeviceDetails", "ports": "map of int to Port"},
            "DeviceDetails": {"enabled": "bool", "condition": "Condition"},
            "Condition": ["not_in_service", "operational", "burn_in", "out_for_repair", "retiring", "retired"],
            "Port": {"wired": "bool", "item": "Hardware"},
            "Hardware": {"type": "HardwareType", "id": "int", "port": "int"},
            "HardwareType": ["unknown", "pdu", "tor", "blade"],
        },
    }


INT64 = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(st.text(min_size=1).filter(lambda name: name not in {"wired", "item"}), JSON, max_size=3)


@given(
    ports=st.dictionaries(
        INT64,
        st.builds(
            Port,
            wired=st.booleans(),
            item=st.none() | st.builds(Hardware, type=st.sampled_from(HardwareType), id=INT64, port=INT64),
            unknown_fields=UNKNOWN,
        ),
        max_size=5,
    )
)
def test_every_record_that_is_taken_is_read_back(ports: dict[int, Port]) -> None:
    form = ProtoJson(Pdu)
    assert form.decode(form.encode(Pdu(ports=ports))) == Pdu(ports=ports)
