"""Every key that the runm-metadata document draws, byte for byte, and what the rulings make of the keys around them."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import pytest

from keyplan.apps.runm import (
    Endpoint,
    Object,
    ObjectName,
    ObjectSubType,
    ObjectType,
    Partition,
    PartitionObjectName,
    PartitionSubType,
    PartitionType,
    Property,
    Runm,
    RunmRegistry,
    root_of,
)
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.layout import BoundLayout, Kind, Only

EAST: Final = UUID("d3873f99a21f45f5bce156c1f8b84b03")
WEST: Final = UUID("d79706e01fbd4e48aae89209061cdb71")
RHEL: Final = UUID("54b8d8d7e24c43799bbf70c16e921e52")
DEBIAN: Final = UUID("60b53edd16764f6abc081ddb0a73e69c")
GROUP: Final = UUID("3bf3e700f11b4a7cb99244c554b3a856")
PROJECT: Final = "eff883565999408dbec3eb5070d5ecf5"
ROW: Final = "us-east1-row1-rack2"

W: Final = "partitions/d79706e01fbd4e48aae89209061cdb71/"

DOCUMENT: Final[tuple[tuple[str, str, object], ...]] = (
    # The $ROOT key namespace.
    ("definitions/by-type/runm.provider/default", "type_definitions", "runm.provider"),
    (
        "definitions/by-uuid/62026a2934c54df395ba44b0b398c808",
        "definitions",
        UUID("62026a2934c54df395ba44b0b398c808"),
    ),
    (
        "definitions/by-uuid/d133ac2327ae49e8a4d72a1b57e1ed0c",
        "definitions",
        UUID("d133ac2327ae49e8a4d72a1b57e1ed0c"),
    ),
    (
        "definitions/by-uuid/d296e062ef55443a8dd40369e2a3048d",
        "definitions",
        UUID("d296e062ef55443a8dd40369e2a3048d"),
    ),
    (
        "definitions/by-uuid/f3823e51dbfd420f807f3a1daac674f0",
        "definitions",
        UUID("f3823e51dbfd420f807f3a1daac674f0"),
    ),
    ("partitions/by-name/us-east.example.com", "partitions_by_name", "us-east.example.com"),
    ("partitions/by-name/us-west.example.com", "partitions_by_name", "us-west.example.com"),
    ("partitions/by-uuid/d3873f99a21f45f5bce156c1f8b84b03", "partitions", EAST),
    ("partitions/by-uuid/d79706e01fbd4e48aae89209061cdb71", "partitions", WEST),
    ("types/object/runm.image", "object_types", "runm.image"),
    ("types/object/runm.machine", "object_types", "runm.machine"),
    ("types/object/runm.provider", "object_types", "runm.provider"),
    ("types/object/runm.provider_group", "object_types", "runm.provider_group"),
    ("types/runm.provider/runm.compute_node", "sub_types", ObjectSubType("runm.provider", "runm.compute_node")),
    ("objects/by-uuid/54b8d8d7e24c43799bbf70c16e921e52", "objects", RHEL),
    ("objects/by-uuid/60b53edd16764f6abc081ddb0a73e69c", "objects", DEBIAN),
    ("objects/by-uuid/3bf3e700f11b4a7cb99244c554b3a856", "objects", GROUP),
    # The $DEFINITIONS key namespace.
    (
        f"{W}definitions/by-type/runm.provider/default",
        "partition_type_definitions",
        PartitionType(WEST, "runm.provider"),
    ),
    (
        f"{W}definitions/by-type/runm.provider/by-type/runm.compute",
        "partition_sub_type_definitions",
        PartitionSubType(WEST, "runm.provider", "runm.compute"),
    ),
    (
        f"{W}definitions/by-type/runm.provider/by-type/runm.storage.block",
        "partition_sub_type_definitions",
        PartitionSubType(WEST, "runm.provider", "runm.storage.block"),
    ),
    # The $OBJECTS key namespace.
    (
        f"{W}objects/by-type/runm.image/by-project/eff883565999408dbec3eb5070d5ecf5/by-name/rhel7.5.2",
        "objects_by_project_and_name",
        ObjectName(WEST, "runm.image", PROJECT, "rhel7.5.2"),
    ),
    (
        f"{W}objects/by-type/runm.image/by-project/eff883565999408dbec3eb5070d5ecf5/by-name/debian-sid",
        "objects_by_project_and_name",
        ObjectName(WEST, "runm.image", PROJECT, "debian-sid"),
    ),
    (
        f"{W}objects/by-type/runm.provider_group/by-name/us-east1-row1-rack2",
        "objects_by_name",
        PartitionObjectName(WEST, "runm.provider_group", ROW),
    ),
    # The $PROPERTIES key namespace.
    (
        f"{W}properties/by-type/runm.image/architecture/x86_64/54b8d8d7e24c43799bbf70c16e921e52",
        "objects_by_property",
        (WEST, "runm.image", "architecture", "x86_64", RHEL),
    ),
    (
        f"{W}properties/by-type/runm.image/architecture/arm64/60b53edd16764f6abc081ddb0a73e69c",
        "objects_by_property",
        (WEST, "runm.image", "architecture", "arm64", DEBIAN),
    ),
    (
        f"{W}properties/by-type/runm.machine/appgroup/A/3bf3e700f11b4a7cb99244c554b3a856",
        "objects_by_property",
        (WEST, "runm.machine", "appgroup", "A", GROUP),
    ),
    # The $TAGS key namespace.
    (f"{W}tags/unicorn/54b8d8d7e24c43799bbf70c16e921e52", "objects_by_tag", (WEST, "unicorn", RHEL)),
    (f"{W}tags/unicorn/60b53edd16764f6abc081ddb0a73e69c", "objects_by_tag", (WEST, "unicorn", DEBIAN)),
    (f"{W}tags/rainbow/3bf3e700f11b4a7cb99244c554b3a856", "objects_by_tag", (WEST, "rainbow", GROUP)),
)

BESIDE_THE_DOCUMENT: Final[tuple[tuple[str, str, object], ...]] = (
    # S6 and S7: the sub-types that the service knows, and their global definitions; K15; S14: escapes.
    ("types/runm.provider/runm.compute", "sub_types", ObjectSubType("runm.provider", "runm.compute")),
    ("types/runm.provider/runm.storage.block", "sub_types", ObjectSubType("runm.provider", "runm.storage.block")),
    (
        "definitions/by-type/runm.provider/by-type/runm.compute",
        "sub_type_definitions",
        ObjectSubType("runm.provider", "runm.compute"),
    ),
    ("bootstrap", "bootstrap_token", Only()),
    ("partitions/by-name/a%2Fb", "partitions_by_name", "a/b"),
    (
        f"{W}objects/by-type/runm.image/by-project/proj0/by-name/50%25 off",
        "objects_by_project_and_name",
        ObjectName(WEST, "runm.image", "proj0", "50% off"),
    ),
    (
        f"{W}properties/by-type/runm.image/os/linux%2Fredhat/54b8d8d7e24c43799bbf70c16e921e52",
        "objects_by_property",
        (WEST, "runm.image", "os", "linux/redhat", RHEL),
    ),
    (
        f"{W}tags/caf\N{LATIN SMALL LETTER E WITH ACUTE}%0A%7F/{RHEL.hex}",
        "objects_by_tag",
        (WEST, "caf\xe9\n\x7f", RHEL),
    ),
)

# The prefix of the document; of the original service with the setting "/"; of the original service without a setting.
ROOTS: Final[Mapping[str, str]] = {
    "": "runm/metadata/",
    "/": "/runm/metadata/",
    "runm-metadata/": "runm-metadata/runm/metadata/",
}


@pytest.fixture(scope="module", params=ROOTS, ids=tuple(ROOTS.values()))
def rooted(request: pytest.FixtureRequest) -> tuple[BoundLayout, bytes]:
    """The layout under a root, and the root's bytes."""
    return Runm.bound(prefix=request.param), ROOTS[request.param].encode()


@pytest.fixture(scope="module")
def runm() -> BoundLayout:
    return Runm.bound()


golden = pytest.mark.parametrize(
    ("below_root", "item", "key"),
    DOCUMENT + BESIDE_THE_DOCUMENT,
    ids=[below_root for below_root, _, _ in DOCUMENT + BESIDE_THE_DOCUMENT],
)


@golden
def test_a_key_is_spelled_as_the_document_draws_it(
    rooted: tuple[BoundLayout, bytes], below_root: str, item: str, key: object
) -> None:
    layout, root = rooted
    keys = (layout.tables.get(item) or layout.indexes[item]).keys
    assert keys.encode(key) == root + below_root.encode()


@golden
def test_a_raw_key_is_read_as_what_the_document_says(
    rooted: tuple[BoundLayout, bytes], below_root: str, item: str, key: object
) -> None:
    layout, root = rooted
    meaning = layout.meaning(root + below_root.encode())
    assert (meaning.item, meaning.key) == (item, key)
    assert meaning.kind is (Kind.RECORD if item in layout.tables else Kind.INDEX_ENTRY)


@pytest.mark.parametrize(
    ("setting", "root"),
    [
        ("/", b"runm/metadata/"),
        ("", b"runm/metadata/"),
        ("foo", b"foo/runm/metadata/"),
        ("foo/", b"foo/runm/metadata/"),
        ("foo//", b"foo/runm/metadata/"),
        ("/foo", b"/foo/runm/metadata/"),
        ("/foo/bar/", b"/foo/bar/runm/metadata/"),
        ("runm-metadata", b"runm-metadata/runm/metadata/"),
    ],
)
def test_the_root_follows_from_the_setting(setting: str, root: bytes) -> None:
    assert Runm.bound(prefix=root_of(setting)).root == root


def test_the_root_is_that_of_the_document_by_default() -> None:
    assert Runm.bound().root == b"runm/metadata/"


# ---- values of pointers ------------------------------------------------------------------------------------------------

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


# ---- keys that are none ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "below_root",
    [
        "",
        "definitions/",
        "definitions/by-type/",
        "definitions/by-type/runm.provider/",
        "definitions/by-uuid/",
        "partitions/",
        "partitions/by-name/",
        "partitions/by-uuid/",
        "partitions/d3873f99a21f45f5bce156c1f8b84b03/",
        W,
        "types/",
        "types/object/",
        "types/runm.provider/",
        "objects/",
        "objects/by-uuid/",
        f"{W}definitions/",
        f"{W}definitions/by-type/",
        f"{W}definitions/by-type/runm.provider/by-type/",
        f"{W}objects/",
        f"{W}objects/by-type/runm.image/by-project/eff883565999408dbec3eb5070d5ecf5/by-name/",
        f"{W}objects/by-type/runm.provider_group/by-name/",
        f"{W}properties/by-type/runm.image/architecture/x86_64/",
        f"{W}tags/",
        f"{W}tags/unicorn/",
    ],
)
def test_a_key_namespace_is_no_key_but_known_for_what_it_is(rooted: tuple[BoundLayout, bytes], below_root: str) -> None:
    layout, root = rooted
    assert layout.meaning(root + below_root.encode()).kind is Kind.NAMESPACE


@pytest.mark.parametrize(
    ("below_root", "nearest", "agreed"),
    [
        # S5, in a key: 'i' is no hexadecimal digit.
        ("definitions/by-uuid/id133ac2327ae49e8a4d72a1b57e1ed0c", "definitions", "definitions/by-uuid/"),
        # One digit too many.
        (
            "objects/by-uuid/54b8d8d7e24c43799bbf70c16e921e520",
            "objects",
            "objects/by-uuid/54b8d8d7e24c43799bbf70c16e921e52",
        ),
        # C10 and C11: UUIDs as the original service stored them when a client spelled them differently.
        (
            "partitions/D79706E0-1FBD-4E48-AAE8-9209061CDB71/definitions/by-type/runm.provider/default",
            "partitions",
            "partitions/",
        ),
        ("partitions/by-uuid/notauuid", "partitions", "partitions/by-uuid/"),
        # C12: an object without its project.
        (
            f"{W}objects/by-type/runm.image/by-project//by-name/x",
            "objects_by_project_and_name",
            f"{W}objects/by-type/runm.image/by-project/",
        ),
        # S14: a name that the original service stored raw, and a second spelling of a plain letter.
        ("partitions/by-name/a/b", "partitions_by_name", "partitions/by-name/a"),
        ("partitions/by-name/%41", "partitions_by_name", "partitions/by-name/%"),
        # S8: the pseudo-type, and codes in capitals.
        ("types/object/object", "object_types", "types/object/object"),
        ("types/object/runm.Image", "object_types", "types/object/runm."),
        # S21: nothing but the document's keys stands under the root.
        ("objects/by-name/x", "objects", "objects/by-"),
        ("property-definitions/by-uuid/54b8d8d7e24c43799bbf70c16e921e52", "partitions", "p"),
        ("bootstrap/x", "bootstrap_token", "bootstrap"),
    ],
)
def test_a_key_that_no_template_spells_is_unknown_and_says_where_it_departs(
    runm: BoundLayout, below_root: str, nearest: str, agreed: str
) -> None:
    meaning = runm.meaning(b"runm/metadata/" + below_root.encode())
    assert meaning.kind is Kind.UNKNOWN
    assert (meaning.item, meaning.position) == (nearest, len("runm/metadata/" + agreed))


def test_a_partitions_record_and_its_namespace_are_different_keys(runm: BoundLayout) -> None:
    by_uuid = runm.meaning(b"runm/metadata/partitions/by-uuid/d79706e01fbd4e48aae89209061cdb71")
    namespace = runm.meaning(b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/")
    assert (by_uuid.kind, by_uuid.key) == (Kind.RECORD, WEST)
    assert namespace.kind is Kind.NAMESPACE


@pytest.mark.parametrize(
    "code", ["object", "default", "by-type", "by-name", "by-uuid", "by-project", "", ".", "A", "a/b"]
)
def test_no_type_has_a_reserved_or_malformed_code(runm: BoundLayout, code: str) -> None:
    with pytest.raises(InvalidKeyError):
        runm.tables["object_types"].keys.encode(code)
    with pytest.raises(InvalidKeyError):
        runm.tables["sub_types"].keys.encode(ObjectSubType(code, "a"))


def test_types_of_objects_and_sub_types_share_no_key(runm: BoundLayout) -> None:
    raw_key = b"runm/metadata/types/object/a"
    assert runm.tables["object_types"].keys.decode(raw_key) == "a"
    assert runm.tables["sub_types"].keys.decode(raw_key) is None


def test_a_value_of_300_bytes_is_refused_before_anything_is_written(runm: BoundLayout) -> None:
    record = Object(partition=WEST, object_type="runm.image", uuid=RHEL, name="n", project="p", tags=("t" * 300,))
    with pytest.raises(InvalidKeyError) as refused:
        entries_of(runm, "objects", RHEL, record)
    assert refused.value.facts["bytes_max"] == 255


def test_a_list_by_property_stops_at_the_segment(runm: BoundLayout) -> None:
    start, end = runm.indexes["objects_by_property"].keys.range((WEST, "runm.image", "arch"))
    w = b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/properties/by-type/runm.image/"
    assert (start, end) == (w + b"arch/", w + b"arch0")


def test_a_search_by_the_start_of_a_name_is_escaped_like_the_name(runm: BoundLayout) -> None:
    start, end = runm.indexes["partitions_by_name"].keys.range((), starts_with="a/")
    assert (start, end) == (b"runm/metadata/partitions/by-name/a%2F", b"runm/metadata/partitions/by-name/a%2G")


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


# ---- the registry ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw_key", "key"),
    [
        (b"gsr/services/runmachine-metadata/10.0.0.5:10002", Endpoint("runmachine-metadata", "10.0.0.5", 10002)),
        (b"gsr/services/runmachine-api/[::1]:10000", Endpoint("runmachine-api", "[::1]", 10000)),
        (b"gsr/services/runmachine-api/::1:10000", Endpoint("runmachine-api", "::1", 10000)),
    ],
    ids=["address", "ipv6 in brackets", "ipv6 bare"],
)
def test_an_endpoint_is_registered_outside_the_root(raw_key: bytes, key: Endpoint) -> None:
    registry = RunmRegistry.bound()
    assert registry.tables["endpoints"].keys.encode(key) == raw_key
    assert registry.meaning(raw_key).key == key
    assert Runm.bound().meaning(raw_key).item is None


def test_an_endpoint_has_an_empty_value_and_a_lease() -> None:
    endpoints = RunmRegistry.bound().tables["endpoints"]
    assert endpoints.form.encode(None) == b""
    assert endpoints.spec.has_lease


@pytest.mark.parametrize(
    "raw_key", [b"gsr/services/a/h:0", b"gsr/services/a/h:65536", b"gsr/services/a/h:080", b"gsr/services/a/h"]
)
def test_an_endpoint_has_a_port(raw_key: bytes) -> None:
    assert RunmRegistry.bound().meaning(raw_key).kind is Kind.UNKNOWN


def test_every_item_says_what_it_stands_for() -> None:
    assert [item.name for item in (*Runm.spec.items, *RunmRegistry.spec.items) if not item.note] == []


def test_a_record_survives_its_value_form(runm: BoundLayout) -> None:
    form = runm.tables["objects"].form
    assert form.decode(form.encode(IMAGE_RHEL)) == IMAGE_RHEL
    types = runm.tables["object_types"].form
    assert types.decode(types.encode(ObjectType("runm.image"))) == ObjectType("runm.image")
