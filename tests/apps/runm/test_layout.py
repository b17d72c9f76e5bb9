"""Every key that the runm-metadata document draws, byte for byte, and what the rulings make of the keys around them."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import pytest

from keyplan.apps.runm import (
    Endpoint,
    ObjectName,
    ObjectSubType,
    PartitionObjectName,
    PartitionSubType,
    PartitionType,
    Runm,
    RunmRegistry,
    root_of,
)
from keyplan.apps.runm.client import Connection
from keyplan.apps.runm.deployment import Rulings
from keyplan.apps.runm.settings import ServeSettings
from keyplan.errors import InvalidKeyError
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


def test_a_list_by_property_stops_at_the_segment(runm: BoundLayout) -> None:
    start, end = runm.indexes["objects_by_property"].keys.range((WEST, "runm.image", "arch"))
    w = b"runm/metadata/partitions/d79706e01fbd4e48aae89209061cdb71/properties/by-type/runm.image/"
    assert (start, end) == (w + b"arch/", w + b"arch0")


def test_a_search_by_the_start_of_a_name_is_escaped_like_the_name(runm: BoundLayout) -> None:
    start, end = runm.indexes["partitions_by_name"].keys.range((), starts_with="a/")
    assert (start, end) == (b"runm/metadata/partitions/by-name/a%2F", b"runm/metadata/partitions/by-name/a%2G")


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


def test_the_bootstrap_token_is_shown_by_nothing() -> None:
    assert Runm.spec.tables["bootstrap_token"].form.secrets == ((),)
    settings = ServeSettings.of({"bootstrap_token": "sesame"}, {})
    connection = Connection("localhost", 1, token="sesame")
    assert settings.bootstrap_token == "sesame"
    assert "sesame" not in repr((Rulings(bootstrap_token="sesame"), settings, connection))
