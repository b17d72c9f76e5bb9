"""Copies and restores of plain prefixes that are killed."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from threading import Event

from keyplan.engine import Commit, Delete, KeyRange, MemoryEngine, Put
from keyplan.errors import CorruptionError, TargetNotEmptyError
from keyplan.maintenance import copy_store, prepare_index, restore_store
from keyplan.store import Store
from keyplan.testing.killing import KillScenario
from tests.kills.furniture import SMALL, Scene, fill_site, folder, nothing_is_open
from tests.maintenance.backups import write_backup
from tests.maintenance.layouts import Blade, BladeKey, Nested, Site

__all__ = ["copies", "restores"]

_SLOW = 2.0
"""Seconds that each engine call takes. Why: a job says every five seconds, with a commit of its work, how far it is."""

_SOMEBODY_WRITES = (TargetNotEmptyError, CorruptionError)


# ---- copies ----------------------------------------------------------------------------------------------------------


def copies() -> Iterator[Scene]:
    """A copy of all, of a prefix over another's content, one that follows; beside a writer of the source, of the target."""
    plain = partial(
        KillScenario,
        setup=_filled_source,
        engines=2,
        profile=SMALL,
        holds=_target_is_whole,
        told=(TargetNotEmptyError,),
    )
    yield Scene("copy", plain(job=_copy, beside=_write_source))
    yield Scene("copy, slow", plain(job=_copy, beside=_write_source, step_seconds=_SLOW))
    yield Scene("copy that follows, slow", plain(job=_follow, beside=_write_source, step_seconds=_SLOW))
    yield Scene("copy of leased", plain(job=partial(_copy, keeps_leased=True), beside=_write_source))
    # Why none is told: nobody writes to the source meanwhile, and a copy that had ended is found to be complete.
    unready = plain(job=_copy, setup=_unready_source, holds=_no_claim, told=())
    yield Scene("copy of an index that is not readable", unready)
    yield Scene(
        "copy over",
        plain(job=partial(_copy, prefix=b"/site/", is_overwriting=True), setup=_filled_both, beside=_write_source),
    )
    yield Scene("copy that follows", plain(job=_follow, beside=_write_source))
    for stranger in (b"/site/other", b"/site/rack/r/blades/1"):
        yield Scene(
            f"copy x {stranger.decode()} of somebody in the target",
            plain(
                job=_copy_unless_taken,
                beside=partial(_write_target, stranger),
                holds=_nothing,
                compared=partial(_value_in_target, stranger),
            ),
        )


def _copy(
    source: Store, target: Store, *, prefix: bytes = b"", is_overwriting: bool = False, keeps_leased: bool = False
) -> None:
    copy_store(
        source.engine,
        target.engine,
        source_name="source",
        prefix=prefix,
        is_overwriting=is_overwriting,
        keeps_leased=keeps_leased,
    )


class _Looks(Event):
    """Says stop after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def _follow(source: Store, target: Store) -> None:
    changes = iter((_first_change, _second_change))

    def told(progress: object) -> None:
        change = next(changes, None)
        if getattr(progress, "stage", "") == "following" and change is not None:
            change(source)

    copy_store(source.engine, target.engine, source_name="source", follow_until=_Looks(6), progress=told)


def _first_change(source: Store) -> None:
    Site(source).blades.put(BladeKey("r", "0"), Blade("s0", ["blue"]))


def _second_change(source: Store) -> None:
    Site(source).blades.delete(BladeKey("r", "1"), missing_ok=True)


def _copy_unless_taken(source: Store, target: Store) -> None:
    try:
        _copy(source, target)
    except _SOMEBODY_WRITES:
        return


def _filled_source(source: Store, _target: Store) -> None:
    fill_site(source)


def _unready_source(source: Store, _target: Store) -> None:
    fill_site(source)
    prepare_index(source, Site(source), "by_tag")


def _filled_both(source: Store, target: Store) -> None:
    """The target has records of its own below the prefix, some at the same keys, some alike, and others beside it."""
    fill_site(source)
    fill_site(target)
    site = Site(target)
    site.blades.put(BladeKey("r", "0"), Blade("mine", ["mine"]))
    site.blades.insert(BladeKey("z", "9"), Blade("mine too"))
    Nested(target).users.insert("ada", Blade())


def _write_source(source: Store, _target: Store) -> None:
    site = Site(source)
    site.blades.insert(BladeKey("q", "9"), Blade("s9", ["red"]))
    site.blades.delete(BladeKey("r", "2"))


def _write_target(key: bytes, _source: Store, target: Store) -> None:
    target.engine.commit(Commit((), (Put(key, b"mine"),)))


def _value_in_target(key: bytes, _source: Store, target: Store) -> object:
    return target.engine.value(key) == b"mine"


def _target_is_whole(_source: Store, target: Store) -> None:
    nothing_is_open(target, Site, leases=len(target.engine.memory.leases))  # type: ignore[attr-defined]


def _no_claim(_source: Store, target: Store) -> None:
    nothing_is_open(target)


def _nothing(*_stores: Store) -> None:
    """Say nothing: what is compared is all that counts."""


# ---- restores --------------------------------------------------------------------------------------------------------


def restores() -> Iterator[Scene]:
    """A restore into an empty store, below another prefix, over another's content, with indexes that are built."""
    path = _backup("whole", fill_site)
    plain = partial(KillScenario, setup=_nothing, profile=SMALL, holds=_is_whole)
    yield Scene("restore", plain(job=_restores(path)))
    yield Scene("restore with the layout", plain(job=_restores(path, layout=Site.bound())))
    lacking = _backup("lacking", _fill_lacking)
    # Why it may be told so: killed behind its end it has mended indexes, and the place is not what the backup has.
    mending = plain(job=_restores(lacking, layout=Site.bound()), told=(TargetNotEmptyError,))
    yield Scene("restore with the layout of what lacks index entries", mending)
    yield Scene("restore below another prefix", plain(job=_restores(path, prefix=b"/else/"), holds=_no_open_work))
    yield Scene(
        "restore over", plain(job=_restores(path, is_overwriting=True), setup=_fill_otherwise, beside=_write_record)
    )
    slow = plain(job=_restores(path, is_overwriting=True), setup=_fill_otherwise, step_seconds=_SLOW)
    yield Scene("restore over, slow", slow)
    unready = _backup("unready", _fill_unready)
    yield Scene("restore of an index that is not readable", plain(job=_restores(unready), holds=_no_open_work))
    yield Scene(
        "restore of an index that is not readable, built",
        plain(job=_restores(unready, layout=Site.bound()), holds=_no_open_work),
    )
    for stranger in (b"/site/other", b"/site/rack/r/blades/1"):
        yield Scene(
            f"restore x {stranger.decode()} of somebody",
            plain(
                job=_unless_taken(_restores(path)),
                beside=partial(_write_key, stranger),
                holds=_nothing,
                compared=lambda store, key=stranger: store.engine.value(key) == b"mine",
            ),
        )


@cache
def _backup(name: str, fill: Callable[[Store], None]) -> Path:
    with Store(MemoryEngine()) as store:
        fill(store)
        return write_backup(store.engine, folder() / name, prefix=b"/site/")


def _restores(path: Path, **options: object) -> Callable[[Store], None]:
    def restore(store: Store) -> None:
        restore_store(store.engine, path, **options)  # type: ignore[arg-type]

    return restore


def _unless_taken(job: Callable[[Store], None]) -> Callable[[Store], None]:
    def bounded(store: Store) -> None:
        try:
            job(store)
        except _SOMEBODY_WRITES:
            return

    return bounded


def _fill_unready(store: Store) -> None:
    """An index that is write-only and misses entries."""
    fill_site(store)
    prepare_index(store, Site(store), "by_tag")
    _remove_entries(store)


def _fill_lacking(store: Store) -> None:
    """An index that is readable and misses entries."""
    fill_site(store)
    _remove_entries(store)


def _remove_entries(store: Store) -> None:
    with store.engine.snapshot() as snapshot:
        keys = list(snapshot.keys(KeyRange.of_prefix(b"/site/by-tag/")))
    store.engine.commit(Commit((), tuple(Delete(key) for key in keys[::2])))


def _fill_otherwise(store: Store) -> None:
    _filled_both(Store(MemoryEngine()), store)


def _write_record(store: Store) -> None:
    Nested(store).users.insert("bob", Blade("b"))


def _write_key(key: bytes, store: Store) -> None:
    store.engine.commit(Commit((), (Put(key, b"mine"),)))


def _is_whole(store: Store) -> None:
    nothing_is_open(store, Site, leases=len(store.engine.memory.leases))  # type: ignore[attr-defined]


def _no_open_work(store: Store) -> None:
    nothing_is_open(store)
