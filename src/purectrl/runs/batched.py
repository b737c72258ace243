"""Runs of one setting with several seeds, computed together in one program: many times faster than one after the other.

Possible for Algorithms 1 and 3 with finite classes on the simulated problems of the theory, whose runs are dominated by the
cost of calling small programs. Every run has its own directory and the records that it has alone; a run does not depend on
the others in its batch. Beside the same run with `purectrl run`, measurements may differ in the last bit of float32 (see
`purectrl.systems.simulation.simulate_rows`). In `seconds` each has its share of the batch.
"""

import functools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from purectrl import signals
from purectrl.core.keys import Key
from purectrl.core.output_rules import UniformEpisode
from purectrl.core.problem import Source
from purectrl.core.samplers import Equidistant, ExponentialGaps, Final, Geometric, Uniform, Windows
from purectrl.core.schedules import Every
from purectrl.runs.process import compile_clock, graceful_shutdown
from purectrl.runs.progress import log, warnings_on_one_line
from purectrl.runs.runner import finish
from purectrl.runs.serialization import check_restored
from purectrl.runs.spec import RunSpec
from purectrl.runs.store import Store

FIXED = (Uniform, Equidistant, Final, ExponentialGaps, Geometric, Windows)
"""Samplers whose times depend on the key alone."""
MOST = 64
"""The most runs in a batch: each holds its measurements in memory and two files open."""


def can_batch(spec: RunSpec) -> bool:
    """Whether runs of `spec` with several seeds can be computed together."""
    from purectrl.theory.problem import TheoryProblem
    from purectrl.theory.settings import FiniteSets

    algorithm = spec.algorithm
    if not isinstance(spec.problem, Source) or spec.code() or type(algorithm.learner) is not FiniteSets:
        return False
    if algorithm.schedule != Every() or type(algorithm.output) is not UniformEpisode:
        return False
    problem = spec.load_problem()
    return type(algorithm.sampler) in FIXED and isinstance(problem, TheoryProblem) and problem.finite is not None


def run_batch(specs: Sequence[RunSpec], outs: Sequence[Path]) -> list[dict[str, Any]]:
    """Runs `specs`, which differ in their seeds only, in the new directories `outs`, and returns their summaries.

    Stopped by the user, all runs are saved and can be resumed one by one. Killed, they start again.
    """
    from purectrl.theory.batched_runs import BatchedRuns
    from purectrl.theory.problem import TheoryProblem

    with (
        compile_clock(uses_jax=True) as compiled,
        warnings_on_one_line(),
        signals.unwinding(),
        ExitStack() as stack,
    ):
        start = time.perf_counter()
        problem, loop = specs[0].compose()
        assert isinstance(problem, TheoryProblem)
        keys = [Key.from_seed(spec.seed) for spec in specs]
        stores = [stack.enter_context(Store.create(out, spec.as_dict())) for spec, out in zip(specs, outs, strict=True)]
        for key, store in zip(keys, stores, strict=True):
            store.restore(loop.init(key), log, functools.partial(check_restored, problem, loop))  # opens the records
        runs = BatchedRuns(problem, loop, keys, [store.append for store in stores])
        share = lambda: (time.perf_counter() - start) / len(specs)  # noqa: E731
        with graceful_shutdown() as stopped:
            while not (runs.finished() or stopped):
                runs.advance(round(share(), 6))
        spent = {"total": share(), "rollout": runs.seconds / len(specs), "compile": sum(compiled) / len(specs)}
        summaries = []
        for number, (spec, store) in enumerate(zip(specs, stores, strict=True)):
            state = runs.state(number)
            state = state._replace(ledger=state.ledger.add_seconds(**spent))
            store.checkpoint(state)
            if not stopped:
                summaries.append(finish(spec, problem, loop, store, state, runs.gaps(number)))
        if stopped:
            raise KeyboardInterrupt
        return summaries
