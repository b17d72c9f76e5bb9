"""Long acts of the applications, and rings that grow, killed."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from uuid import UUID

from msgspec import structs

from keyplan.apps import hepnos
from keyplan.apps.cloudchamber import (
    Blade,
    BladeKey,
    Chamber,
    CloudChamber,
    LayoutSide,
    MigrationOptions,
    User,
    begin_indexes,
    inventory_records,
    layout_in_use,
    migrate,
    read_definition,
    reconcile,
    validated,
)
from keyplan.apps.cloudchamber.indexed import CloudChamberIndexed, store_for_writing
from keyplan.apps.hepnos.cli_jobs import checked
from keyplan.apps.hepnos.databases import Address, Databases
from keyplan.apps.hepnos.dataset_ref import DELETING
from keyplan.apps.hepnos.deletions import FencedDatabase
from keyplan.apps.hepnos.examine import examine
from keyplan.apps.hepnos.keys import Kind, dataset_key, number_key, product_item, product_suffix
from keyplan.apps.hepnos.store import DataStore
from keyplan.apps.hepnos.sweep import is_under_way, leftovers
from keyplan.apps.runm import Partition
from keyplan.apps.runm import migrate as runm_migrate
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.partition_file import Line
from keyplan.apps.runm.reindex import reindex
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.transfer import exported, import_partition
from keyplan.apps.runm.verify import verify
from keyplan.engine import Commit, Engine, Entry, KeyRange, MemoryEngine, Put
from keyplan.errors import RingMismatchError
from keyplan.ring import rebalance, ring_of
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.killing import KillScenario, everything_stored
from tests.apps.cloudchamber.conftest import definition_yaml
from tests.apps.hepnos.test_cxx import DATABASES
from tests.apps.runm.client import I1, I2, WEST
from tests.apps.runm.conftest import ROOT
from tests.apps.runm.test_original_store import HYPHENATED, original, slashed, write
from tests.kills.furniture import Scene, folder, nothing_is_open, small_profile
from tests.ring import sites

__all__ = ["cloudchamber", "hepnos_stores", "rings", "runm"]

# ---- runm ------------------------------------------------------------------------------------------------------------


def runm() -> Iterator[Scene]:
    """The indexes of a store of the original, its rewriting, and a partition that is brought in."""
    plain = partial(KillScenario, profile=small_profile(64))
    yield Scene(
        "runm reindex", plain(job=_reindex, setup=_fill_original, beside=_write_objects, holds=_has_no_findings)
    )
    yield Scene(
        "runm migrate",
        plain(
            job=_rewrite,
            setup=_fill_misspelt,
            beside=_write_partition,
            holds=_is_rewritten,
            compared=_own_definitions_named,
        ),
    )
    yield Scene("runm import", plain(job=_import, setup=_start, beside=_write_partition, holds=_has_no_findings))


def _fill_original(store: Store) -> None:
    write(store, original())


def _reindex(store: Store) -> None:
    assert reindex(store, "").is_readable


def _write_objects(store: Store) -> None:
    objects = Deployment(store).runm.objects
    objects.delete(UUID(I1))
    objects.modify(UUID(I2), lambda stored: structs.replace(stored, tags=["unicorn", "late"]))


def _has_no_findings(store: Store) -> None:
    assert list(verify(store, "")) == []
    nothing_is_open(store)


def _fill_misspelt(store: Store) -> None:
    pointer = "definitions/by-type/runm.provider/"
    west = f"partitions/{WEST}/"
    write(
        store,
        original()
        | slashed()
        | {
            f"partitions/{HYPHENATED}/{pointer}by-type/runm.compute": b"7" * 32,
            "definitions/by-uuid/" + "7" * 32: b"\x0a\x20" + b"7" * 32 + b"\x12\x02{}",
            "definitions/by-uuid/" + "8" * 32: b"\x0a\x20" + b"8" * 32 + b"\x12\x02{}",
            f"{west}{pointer}default": b"f3823e51dbfd420f807f3a1daac674f0",
            "partitions/": b"",
        },
    )


def _rewrite(store: Store) -> None:
    list(runm_migrate.migrate(store, "", is_dry_run=False))


def _is_rewritten(store: Store) -> None:
    """Nothing is left to rewrite, and every object and partition is found by its name."""
    assert list(runm_migrate.migrate(store, "", is_dry_run=True)) == []
    missing = [found.key for found in verify(store, "") if found.code == "missing-entry"]
    assert [key for key in missing if "/properties/" not in key and "/tags/" not in key] == []


def _write_partition(store: Store) -> None:
    Deployment(store).runm.partitions.insert(UUID(int=9), Partition(UUID(int=9), "late.example.com"))


def _own_definitions_named(store: Store) -> object:
    """Everything, with the one definition that is made called what it is: its UUID is random."""
    found = {entry.key: entry.value for entry in _entries(store.engine)}
    known = {ROOT + key.encode() for key in original()} | {ROOT + b"definitions/by-uuid/" + b"7" * 32}
    made = [key for key in found if key.startswith(ROOT + b"definitions/by-uuid/") and key not in known]
    assert len(made) == 1, made
    uuid = made[0].rpartition(b"/")[2]
    return {key.replace(uuid, b"own"): value.replace(uuid, b"own") for key, value in found.items()}


def _entries(engine: Engine) -> list[Entry]:
    with engine.snapshot() as snapshot:
        return list(snapshot.scan(KeyRange(b"", None)))


@cache
def _lines() -> tuple[Line, ...]:
    with Store(MemoryEngine()) as store:
        _fill_original(store)
        reindex(store, "")
        ensure_started(Deployment(store))
        return tuple(exported(store, "", WEST))


def _start(store: Store) -> None:
    ensure_started(Deployment(store))


def _import(store: Store) -> None:
    report = import_partition(store, "", _lines, is_dry_run=False)
    assert not report.conflicts


# ---- CloudChamber ----------------------------------------------------------------------------------------------------


def cloudchamber() -> Iterator[Scene]:
    """The secondary indexes begun, an inventory imported in several commits, and a store moved to the other layout."""
    yield Scene(
        "cloudchamber indexes",
        KillScenario(job=_begin_indexes, setup=_fill_chamber, beside=_write_user, holds=_indexes_are_whole),
        is_long=True,
    )
    yield Scene(
        "cloudchamber import",
        KillScenario(job=_import_inventory, setup=_fill_chamber, beside=_write_user, profile=small_profile(16)),
    )
    yield Scene(
        "cloudchamber migrate",
        KillScenario(
            job=_migrate_chamber,
            setup=_fill_source_chamber,
            beside=_write_source_chamber,
            engines=2,
            profile=small_profile(16),
        ),
    )


def _fill_chamber(store: Store) -> None:
    chamber = CloudChamber(store)
    reconcile(chamber, inventory_records(validated(read_definition(_definition("old", "rack1", "rack2")))))
    for name in ("ada", "bob"):
        chamber.users.insert(name, User(name=name))


@cache
def _definition(name: str, *racks: str) -> Path:
    path = folder() / f"{name}.yaml"
    path.write_bytes(definition_yaml(*racks, blades=2))
    return path


def _begin_indexes(store: Store) -> None:
    assert begin_indexes(store) == ()


def _write_user(store: Store) -> None:
    """What a server does that begins now."""
    layout = layout_in_use(store)
    chamber = Chamber(store_for_writing(store, "", layout), layout=layout)
    chamber.layout.users.insert("new", User(name="new"))
    chamber.layout.users.delete("bob")


def _indexes_are_whole(store: Store) -> None:
    nothing_is_open(store, CloudChamberIndexed)


def _import_inventory(store: Store) -> None:
    path = _definition("new", "rack2", "rack3", "rack4")
    reconcile(CloudChamber(store), inventory_records(validated(read_definition(path))))


def _fill_source_chamber(source: Store, target: Store) -> None:
    _fill_chamber(source)
    target.engine.commit(Commit((), (Put(b"/before", b"other"),)))


def _write_source_chamber(source: Store, _target: Store) -> None:
    CloudChamber(source).blades.insert(BladeKey("rack1", 9), Blade())


def _migrate_chamber(source: Store, target: Store) -> None:
    migrate(source, target, LayoutSide.DOCUMENT, MigrationOptions(), leave_behind=True)


# ---- HEPnOS ----------------------------------------------------------------------------------------------------------


def hepnos_stores() -> Iterator[Scene]:
    """A store that the C++ program has written, brought over; a store in which things are left over, checked and repaired."""
    plain = partial(KillScenario, engines=len(Kind), profile=small_profile(8))
    yield Scene("hepnos migrate", plain(job=_bring_over, setup=_datastore, beside=_load))
    repair = plain(job=_repair, setup=_fill_hepnos, holds=_nothing_is_left)
    yield Scene("hepnos check --repair", repair)
    yield Scene("hepnos check --repair beside a loader", replace(repair, beside=_load), is_long=True)


def _datastore(*stores: Store) -> DataStore:
    engines: dict[Kind, Engine] = dict(zip(Kind, (store.engine for store in stores), strict=True))
    fenced = {kind: each if kind is Kind.DATASET else FencedDatabase(each) for kind, each in engines.items()}
    return DataStore(Databases({kind: ring_of([fenced[kind]], kind.layout) for kind in Kind}, Address("memory:")))


@cache
def _cxx() -> hepnos.CxxStore:
    engines: dict[str, list[Engine]] = {}
    for kind, databases in DATABASES.items():
        engines[kind] = [MemoryEngine() for _ in databases]
        for engine, pairs in zip(engines[kind], databases, strict=True):
            engine.commit(Commit((), tuple(Put(key, value) for key, value in pairs.items())))
    return hepnos.CxxStore(engines)


def _bring_over(*stores: Store) -> None:
    assert _cxx().migrate(_datastore(*stores)) == hepnos.Migrated(2, 3, 1, 1, 2, unknown=1)


def _load(*stores: Store) -> None:
    """What a loader does meanwhile, in a data set of the same store."""
    _datastore(*stores).databases.put(Kind.PRODUCT, 0, [_LOADED + b"\x00" * 24 + b"x#int64"], [b"mine"])


_LOADED = b"%016d" % 7


def _fill_hepnos(*stores: Store) -> None:
    """A data set, one in the middle of its deletion with another in it, and what has the UUID of none."""
    put = _datastore(*stores).databases.put
    for path, uuid in (
        ("gone", bytes(15) + b"\x01" + DELETING),
        ("gone/in it", bytes(15) + b"\x02"),
        ("kept", _LOADED),
    ):
        put(Kind.DATASET, 0, [dataset_key(path)], [uuid])
    for number in (1, 3):
        put(Kind.RUN, 0, [number_key(UUID(int=number), (1,))], None)
    put(Kind.PRODUCT, 0, [product_item(UUID(int=3), ()) + product_suffix("x", "int64")], [bytes(8)])


def _repair(*stores: Store) -> None:
    checked(_datastore(*stores), is_repaired=True, as_json=False)


def _nothing_is_left(*stores: Store) -> None:
    data = _datastore(*stores)
    assert {found.finding for found in examine(data)} <= {"no-container"}  # of what is loaded beside
    assert list(leftovers(data)) == []
    assert not is_under_way(data)
    assert [dataset.path for dataset in data.all_datasets()] == ["kept"]


# ---- rings -----------------------------------------------------------------------------------------------------------

_ACKNOWLEDGED = b"acknowledged"


def rings() -> Iterator[Scene]:
    """A ring of two databases that grows to three; its user is refused meanwhile. The fourth store notes what it was told."""
    grow = KillScenario(
        job=_grow,
        setup=_fill_ring,
        beside=_insert_blade,
        holds=_ring_has_what_was_told,
        compared=_ring_and_its_databases,
        engines=4,
        is_refused=True,
        profile=small_profile(8),
    )
    yield Scene("rebalance a ring", grow)


def _fill_ring(*stores: Store) -> None:
    site = sites.Site(Store(ring_of([store.engine for store in stores[:2]], sites.Site)))
    for rack in "abcdefgh":
        site.blades.insert(sites.BladeKey(rack, "1"), sites.Blade(f"s{rack}", ("t",)))
    site.notes.put("n", "old")


def _grow(*stores: Store) -> None:
    rebalance([store.engine for store in stores[:3]])


def _insert_blade(*stores: Store) -> None:
    for databases in (2, 3):
        try:
            ring = ring_of([store.engine for store in stores[:databases]], sites.Site, create=False)
            sites.Site(Store(ring)).blades.insert(sites.BladeKey("late", "1"), sites.Blade("late"))
        except RingMismatchError:
            continue
        stores[3].engine.commit(Commit((), (Put(_ACKNOWLEDGED, b""),)))
        return


def _ring_has_what_was_told(*stores: Store) -> None:
    ring = Store(ring_of([store.engine for store in stores[:3]], sites.Site, create=False))
    assert_healthy(ring, sites.Site)
    was_told = stores[3].engine.value(_ACKNOWLEDGED) is not None
    assert (sites.Site(ring).blades.get(sites.BladeKey("late", "1")) is not None) == was_told


def _ring_and_its_databases(*stores: Store) -> object:
    return everything_stored(*stores[:3])
