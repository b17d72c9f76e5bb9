"""What every test can ask for: the folder of real input files, and Hypothesis' settings. No stores are opened here."""

import gc
import logging
import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path
from types import TracebackType

import pytest
from hypothesis import HealthCheck, settings

# Why: the shipped suites and the model's parts hold the asserts; without this a failure would not show the two values.
pytest.register_assert_rewrite("keyplan.testing", "tests.model")

pytest_plugins = ["keyplan.testing.pytest_plugin", "tests.servers.plugin"]


# ---- processes that tests start ---------------------------------------------------------------------------------------------


def pytest_configure() -> None:
    """Let Ctrl-C and failures reach the processes that tests start."""
    # Why: a run that was started in the background ignores SIGINT, and so would every process of its tests, for good.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    setattr(subprocess.Popen, "__exit__", _end_with_the_block)  # noqa: B010  # Why: a method of the standard library's class.


_wait_for_the_end = subprocess.Popen.__exit__


def _end_with_the_block(
    process: "subprocess.Popen[bytes]",
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """End a block about a process: one that fails, as by the time limit of its test, does not wait for the process."""
    if kind is not None:
        process.kill()
    _wait_for_the_end(process, kind, error, trace)


# ---- in which order, and what the collection leaves -------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, and never look through what was collected: it lives as long as the run.

    Why: those are 800,000 objects. Looking through them takes a third of the collection, and half a second each time that a
    test makes Python look for garbage everywhere.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests with a time limit of their own begin first, the longest limit before all.

    Why: they take up to a minute and a half, wait for servers most of it, and what begins last keeps all other workers idle.
    """
    items.sort(key=_limit_seconds, reverse=True)


def _limit_seconds(item: pytest.Item) -> float:
    own = item.get_closest_marker("timeout")
    return float(item.config.getini("timeout") if own is None else own.args[0])


@pytest.fixture
def brief_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that provokes failures: nobody reads them, and they name no differences between long lists.

    Why: in CI pytest names all of them, which takes half a minute for 10,000 entries.
    """
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Generator[None]:
    """Take back the logs that a command sets up when a test runs it in this process.

    Why: they go to a standard error that ends with the test, and each line of a later test would be an error of its own.
    """
    before = {each: _set_up(each) for each in _loggers()}
    yield
    for each in _loggers():
        handlers, level, propagates = before.get(each, ([], logging.NOTSET, True))
        if _set_up(each) != (handlers, level, propagates):
            each.handlers[:], each.propagate = handlers, propagates
            each.setLevel(level)


def _loggers() -> list[logging.Logger]:
    known = logging.Logger.manager.loggerDict
    own = [
        each for name, each in list(known.items()) if name.startswith("keyplan") and isinstance(each, logging.Logger)
    ]
    return [logging.getLogger(), *own]


def _set_up(logger: logging.Logger) -> tuple[list[logging.Handler], int, bool]:
    return logger.handlers[:], logger.level, logger.propagate


REPOSITORY = Path(__file__).resolve().parents[1]

# Why: two busy cores make a deadline for each example a matter of luck; the timeout of pytest bounds the whole test.
settings.register_profile("default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=5_000)
# Why: the fast half is run again and again; the whole suite and the long form look further.
settings.register_profile("fast", parent=settings.get_profile("default"), max_examples=32)
settings.load_profile(os.environ.get("KEYPLAN_HYPOTHESIS", "default"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real input files: KEYPLAN_SHARED, else `shared` beside the repository; the test is skipped without it."""
    folder = Path(os.environ.get("KEYPLAN_SHARED") or REPOSITORY.parent / "shared")
    if not folder.is_dir():
        pytest.skip("needs the shared input files: set KEYPLAN_SHARED, or put them into ../shared")
    return folder.resolve()
