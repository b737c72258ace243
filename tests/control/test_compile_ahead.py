"""What PURE-auto compiles ahead is what its first update and the episode after it execute."""

from collections.abc import Iterator
from dataclasses import replace

import jax
import pytest
from linear_cart import cart

from purectrl.control.auto_learner import AutoLearner
from purectrl.control.auto_settings import Auto, EnsembleSettings, KnownModel, RoundSettings
from purectrl.control.black_box import BlackBoxDynamics
from purectrl.control.integrate import midpoint
from purectrl.control.settings import FitSettings
from purectrl.core import Key
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import PacedWindows
from purectrl.core.schedules import OnExcessLoss
from purectrl.problems.continuous_systems import continuous
from purectrl.problems.mechanical_systems import mechanical
from purectrl.runs.ahead import programs
from purectrl.systems.spec import StateSpec

PLAN = RoundSettings(steps=4, rounds=1, snapshots=2, batch_size=6, ensemble_size=2, width=8, test_steps=10)
MODEL = EnsembleSettings(2, 8, steps=300, finetune_steps=300, batch_size=16)
M = 150


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The names of programs in the order in which they are compiled."""
    names: list[str] = []

    def listen(event: str, duration: float, fun_name: str = "", **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            names.append(fun_name.removeprefix("jit(").removesuffix(")"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


def mechanical_problem():
    return mechanical(cart(start=0.7), horizon=5.0)


def learned_problem():
    return continuous(
        name="learned",
        horizon=5.0,
        drift=lambda x, u: u - 0.5 * x,
        reward=lambda x, u: -((x[0] - 0.6) ** 2),
        initial=lambda key: jax.random.uniform(key, (1,)),
        reward_known=False,
        control_low=[0.0],
        control_high=[1.0],
    )


@pytest.mark.parametrize(
    ("problem", "learner", "fits"),
    [
        (mechanical_problem, Auto(MODEL, PLAN), 1),
        (learned_problem, Auto(MODEL, PLAN), 2),
        (learned_problem, KnownModel(PLAN), 0),
    ],
    ids=["mechanical", "drift and reward", "true equations"],
)
@pytest.mark.filterwarnings("ignore::purectrl.core.errors.DivergenceWarning")
def test_nothing_that_was_compiled_ahead_is_compiled_again(problem, learner, fits, compiled):
    found = problem()
    how = Algorithm(PacedWindows(m=M, windows=5), OnExcessLoss(1.0, initial=2), learner, LastPolicy(), "small")
    loop = how.build(found, Budget(6 * M))
    state = loop.init(Key.from_seed(0))
    steps = programs(found, loop, state.learner)
    assert steps is not None
    assert len(list(steps)) == fits + 3
    large = {"fit_ensemble", "plan_round", "imagined_rewards", "batch"}
    ahead = [name for name in compiled if name in large]
    assert ahead == [*["fit_ensemble"] * fits, "plan_round", "imagined_rewards", "batch"]

    compiled.clear()
    while not state.ledger.updates:
        state, _ = loop.step(state)
    found.evaluate(state.output.plan, Key.from_seed(1), found.eval_episodes)
    loop.step(state)
    assert [name for name in compiled if name in large] == ["batch"]  # the rollouts of the oracle


def test_planning_is_not_compiled_ahead_if_the_data_decide_whether_episodes_end(compiled):
    """Before the first termination is measured, another program plans than afterwards."""
    spec = StateSpec(1, 1, (0.0,), (1.0,), reward=lambda x, u: x[0], may_terminate=True)
    for terminated, large in ((None, ["fit_ensemble"]), (lambda x: x[0] > 2, ["fit_ensemble", "plan_round"])):
        ends = replace(spec, terminated=terminated)
        dynamics = BlackBoxDynamics(ends, FitSettings(steps=5), M, episodes=M, integrate=midpoint, members=2, width=8)
        learner = AutoLearner(ends, dynamics, PLAN, 0.03, horizon=5.0, end=2.5, time_grid=None, capacity=M, m=M)
        compiled.clear()
        for _ in learner.compile_ahead(learner.init(Key.from_seed(0))):
            pass
        assert [name for name in compiled if name in {"fit_ensemble", "plan_round"}] == large
