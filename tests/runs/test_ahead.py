"""Compiling ahead: on another thread, no longer than the run, and never at the cost of a run."""

import subprocess
import sys
import threading

from helpers import small

from purectrl.core import Key
from purectrl.runs.ahead import NAME, compiling_ahead, programs

WAIT = 30.0


def test_steps_are_taken_on_another_thread_until_the_block_ends():
    """The second step is in progress at the end: it is not waited for, and the third never begins."""
    taken, second, release = [], threading.Event(), threading.Event()

    def steps():
        taken.append(threading.current_thread())
        yield
        second.set()
        yield release.wait(WAIT)
        taken.append("third")
        yield

    with compiling_ahead(steps()):
        assert second.wait(WAIT)
    (thread,) = taken
    assert thread is not threading.main_thread()
    assert thread.is_alive()
    release.set()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert taken == [thread]


def test_a_failure_is_reported_and_does_not_stop_the_run(capsys):
    failed = threading.Event()

    def steps():
        failed.set()
        raise ValueError("no such shape\nand more")
        yield

    with compiling_ahead(steps()):
        assert failed.wait(WAIT)
        for thread in threading.enumerate():
            if thread.name == NAME:
                thread.join(WAIT)
    expected = "note: compiling ahead has failed (ValueError: no such shape); programs are compiled when needed\n"
    assert capsys.readouterr().err == expected


def test_learners_that_compile_nothing_need_no_thread():
    found, loop = small().compose()
    assert programs(found, loop, loop.init(Key.from_seed(0)).learner) is None
    before = threading.active_count()
    with compiling_ahead(None):
        assert threading.active_count() == before


LEAVE = """
import sys, threading, time
import purectrl.cli
from purectrl.runs.ahead import compiling_ahead

def command_line():
    begun = threading.Event()
    def steps():
        begun.set()
        yield time.sleep(SECONDS)
    with compiling_ahead(steps()):
        begun.wait()
    print("result")
    return 3

purectrl.cli.main = command_line
from purectrl.__main__ import main
sys.exit(main())
"""


def test_the_program_does_not_wait_for_a_step_that_nobody_needs():
    command = [sys.executable, "-c", LEAVE.replace("SECONDS", "600")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout, done.stderr) == (3, "result\n", "")
