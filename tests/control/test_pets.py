"""PETS: returns of plans in closed form, the best plan of a known model, runs that resume bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.control.pets import PlanningPolicy, Steps, expected_return, transition_data
from purectrl.control.pets_settings import Pets, ReplanSettings
from purectrl.core import Budget, InputError, Key, Measurements, UnsupportedError
from purectrl.core.problem import Source
from purectrl.core.samplers import Uniform, Windows
from purectrl.systems.spec import StateSpec

PERIOD = 0.1
OWN = """
import jax, jax.numpy as jnp
import purectrl as pc

def problem():
    \"\"\"A tank that should hold a level of 1.\"\"\"
    return pc.problems.continuous(
        name="tank", horizon=2.0, drift=lambda x, u: 2.0 * u, reward=lambda x, u: -(x[0] - 1.0) ** 2,
        initial=lambda key: jax.random.uniform(key, (1,), minval=-0.5, maxval=0.5), eval_episodes=2)
"""
SMALL = {
    "learner.model.width": 16,
    "learner.model.ensemble_size": 2,
    "learner.fit.steps": 300,
    "learner.fit.finetune_steps": 100,
    "learner.plan.horizon": 6,
    "learner.plan.population": 24,
    "learner.plan.elites": 4,
    "learner.plan.iterations": 3,
    "sampler.length": 2.0,
    "sampler.step": 0.1,
}


class Task:
    """The reward −x² in a unit of 2."""

    reward_unit = 2.0

    def planning_reward(self, x, u, penalty):
        return -(x[..., 0] ** 2) / self.reward_unit


class Linear:
    """Members dx/dt = a_i x + u."""

    def __init__(self, *rates, task=None):
        self.rates, self.members, self.task = jnp.array(rates), len(rates), task or Task()

    def drift(self, x, u):
        return self.rates[:, None, None] * x + u


def spec(**known):
    return StateSpec(1, 1, (-2.0,), (2.0,), **known)


ENDLESS = Steps(PERIOD, None)


def plan_return(model, u, sampling="ts-inf", steps=ENDLESS, known=None, x=1.5, t=0.0):
    plan = ReplanSettings(horizon=len(u), trajectory_sampling=sampling)
    arguments = steps, known or spec(), jnp.array([x]), t, jnp.asarray(u, jnp.float32), jax.random.key(3)
    return float(expected_return(model, plan, *arguments))


def simulated(rates, u, x=1.5):
    """Σ p · mean over members of −x_k², each member followed to the end."""
    total = 0.0
    states = np.full(len(rates), x)
    for value in np.ravel(u):
        total -= PERIOD * (states**2).mean()
        states = states + PERIOD * (np.array(rates) * states + value)
    return total


def test_the_return_of_a_plan_is_the_mean_over_networks_that_are_kept():
    u = np.array([[1.0], [-2.0], [0.5], [0.0]])
    assert plan_return(Linear(-1.0, 2.0, 0.5), u) == pytest.approx(simulated([-1.0, 2.0, 0.5], u), rel=1e-5)


def test_ts1_equals_ts_inf_for_equal_networks_and_differs_for_different_ones():
    u = np.zeros((8, 1))
    same = Linear(0.5, 0.5)
    assert plan_return(same, u, "ts-1") == pytest.approx(plan_return(same, u, "ts-inf"), rel=1e-6)
    different = Linear(-3.0, 3.0)
    # a particle that keeps the unstable network grows without limit; one that changes networks does not
    assert plan_return(different, u, "ts-1") > plan_return(different, u, "ts-inf")


def test_the_final_state_is_rewarded_at_the_end_and_nothing_after_it():
    known = spec(terminal_reward=lambda x: -10.0 * x[0] ** 2)
    u = np.zeros((5, 1))
    still = Linear(0.0, 0.0)
    reward = lambda t: plan_return(still, u, steps=Steps(PERIOD, 1.0), known=known, t=t)  # noqa: E731
    assert reward(0.8) == pytest.approx(-2.25 * (2 * PERIOD + 10.0), rel=1e-5)  # two steps are left
    assert reward(0.5) == pytest.approx(-2.25 * (5 * PERIOD + 10.0), rel=1e-5)
    assert reward(0.4) == pytest.approx(-2.25 * 5 * PERIOD, rel=1e-5)  # the plan does not reach the end


def policy(plan, trained=1.0):
    return PlanningPolicy(
        Linear(0.0, 0.0), np.array([1, 2], np.uint32), trained, 0.0, plan, Steps(PERIOD, None), spec()
    )


def test_the_plan_brings_a_known_system_to_its_goal_and_stays_there():
    """dx/dt = u with |u| ≤ 2 from 1.5: full control for 0.7 s, then x = 0."""
    held = policy(ReplanSettings(horizon=8, population=64, elites=8, iterations=5))
    x, memory, path = jnp.array([1.5]), held.begin(jax.random.key(0)), []
    decide = jax.jit(lambda memory, x, t: held.decide(memory, x, t))
    for k in range(14):
        u, memory = decide(memory, x, k * PERIOD)
        x = x + PERIOD * u
        path.append(float(x[0]))
    assert path[4] == pytest.approx(1.5 - 5 * PERIOD * 2.0, abs=0.1)
    assert max(map(abs, path[-4:])) < 0.1


def test_a_decision_begins_at_the_last_plan_moved_on_by_a_step():
    held = policy(ReplanSettings(horizon=4, population=8, elites=2, iterations=1))
    u, memory = held.decide(held.begin(jax.random.key(0)), jnp.array([1.0]), 0.0)
    again, _ = held.decide(held.begin(jax.random.key(5)), jnp.array([1.0]), 0.0)
    assert np.array_equal(u, again)  # the episode's key matters before the first update only
    assert memory.sequence.shape == (4, 1)
    assert np.array_equal(memory.sequence[-1], memory.sequence[-2])
    assert np.array_equal(held(jnp.array([1.0])), u)


def test_the_first_controls_are_random_smooth_and_within_limits():
    held = policy(ReplanSettings(horizon=3, population=8, elites=2), trained=0.0)
    decide = jax.jit(lambda memory, x, t: held.decide(memory, x, t))
    drawn = [
        [float(decide(held.begin(jax.random.key(seed)), jnp.zeros(1), k * PERIOD)[0][0]) for k in range(20)]
        for seed in (0, 1)
    ]
    assert not np.allclose(*drawn)
    assert np.abs(drawn).max() <= 2.0
    assert np.abs(np.diff(drawn)).max() < 1.5


def test_drifts_of_an_instant_are_replaced_by_those_of_a_step():
    x = np.zeros((1, 2, 1))
    seen = Measurements(np.array([[0.0, 0.1]]), x, x, y=x, r=x[..., 0])
    assert transition_data(seen, quotients=True).y is None
    assert transition_data(seen, quotients=False).y is not None


def test_what_pets_cannot_use_is_refused():
    pendulum, budget = pc.problems.pendulum(), Budget(100)
    with pytest.raises(UnsupportedError, match="pets needs consecutive measurements; use the sampler windows"):
        Pets().build(pendulum, budget, Uniform(10))
    with pytest.raises(UnsupportedError, match="holds a control from one measurement to the next"):
        Pets().build(pendulum, budget, Windows(count=2, length=1.0, step=0.1))
    with pytest.raises(UnsupportedError, match="pets needs a problem that executes held controls; 'finite'"):
        Pets().build(pc.problems.finite(), budget, Windows())
    with pytest.raises(InputError, match="elites: must be fewer than population = 8, got 8"):
        ReplanSettings(population=8, elites=8)


@pytest.fixture(scope="module")
def tank(tmp_path_factory):
    """A small run on a user's own system, and its file."""
    file = tmp_path_factory.mktemp("own") / "tank.py"
    file.write_text(OWN)
    problem = pc.problems.build(Source(f"{file}:problem", {}))
    algorithm = pc.pets(problem).with_settings(SMALL)
    return pc.run(problem, algorithm, measurements=80, seed=0, out=file.parent / "run"), problem


def test_a_users_own_system_is_brought_to_its_goal(tank):
    """From about 0 at full control the level is 1 after half a second: a return of −∫(1 − 2t)² dt ≈ −1/6."""
    result, _ = tank
    assert result.ledger.measurements == 80
    assert result.ledger.updates == 4
    assert result.metrics["return"] > -0.5  # at rest it is −2


def test_the_stored_policy_decides_as_in_the_run(tank):
    result, _ = tank
    control = pc.load_policy(result.out, trust=True)
    assert control([0.0], 0.0)[0] > 0.5  # far below the level, the inflow is large
    assert control([0.0], 0.05)[0] == control([0.0], 0.0)[0]  # held
    again = pc.evaluate(result.out, episodes=2, trust=True)
    assert again["metrics"]["return"] > -0.5


def test_a_stopped_run_continues_bit_for_bit(tank):
    _, problem = tank
    algorithm = pc.pets(problem).with_settings(SMALL)
    loop = algorithm.build(problem, Budget(80))
    state, records = loop.init(Key.from_seed(0)), []
    states = [state]
    for _ in range(2):
        state, record = loop.step(state)
        states.append(state)
        records.append(record)
    restored, record = algorithm.build(problem, Budget(80)).step(states[1])
    assert np.array_equal(record.block.x, records[1].block.x)
    assert np.array_equal(record.block.u, records[1].block.u)
    for one, other in zip(jax.tree.leaves(restored.learner), jax.tree.leaves(state.learner), strict=True):
        assert np.array_equal(one, other)


def test_a_gymnasium_environment_is_planned_step_by_step():
    problem = pc.problems.gymnasium("Pendulum-v1", horizon=1.0, eval_episodes=1)
    settings = {name: value for name, value in SMALL.items() if not name.startswith("sampler")}
    result = pc.run(problem, pc.pets(problem).with_settings(settings), measurements=40, seed=0)
    assert result.ledger.updates == 2
    assert np.isfinite(result.metrics["return"])
