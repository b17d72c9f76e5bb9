"""The engine suite refuses every planted fault: a promise that no test asks for is none."""

from collections.abc import Iterator
from contextlib import suppress
from inspect import signature
from itertools import product
from typing import Any

import pytest

from keyplan.engine import MemoryEngine
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock
from tests.engines import mutants_of_events, mutants_of_reads, mutants_of_writes
from tests.engines.planting import MUTANTS

assert all((mutants_of_events, mutants_of_reads, mutants_of_writes))  # what fills MUTANTS

ALL_TESTS = sorted({test for _, tests in MUTANTS.values() for test in tests})


def cases(test: str) -> Iterator[dict[str, Any]]:
    """Yield the parameters that pytest would give a test of the suite, one set at a time."""
    marks = [mark for mark in getattr(getattr(EngineSuite, test), "pytestmark", []) if mark.name == "parametrize"]
    choices = []
    for mark in marks:
        names = (
            [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else list(mark.args[0])
        )
        choices.append([dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in mark.args[1]])
    for chosen in product(*choices):
        yield {name: value for part in chosen for name, value in part.items()}


def run(test: str) -> None:
    """Run a test of the suite on new memory engines, with every set of its parameters. Raises what fails."""
    method = getattr(EngineSuite(), test)
    for case in cases(test):
        clock = FakeClock()
        with MemoryEngine(clock=clock) as engine:
            supplied = {"engine": engine, "pass_time": clock.advance, **case}
            method(**{name: value for name, value in supplied.items() if name in signature(method).parameters})


def fails(test: str) -> bool:
    """Run a test of the suite; return whether it refused the engine. A wrong engine may raise anything."""
    with suppress(Exception, pytest.fail.Exception):
        run(test)
        return False
    return True


@pytest.mark.parametrize("test", ALL_TESTS)
def test_the_right_engine_passes(test: str) -> None:
    run(test)


@pytest.mark.usefixtures("brief_failures")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_suite_refuses(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, tests = MUTANTS[mutant]
    for test in tests:
        with monkeypatch.context() as patch:
            plant(patch)
            # Why: the suite waits half a minute for what does not happen, and a wrong engine need not be waited for.
            patch.setattr("keyplan.testing.engine_suite.promise._PATIENCE_SECONDS", 0.3)
            if fails(test):
                return
    pytest.fail(f"none of {', '.join(tests)} has noticed it")
