"""Moving a store between the layouts: what goes where, what is left over, and that the way back makes the same bytes again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamber,
    CloudChamberGo,
    ExtraDevices,
    LayoutSide,
    MigrationOptions,
    NotRepresentableError,
    RackIds,
    go_inventory_records,
    inventory_records,
    migrate,
    parse_definition,
    planned_migration,
    read_definition,
    read_sidecar,
    reconcile,
    unsound_pairs,
    validated,
)
from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed, begin_indexes
from keyplan.engine import MEMORY_PROFILE, Commit, KeyRange, MemoryEngine, Put
from keyplan.errors import EngineLimitError, InvalidInputError, KeyplanError, TargetNotEmptyError
from keyplan.store import Store
from keyplan.testing.checked import check_after
from keyplan.testing.faults import FailingEngine
from tests.apps.cloudchamber.conftest import definition_yaml, raw_entries
from tests.servers.etcd import EtcdServer

GO, DOCUMENT = LayoutSide.GO, LayoutSide.DOCUMENT
G: Final = b"/CloudChamber/v0.1/"
D: Final = b"/CloudChamber/V0.1/"
DATA: Final = G + b"inventory/definition/data/region/"
INDEX: Final = G + b"inventory/definition/index/"
PLAIN: Final = MigrationOptions()
LONG_IDS: Final = MigrationOptions(rack_ids=RackIds.REGION_ZONE_RACK, extra_devices=ExtraDevices.EXTEND)


@pytest.fixture
def stores(store_url: str) -> Iterator[list[Store]]:
    """Three stores: one to leave, one on each engine in turn to go to, one to come back to."""
    opened = [keyplan.open(url) for url in ("memory:", store_url, "memory:")]
    yield opened
    for store in opened:
        store.close()


def contents(store: Store) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in raw_entries(store)}


def written(store: Store, pairs: dict[bytes, bytes]) -> Store:
    store.engine.commit(Commit((), tuple(Put(key, value) for key, value in pairs.items())))
    return store


def go_inventory(store: Store, file: Path) -> Store:
    reconcile(CloudChamberGo(store), go_inventory_records(validated(read_definition(file))))
    return store


def rack_of_go(region: bytes, zone: bytes, rack: bytes, listed: bytes) -> dict[bytes, bytes]:
    data, index = DATA + region + b"/zone/" + zone, INDEX + b"region/" + region + b"/zone"
    return {
        data + b"/rack/" + rack: b'{"details":{"notes":"n"}}',
        data + b"/rack/" + rack + b"/tor/0": b"{}",
        data + b"/rack/" + rack + b"/blade/7": b'{"bootOnPowerOn":true}',
        index + b"/" + zone + b"/racks/" + rack: listed,
        index + b"/" + zone + b"/rack/" + rack + b"/tors/0": b"0",
        index + b"/" + zone + b"/rack/" + rack + b"/blades/7": b"7",
    }


# ---- the real files --------------------------------------------------------------------------------------------------------


def test_the_standard_inventory_goes_to_the_document_and_comes_back_byte_for_byte(
    stores: list[Store], samples: Path, tmp_path: Path
) -> None:
    """AC-46."""
    source = go_inventory(stores[0], samples / "inventory.yaml")
    before = contents(source)
    with pytest.raises(NotRepresentableError) as refused:
        migrate(source, stores[1], GO, PLAIN)
    assert "a region has no place there" in str(refused.value.problem)
    assert contents(stores[1]) == {}

    sidecar = tmp_path / "aside.json"
    there = migrate(source, stores[1], GO, PLAIN, sidecar=sidecar)
    assert there.plan.reasons() == {"a region has no place there": 2, "a zone has no place there": 2}
    assert (there.written, there.others, there.tally.count) == (88, 0, 88)
    moved = contents(stores[1])
    assert len(moved) == 88
    assert sum(map(len, moved.values())) == 28_624
    rack = DATA + b"standard/zone/standard/rack/rack3"
    for number in range(1, 9):
        assert moved[D + b"rack/rack3/blades/%d" % number] == before[rack + b"/blade/%d" % number]
    assert moved[D + b"rack/rack3/pdu"] == before[rack + b"/pdu/0"]
    assert moved[D + b"rack/rack3/tor"] == before[rack + b"/tor/0"]
    assert moved[D + b"racks/rack3"] == before[rack]

    back = migrate(stores[1], stores[2], DOCUMENT, PLAIN, back=read_sidecar(sidecar))
    assert (back.written, back.plan.leftovers, back.plan.made, back.plan.unused) == (180, (), (), ())
    assert contents(stores[2]) == before
    assert contents(source) == before
    assert sidecar.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("extra_devices", ExtraDevices)
def test_an_inventory_of_several_zones_comes_back_byte_for_byte(
    stores: list[Store], samples: Path, tmp_path: Path, extra_devices: ExtraDevices
) -> None:
    source = go_inventory(stores[0], samples / "Extended.yaml")
    with pytest.raises(InvalidInputError, match=r"racks in 6 zones \(rack ids 'region.zone.rack' tell them apart\)"):
        migrate(source, stores[1], GO, PLAIN, sidecar=tmp_path / "aside.json")
    options = LONG_IDS._replace(extra_devices=extra_devices)
    there = migrate(source, stores[1], GO, options, sidecar=tmp_path / "aside.json")
    assert there.written == {ExtraDevices.EXTEND: 288, ExtraDevices.REFUSE: 264}[extra_devices]
    back = migrate(stores[1], stores[2], DOCUMENT, options, back=read_sidecar(tmp_path / "aside.json"))
    assert back.plan.leftovers == ()
    assert contents(stores[2]) == contents(source)
    assert len(contents(stores[2])) == 592


def test_the_document_goes_to_the_go_program_and_comes_back(stores: list[Store], samples: Path, tmp_path: Path) -> None:
    reconcile(CloudChamber(stores[0]), inventory_records(read_definition(samples / "inventory.yaml")))
    written(
        stores[0], {D + b"users/alice": b'{"name":"Alice"}', D + b"workloads/web": b'{"name":"web"}', D + b"odd": b"x"}
    )
    sidecar = tmp_path / "aside.json"
    there = migrate(stores[0], stores[1], DOCUMENT, PLAIN, sidecar=sidecar)
    assert there.plan.reasons() == {"the key is unknown": 1}
    assert there.plan.made == ("region standard", "zone standard/standard")
    found = contents(stores[1])
    assert len(found) == 182
    assert found[G + b"workloads/web"] == b'{"name":"web"}'
    assert found[G + b"users/alice"] == b'{"name":"Alice"}'
    assert list(unsound_pairs(CloudChamberGo(stores[1]))) == []
    with pytest.raises(NotRepresentableError):
        migrate(stores[1], stores[2], GO, PLAIN, back=read_sidecar(sidecar))
    migrate(stores[1], stores[2], GO, PLAIN, back=read_sidecar(sidecar), sidecar=tmp_path / "second.json")
    assert contents(stores[2]) == contents(stores[0])


# ---- what goes where -------------------------------------------------------------------------------------------------------


def test_racks_of_the_document_have_the_case_that_the_list_keys_keep(stores: list[Store]) -> None:
    written(stores[0], rack_of_go(b"north", b"z1", b"racka", b"RackA"))
    migrate(stores[0], stores[1], GO, PLAIN, leave_behind=True)
    assert set(contents(stores[1])) == {D + b"racks/RackA", D + b"rack/RackA/tor", D + b"rack/RackA/blades/7"}


def test_two_racks_of_one_id_are_an_error_that_names_both() -> None:
    pairs = {**rack_of_go(b"r", b"a.b", b"c", b"c"), **rack_of_go(b"r", b"a", b"b.c", b"b.c")}
    with pytest.raises(InvalidInputError) as caught:
        planned_migration(pairs, GO, LONG_IDS)
    assert {"r/a.b/c", "r/a/b.c"} <= set(str(caught.value.problem).replace(" and", "").split())


@pytest.mark.parametrize(
    ("pairs", "first", "second"),
    [
        ({D + b"users/Alice": b"{}", D + b"users/alice": b"{}"}, "users/Alice", "users/alice"),
        ({D + b"racks/Rack1": b"{}", D + b"racks/rack1": b"{}"}, "'Rack1'", "'rack1'"),
    ],
)
def test_names_that_differ_in_case_alone_are_an_error_that_names_both(
    pairs: dict[bytes, bytes], first: str, second: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        planned_migration(pairs, DOCUMENT, PLAIN)
    assert first in str(caught.value.problem)
    assert second in str(caught.value.problem)


def test_a_user_with_upper_case_in_the_key_comes_back_with_what_became_of_him(
    stores: list[Store], tmp_path: Path
) -> None:
    written(stores[0], {D + b"users/Alice": b'{"name":"Alice"}'})
    with pytest.raises(NotRepresentableError, match="the upper case of a name has no place there: Alice"):
        migrate(stores[0], stores[1], DOCUMENT, PLAIN)
    migrate(stores[0], stores[1], DOCUMENT, PLAIN, sidecar=tmp_path / "aside.json")
    written(stores[1], {G + b"users/alice": b'{"name":"Alice","enabled":true}'})
    migrate(stores[1], stores[2], GO, PLAIN, back=read_sidecar(tmp_path / "aside.json"))
    assert contents(stores[2]) == {D + b"users/Alice": b'{"name":"Alice","enabled":true}'}


def test_values_of_another_spelling_unknown_keys_and_damage_are_carried(stores: list[Store], tmp_path: Path) -> None:
    pairs = {
        D + b"racks/a": b'{ "details": {"condition": 1} }',
        D + b"rack/a/tor": b"{damaged",
        D + b"rack/a/fan": b"\xff\x00",
        D + b"future/\xfe": b"{}",
    }
    written(stores[0], pairs)
    there = migrate(stores[0], stores[1], DOCUMENT, PLAIN, sidecar=tmp_path / "aside.json")
    assert there.plan.reasons() == {"the key is unknown": 2, "the value cannot be read": 1}
    assert contents(stores[1])[DATA + b"standard/zone/standard/rack/a"] == b'{ "details": {"condition": 1} }'
    migrate(
        stores[1], stores[2], GO, PLAIN, back=read_sidecar(tmp_path / "aside.json"), sidecar=tmp_path / "second.json"
    )
    assert contents(stores[2]) == pairs


def test_another_view_and_pairs_that_do_not_agree_are_carried(stores: list[Store], tmp_path: Path) -> None:
    pairs = {
        **rack_of_go(b"standard", b"standard", b"a", b"B"),
        G + b"inventory/actual/data/region/x": b"{}",
        INDEX + b"region/standard/zone/standard/rack/a/blades/9": b"9",
        DATA + b"standard/zone/standard/rack/a/blade/8": b"{}",
    }
    written(stores[0], pairs)
    there = migrate(stores[0], stores[1], GO, PLAIN, sidecar=tmp_path / "aside.json")
    assert there.plan.reasons() == {
        "the list key has no record there, or lists another name": 2,
        "the view actual has no place there": 1,
    }
    migrate(stores[1], stores[2], DOCUMENT, PLAIN, back=read_sidecar(tmp_path / "aside.json"))
    assert contents(stores[2]) == pairs


def test_the_other_view_can_be_the_one_that_is_moved(stores: list[Store]) -> None:
    pairs = {
        key.replace(b"/definition/", b"/target/"): value for key, value in rack_of_go(b"r", b"z", b"a", b"a").items()
    }
    written(stores[0], pairs)
    migrate(stores[0], stores[1], GO, PLAIN._replace(view="target"), leave_behind=True)
    assert D + b"racks/a" in contents(stores[1])


def test_devices_of_a_rack_that_went_do_not_come_back(stores: list[Store], samples: Path, tmp_path: Path) -> None:
    go_inventory(stores[0], samples / "Extended.yaml")
    options = LONG_IDS._replace(extra_devices=ExtraDevices.REFUSE)
    migrate(stores[0], stores[1], GO, options, sidecar=tmp_path / "aside.json")
    rack = "region2.zone1.rack1"
    chamber = CloudChamber(stores[1])
    with chamber.transaction() as transaction:
        for blade in list(transaction.blades.keys(rack)):
            transaction.blades.delete(blade)
        for table in (transaction.racks, transaction.tor, transaction.pdu):
            table.delete(rack)
    back = migrate(stores[1], stores[2], DOCUMENT, options, back=read_sidecar(tmp_path / "aside.json"))
    assert {leftover.why for leftover in back.plan.unused} == {"its rack is gone"}
    assert len(back.plan.unused) == 4
    assert not any(b"region2/zone/zone1/rack/rack1/" in key for key in contents(stores[2]))
    assert list(unsound_pairs(CloudChamberGo(stores[2]))) == []


def test_tests_stay_where_they_are_and_can_be_moved_by_name(stores: list[Store]) -> None:
    written(stores[0], {D + b"users/a": b"{}", D + b"Test/Standard/users/b": b"{}"})
    migrate(stores[0], stores[1], DOCUMENT, PLAIN)
    assert set(contents(stores[1])) == {G + b"users/a"}
    migrate(stores[0], stores[2], DOCUMENT, PLAIN._replace(namespace="Test/Standard/"))
    assert set(contents(stores[2])) == {G + b"Test/Standard/users/b"}


def test_indexes_of_the_document_are_kept_by_a_migration_and_are_not_moved(stores: list[Store]) -> None:
    begin_indexes(stores[1])
    user = b'{"name":"Al", "rights":{"canStepTime":true}}'
    written(stores[0], {G + b"users/al": user})
    outcome = migrate(stores[0], stores[1], GO, PLAIN)
    assert (outcome.written, outcome.others) == (1, 0)
    chamber = CloudChamberIndexed(stores[1])
    assert list(chamber.users_by_right.keys("can_step_time")) == ["al"]
    assert contents(stores[1])[D + b"users/al"] == user
    with check_after(stores[1], CloudChamberIndexed):
        back = migrate(stores[1], stores[2], DOCUMENT, PLAIN)
    assert back.plan.leftovers == ()
    assert contents(stores[2]) == {G + b"users/al": user}


def test_one_store_can_hold_both(stores: list[Store], samples: Path) -> None:
    source = go_inventory(stores[0], samples / "inventory.yaml")
    migrate(source, source, GO, PLAIN, leave_behind=True)
    assert len(contents(source)) == 268


# ---- targets ---------------------------------------------------------------------------------------------------------------


def test_a_target_that_holds_something_else_is_not_touched(stores: list[Store]) -> None:
    written(stores[0], {D + b"users/a": b"{}", D + b"users/b": b"{}"})
    before = contents(written(stores[1], {G + b"users/b": b'{"name":"other"}'}))
    with pytest.raises(
        TargetNotEmptyError, match=r"something else at 1 of 2 keys, beginning with /CloudChamber/v0.1/users/b"
    ):
        migrate(stores[0], stores[1], DOCUMENT, PLAIN)
    assert contents(stores[1]) == before


def test_what_the_target_has_besides_stays_and_is_counted(stores: list[Store]) -> None:
    written(stores[0], {D + b"users/a": b"{}"})
    written(stores[1], {G + b"users/z": b"{}"})
    outcome = migrate(stores[0], stores[1], DOCUMENT, PLAIN)
    assert (outcome.written, outcome.others) == (1, 1)
    again = migrate(stores[0], stores[1], DOCUMENT, PLAIN)
    assert (again.written, again.commits, again.revision) == (0, 0, outcome.revision)


def test_what_the_target_does_not_take_is_told_before_anything_is_written(tmp_path: Path) -> None:
    profile = replace(MEMORY_PROFILE, commit_operations_max=8, value_bytes_max=200)
    with keyplan.open("memory:") as source, Store(MemoryEngine(profile=profile)) as target:
        written(source, {G + b"users/u%d" % number: b'{"name":"U%d"}' % number for number in range(20)})
        written(source, {G + b"users/z": b'{"name":"%s"}' % (b"z" * 300)})
        with pytest.raises(EngineLimitError) as refused:
            migrate(source, target, GO, PLAIN, sidecar=tmp_path / "aside.json")
        assert refused.value.facts["limit"] == "value_bytes_max"
        assert (contents(target), list(tmp_path.iterdir())) == ({}, [])


@pytest.mark.parametrize("side", LayoutSide)
def test_a_migration_that_is_cut_off_at_any_step_is_completed_by_running_it_again(side: LayoutSide) -> None:
    definition = parse_definition(definition_yaml("a", blades=3), source="x")
    with keyplan.open("memory:") as source, keyplan.open("memory:") as whole:
        if side is GO:
            reconcile(CloudChamberGo(source), go_inventory_records(definition))
        else:
            reconcile(CloudChamber(source), inventory_records(definition))
        migrate(source, whole, side, PLAIN, leave_behind=True)
        step = 0
        while True:
            step += 1
            inner = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=5))
            failing = Store(FailingEngine(inner, at_step=step, closes_inner=False))
            try:
                migrate(source, failing, side, PLAIN, leave_behind=True)
            except KeyplanError:
                migrate(source, Store(inner), side, PLAIN, leave_behind=True)
            else:
                break  # It has fewer steps than that.
            assert contents(Store(inner)) == contents(whole)
        assert step > 3


_KILLED = """
import os, signal, sys
from pathlib import Path
import keyplan
from keyplan.apps.cloudchamber import LayoutSide, MigrationOptions, RackIds, migrate
source, target, sidecar = sys.argv[1:]
options = MigrationOptions(rack_ids=RackIds.REGION_ZONE_RACK)
def report(done, total):
    if done * 2 > total:
        os.kill(os.getpid(), signal.SIGKILL)
migrate(keyplan.open(source), keyplan.open(target), LayoutSide.DOCUMENT, options, sidecar=Path(sidecar), report=report)
"""


@pytest.mark.slow
def test_a_migration_on_etcd_that_was_killed_goes_on(etcd_server: EtcdServer, samples: Path, tmp_path: Path) -> None:
    source_url, sidecar = f"lmdb:{tmp_path / 'source.kv'}", tmp_path / "aside.json"
    target_url = etcd_server.emptied().url
    with keyplan.open(source_url) as source:
        records = inventory_records(
            read_definition(samples / "Extended.yaml"),
            extra_devices=ExtraDevices.EXTEND,
            rack_ids=RackIds.REGION_ZONE_RACK,
        )
        reconcile(CloudChamber(source), records)
        written(source, {D + b"odd": b"{}"})
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, source_url, target_url, str(sidecar)],
        env=os.environ,
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    with keyplan.open(source_url) as source, keyplan.open(target_url) as target:
        with target.engine.snapshot() as snapshot:
            half = sum(1 for _ in snapshot.keys(KeyRange.of_prefix(G)))
        assert 0 < half < 592
        assert list(unsound_pairs(CloudChamberGo(target))) == []
        outcome = migrate(source, target, DOCUMENT, LONG_IDS, sidecar=sidecar)
        assert (outcome.written, outcome.tally.count) == (592 - half, 592)
        assert list(unsound_pairs(CloudChamberGo(target))) == []
