"""Synchronous code that awaits: what it returns, raises and sees of its task."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial

import pytest

from keyplan.aio.greenlets import Drive, drive, is_driven, wait
from keyplan.errors import InvalidInputError

NAME: ContextVar[str] = ContextVar("NAME", default="none")


def awaited(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


async def later(value: object) -> object:
    await asyncio.sleep(0)
    if isinstance(value, BaseException):
        raise value
    return value


def test_waits_give_results_and_errors_and_the_end_too() -> None:
    def work() -> list[object]:
        found = [wait(later(1))]
        with pytest.raises(ZeroDivisionError):
            wait(later(ZeroDivisionError()))
        return [*found, wait(later(2)), is_driven()]

    def failing() -> None:
        wait(later(1))
        raise KeyError("a")

    async def scenario() -> None:
        assert await drive(work) == [1, 2, True]
        with pytest.raises(KeyError):
            await drive(failing)
        assert await drive(lambda: 3) == 3
        assert not is_driven()

    awaited(scenario)


def test_what_does_not_wait_is_done_at_once() -> None:
    async def scenario() -> None:
        done = Drive(lambda: 7)
        assert (done.is_done, done.result) == (True, 7)
        with pytest.raises(ZeroDivisionError):
            Drive(lambda: 1 // 0)

    awaited(scenario)


def test_many_are_under_way_at_once_and_inside_one_another() -> None:
    def inner(number: int) -> object:
        return wait(later(number))

    def work(number: int) -> object:
        return wait(drive(lambda: inner(number)))

    async def scenario() -> None:
        found = await asyncio.gather(*(drive(partial(work, number)) for number in range(300)))
        assert found == list(range(300))

    awaited(scenario)


def test_context_variables_are_those_of_the_task() -> None:
    def work(name: str) -> str:
        before = NAME.get()
        wait(later(0))
        NAME.set(f"{name}, set inside")
        return before

    async def task(name: str) -> tuple[str, str]:
        NAME.set(name)
        return await drive(lambda: work(name)), NAME.get()

    async def scenario() -> None:
        found = await asyncio.gather(*(asyncio.create_task(task(name)) for name in ("a", "b")))
        assert found == [("a", "a, set inside"), ("b", "b, set inside")]
        assert NAME.get() == "none"

    awaited(scenario)


def test_cancelling_raises_where_the_code_waits_and_it_may_wait_again() -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            wait(asyncio.Event().wait())
        finally:
            seen.append(str(wait(later("cleaned"))))

    async def scenario() -> None:
        task = asyncio.create_task(drive(work))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cleaned"]

    awaited(scenario)


def test_work_that_nobody_drives_any_more_is_unwound() -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            wait(asyncio.Event().wait())
        finally:
            seen.append("unwound")

    async def scenario() -> None:
        begun = Drive(work)
        assert not begun.is_done
        begun._step.close()
        del begun
        gc.collect()
        assert seen == ["unwound"]
        assert await drive(lambda: 1) == 1

    awaited(scenario)


def test_waiting_outside_is_refused() -> None:
    step = later(1)
    with pytest.raises(InvalidInputError):
        wait(step)
    step.close()  # Why: a coroutine that is never awaited would warn.


def test_without_greenlet_the_import_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['greenlet'] = None\n"
        "try: import keyplan.aio\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout == "keyplan.aio needs the package 'greenlet': pip install 'keyplan[aio]'\n", ran.stderr
