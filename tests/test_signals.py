"""A process that waits for a signal ends by it, whichever of its threads the system hands it to."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from logging import getLogger
from threading import Event, Timer

import pytest

from keyplan import signals

PROGRAM = """
import logging
from threading import Event, Thread, get_native_id
from keyplan.signals import told_by_signals, wait_for

stop, begun = Event(), Event()

def idle():
    print(get_native_id(), flush=True)
    Event().wait()

with told_by_signals(stop, logger=logging.getLogger("a")) as impatient:
    Thread(target=idle, daemon=True).start()
    wait_for(stop)
    print("told", flush=True)
    wait_for(impatient)
"""


def test_a_signal_that_another_thread_is_given_is_heard_and_a_second_one_is_impatience() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        # Why by the thread's number: Linux gives a signal to the thread that is named, where it may.
        os.kill(other, signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0


def test_of_two_signals_at_once_the_second_is_impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[Callable[[], object]] = []
    monkeypatch.setattr(signals, "call_from_signal", acts.append)
    stop = Event()
    with signals.told_by_signals(stop, logger=getLogger("a"), signals=(signal.SIGUSR1,)) as impatient:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        for act in reversed(acts):
            act()
        assert stop.is_set()
        assert impatient.is_set()


def test_a_wait_with_a_limit_ends_by_either() -> None:
    stop = Event()
    assert not signals.wait_for(stop, 0.01)
    timer = Timer(0, stop.set)
    timer.start()
    assert signals.wait_for(stop, 3_600)
    timer.join()


def test_a_long_wait_hears_a_signal_that_another_thread_is_given() -> None:
    program = PROGRAM.replace("wait_for(stop)", "wait_for(stop, 3600)")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0


def test_the_first_signal_sets_a_stop_and_the_second_does_what_it_did_before() -> None:
    come: list[int] = []
    told = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number in before:
        signal.signal(number, lambda number, _frame: come.append(number))
    try:
        with signals.stopped_by_signals(told.set) as stop:
            assert not stop.is_set()
            signal.raise_signal(signal.SIGTERM)
            assert (stop.is_set(), stop.by, come) == (True, signal.SIGTERM, [])
            assert told.wait(60)
            signal.raise_signal(signal.SIGINT)
            assert come == [signal.SIGINT]
        signal.raise_signal(signal.SIGTERM)
        assert come == [signal.SIGINT, signal.SIGTERM]
        with signals.stopped_by_signals(told.set) as stop:
            signal.raise_signal(signal.SIGHUP)
            assert (stop.by, len(come)) == (signal.SIGHUP, 2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_signal_that_the_process_ignores_stops_nothing() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.stopped_by_signals(lambda: None) as stop:
            signal.raise_signal(signal.SIGINT)
            assert not stop.is_set()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
