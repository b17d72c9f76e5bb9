"""A copy or a plain restore given again after its last commit: complete where its place holds exactly that, else refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from keyplan.engine import Capability, Commit, Engine, KeyRange, MemoryEngine, Put, WrappedEngine
from keyplan.errors import TargetNotEmptyError
from keyplan.maintenance import CopyReport, RestoreReport, copy_store, drop_index, restore_store
from keyplan.maintenance.claims import CLAIM_FORM, Claim, prefix_claim
from keyplan.store import Store
from tests.maintenance.backups import write_backup
from tests.maintenance.layouts import Blade, BladeKey, Site

BLADE: Final = b"/site/rack/r1/blades/1"


def furnished() -> Engine:
    engine = MemoryEngine()
    site = Site(Store(engine))
    site.blades.insert(BladeKey("r1", "1"), Blade("s1", ["red"]))
    site.blades.insert(BladeKey("r1", "2"), Blade("s2"))
    return engine


def copied(source: Engine, target: Engine, _home: Path) -> CopyReport:
    return copy_store(source, target, source_name="a", prefix=b"/site/")


def restored(source: Engine, target: Engine, home: Path) -> RestoreReport:
    file = home / "a.kpb"
    if not file.exists():
        write_backup(source, file, prefix=b"/site/")
    return restore_store(target, file, layout=Site.bound())


BOTH: Final = [copied, restored]


class Dying(WrappedEngine):
    """The process is killed behind the commit that takes the claim away."""

    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(commit)
        if self.inner.value(prefix_claim(b"/site/")) is None:
            raise KeyboardInterrupt
        return revision


@pytest.mark.parametrize("bring", BOTH)
def test_work_that_was_killed_behind_its_last_commit_is_told_to_be_complete(
    tmp_path: Path, bring: Callable[[Engine, Engine, Path], CopyReport | RestoreReport]
) -> None:
    source, target = furnished(), MemoryEngine()
    with pytest.raises(KeyboardInterrupt):
        bring(source, Dying(target), tmp_path)
    before = Store(target).revision
    report = bring(source, target, tmp_path)
    assert Store(target).revision == before
    assert (report.was_complete, report.written.puts, report.written.unchanged) == (True, 0, 5)
    assert report.tally == bring(source, MemoryEngine(), tmp_path).tally


def changed(target: Engine) -> None:
    target.commit(Commit((), (Put(BLADE, b"{}"),)))


def added(target: Engine) -> None:
    target.commit(Commit((), (Put(b"/site/zzz", b""),)))


def leased(target: Engine) -> None:
    value = target.value(BLADE)
    assert value is not None
    target.commit(Commit((), (Put(BLADE, value, target.lease(60.0).id),)))


def claimed(target: Engine) -> None:
    claim = Claim(kind="copy", source="another")
    target.commit(Commit((), (Put(prefix_claim(b"/site/"), CLAIM_FORM.encode(claim)),)))


@pytest.mark.parametrize("bring", BOTH)
@pytest.mark.parametrize("meddle", [changed, added, leased, claimed])
def test_a_place_that_holds_anything_else_is_refused(
    tmp_path: Path,
    bring: Callable[[Engine, Engine, Path], CopyReport | RestoreReport],
    meddle: Callable[[Engine], None],
) -> None:
    source, target = furnished(), MemoryEngine()
    assert target.profile.claims(Capability.LEASES)
    bring(source, target, tmp_path)
    meddle(target)
    before = Store(target).revision
    with pytest.raises(TargetNotEmptyError):
        bring(source, target, tmp_path)
    assert Store(target).revision == before


@pytest.mark.parametrize("bring", BOTH)
def test_an_index_that_is_not_whole_in_the_source_is_no_readable_one_in_a_complete_place(
    tmp_path: Path, bring: Callable[[Engine, Engine, Path], CopyReport | RestoreReport]
) -> None:
    source, target = furnished(), MemoryEngine()
    drop_index(Store(source), Site.bound(), "by_tag")
    with source.snapshot() as snapshot:
        pairs = tuple(Put(entry.key, entry.value) for entry in snapshot.scan(KeyRange.of_prefix(b"/site/")))
    target.commit(Commit((), pairs))
    with pytest.raises(TargetNotEmptyError):
        bring(source, target, tmp_path)


def test_a_copy_that_is_to_follow_is_refused_as_before() -> None:
    class Set:
        def is_set(self) -> bool:
            return True

    source, target = furnished(), MemoryEngine()
    copied(source, target, Path())
    with pytest.raises(TargetNotEmptyError):
        copy_store(source, target, source_name="a", prefix=b"/site/", follow_until=Set())
