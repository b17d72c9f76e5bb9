"""Measuring: subject and comparator take turns in short rounds, so that what else the machine does falls on both."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter
from typing import Final

import msgspec

__all__ = [
    "Act",
    "Result",
    "Work",
    "compared",
    "compared_singly",
    "in_threads",
    "of_rates",
    "processor_seconds",
    "single",
]

Work = Callable[[int], object]
"""Does so many operations. Each round calls it once."""
Act = Callable[[], object]
"""Does one operation."""
Clock = Callable[[], float]
"""Gives seconds."""

_QUANTILE_LOW: Final = 0.1
_QUANTILE_HIGH: Final = 0.9


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table.

    `rate` is the subject's median; in operations a second where `unit` is "1/s". `ratio` is the median over rounds of subject
    to comparator, above 1 when the subject is faster; `low` and `high` are the 10th and 90th percentile of it. A figure
    without a comparator has none of these, and low and high are those of `rate`.
    """

    benchmark: str
    variant: str
    against: str
    rate: float
    unit: str
    low: float
    high: float
    rounds: int
    size: int | None = None
    ratio: float | None = None
    aim: float | None = None


def compared(
    benchmark: str,
    variant: str,
    *,
    against: str,
    subject: Work,
    comparator: Work,
    operations: int,
    rounds: int,
    comparator_operations: int | None = None,
    size: int | None = None,
    aim: float | None = None,
    clocks: tuple[Clock, Clock] = (perf_counter, perf_counter),
) -> Result:
    """Measure both in turn, `operations` a round, and return the ratio of their speeds. The first round does not count.

    `clocks` are what the subject's and the comparator's seconds are read from: a server's processor time, for instance.
    """
    rates: list[float] = []
    ratios: list[float] = []
    for number in range(rounds + 1):
        # Why: whoever runs second finds warmer caches; they change places.
        if number % 2:
            rate = _rate(subject, operations, clocks[0])
            other = _rate(comparator, comparator_operations or operations, clocks[1])
        else:
            other = _rate(comparator, comparator_operations or operations, clocks[1])
            rate = _rate(subject, operations, clocks[0])
        if number:
            rates.append(rate)
            ratios.append(rate / other)
    return of_rates(benchmark, variant, against=against, rates=rates, ratios=ratios, size=size, aim=aim)


def compared_singly(
    benchmark: str,
    variant: str,
    *,
    against: str,
    subject: Act,
    comparator: Act,
    operations: int,
    rounds: int,
    size: int | None = None,
    aim: float | None = None,
) -> Result:
    """Measure single operations in turn, and return the ratio of their speeds: of a round's medians.

    For what waits for a server: between two operations that follow each other little changes, and one that was held up counts
    as one. The first round does not count.
    """
    rates: list[float] = []
    ratios: list[float] = []
    for number in range(rounds + 1):
        times: tuple[list[float], list[float]] = ([], [])
        for place in range(operations):
            first = place % 2
            for which in (first, 1 - first):
                begun = perf_counter()
                (subject, comparator)[which]()
                times[which].append(perf_counter() - begun)
        if number:
            rates.append(1 / median(times[0]))
            ratios.append(median(times[1]) / median(times[0]))
    return of_rates(benchmark, variant, against=against, rates=rates, ratios=ratios, size=size, aim=aim)


def of_rates(
    benchmark: str,
    variant: str,
    *,
    against: str,
    rates: list[float],
    ratios: list[float],
    size: int | None,
    aim: float | None,
) -> Result:
    """Return what was measured in rounds, by whomever: the subject's rates, and the ratios to the comparator's."""
    return Result(
        benchmark=benchmark,
        variant=variant,
        against=against,
        rate=median(rates),
        unit="1/s",
        ratio=median(ratios),
        low=_quantile(ratios, _QUANTILE_LOW),
        high=_quantile(ratios, _QUANTILE_HIGH),
        rounds=len(rates),
        size=size,
        aim=aim,
    )


def in_threads(act: Act, tasks: int) -> Work:
    """Return what does `act` so often, by so many threads at once."""

    def repeated(operations: int) -> None:
        for _ in range(operations):
            act()

    def shared(operations: int) -> None:
        threads = [Thread(target=repeated, args=(max(1, operations // tasks),)) for _ in range(tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return repeated if tasks == 1 else shared


def single(benchmark: str, variant: str, figures: list[float], *, unit: str, size: int | None = None) -> Result:
    """Return figures that have no comparator, as their median and spread."""
    return Result(
        benchmark=benchmark,
        variant=variant,
        against="",
        rate=median(figures),
        unit=unit,
        low=_quantile(figures, _QUANTILE_LOW),
        high=_quantile(figures, _QUANTILE_HIGH),
        rounds=len(figures),
        size=size,
    )


def _rate(work: Work, operations: int, clock: Clock) -> float:
    begun = clock()
    work(operations)
    return operations / (clock() - begun)


def _quantile(figures: list[float], share: float) -> float:
    ordered = sorted(figures)
    return ordered[round(share * (len(ordered) - 1))]


def processor_seconds(pid: int) -> float:
    """Return what a process has computed, in all its threads. Why not its own figures: they count hundredths of a second."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
