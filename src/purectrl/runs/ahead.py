"""Compiling ahead: programs that a run needs later are compiled on another thread while its first steps are made.

JAX compiles a program once: a call that needs one which is being compiled on the other thread waits for it, and one that
was compiled there is found by its shapes. So only the time of a run depends on this, no result.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from purectrl.core.learner import AheadCompiler
from purectrl.core.loop import Loop
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.runs.progress import log

NAME = "compile-ahead"
"""The name of the thread."""


@runtime_checkable
class CompiledEvaluation(Protocol):
    """Optional capability of a problem whose evaluations are one compiled program."""

    def compile_evaluation(self, plan: Plan) -> None:
        """Compiles the evaluation of plans like this one."""
        ...


def programs(problem: Problem, loop: Loop, learner: Any) -> Iterator[None] | None:
    """Compiles what the rest of a run executes, one program per step; None if its learner cannot.

    Main arguments:
        learner: the learner's state.
    """
    if not isinstance(loop.learner, AheadCompiler):
        return None
    return _programs(loop.learner, problem, learner, loop.learner.policy(learner))


def _programs(compiler: AheadCompiler, problem: Problem, learner: Any, plan: Plan) -> Iterator[None]:
    yield from compiler.compile_ahead(learner)
    if problem.eval_episodes and isinstance(problem, CompiledEvaluation):
        yield problem.compile_evaluation(plan)


@contextmanager
def compiling_ahead(steps: Iterator[None] | None) -> Iterator[None]:
    """Takes the steps on another thread. At the end of the block no further one begins; that in progress is not waited for.

    A step that fails is reported; the run makes the program itself if it needs it, and fails then if it cannot.
    """
    if steps is None:
        yield
        return
    over = threading.Event()

    def work() -> None:
        try:
            while not over.is_set() and next(steps, over) is not over:
                pass
        except Exception as error:
            first = str(error).partition("\n")[0]
            log(
                f"note: compiling ahead has failed ({type(error).__name__}: {first}); programs are compiled when needed"
            )

    # not a daemon: one that is compiling when Python ends would abort the process
    threading.Thread(target=work, name=NAME).start()
    try:
        yield
    finally:
        over.set()


def leave(status: int) -> None:
    """Ends this process at once if a program is being compiled that nobody needs any more; Python would wait for it."""
    if any(thread.name == NAME for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
