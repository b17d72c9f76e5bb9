"""The benchmarks by name. Each is given the extent of the run and yields results."""

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.cases import (
    asynchronous,
    etcd,
    group,
    hepnos,
    hepnos_files,
    hepnos_growth,
    hepnos_server,
    keys,
    keyspaces,
    migrations,
    postgres,
    processes,
    reads,
    runm,
    schedules,
    secrets,
    watches,
    writes,
)
from benchmarks.extent import Extent
from benchmarks.measure import Result

__all__ = ["BENCHMARKS"]

BENCHMARKS: Final[dict[str, Callable[[Extent], Iterator[Result]]]] = {
    "keys": keys.measure,
    "get": reads.measure_get,
    "unique": reads.measure_unique,
    "index": reads.measure_index,
    "list": reads.measure_list,
    "count": reads.measure_count,
    "insert": writes.measure_insert,
    "insert-many": writes.measure_insert_many,
    "insert-durable": writes.measure_insert_durable,
    "group-commit": group.measure,
    "key-space": keyspaces.measure,
    "watch": watches.measure,
    "aio": asynchronous.measure_lmdb,
    "aio-etcd": asynchronous.measure_etcd,
    "etcd": etcd.measure,
    "etcd-list": etcd.measure_list,
    "etcd-watch": etcd.measure_watch,
    "postgres": postgres.measure,
    "migration-memory": migrations.measure_memory,
    "migration-lmdb": migrations.measure_lmdb,
    "migration-etcd": migrations.measure_etcd,
    "migration-postgres": migrations.measure_postgres,
    "runm": runm.measure,
    "hepnos-events": hepnos.measure_write,
    "hepnos-read": hepnos.measure_read,
    "hepnos-products": hepnos.measure_products,
    "hepnos-files": hepnos_files.measure,
    "hepnos-process": hepnos_growth.measure_process,
    "hepnos-growth": hepnos_growth.measure_growth,
    "hepnos-server": hepnos_server.measure,
    "lint": processes.measure_lint,
    "import": processes.measure_import,
    "schedules": schedules.measure,
    "secrets": secrets.measure,
}
