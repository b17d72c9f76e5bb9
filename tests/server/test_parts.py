"""The server's parts by themselves: settings, the signal to stop, threads, merged descriptions, statuses."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import uvicorn

from keyplan import errors
from keyplan.engine import MEMORY_PROFILE, Commit, Event, MemoryEngine, Put
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.server import (
    LOGGER,
    AnswerError,
    Application,
    Closing,
    Service,
    ServiceSettings,
    Workers,
    answer_error_of,
)
from keyplan.server.etcd_member import Follower
from keyplan.server.openapi import merged
from keyplan.server.process import _Server
from keyplan.signals import told_by_signals
from keyplan.testing.engine_suite.promise import eventually

# ---- settings --------------------------------------------------------------------------------------------------------


def test_a_service_sees_its_own_settings_and_the_general_ones() -> None:
    settings = ServiceSettings({"a.x": "1", "b.x": "2", "y": "3", "a.y": "4"}, "a")
    assert dict(settings) == {"x": "1", "y": "4"}
    assert len(settings) == 2
    assert "z" not in settings
    assert settings.get("z", "none") == "none"


def test_only_what_was_asked_for_counts_as_known() -> None:
    settings = ServiceSettings({"a.x": "1", "y": "2"}, "a")
    assert set(settings.asked) == set()
    assert settings["x"] == "1"
    assert set(settings.asked) == {"a.x"}


# ---- threads that end ------------------------------------------------------------------------------------------------


def test_a_follower_that_fails_at_what_it_hands_on_says_that_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    lost: list[KeyplanError] = []

    def sink(events: Sequence[Event], _: int) -> None:
        raise ZeroDivisionError(len(events))

    with MemoryEngine() as engine:
        follower = Follower(engine, after=0, sink=sink, lost=lost.append)
        engine.commit(Commit((), (Put(b"a", b""),)))
        eventually(lambda: lost)
        follower.stop()
    assert "ZeroDivisionError: 1" in str(lost[0])


# ---- the signal to stop ----------------------------------------------------------------------------------------------


def test_closing_wakes_coroutines_and_threads_and_stays() -> None:
    closing = Closing()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(closing.wait_in_thread(10)))
    thread.start()

    async def main() -> None:
        waiting = [asyncio.create_task(closing.wait()) for _ in range(3)]
        assert await closing.wait(0.001) is False
        threading.Thread(target=closing.set).start()
        assert await asyncio.gather(*waiting) == [True, True, True]
        assert await closing.wait() is True

    asyncio.run(main())
    thread.join()
    assert seen == [True]
    assert closing.is_set
    closing.set()


def test_a_signal_that_comes_while_its_thread_holds_a_lock_ends_in_no_wait_for_itself() -> None:
    closing = Closing()
    server = _Server(uvicorn.Config("nothing:here"), closing, lambda: None)
    with closing._lock:
        server.handle_exit(signal.SIGTERM, None)
    assert closing.wait_in_thread(60)
    closing = Closing()
    server = _Server(uvicorn.Config("nothing:here"), closing, lambda: None)
    with threading._active_limbo_lock:  # type: ignore[attr-defined]  # Why: whoever begins or counts threads holds it.
        server.handle_exit(signal.SIGTERM, None)
    assert closing.wait_in_thread(60)
    stop = threading.Event()
    with told_by_signals(stop, logger=LOGGER, signals=(signal.SIGUSR1,)):
        with stop._cond:  # type: ignore[attr-defined]  # Why: a wait that begins or ends holds it, and so long nobody can aim.
            signal.raise_signal(signal.SIGUSR1)
        assert stop.wait(60)


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_calls_run_in_threads_and_their_errors_come_back() -> None:
    workers = Workers(threads_max=2)

    def fail() -> None:
        raise InvalidInputError(source="here", problem="it fails")

    async def main() -> None:
        assert await workers.run(threading.current_thread) is not threading.current_thread()
        assert await workers.run(int, "12", base=8) == 10
        with pytest.raises(InvalidInputError):
            await workers.run(fail)

    asyncio.run(main())
    workers.close()
    workers.close()


def test_what_does_not_fit_into_the_queue_is_refused_at_once() -> None:
    workers = Workers(threads_max=1, waiting_max=1)
    release = threading.Event()

    async def main() -> None:
        held = [asyncio.create_task(workers.run(release.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        assert workers.pending == 2
        with pytest.raises(AnswerError) as caught:
            await workers.run(int)
        assert (caught.value.status, caught.value.code, caught.value.headers) == (
            503,
            "overloaded",
            {"Retry-After": "1"},
        )
        release.set()
        await asyncio.gather(*held)
        assert await workers.run(int) == 0

    asyncio.run(main())
    workers.close()


# ---- descriptions ----------------------------------------------------------------------------------------------------


def test_two_services_may_share_a_path_but_not_a_method_of_it() -> None:
    get, put = {"get": {"summary": "a"}}, {"put": {"summary": "b"}}
    both = merged([("a", {"paths": {"/x": get}}), ("b", {"paths": {"/x": put}})], version="1")
    assert both["paths"]["/x"] == {**get, **put}
    with pytest.raises(InvalidInputError, match="described by another service"):
        merged([("a", {"paths": {"/x": get}}), ("b", {"paths": {"/x": {"get": {"summary": "c"}}}})], version="1")


def test_one_component_has_one_meaning() -> None:
    first = {"components": {"schemas": {"A": {"type": "string"}}}}
    same = merged([("a", first), ("b", first)], version="1")
    assert same["components"]["schemas"] == {"A": {"type": "string"}}
    with pytest.raises(InvalidInputError):
        merged([("a", first), ("b", {"components": {"schemas": {"A": {"type": "integer"}}}})], version="1")


# ---- statuses --------------------------------------------------------------------------------------------------------

EXPECTED = {
    "not-found": 404,
    "already-exists": 409,
    "commit-conflict": 409,
    "invalid-record": 400,
    "invalid-page-token": 400,
    "unknown-name": 404,
    "lint": 500,
    "engine-unavailable": 503,
    "commit-outcome-unknown": 504,
    "history-compacted": 410,
    "lease-not-found": 404,
    "engine-limit": 413,
    "unsupported": 501,
    "engine-open": 500,
    "corruption": 500,
    "secret-unopened": 500,
    "secret-key": 503,
    "keyspace_not_found": 404,
    "prefix_in_use": 409,
    "immutable_field": 422,
    "keyspace_api_disabled": 501,
    "prefix_exhausted": 507,
    "self_registration_disabled": 403,
}


def kinds() -> list[type[KeyplanError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, KeyplanError)]


def test_errors_have_the_status_of_their_class() -> None:
    statuses = {kind.code: answer_error_of(kind()).status for kind in kinds()}
    assert {code: statuses[code] for code in EXPECTED} == EXPECTED


def test_every_error_says_its_status_or_has_that_of_a_group() -> None:
    said = {base for kind in kinds() for base in kind.__mro__ if "http_status" in vars(base)} - {KeyplanError}
    silent = (errors.LayoutError, errors.EngineError, errors.CorruptionError, errors.KeySpaceError)
    assert [kind for kind in kinds() if not issubclass(kind, (*said, *silent)) and kind is not KeyplanError] == []


def test_the_facts_of_a_fault_of_the_server_are_not_told() -> None:
    told = answer_error_of(errors.EngineOpenError(url="lmdb:./secret-place", problem="p"))
    assert (told.code, told.detail) == ("engine_open", {})
    refused = answer_error_of(errors.InvalidKeyError(problem="p", value=b"\x00\xff", parts=("a", 1, None)))
    assert refused.detail == {"problem": "p", "value": "00ff", "parts": ["a", 1, None]}


# ---- services --------------------------------------------------------------------------------------------------------


def test_services_start_in_order_end_in_reverse_and_end_when_a_later_one_cannot_start() -> None:
    diary: list[str] = []

    def service(name: str, *, fails: bool = False) -> Service:
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            if fails:
                raise InvalidInputError(source=name, problem="it cannot start")
            diary.append(f"{name} began")
            try:
                yield
            finally:
                diary.append(f"{name} ended")

        return Service(name, lifespan=lifespan)

    async def main(*, fails: bool) -> None:
        with MemoryEngine() as engine:
            builders = {"a": lambda _: service("a"), "b": lambda _: service("b", fails=fails)}
            application = Application.build(engine, builders)
            async with application.running():
                diary.append("served")
            assert application.closing.is_set

    asyncio.run(main(fails=False))
    assert diary == ["a began", "b began", "served", "b ended", "a ended"]
    diary.clear()
    with pytest.raises(InvalidInputError):
        asyncio.run(main(fails=True))
    assert diary == ["a began", "a ended"]


def test_the_memory_engine_reads_from_this_machine() -> None:
    assert MEMORY_PROFILE.has_local_reads
