"""A process that waits for a signal ends by it, whichever of its threads the system hands it to."""

import os
import signal
import subprocess
import sys

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
