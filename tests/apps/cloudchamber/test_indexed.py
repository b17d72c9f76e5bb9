"""The secondary indexes: outside the documented keys, kept by whoever uses the layout, never trusted before they are built."""

import pytest

from keyplan.apps.cloudchamber import (
    Blade,
    BladeDetails,
    BladeKey,
    Capacity,
    CloudChamber,
    Condition,
    Instance,
    InstanceKey,
    InstanceTarget,
    InUseError,
    Rack,
    RackDetails,
    Rights,
    TargetBlade,
    User,
    pre_clean,
)
from keyplan.apps.cloudchamber.chamber import Chamber, RackContents
from keyplan.apps.cloudchamber.configuration import StoreSettings
from keyplan.apps.cloudchamber.indexed import (
    INDEXES,
    CloudChamberIndexed,
    begin_indexes,
    layout_in_use,
)
from keyplan.apps.cloudchamber.workloads import create_instance, delete_instance
from keyplan.errors import IndexNotReadyError, UniqueViolationError
from keyplan.layout import Only
from keyplan.layout.rules import EngineLimits, lint
from keyplan.maintenance import check, prepare_index
from keyplan.store import Store
from tests.apps.cloudchamber.conftest import raw_keys

ONE, TWO = BladeKey("rack1", 1), BladeKey("rack1", 2)


def blade(arch: str, condition: Condition) -> Blade:
    return Blade(capacity=Capacity(arch=arch), details=BladeDetails(enabled=True, condition=condition))


def fill(chamber: CloudChamber) -> None:
    chamber.blades.insert(ONE, blade("X64", Condition.OPERATIONAL))
    chamber.racks.insert("rack1", Rack(details=RackDetails(enabled=True, condition=Condition.OPERATIONAL)))
    chamber.blades.insert(TWO, blade("a/b", Condition.OPERATIONAL))
    chamber.blades.insert(BladeKey("rack2", 10), Blade())
    create_instance(chamber, InstanceKey("web", "i1"), Instance(), InstanceTarget(rackid="rack1", bladeid=2))
    chamber.blades.update(TWO, blade("a/b", Condition.RETIRED))
    create_instance(chamber, InstanceKey("web", "i2"), Instance(), InstanceTarget())
    chamber.users.insert("ada", User(name="Ada", rights=Rights(can_step_time=True, can_perform_repairs=True)))
    chamber.users.insert("old", User(name="old", can_manage_accounts=True))


def assert_found(indexed: CloudChamberIndexed) -> None:
    assert list(indexed.blades_by_arch.keys("X64")) == [ONE]
    assert list(indexed.blades_by_arch.keys("a/b")) == [TWO]
    assert indexed.blades_by_arch.count() == 2
    assert list(indexed.blades_by_condition.keys("retired")) == [TWO]
    assert list(indexed.instances_by_blade.keys("rack1", 2)) == [InstanceKey("web", "i1")]
    assert indexed.instances_by_blade.count() == 1
    assert list(indexed.users_by_right.keys("can_step_time")) == ["ada"]
    assert list(indexed.users_by_right.keys("can_manage_accounts")) == ["old"]
    assert indexed.users_by_folded_name.key_of("ada") == "ada"


def test_a_store_of_the_documents_keys_alone_is_indexed_when_asked(store: Store) -> None:
    fill(CloudChamber(store))
    before = raw_keys(store)
    assert layout_in_use(store) is CloudChamber
    assert begin_indexes(store) == ()
    assert layout_in_use(store) is CloudChamberIndexed
    assert_found(CloudChamberIndexed(store))
    index = b"/CloudChamber/V0.1/index/"
    documented = [key for key in raw_keys(store) if not key.startswith(index)]
    assert documented == [key for key in before if not key.startswith(index)]
    assert list(check(store, CloudChamberIndexed.bound(), beside=[])) == []
    remove_indexes(store)


def test_writers_keep_the_indexes_with_their_records(store: Store) -> None:
    assert begin_indexes(store) == ()
    indexed = CloudChamberIndexed(store)
    fill(indexed)
    assert_found(indexed)
    indexed.blades.update(ONE, blade("ARM", Condition.OPERATIONAL))
    assert list(indexed.blades_by_arch.keys("X64")) == []
    assert list(indexed.blades_by_arch.keys("ARM")) == [ONE]
    chamber = Chamber(store, layout=layout_in_use(store))
    with pytest.raises(InUseError):
        chamber.delete_rack("rack1")
    delete_instance(indexed, InstanceKey("web", "i1"))
    chamber.delete_rack("rack1")
    assert list(indexed.blades_by_arch.keys("ARM")) == []
    assert list(check(store, CloudChamberIndexed.bound())) == []
    with pytest.raises(UniqueViolationError):
        indexed.users.insert("ADA", User(name="ADA"))
    remove_indexes(store)


def test_an_index_is_not_read_before_it_is_built(chamber: CloudChamber, store: Store) -> None:
    fill(chamber)
    bound = CloudChamberIndexed.bound()
    for name in INDEXES:
        prepare_index(store, bound, name)
    with pytest.raises(IndexNotReadyError):
        list(CloudChamberIndexed(store).blades_by_arch.keys("X64"))


def test_users_that_differ_in_case_alone_keep_their_index_from_being_read(chamber: CloudChamber, store: Store) -> None:
    chamber.users.insert("ada", User(name="ada"))
    chamber.users.insert("Ada", User(name="Ada"))
    assert begin_indexes(store) == ("users_by_folded_name",)
    with pytest.raises(IndexNotReadyError):
        CloudChamberIndexed(store).users_by_folded_name.one("ada")
    chamber.users.delete("Ada")
    assert begin_indexes(store) == ()
    assert CloudChamberIndexed(store).users_by_folded_name.key_of("ada") == "ada"
    remove_indexes(store)


def test_what_a_rack_of_an_indexed_store_takes_is_deleted_in_one_commit(store: Store) -> None:
    begin_indexes(store)
    chamber = Chamber(store, layout=layout_in_use(store))
    blades = {number: blade("X64", Condition.BURN_IN) for number in range(1, 4)}
    chamber.create_rack("rack1", RackContents(Rack(), {}, {}, blades))
    before = chamber.layout.revision
    assert chamber.delete_rack("rack1") == before + 1
    assert raw_keys(store) == [b"/CloudChamber/V0.1/index/begun"]
    remove_indexes(store)


def test_a_purge_of_a_test_name_space_takes_its_indexes_along(store: Store) -> None:
    assert begin_indexes(store, "Test/Standard/") == ()
    fill(CloudChamberIndexed(store, namespace="Test/Standard/"))
    settings = StoreSettings("", 1, 1, use_test_namespace=True, use_unique_instance=False, pre_clean_store=True)
    assert pre_clean(store.engine, settings) > 10
    assert raw_keys(store) == []
    assert layout_in_use(store, "Test/Standard/") is CloudChamber


def test_the_layout_has_no_findings_that_are_not_waived() -> None:
    lint(CloudChamberIndexed.spec, limits=EngineLimits(key_bytes_max=511)).check()
    assert TargetBlade("rack1", 1) == ("rack1", 1)


def remove_indexes(store: Store) -> None:
    """Leave the documented keys alone, as the fixture's check expects them."""
    indexed = CloudChamberIndexed(store)
    for table in ("blades", "instance_target", "users"):
        for key in list(indexed.view(table).keys()):
            indexed.view(table).delete(key)
    indexed.indexes_begun.delete(Only())
