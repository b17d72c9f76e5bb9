"""What points at what in runm-metadata: the entries of the document's records, and the values of its pointers."""

from typing import Final
from uuid import UUID

import pytest

from keyplan.apps.runm import Object, ObjectType, Partition, Property, Runm
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.layout import BoundLayout

EAST: Final = UUID("d3873f99a21f45f5bce156c1f8b84b03")
WEST: Final = UUID("d79706e01fbd4e48aae89209061cdb71")
RHEL: Final = UUID("54b8d8d7e24c43799bbf70c16e921e52")
DEBIAN: Final = UUID("60b53edd16764f6abc081ddb0a73e69c")
GROUP: Final = UUID("3bf3e700f11b4a7cb99244c554b3a856")
PROJECT: Final = "eff883565999408dbec3eb5070d5ecf5"
ROW: Final = "us-east1-row1-rack2"


@pytest.fixture(scope="module")
def runm() -> BoundLayout:
    return Runm.bound()


DEFINITION_POINTERS: Final = [
    ("type_definitions", "d296e062ef55443a8dd40369e2a3048d"),
    ("partition_type_definitions", "62026a2934c54df395ba44b0b398c808"),
    ("partition_sub_type_definitions", "f3823e51dbfd420f807f3a1daac674f0"),
    ("partition_sub_type_definitions", "d133ac2327ae49e8a4d72a1b57e1ed0c"),
    ("sub_type_definitions", "f3823e51dbfd420f807f3a1daac674f0"),
]


@pytest.mark.parametrize(("table", "digits"), DEFINITION_POINTERS)
def test_a_pointer_to_a_definition_is_32_digits(runm: BoundLayout, table: str, digits: str) -> None:
    form = runm.tables[table].form
    assert form.encode(UUID(digits)) == digits.encode()
    assert form.decode(digits.encode()) == UUID(digits)


@pytest.mark.parametrize(
    "raw",
    [
        b"id133ac2327ae49e8a4d72a1b57e1ed0c",  # the document's slip: 33 characters (S5)
        b"D133AC2327AE49E8A4D72A1B57E1ED0C",
        b"d133ac23-27ae-49e8-a4d7-2a1b57e1ed0c",
        b"d133ac2327ae49e8a4d72a1b57e1ed0c\n",
        b"",
    ],
)
def test_a_pointer_in_another_spelling_is_damage(runm: BoundLayout, raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        runm.tables["partition_sub_type_definitions"].form.decode(raw)


IMAGE_RHEL: Final = Object(
    partition=WEST,
    object_type="runm.image",
    uuid=RHEL,
    name="rhel7.5.2",
    project=PROJECT,
    properties=(Property("architecture", "x86_64"),),
    tags=("unicorn",),
)
IMAGE_DEBIAN: Final = Object(
    partition=WEST,
    object_type="runm.image",
    uuid=DEBIAN,
    name="debian-sid",
    project=PROJECT,
    properties=(Property("architecture", "arm64"),),
    tags=("unicorn",),
)
PROVIDER_GROUP: Final = Object(
    partition=WEST, object_type="runm.provider_group", uuid=GROUP, name=ROW, tags=("rainbow",)
)


def entries_of(layout: BoundLayout, table: str, key: object, record: object) -> dict[bytes, bytes]:
    return {raw_key: value for index in layout.tables[table].indexes for raw_key, value in index.entries(key, record)}


def test_a_partition_is_found_by_name(runm: BoundLayout) -> None:
    record = Partition(EAST, "us-east.example.com")
    assert entries_of(runm, "partitions", EAST, record) == {
        b"runm/metadata/partitions/by-name/us-east.example.com": b"d3873f99a21f45f5bce156c1f8b84b03",
    }


def test_an_object_of_a_project_has_the_entries_of_the_document(runm: BoundLayout) -> None:
    w = b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/"
    project = b"objects/by-type/runm.image/by-project/eff883565999408dbec3eb5070d5ecf5/by-name/"
    assert entries_of(runm, "objects", RHEL, IMAGE_RHEL) == {
        w + project + b"rhel7.5.2": b"54b8d8d7e24c43799bbf70c16e921e52",
        w + b"properties/by-type/runm.image/architecture/x86_64/54b8d8d7e24c43799bbf70c16e921e52": b"",
        w + b"tags/unicorn/54b8d8d7e24c43799bbf70c16e921e52": b"",
    }
    assert entries_of(runm, "objects", DEBIAN, IMAGE_DEBIAN) == {
        w + project + b"debian-sid": b"60b53edd16764f6abc081ddb0a73e69c",
        w + b"properties/by-type/runm.image/architecture/arm64/60b53edd16764f6abc081ddb0a73e69c": b"",
        w + b"tags/unicorn/60b53edd16764f6abc081ddb0a73e69c": b"",
    }


def test_an_object_of_a_partition_has_no_entry_by_project(runm: BoundLayout) -> None:
    w = b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/"
    assert entries_of(runm, "objects", GROUP, PROVIDER_GROUP) == {
        w + b"objects/by-type/runm.provider_group/by-name/us-east1-row1-rack2": b"3bf3e700f11b4a7cb99244c554b3a856",
        w + b"tags/rainbow/3bf3e700f11b4a7cb99244c554b3a856": b"",
    }


def test_every_property_and_every_tag_is_an_entry_and_a_repeated_tag_is_one(runm: BoundLayout) -> None:
    record = Object(
        partition=WEST,
        object_type="runm.machine",
        uuid=GROUP,
        name="m",
        project="p",
        properties=(Property("appgroup", "A"), Property("os", "linux/redhat")),
        tags=("a", "b", "a"),
    )
    w = b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/"
    assert set(entries_of(runm, "objects", GROUP, record)) == {
        w + b"objects/by-type/runm.machine/by-project/p/by-name/m",
        w + b"properties/by-type/runm.machine/appgroup/A/3bf3e700f11b4a7cb99244c554b3a856",
        w + b"properties/by-type/runm.machine/os/linux%2Fredhat/3bf3e700f11b4a7cb99244c554b3a856",
        w + b"tags/a/3bf3e700f11b4a7cb99244c554b3a856",
        w + b"tags/b/3bf3e700f11b4a7cb99244c554b3a856",
    }


@pytest.mark.parametrize(
    ("index", "raw_key", "raw_value", "primary"),
    [
        ("partitions_by_name", b"runm/metadata/partitions/by-name/x", WEST.hex.encode(), WEST),
        (
            "objects_by_name",
            b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/objects/by-type/runm.provider_group/by-name/r",
            b"3bf3e700f11b4a7cb99244c554b3a856",
            GROUP,
        ),
        (
            "objects_by_tag",
            b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/tags/t/54b8d8d7e24c43799bbf70c16e921e52",
            b"",
            RHEL,
        ),
    ],
)
def test_an_entry_leads_to_its_record(
    runm: BoundLayout, index: str, raw_key: bytes, raw_value: bytes, primary: UUID
) -> None:
    assert runm.indexes[index].primary_key(raw_key, raw_value) == primary


def test_a_name_entry_with_the_documents_slip_as_value_is_damage(runm: BoundLayout) -> None:
    with pytest.raises(CorruptionError):
        runm.indexes["partitions_by_name"].primary_key(
            b"runm/metadata/partitions/by-name/x", b"id133ac2327ae49e8a4d72a1b57e1ed0c"
        )


def test_a_value_of_300_bytes_is_refused_before_anything_is_written(runm: BoundLayout) -> None:
    record = Object(partition=WEST, object_type="runm.image", uuid=RHEL, name="n", project="p", tags=("t" * 300,))
    with pytest.raises(InvalidKeyError) as refused:
        entries_of(runm, "objects", RHEL, record)
    assert refused.value.facts["bytes_max"] == 255


def test_the_scenario_of_the_document_is_23_keys(runm: BoundLayout) -> None:
    definition = UUID("d296e062ef55443a8dd40369e2a3048d")
    tables = {name: table.keys.encode for name, table in runm.tables.items()}
    keys = {tables["object_types"](f"runm.{code}") for code in ("image", "machine", "provider", "provider_group")}
    keys |= {tables["sub_types"](("runm.provider", code)) for code in ("runm.compute", "runm.storage.block")}
    keys |= {tables["type_definitions"]("runm.provider"), tables["definitions"](definition)}
    for uuid, name in ((EAST, "us-east.example.com"), (WEST, "us-west.example.com")):
        keys |= {tables["partitions"](uuid), *entries_of(runm, "partitions", uuid, Partition(uuid, name))}
    for record in (IMAGE_RHEL, IMAGE_DEBIAN, PROVIDER_GROUP):
        keys |= {tables["objects"](record.uuid), *entries_of(runm, "objects", record.uuid, record)}
    w = "partitions/d79706e01fbd4e48aae89209061cdb71/"
    image = f"{w}objects/by-type/runm.image/by-project/eff883565999408dbec3eb5070d5ecf5/by-name/"
    expected = f"""
        definitions/by-type/runm.provider/default
        definitions/by-uuid/d296e062ef55443a8dd40369e2a3048d
        objects/by-uuid/3bf3e700f11b4a7cb99244c554b3a856
        objects/by-uuid/54b8d8d7e24c43799bbf70c16e921e52
        objects/by-uuid/60b53edd16764f6abc081ddb0a73e69c
        partitions/by-name/us-east.example.com
        partitions/by-name/us-west.example.com
        partitions/by-uuid/d3873f99a21f45f5bce156c1f8b84b03
        partitions/by-uuid/d79706e01fbd4e48aae89209061cdb71
        {image}debian-sid
        {image}rhel7.5.2
        {w}objects/by-type/runm.provider_group/by-name/us-east1-row1-rack2
        {w}properties/by-type/runm.image/architecture/arm64/60b53edd16764f6abc081ddb0a73e69c
        {w}properties/by-type/runm.image/architecture/x86_64/54b8d8d7e24c43799bbf70c16e921e52
        {w}tags/rainbow/3bf3e700f11b4a7cb99244c554b3a856
        {w}tags/unicorn/54b8d8d7e24c43799bbf70c16e921e52
        {w}tags/unicorn/60b53edd16764f6abc081ddb0a73e69c
        types/object/runm.image
        types/object/runm.machine
        types/object/runm.provider
        types/object/runm.provider_group
        types/runm.provider/runm.compute
        types/runm.provider/runm.storage.block
    """.split()
    assert len(expected) == 23
    assert sorted(keys) == [b"runm/metadata/" + key.encode() for key in expected]


def test_a_record_survives_its_value_form(runm: BoundLayout) -> None:
    form = runm.tables["objects"].form
    assert form.decode(form.encode(IMAGE_RHEL)) == IMAGE_RHEL
    types = runm.tables["object_types"].form
    assert types.decode(types.encode(ObjectType("runm.image"))) == ObjectType("runm.image")
