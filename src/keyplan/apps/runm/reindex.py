"""Building the property and tag indexes of a store that somebody else wrote, so that searches may trust them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.layout import IndexesKept, RunmBeside
from keyplan.apps.runm.names import refuse_unnamed
from keyplan.apps.runm.start import SEARCH_INDEXES
from keyplan.apps.runm.verify import entries_of
from keyplan.engine import Put
from keyplan.errors import CorruptionError, RecordError
from keyplan.jobs import Progress, Stop, StopCheck
from keyplan.layout import Only, shown_key
from keyplan.maintenance import build_index, prepare_index
from keyplan.store import Store, index_entries_of

__all__ = ["ReindexReport", "reindex"]


class ReindexReport(NamedTuple):
    """How building the indexes ended. `in_the_way` are keys of objects that cannot be indexed or read."""

    is_readable: bool
    entries_written: int
    in_the_way: tuple[str, ...]


def reindex(
    store: Store,
    prefix: str,
    progress: Callable[[Progress], None] | None = None,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    url: str = "",
) -> ReindexReport:
    """Build both indexes, verify them, and let searches read them. The service may run meanwhile.

    An object that cannot be read, or has a name or value that no key can have, would be left out of every search by these
    indexes: while there is one, they stay unread, and searches look at every object instead. An interrupted run goes on where
    it was. Raises InvalidInputError for a store whose names are spelled otherwise, with the command that mends the store that
    `url` names; StoppedError when `stop` is set.
    """
    deployment = Deployment(store, prefix, url=url)
    refuse_unnamed(deployment)
    stops = StopCheck(stop, "the building of the search indexes")
    for name in stops.each(SEARCH_INDEXES):
        prepare_index(store, deployment.bound, name, command=command)
    # Why after that: from now on writers keep both, and a server that is new to the store need not ask.
    deployment.beside.indexes_kept.put(Only(), IndexesKept(is_kept=False))
    in_the_way = _in_the_way(deployment, stops)
    if in_the_way:
        return ReindexReport(is_readable=False, entries_written=0, in_the_way=in_the_way)

    note = RunmBeside.bound(prefix=deployment.prefix).tables["indexes_kept"]
    is_kept = Put(note.keys.encode(Only()), note.form.encode(IndexesKept(is_kept=True)))
    *first, last = SEARCH_INDEXES
    build = partial(build_index, store, deployment.bound, stop=stop, command=command, progress=progress)
    # Why in its commit: between the two a process that dies would leave nothing that anybody sees to be open.
    reports = [*map(build, first), build(last, along=(is_kept,))]
    if all(report.is_readable for report in reports) and store.engine.value(is_kept.key) != is_kept.value:
        # Why: another builder of the index, which knows of no note, has ended it.
        deployment.beside.indexes_kept.put(Only(), IndexesKept(is_kept=True))
    return ReindexReport(
        is_readable=all(report.is_readable for report in reports),
        entries_written=sum(report.entries_written for report in reports),
        in_the_way=(),
    )


def _in_the_way(deployment: Deployment, stops: StopCheck) -> tuple[str, ...]:
    table = deployment.bound.table("objects")
    found = []
    for uuid, entry in stops.each(entries_of(table, deployment)):
        try:
            index_entries_of(table, uuid, table.form.decode(entry.value))
        except (CorruptionError, RecordError):
            found.append(shown_key(entry.key))
    return tuple(found)
