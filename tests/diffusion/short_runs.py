"""A run without a run directory's machinery: the loop, and what the runner calls on a problem."""

from purectrl.core import Algorithm, Budget, Key
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Geometric
from purectrl.core.schedules import GrowingBatches
from purectrl.diffusion import FinetuneSettings, RewardModelSettings, Seiko

PURE = Geometric(m=4, lam=6.0)


def seiko(reward_model=None, **finetune):
    """A learner with little work."""
    small = {"iterations": 2, "batch_size": 2, "learning_rate": 3e-4, "initial_learning_rate": 3e-3, "alpha": 2e-3}
    reward = {"steps": 4, "batch_size": 8, "bonus_scale": 0.1}
    return Seiko(RewardModelSettings(**(reward | (reward_model or {}))), FinetuneSettings(**(small | finetune)))


def loop_of(problem, measurements=48, updates=2, sampler=PURE, learner=None):
    algorithm = Algorithm(sampler, GrowingBatches(updates=updates), learner or seiko(), LastPolicy())
    return algorithm.build(problem, Budget(measurements))


def lines_of(problem, loop, state=None, seed=0):
    """(final state, one dictionary per step), as the runner would write them."""
    start, lines = state or loop.init(Key.from_seed(seed)), []
    for state, record in loop.run(start):
        line = {"measurements": state.ledger.measurements, "episodes": record.block.episodes}
        line |= record.info | problem.columns(record)
        key = problem.evaluation_key(state.key, state.steps)
        found = problem.evaluate(state.output.plan, key, problem.eval_episodes)
        lines.append(line | {f"test_{name}": value for name, value in found.items()})
    return state, lines


def finish(problem, loop, state, lines, out, seed=0):
    """The files and the metrics of a finished run."""
    last = loop.learner.policy(state.learner)
    files = problem.artifacts(state.output.plan, Key.from_seed(seed), out)
    return files, problem.summarize(state.output.plan, last, state.key, lines)
