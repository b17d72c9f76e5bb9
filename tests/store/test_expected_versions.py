"""What a writer expects of a record: a bare revision, or the record as it was read, which knows its epoch."""

from collections.abc import Callable
from typing import Any

import pytest

from keyplan.engine import Commit, MemoryEngine
from keyplan.errors import InvalidInputError, StaleRecordError
from keyplan.layout import Versioned
from keyplan.store import Store
from tests.store.engines import no_waiting
from tests.store.layouts import Blade, BladeKey, Rack, Site
from tests.store.test_lineage import Cluster

KEY = BladeKey("r1", "s1")
Read = Callable[[Site], Versioned[Any, Any]]
Write = Callable[[Site, Any], object]


def _there(found: object) -> Versioned[Any, Any]:
    assert isinstance(found, Versioned)
    return found


def _in_a_snapshot(site: Site) -> Versioned[Any, Any]:
    with site.snapshot() as state:
        return _there(state.blades.versioned(KEY))


READS: dict[str, Read] = {
    "versioned": lambda site: _there(site.blades.versioned(KEY)),
    "entries": lambda site: next(iter(site.blades.entries())),
    "rows": lambda site: _there(next(iter(site.blades.rows()))),
    "index": lambda site: _there(next(iter(site.by_tag.rows("t")))),
    "unique": lambda site: _there(next(iter(site.by_serial.rows()))),
    "snapshot": _in_a_snapshot,
    "transaction": lambda site: site.run(lambda each: _there(each.blades.versioned(KEY))),
}
WRITES: dict[str, Write] = {
    "put": lambda site, seen: site.blades.put(KEY, Blade("new"), expected_revision=seen),
    "update": lambda site, seen: site.blades.update(KEY, Blade("new"), expected_revision=seen),
    "delete": lambda site, seen: site.blades.delete(KEY, expected_revision=seen),
    "transaction": lambda site, seen: site.run(lambda each: each.blades.put(KEY, Blade("new"), expected_revision=seen)),
}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def site(cluster: Cluster) -> Site:
    return Site(Store(cluster, backoff=no_waiting()))


def lost_update(cluster: Cluster, site: Site, read: Read) -> Versioned[Any, Any]:
    """Return a record as it was read before the store went back, and write another state of it at the same revision."""
    site.blades.insert(KEY, Blade("seen", ["t"]))
    seen = read(site)
    cluster.restore()
    assert site.blades.insert(KEY, Blade("another's", ["t"])) == seen.revision
    return seen


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_read_is_expected(site: Site, read: Read, write: Write) -> None:
    site.blades.insert(KEY, Blade("seen", ["t"]))
    seen = read(site)
    write(site, seen)
    with pytest.raises(StaleRecordError) as caught:
        write(site, seen)
    assert caught.value.expected_revision == seen.revision


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_read_before_the_store_went_back_is_refused(
    cluster: Cluster, site: Site, read: Read, write: Write
) -> None:
    seen = lost_update(cluster, site, read)
    with pytest.raises(StaleRecordError, match="went back since the record was read") as caught:
        write(site, seen)
    assert caught.value.actual_revision == seen.revision  # the number alone would have matched
    assert site.blades.require(KEY).serial == "another's"


def test_a_page_of_rows_reads_and_writes_in_one_epoch(cluster: Cluster, site: Site) -> None:
    site.racks.insert("r1", Rack("hall"))
    site.racks.insert("r2", Rack("hall"))
    epochs = {row.epoch for row in site.racks.entries()}
    assert epochs == {cluster.epoch}


class GoesBack(Cluster):
    """An engine that goes back when a commit is sent for the first time, and refuses that commit."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_back: Callable[[], object] | None = None

    def commit(self, commit: Commit) -> int:
        if self.goes_back is not None:
            go_back, self.goes_back = self.goes_back, None
            go_back()
        return super().commit(commit)


@pytest.mark.parametrize("form", ["as it was read", "its revision"])
@pytest.mark.parametrize(
    "write", [WRITES[name] for name in ("put", "update", "delete")], ids=["put", "update", "delete"]
)
def test_a_store_that_goes_back_while_it_is_written_to(write: Write, form: str) -> None:
    cluster = GoesBack()
    site = Site(Store(cluster, backoff=no_waiting()))
    site.blades.insert(KEY, Blade("seen", ["t"]))
    seen = _there(site.blades.versioned(KEY))

    def go_back() -> None:
        cluster.restore()
        assert site.blades.insert(KEY, Blade("another's")) == seen.revision

    cluster.goes_back = go_back
    with pytest.raises(StaleRecordError, match="went back"):
        write(site, seen if form == "as it was read" else seen.revision)
    assert site.blades.require(KEY).serial == "another's"


def test_what_was_read_at_another_key_is_refused() -> None:
    site = Site(Store(MemoryEngine()))
    with site.transaction() as transaction:  # one commit: both records have its revision
        transaction.racks.insert("r1", Rack("hall"))
        transaction.racks.insert("r2", Rack("hall"))
    seen = site.racks.versioned("r1")
    with pytest.raises(InvalidInputError, match=r"expected_revision.*it was read at the key 'r1', not at 'r2'"):
        site.racks.put("r2", Rack("cellar"), expected_revision=seen)
    assert site.racks.require("r2").room == "hall"


def test_a_record_of_the_transaction_itself_is_not_what_the_store_has() -> None:
    site = Site(Store(MemoryEngine()))
    with site.transaction() as transaction:
        transaction.racks.insert("r1", Rack("hall"))
        own = transaction.racks.versioned("r1")
    with pytest.raises(StaleRecordError):
        site.racks.put("r1", Rack("cellar"), expected_revision=own)


@pytest.mark.parametrize("wrong", [True, 1.0, "1", (1, 2)])
def test_anything_else_is_no_revision(wrong: Any) -> None:
    site = Site(Store(MemoryEngine()))
    with pytest.raises(InvalidInputError, match="expected_revision"):
        site.racks.put("r1", Rack("hall"), expected_revision=wrong)
