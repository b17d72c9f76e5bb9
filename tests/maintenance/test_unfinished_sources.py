"""What a stopped restore or copy has brought so far: it is not backed up or copied as if it were whole."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import Commit, Engine, MemoryEngine, Put
from keyplan.errors import SourceUnfinishedError
from keyplan.keyspace import KeySpaces
from keyplan.maintenance import back_up_key_spaces, back_up_store, copy_store, restore_store, unfinished_work
from keyplan.maintenance.claims import prefix_claim
from tests.maintenance.backups import content_of, filled, write_backup
from tests.maintenance.test_beside_transfers import AtCommit

CONTENT = {b"/site/%05d" % number: b"v" * 20 for number in range(600)}


@pytest.fixture(params=["restore", "copy"])
def bring(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Engine], object]]:
    with filled("memory:", CONTENT) as source:
        path = write_backup(source, tmp_path / "all.kpb")
        if request.param == "restore":
            yield lambda target: restore_store(target, path)
        else:
            yield lambda target: copy_store(source, target, source_name="a")


@pytest.fixture
def part(bring: Callable[[Engine], object]) -> Iterator[Engine]:
    """A store into which everything was to be brought, by a process that died."""
    with MemoryEngine() as engine:
        with pytest.raises(KeyboardInterrupt):
            bring(AtCommit(engine, 3, lambda _: None, dies=True))
        assert 0 < len(content_of(engine)) < len(CONTENT)
        yield engine


@pytest.mark.parametrize("prefix", [b"", b"/site/"])
def test_a_part_is_not_backed_up_and_not_copied_until_the_work_has_ended(
    part: Engine, bring: Callable[[Engine], object], prefix: bytes
) -> None:
    with MemoryEngine() as target:
        with pytest.raises(SourceUnfinishedError, match=r"is not finished.*--unfinished"):
            back_up_store(part, io.BytesIO(), prefix=prefix)
        with pytest.raises(SourceUnfinishedError):
            copy_store(part, target, source_name="part", prefix=prefix)
        assert not content_of(target)
        with target.snapshot() as snapshot:
            assert snapshot.revision == 0  # no claim either

        bring(part)
        assert back_up_store(part, io.BytesIO(), prefix=prefix).count == len(CONTENT)
        assert copy_store(part, target, source_name="part", prefix=prefix).tally.count == len(CONTENT)


def test_a_part_is_taken_by_those_who_say_so(part: Engine) -> None:
    count = len(content_of(part))
    with MemoryEngine() as target:
        assert back_up_store(part, io.BytesIO(), takes_unfinished=True).count <= count
        copy_store(part, target, source_name="part", takes_unfinished=True)
        assert set(content_of(target)) <= set(CONTENT)


@pytest.mark.parametrize("name", ["orders", None])
def test_key_spaces_across_which_something_is_brought_are_not_backed_up(part: Engine, name: str | None) -> None:
    KeySpaces(part).create("orders", "shop")
    with pytest.raises(SourceUnfinishedError):
        back_up_key_spaces(part, io.BytesIO(), name=name)
    assert back_up_key_spaces(part, io.BytesIO(), name=name, takes_unfinished=True).sections


def test_a_part_elsewhere_is_no_hindrance(part: Engine) -> None:
    with MemoryEngine() as other:
        key = prefix_claim(b"/elsewhere/")
        with part.snapshot() as snapshot:
            seen = snapshot.get(prefix_claim(b""))
        assert seen is not None
        other.commit(Commit((), (Put(key, seen.value), Put(b"/site/1", b"x"))))
        assert back_up_store(other, io.BytesIO(), prefix=b"/site/").count == 1
        with pytest.raises(SourceUnfinishedError, match="/elsewhere/"):
            back_up_store(other, io.BytesIO())


def test_a_claim_that_cannot_be_read_is_told_and_can_be_passed_over() -> None:
    with MemoryEngine() as engine:
        engine.commit(Commit((), (Put(prefix_claim(b"/site/"), b"\xff{"), Put(b"/site/1", b"x"))))
        with engine.snapshot() as snapshot:
            assert [prefix for prefix, _ in unfinished_work(snapshot, [b"/site/"])] == [b"/site/"]
        with pytest.raises(SourceUnfinishedError, match="cannot be read"):
            back_up_store(engine, io.BytesIO())
        assert back_up_store(engine, io.BytesIO(), takes_unfinished=True).count == 1


def test_a_source_that_becomes_a_part_while_it_is_followed_does_not_pass_for_whole(tmp_path: Path) -> None:
    with filled("memory:", CONTENT) as source, MemoryEngine() as target:
        path = write_backup(source, tmp_path / "all.kpb")

        class Until:
            asked = 0

            def is_set(self) -> bool:
                self.asked += 1
                if self.asked == 1:
                    with pytest.raises(KeyboardInterrupt):
                        restore_store(AtCommit(source, 2, lambda _: None, dies=True), path, is_overwriting=True)
                return self.asked > 1

        with pytest.raises(SourceUnfinishedError):
            copy_store(source, target, source_name="a", follow_until=Until())
        with target.snapshot() as snapshot:
            assert unfinished_work(snapshot, [b""])
