"""The importer of PD's metadata: its protocol buffers byte for byte, its keys, and what does not fit together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.engine import Commit, Engine, Put, open_engine
from keyplan.errors import CorruptionError, InvalidInputError, InvalidRecordError, NotFoundError
from keyplan.keyspace import State
from keyplan.layout.rules import lint
from keyplan.regions import (
    NumberedSpace,
    PlacementDriverKeys,
    SpaceMetadata,
    SpaceMetadataForm,
    SpaceMetadataState,
    StoreMode,
    clusters_of,
    import_spaces,
    plan_regions,
)
from tests.regions.scenarios import regions_between

FORM = SpaceMetadataForm()

FOO = bytes.fromhex("08011203666f6f20d0efb0b00628d0efb0b006")
DEFAULT_OLD = bytes.fromhex("120744454641554c5420ebeeb0b00628ebeeb0b006")
DEFAULT_NEW = bytes.fromhex("0800") + DEFAULT_OLD


def test_the_golden_bytes_are_read_and_written() -> None:
    foo = SpaceMetadata(id=1, name="foo", created_at=1712076752, state_changed_at=1712076752)
    assert FORM.decode(FOO) == foo
    assert FORM.encode(foo) == FOO


def test_id_0_is_read_in_both_forms() -> None:
    default = SpaceMetadata(id=0, name="DEFAULT", created_at=1712076651, state_changed_at=1712076651)
    assert FORM.decode(DEFAULT_OLD) == default
    assert FORM.decode(DEFAULT_NEW) == default
    assert FORM.encode(default) == DEFAULT_OLD


def test_state_and_configuration_are_read_and_unknown_fields_passed_over() -> None:
    # field 3 = 2; field 7 = {"a": "b"}; field 9 (bytes), 10 (64 bits), 11 (32 bits), 12 (a number)
    raw = bytes.fromhex("0805 1201 78 1802 3a06 0a0161 120162 4a0101 51 0102030405060708 5d 01020304 6001")
    assert FORM.decode(raw) == SpaceMetadata(id=5, name="x", state=SpaceMetadataState.ARCHIVED, config={"a": "b"})


@pytest.mark.parametrize(
    "digits",
    [
        "08",
        "0880",
        "120566",
        "1202c328",
        "1804",
        "0a0101",
        "38",
        "3a0301",
        "00",
        "0b",
        "08ffffffff7f",
        "08" + "ff" * 11,
    ],
)
def test_bytes_that_are_no_metadata_are_damage(digits: str) -> None:
    with pytest.raises(CorruptionError):
        FORM.decode(bytes.fromhex(digits))


@given(st.binary(max_size=40))
def test_any_bytes_are_metadata_or_damage(raw: bytes) -> None:
    try:
        found = FORM.decode(raw)
    except CorruptionError:
        return
    assert FORM.decode(FORM.encode(found)) == found


@given(
    st.builds(
        SpaceMetadata,
        id=st.integers(0, (1 << 32) - 1),
        name=st.text(max_size=5),
        state=st.sampled_from(SpaceMetadataState),
        created_at=st.integers(-(1 << 63), (1 << 63) - 1),
        config=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    )
)
def test_all_metadata_read_back_as_written(metadata: SpaceMetadata) -> None:
    assert FORM.decode(FORM.encode(metadata)) == metadata


@pytest.mark.parametrize(
    "metadata", [SpaceMetadata(id=-1, name="x"), SpaceMetadata(id=0, name="x", created_at=1 << 63)]
)
def test_numbers_that_do_not_fit_are_refused(metadata: SpaceMetadata) -> None:
    with pytest.raises(InvalidRecordError):
        FORM.encode(metadata)


# ---- the keys ---------------------------------------------------------------------------------------------------------------


CONTENT = {
    b"/pd/7281/keyspaces/meta/00000000": DEFAULT_NEW,
    b"/pd/7281/keyspaces/meta/00000001": FOO,
    b"/pd/7281/keyspaces/meta/00000010": bytes.fromhex("080a 1203 626172 1802 3a18 0a11")
    + b"region_bound_type"
    + bytes.fromhex("1203")
    + b"raw",
    b"/pd/7281/keyspaces/id/DEFAULT": b"0",
    b"/pd/7281/keyspaces/id/foo": b"1",
    b"/pd/7281/keyspaces/id/bar": b"10",
    b"/pd/7281/keyspaces/alloc_id": bytes.fromhex("0000000000000064"),
    b"/pd/7281/keyspaces/gc_safe_point/00000001": b"{}",
    b"/pd/7281/region_label/keyspaces/0": b'{"id":"keyspaces/0","index":0,"labels":[{"key":"id","value":"0"}],'
    b'"rule_type":"key-range","data":[{"start_key":"7800000000000000fb","end_key":"7800000100000000fb"}]}',
    b"/pd/7281/leader": b"somebody",
    b"/pd/cluster_id": b"\x00\x00\x00\x00\x00\x00\x1c\x71",
    b"/keyspaces/tidb/1/something": b"",
}


def filled(engine: Engine, content: dict[bytes, bytes]) -> Engine:
    engine.commit(Commit((), tuple(Put(key, value) for key, value in content.items())))
    return engine


@pytest.fixture(params=["memory", "lmdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return open_engine("memory:" if request.param == "memory" else f"lmdb:{tmp_path}/pd.kv")


def test_the_key_spaces_of_the_only_cluster_are_imported(engine: Engine) -> None:
    with filled(engine, CONTENT):
        imported = import_spaces(engine)
    assert imported.cluster == 7281
    assert imported.spaces == (
        NumberedSpace("DEFAULT", 0),
        NumberedSpace("foo", 1),
        NumberedSpace("bar", 10, State.DELETING, modes=(StoreMode.RAW,)),
    )
    assert imported.window_end == 100
    assert [rule.id for rule in imported.rules] == ["keyspaces/0"]
    assert imported.problems == ()
    assert imported.data()["keyspaces"] == [
        {"id": 0, "name": "DEFAULT", "state": "ENABLED", "created_at": 1712076651, "state_changed_at": 1712076651},
        {"id": 1, "name": "foo", "state": "ENABLED", "created_at": 1712076752, "state_changed_at": 1712076752},
        {"id": 10, "name": "bar", "state": "ARCHIVED", "config": {"region_bound_type": "raw"}},
    ]


def test_imported_key_spaces_are_planned(engine: Engine) -> None:
    with filled(engine, CONTENT):
        imported = import_spaces(engine)
    plan = plan_regions(imported.spaces, regions_between("", ""), imported.rules, cluster="7281")
    assert [key.hex() for key in plan.split_keys] == [
        "7200000a00000000fb",
        "7200000b00000000fb",
        "7800000000000000fb",
        "7800000100000000fb",
        "7800000200000000fb",
    ]


def test_what_contradicts_itself_is_told_and_the_rest_imported(engine: Engine) -> None:
    broken = {
        b"/pd/7281/keyspaces/meta/00000002": FOO,
        b"/pd/7281/keyspaces/meta/00000003": b"\xff",
        b"/pd/7281/keyspaces/meta/3": FOO,
        b"/pd/7281/keyspaces/meta/00000200": bytes.fromhex("08c801 1204 66617231"),
        b"/pd/7281/keyspaces/id/ghost": b"77",
        b"/pd/7281/region_label/bad": b"{",
    }
    with filled(engine, CONTENT | broken):
        imported = import_spaces(engine)
    assert [space.name for space in imported.spaces] == ["DEFAULT", "foo", "bar", "far1"]
    told = " | ".join(imported.problems)
    for part in (
        "the record at id 2 says that its id is 1",
        "/pd/7281/keyspaces/meta/00000003 cannot be read",
        "/pd/7281/keyspaces/meta/3 cannot be read",
        "the name ghost leads to the id 77",
        "the name far1 leads nowhere",
        "far1 has the id 200, beyond the window's end 100",
        "the input is not valid",
    ):
        assert part in told
    assert len(imported.problems) == 7


def test_one_of_several_clusters_must_be_named(engine: Engine) -> None:
    with filled(engine, {**CONTENT, b"/pd/99/keyspaces/meta/00000001": FOO}):
        with engine.snapshot() as snapshot:
            assert clusters_of(snapshot) == [99, 7281]
        with pytest.raises(InvalidInputError, match="99, 7281"):
            import_spaces(engine)
        assert [space.name for space in import_spaces(engine, 99).spaces] == ["foo"]
        with pytest.raises(NotFoundError):
            import_spaces(engine, 5)


def test_a_store_without_pd_has_nothing_to_import(engine: Engine) -> None:
    with filled(engine, {b"/pdx": b"", b"/p": b""}), pytest.raises(NotFoundError):
        import_spaces(engine)


def test_the_layout_of_pd_has_no_finding_to_fix() -> None:
    assert lint(PlacementDriverKeys.spec).failures() == ()
