"""HEPnOS, a store for high-energy physics: the key layouts of its document and of its C++ program, and the API on them.

    from keyplan.apps import hepnos

    with hepnos.open("lmdb:/data/nova", databases={"events": 4, "products": 4}) as store:
        run = store.root.ensure("nova/nd/2019").create_run(12096)
        event = run.create_subrun(1).create_event(7)
        event.store("energy", 1.5)

The layouts need nothing but keyplan; all else needs numpy (`keyplan[hepnos]`), and is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from keyplan.apps.hepnos.layout import (
    CPP_LAYOUTS,
    INVALID_NUMBER,
    LAYOUTS,
    DataSetKey,
    EventKey,
    HEPnOSCppDataSets,
    HEPnOSCppEvents,
    HEPnOSCppProducts,
    HEPnOSCppRuns,
    HEPnOSCppSubRuns,
    HEPnOSDataSets,
    HEPnOSEvents,
    HEPnOSProducts,
    HEPnOSRuns,
    HEPnOSSubRuns,
    ProductKey,
    RunKey,
    SubRunKey,
)

# Why: `keyplan lint` and the map of layouts must not import numpy, which takes longer than they do.
if TYPE_CHECKING:
    from keyplan.apps.hepnos import aio
    from keyplan.apps.hepnos.analysis import Branches, to_dask_awkward, to_nano_events
    from keyplan.apps.hepnos.batch import AsyncEngine, BatchStatistics, WriteBatch
    from keyplan.apps.hepnos.bulk import Created, create_events, create_items, load_products, store_products
    from keyplan.apps.hepnos.collection import Collection, Collections, Related
    from keyplan.apps.hepnos.columns import EVENT_COLUMNS
    from keyplan.apps.hepnos.cxx import CxxStore, Migrated
    from keyplan.apps.hepnos.databases import Address, Databases
    from keyplan.apps.hepnos.datasets import DataSet, DataSets
    from keyplan.apps.hepnos.entries import NUMBER_COLUMNS
    from keyplan.apps.hepnos.errors import (
        BatchError,
        DeletedError,
        InvalidLabelError,
        InvalidNameError,
        InvalidNumberError,
        ItemLostError,
        MissingError,
        ProcessingError,
        TypeMismatchError,
    )
    from keyplan.apps.hepnos.event_selection import EventSelection
    from keyplan.apps.hepnos.event_set import EventSet
    from keyplan.apps.hepnos.export import export_parquet, to_awkward
    from keyplan.apps.hepnos.hdf5_files import load_hdf5
    from keyplan.apps.hepnos.keys import Kind
    from keyplan.apps.hepnos.labels import load_table
    from keyplan.apps.hepnos.loading import Loaded
    from keyplan.apps.hepnos.numbered import Event, Numbers, Run, SubRun
    from keyplan.apps.hepnos.open_store import OpenStore
    from keyplan.apps.hepnos.parallel import ParallelProcessor, Processed
    from keyplan.apps.hepnos.parquet_files import load_parquet
    from keyplan.apps.hepnos.pieces import EventBatch
    from keyplan.apps.hepnos.prefetch import Prefetcher, PrefetchStatistics, PreloadedProducts
    from keyplan.apps.hepnos.product_id import ProductID
    from keyplan.apps.hepnos.products import Container
    from keyplan.apps.hepnos.queues import HEPnOSQueues, Queue, QueueItem, Queues
    from keyplan.apps.hepnos.references import Ref
    from keyplan.apps.hepnos.root_files import load_root
    from keyplan.apps.hepnos.store import DataStore, open_at, open_databases
    from keyplan.apps.hepnos.store import open_hepnos as open  # noqa: A004  # Why: `hepnos.open(url)` reads as it should.
    from keyplan.apps.hepnos.tables import Table, TableRows, Tables, TableVersion, store_table
    from keyplan.apps.hepnos.types import (
        CXX_STRING,
        CXX_STRING_VECTOR,
        ProductType,
        cxx_type,
        product_type,
        register_type,
        type_named,
        type_of_value,
        vector,
    )

__all__ = [
    "CPP_LAYOUTS",
    "CXX_STRING",
    "CXX_STRING_VECTOR",
    "EVENT_COLUMNS",
    "INVALID_NUMBER",
    "LAYOUTS",
    "NUMBER_COLUMNS",
    "Address",
    "AsyncEngine",
    "BatchError",
    "BatchStatistics",
    "Branches",
    "Collection",
    "Collections",
    "Container",
    "Created",
    "CxxStore",
    "DataSet",
    "DataSetKey",
    "DataSets",
    "DataStore",
    "Databases",
    "DeletedError",
    "Event",
    "EventBatch",
    "EventKey",
    "EventSelection",
    "EventSet",
    "HEPnOSCppDataSets",
    "HEPnOSCppEvents",
    "HEPnOSCppProducts",
    "HEPnOSCppRuns",
    "HEPnOSCppSubRuns",
    "HEPnOSDataSets",
    "HEPnOSEvents",
    "HEPnOSProducts",
    "HEPnOSQueues",
    "HEPnOSRuns",
    "HEPnOSSubRuns",
    "InvalidLabelError",
    "InvalidNameError",
    "InvalidNumberError",
    "ItemLostError",
    "Kind",
    "Loaded",
    "Migrated",
    "MissingError",
    "Numbers",
    "OpenStore",
    "ParallelProcessor",
    "PrefetchStatistics",
    "Prefetcher",
    "PreloadedProducts",
    "Processed",
    "ProcessingError",
    "ProductID",
    "ProductKey",
    "ProductType",
    "Queue",
    "QueueItem",
    "Queues",
    "Ref",
    "Related",
    "Run",
    "RunKey",
    "SubRun",
    "SubRunKey",
    "Table",
    "TableRows",
    "TableVersion",
    "Tables",
    "TypeMismatchError",
    "WriteBatch",
    "aio",
    "create_events",
    "create_items",
    "cxx_type",
    "export_parquet",
    "load_hdf5",
    "load_parquet",
    "load_products",
    "load_root",
    "load_table",
    "open",
    "open_at",
    "open_databases",
    "product_type",
    "register_type",
    "store_products",
    "store_table",
    "to_awkward",
    "to_dask_awkward",
    "to_nano_events",
    "type_named",
    "type_of_value",
    "vector",
]

_MODULES: Final = {
    "analysis": ("Branches", "to_dask_awkward", "to_nano_events"),
    "batch": ("AsyncEngine", "BatchStatistics", "WriteBatch"),
    "bulk": (*("Created", "create_events", "create_items", "load_products", "store_products"),),
    "collection": ("Collection", "Collections", "Related"),
    "columns": ("EVENT_COLUMNS",),
    "cxx": ("CxxStore", "Migrated"),
    "databases": ("Address", "Databases"),
    "datasets": ("DataSet", "DataSets"),
    "entries": ("NUMBER_COLUMNS",),
    "errors": (
        *("BatchError", "DeletedError", "InvalidLabelError", "InvalidNameError", "InvalidNumberError", "ItemLostError"),
        *("MissingError", "ProcessingError", "TypeMismatchError"),
    ),
    "event_selection": ("EventSelection",),
    "event_set": ("EventSet",),
    "export": ("export_parquet", "to_awkward"),
    "hdf5_files": ("load_hdf5",),
    "keys": ("Kind",),
    "labels": ("load_table",),
    "loading": ("Loaded",),
    "numbered": ("Event", "Numbers", "Run", "SubRun"),
    "open_store": ("OpenStore",),
    "parallel": ("ParallelProcessor", "Processed"),
    "parquet_files": ("load_parquet",),
    "pieces": ("EventBatch",),
    "prefetch": ("PrefetchStatistics", "Prefetcher", "PreloadedProducts"),
    "product_id": ("ProductID",),
    "products": ("Container",),
    "queues": ("HEPnOSQueues", "Queue", "QueueItem", "Queues"),
    "references": ("Ref",),
    "root_files": ("load_root",),
    "store": ("DataStore", "open", "open_at", "open_databases"),
    "tables": ("Table", "TableRows", "TableVersion", "Tables", "store_table"),
    "types": (
        *("CXX_STRING", "CXX_STRING_VECTOR", "ProductType", "cxx_type", "product_type", "register_type"),
        *("type_named", "type_of_value", "vector"),
    ),
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.

    def __getattr__(name: str) -> object:
        """Import a public name from its module, and keep it."""
        if name == "aio":
            return import_module(f"{__name__}.aio")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), "open_hepnos" if name == "open" else name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return sorted({*globals(), *__all__})
