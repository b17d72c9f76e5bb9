"""Plain backups: round trips across engines and prefixes, conflicts, limits, leases, and a restore stopped at every step."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.engine import Commit, Engine, Put, open_engine
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineLimitError,
    EngineUnavailableError,
    InvalidInputError,
    TargetNotEmptyError,
)
from keyplan.files import new_file
from keyplan.maintenance import back_up_store, read_backup, restore_store
from keyplan.testing.faults import FailingEngine
from tests.maintenance.backups import content_of, file_of, filled, section_file, write_backup
from tests.maintenance.test_beside_transfers import AtCommit

CONTENT = {b"\x00system": b"s", b"/site/a": b"1", b"/site/b": b"\x00" * 2000, b"\xff": b"last"}


@pytest.fixture(params=["memory", "lmdb", "lmdb-raw"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    urls = {"memory": "memory:", "lmdb": f"lmdb:{tmp_path}/t.kv", "lmdb-raw": f"lmdb:{tmp_path}/r.kv?history=off"}
    with open_engine(urls[request.param]) as engine:
        yield engine


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with filled("memory:", CONTENT) as engine:
        return write_backup(engine, tmp_path / "all.kpb")


def test_a_whole_store_comes_back_on_any_engine(target: Engine, backup: Path) -> None:
    report = restore_store(target, backup)
    assert content_of(target) == CONTENT
    assert (report.written.puts, report.tally.count) == (4, 4)
    assert report.tally == read_backup(backup).sections[0].trailer.tally


def test_a_prefix_is_backed_up_alone_and_comes_back_below_another(target: Engine, tmp_path: Path) -> None:
    with filled("memory:", CONTENT) as engine:
        path = write_backup(engine, tmp_path / "site.kpb", prefix=b"/site/")
    target.commit(Commit((), (Put(b"/site/c", b"own"),)))
    restore_store(target, path, prefix=b"/copy/")
    assert content_of(target) == {b"/copy/a": b"1", b"/copy/b": bytes(2000), b"/site/c": b"own"}


def test_a_target_that_is_not_empty_is_refused_and_not_touched(target: Engine, backup: Path) -> None:
    target.commit(Commit((), (Put(b"/site/c", b"own"),)))
    with pytest.raises(TargetNotEmptyError) as raised:
        restore_store(target, backup)
    assert raised.value.first_key == b"/site/c"
    assert raised.value.plain_facts()["first_key"] == b"/site/c".hex()
    assert content_of(target) == {b"/site/c": b"own"}


def test_overwriting_replaces_what_is_there(target: Engine, backup: Path) -> None:
    target.commit(Commit((), (Put(b"/site/a", b"1"), Put(b"/site/b", b"old"), Put(b"/site/c", b"own"))))
    report = restore_store(target, backup, is_overwriting=True)
    assert content_of(target) == CONTENT
    assert (report.written.puts, report.written.deletes, report.written.unchanged) == (3, 1, 1)


def test_a_damaged_file_writes_nothing(target: Engine, tmp_path: Path) -> None:
    raw = section_file(CONTENT)
    for damaged in (raw[:-1], raw[: len(raw) // 2], raw[:60] + bytes([raw[60] ^ 1]) + raw[61:], raw + b"x", b""):
        path = file_of(tmp_path / "damaged.kpb", damaged)
        with pytest.raises(InvalidInputError):
            restore_store(target, path)
    assert content_of(target) == {}


def test_keys_that_the_target_cannot_hold_are_told_before_anything_is_written(tmp_path: Path) -> None:
    content = {b"k" * 512: b"", b"k" * 600: b"", b"short": b""}
    path = file_of(tmp_path / "long.kpb", section_file(content))
    with open_engine(f"lmdb:{tmp_path}/t.kv") as engine:
        with pytest.raises(EngineLimitError) as raised:
            restore_store(engine, path)
        facts = raised.value.facts
        assert (facts["limit"], facts["allowed"], facts["actual"]) == ("key_bytes_max", 511, 512)
        assert facts["raw_key"] == (b"k" * 512).hex()
        assert facts["pairs_refused"] == 2
        assert content_of(engine) == {}


def test_leased_entries_are_left_out_and_counted_unless_they_are_to_be_kept() -> None:
    with filled("memory:", {b"a": b"1"}) as engine:
        lease = engine.lease(60.0)
        engine.commit(Commit((), (Put(b"b", b"2", lease.id),)))
        assert back_up_store(engine, io.BytesIO()).leased == 1
        kept = back_up_store(engine, io.BytesIO(), keeps_leased=True)
        assert (kept.leased, kept.count) == (0, 2)


def test_a_restore_stopped_at_any_step_is_finished_by_the_next(tmp_path: Path) -> None:
    content = {b"%05d" % number: b"v" * 50 for number in range(1500)}
    path = file_of(tmp_path / "many.kpb", section_file(content))
    with FailingEngine(open_engine("memory:")) as probe:
        restore_store(probe, path)
        steps = len(probe.steps)
    assert steps > 10
    for step in range(1, steps + 1):
        with open_engine("memory:") as inner:
            failing = FailingEngine(inner, at_step=step, closes_inner=False)
            try:
                restore_store(failing, path)
            except (EngineUnavailableError, CommitOutcomeUnknownError):
                restore_store(inner, path)
            assert content_of(inner) == content, step


def test_another_backup_does_not_go_on_where_the_first_was_stopped(tmp_path: Path, backup: Path) -> None:
    with open_engine("memory:") as inner:
        probe = FailingEngine(inner, closes_inner=False)
        restore_store(probe, backup)
        second = [step for step, name in enumerate(probe.steps, start=1) if name == "before commit"][1]
    with open_engine("memory:") as inner:
        with pytest.raises(EngineUnavailableError):
            restore_store(FailingEngine(inner, at_step=second, closes_inner=False), backup)
        with filled("memory:", {b"x": b""}) as other:
            path = write_backup(other, tmp_path / "other.kpb")
        if any(not key.startswith(b"\x00kt") for key in content_of(inner)):
            with pytest.raises(TargetNotEmptyError):
                restore_store(inner, path)
        restore_store(inner, backup)
        assert content_of(inner) == CONTENT


def test_nothing_is_written_of_another_backup_that_takes_the_files_place_meanwhile(
    tmp_path: Path, backup: Path
) -> None:
    with open_engine("memory:") as inner, filled("memory:", {b"x": b""}) as other:
        latest = write_backup(other, tmp_path / "latest.kpb")
        with pytest.raises(InvalidInputError, match="another backup has taken its place"):
            restore_store(AtCommit(inner, 1, lambda _: latest.replace(backup)), backup)
        assert all(key.startswith(b"\x00kt") for key in content_of(inner))


def test_claims_are_in_no_backup(tmp_path: Path) -> None:
    with filled("memory:", {**CONTENT, b"\x00ktc": b"{}"}) as engine:
        path = tmp_path / "all.kpb"
        with new_file(path) as file:
            back_up_store(engine, file, takes_unfinished=True)
    assert read_backup(path).count == len(CONTENT)
