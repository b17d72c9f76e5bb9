"""The acceptance cases on objects over real gRPC, the store compared byte for byte."""

from tests.apps.runm.client import GROUP, I1, I2, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served
from tests.apps.runm.golden import GOLDEN

IMAGE_1 = {
    "partition": WEST,
    "object_type": "runm.image",
    "project": PROJECT,
    "uuid": I1,
    "name": "rhel7.5.2",
    "properties": [{"key": "architecture", "value": "x86_64"}],
    "tags": ["unicorn"],
}
IMAGE_2 = {**IMAGE_1, "uuid": I2, "name": "debian-sid", "properties": [{"key": "architecture", "value": "arm64"}]}
ROW = {
    "partition": WEST,
    "object_type": "runm.provider_group",
    "uuid": GROUP,
    "name": "us-east1-row1-rack2",
    "tags": ["rainbow"],
}
W = f"partitions/{WEST}/"


def test_a_first_start_leaves_eight_keys(empty: Served) -> None:
    dump = empty.dump()
    assert len(dump) == 8
    for name in ("H3", "H4", "H5", "H6", "H7", "H8"):
        key, value = GOLDEN[name]
        assert dump[key] == value
    pointer = dump["definitions/by-type/runm.provider/default"].decode()
    assert f"definitions/by-uuid/{pointer}" in dump


def test_the_documents_scenario_leaves_its_twenty_three_keys(west: Served) -> None:
    for given in (IMAGE_1, IMAGE_2, ROW):
        west.client.object_create(SW, object=given)
    dump = west.dump()
    assert len(dump) == 23
    for name in ("H1", "H2", "H9", "H10", "H11"):
        key, value = GOLDEN[name]
        assert dump[key] == value
    images = f"{W}objects/by-type/runm.image/by-project/{PROJECT}/by-name/"
    assert dump[f"{images}debian-sid"] == I2.encode()
    assert dump[f"{images}rhel7.5.2"] == I1.encode()
    assert dump[f"{W}objects/by-type/runm.provider_group/by-name/us-east1-row1-rack2"] == GROUP.encode()
    assert dump[f"{W}properties/by-type/runm.image/architecture/arm64/{I2}"] == b""
    assert dump[f"{W}properties/by-type/runm.image/architecture/x86_64/{I1}"] == b""
    assert dump[f"{W}tags/rainbow/{GROUP}"] == b""
    assert dump[f"{W}tags/unicorn/{I1}"] == dump[f"{W}tags/unicorn/{I2}"] == b""


def test_a_name_that_is_taken_is_refused(west: Served) -> None:
    west.client.object_create(SW, object=IMAGE_1)
    before = west.dump()
    with refused("ALREADY_EXISTS"):
        west.client.object_create(SW, object={**IMAGE_2, "name": "rhel7.5.2"})
    assert west.dump() == before
