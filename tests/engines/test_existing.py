"""Writing over what exists, and nothing else: beside somebody who deletes, with and without revisions, in parts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyplan.engine import (
    Commit,
    Delete,
    Engine,
    KeyUnchanged,
    Put,
    SystemPause,
    WrappedEngine,
    open_engine,
    put_existing,
)
from keyplan.errors import CommitConflictError, EngineUnavailableError, InvalidInputError
from keyplan.limits import COMMIT_RETRIES_MAX

KINDS = ["memory:", "lmdb:{}", "lmdb:{}?history=off"]
KEYS = [b"a", b"b", b"c"]


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with open_engine(request.param.format(tmp_path / "store")) as opened:
        opened.put_sorted([b"a", b"c"], [b"1", b"3"])
        yield opened


def stored(engine: Engine) -> dict[bytes, bytes]:
    with engine.snapshot() as snapshot:
        values = zip(KEYS, snapshot.values(KEYS), strict=True)
        return {key: value for key, value in values if value is not None}


class _Hindered(WrappedEngine):
    """Something happens between each look and its commit, so often."""

    def __init__(self, inner: Engine, happen: Callable[[], object], times: int) -> None:
        super().__init__(inner, closes_inner=False)
        self._happen = happen
        self.left = times

    def commit(self, commit: Commit) -> int:
        if self.left:
            self.left -= 1
            self._happen()
        return self.inner.commit(commit)


def test_only_what_exists_is_written(engine: Engine) -> None:
    assert put_existing(engine, KEYS, [b"x", b"y", b"z"]) == 2
    assert stored(engine) == {b"a": b"x", b"c": b"z"}
    assert put_existing(engine, [b"b"], [b"y"]) == 0 == put_existing(engine, [])
    assert put_existing(engine, [b"a"]) == 1
    assert stored(engine) == {b"a": b"", b"c": b"z"}


def test_what_is_deleted_after_the_look_does_not_come_back(engine: Engine) -> None:
    hindered = _Hindered(engine, lambda: engine.commit(Commit((), (Delete(b"a"),))), 1)
    assert put_existing(hindered, KEYS, [b"x", b"y", b"z"]) == 1
    assert stored(engine) == {b"c": b"z"}


def test_a_guard_that_is_given_is_no_lost_race(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        fence = snapshot.get(b"c")
    assert fence is not None
    guard = KeyUnchanged(b"c", fence.mod_revision)
    hindered = _Hindered(engine, lambda: engine.commit(Commit((), (Put(b"c", b"new"),))), 1)
    with pytest.raises(CommitConflictError):
        put_existing(hindered, [b"a"], [b"x"], guards=[guard])
    assert stored(engine) == {b"a": b"1", b"c": b"new"}


def test_it_does_not_try_for_ever(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(SystemPause, "wait", waits.append)
    numbers = iter(range(1_000))
    hindered = _Hindered(engine, lambda: engine.commit(Commit((), (Put(b"a", b"%d" % next(numbers)),))), 1_000)
    with pytest.raises(EngineUnavailableError, match="again and again") as raised:
        put_existing(hindered, [b"a"], [b"x"])
    assert len(waits) == COMMIT_RETRIES_MAX
    assert isinstance(raised.value.__cause__, CommitConflictError)


def test_keys_ascend(engine: Engine) -> None:
    with pytest.raises(InvalidInputError, match="ascend"):
        put_existing(engine, [b"b", b"a"], [b"", b""])
    assert stored(engine) == {b"a": b"1", b"c": b"3"}
