"""A user's own system: simulated or driven, of any order, with any control limits; PURE_ENODE learns it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.control.settings import Enode, FitSettings, ModelSettings, PlanSettings
from purectrl.core import InputError, Key, MeasurementError, Plan
from purectrl.core.algorithm import Algorithm
from purectrl.core.ledger import Budget
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Uniform, Windows
from purectrl.core.schedules import Batches
from purectrl.problems.continuous_systems import continuous

LEARNER = Enode(
    ModelSettings(ensemble_size=3, width=32),
    FitSettings(steps=800, finetune_steps=300, batch_size=32, learning_rate=3e-3),
    PlanSettings(steps=300, batch_size=24, horizon=2.0, actor_learning_rate=5e-3),
)
TARGET = 1.0


def drift(x, u):
    """A tank that drains at half its level per second."""
    return u - 0.5 * x


def reward(x, u):
    return -((x[0] - TARGET) ** 2)


def initial(key):
    return jax.random.uniform(key, (1,), maxval=3.0)


def tank(**arguments):
    known = {"name": "tank", "horizon": 6.0, "drift": drift, "reward": reward, "initial": initial}
    return continuous(**{**known, "control_low": [0.0], "control_high": [2.0], **arguments})


def learned(problem, learner=LEARNER, sampler=None):
    """The metrics of the untrained and of the learned policy after two updates."""
    sampler = sampler or Windows(count=2, length=3.0, step=0.1, from_start=True)
    algorithm = Algorithm(sampler, Batches((2, 2), "before", 4), learner, LastPolicy())
    loop = algorithm.build(problem, Budget(8 * sampler.m))
    begin = loop.init(Key.from_seed(0))
    steps = list(loop.run(begin))
    assert not any("rolled_back" in record.info for _, record in steps)
    last = steps[-1][0]
    before, after = (problem.evaluate(state.output.plan, Key.from_seed(1), 10) for state in (begin, last))
    return before, after, last


def best_return(problem):
    """Bang-bang control, which is optimal for the tank: full or no inflow until the level is reached, then hold it."""

    class Optimal:
        def __call__(self, x, t=0.0):
            return jnp.where(jnp.abs(x - TARGET) < 0.01, 0.5 * TARGET, jnp.where(x < TARGET, 2.0, 0.0))

    jax.tree_util.register_pytree_node(Optimal, lambda _: ((), None), lambda *_: Optimal())
    return problem.evaluate(Plan(Optimal(), ()), Key.from_seed(1), 10)["return"]


def test_pure_enode_learns_a_first_order_system_with_asymmetric_limits():
    problem = tank()
    before, after, state = learned(problem)
    optimum = best_return(problem)
    assert before["return"] < 2 * optimum  # rewards are negative
    assert after["return"] > 1.2 * optimum
    assert after["return_min"] <= after["return"] <= optimum + 0.02
    u = state.data.all.u
    assert 0.0 <= u.min() < 0.5 < 1.5 < u.max() <= 2.0
    policy = problem.controller(state.output.plan)
    assert policy([0.2])[0] > 1.2 > 0.2 > policy([2.0])[0]


@pytest.mark.slow
def test_an_unknown_reward_is_learned_from_any_sampler():
    problem = tank(reward_known=False)
    before, after, _ = learned(problem, replace(LEARNER, fit=replace(LEARNER.fit, steps=1500)), Uniform(m=60))
    assert after["return"] > 1.3 * best_return(problem) > before["return"]


def test_measurements_carry_the_drift_and_the_exact_reward():
    problem = tank()
    plan = Plan(Constant(), ())
    seen = problem.rollout(Key.from_seed(0), plan, np.full((3, 4), [0.5, 1.0, 2.0, 5.9]))
    assert np.allclose(seen.y, 1.0 - 0.5 * seen.x, atol=5e-3)
    assert np.allclose(seen.r, -((seen.x[..., 0] - TARGET) ** 2), atol=1e-6)
    start = jax.vmap(initial)(jax.random.split(jax.random.key(0), 500))
    assert 0.0 <= seen.x.min() <= seen.x.max() <= float(start.max()) + 1
    # x(t) = 2 + (x(0) − 2) e^(−t/2): the ratio of two distances to 2 is known
    assert np.allclose((seen.x[:, 2] - 2) / (seen.x[:, 1] - 2), np.exp(-0.5), atol=1e-4)


class Constant:
    """u = 1."""

    def __call__(self, x, t=0.0):
        return jnp.ones(1)


jax.tree_util.register_pytree_node(Constant, lambda _: ((), None), lambda *_: Constant())


def test_the_return_is_the_integral_of_the_reward():
    """dx/dt = 0 from x(0) = 3 with b = x: ∫ b dt = 3 T."""
    still = tank(drift=lambda x, u: 0 * x, initial=lambda key: jnp.full(1, 3.0), reward=lambda x, u: x[0])
    found = still.evaluate(Plan(Constant(), ()), Key(0), 2)
    assert found == pytest.approx({"return": 18.0, "return_min": 18.0, "return_error": 0.0, "reward": 3.0})


def test_an_abort_earns_the_worst_reward_until_the_horizon():
    """x(t) = t under u = 1 and b = −2 − x: at the limit x = 2, after 2 of 6 s, b = −4, and −4 per second from there on."""
    problem = tank(
        drift=lambda x, u: u,
        initial=lambda key: jnp.zeros(1),
        reward=lambda x, u: -2 - x[0],
        limits={0: (-1.0, 2.0)},
        control_period=0.01,
    )
    assert problem.abort_reward == -4.0
    found = problem.evaluation(Plan(Constant(), ()), Key(0), 2)
    assert found.metrics["return"] == pytest.approx(-(2 * 2 + 2) - 4 * 4, abs=0.05)
    assert found.metrics["reward"] == pytest.approx(found.metrics["return"] / 6, abs=0.01)
    assert np.allclose(
        found.episodes.r[found.episodes.valid], -2 - found.episodes.x[found.episodes.valid][:, 0], atol=1e-4
    )
    seen = problem.rollout(Key(0), Plan(Constant(), ()), np.tile(np.arange(8) * 0.25, (1, 1)))
    assert (seen.r[seen.valid] >= 0).all()  # what learners see: more than after an abort
    assert float(problem.spec.reward(jnp.full(1, 2.0), jnp.zeros(1))) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"reward": lambda x, u: 1.0, "limits": {0: (-1.0, 2.0)}}, 0.0),  # to survive is rewarded: nothing to correct
        ({"reward": lambda x, u: -(x[0] ** 2)}, 0.0),  # without limits nothing is aborted
        ({"reward": lambda x, u: -(x[0] ** 2) - 100 * u[0] ** 2, "limits": {0: (-5.0, 2.0)}}, -425.0),  # u in [0, 2]
        ({"reward": lambda x, u: -(x[0] ** 2), "limits": {0: (-5.0, 2.0)}, "abort_reward": -7.0}, -7.0),
        ({"reward": None, "log_reward": lambda x, u: -(x[0] ** 2), "limits": {0: (-5.0, 2.0)}}, 0.0),
    ],
)
def test_the_reward_after_an_abort(arguments, expected):
    assert tank(**arguments).abort_reward == expected


def test_a_wrong_reward_is_named_also_with_limits():
    with pytest.raises(InputError, match=r"reward: returns shape \[1\] for x \[1\] and u \[1\], expected \[\]"):
        tank(reward=lambda x, u: x, limits={0: (-1.0, 1.0)})
    with pytest.raises(InputError, match="abort_reward: a reward given by its logarithm is positive"):
        tank(reward=None, log_reward=lambda x, u: -(x[0] ** 2), limits={0: (-1.0, 1.0)}, abort_reward=-1.0)


class Device:
    """Hardware: small Euler steps with the control held between them; measures the state only."""

    def __init__(self):
        self.generator, self.episodes = np.random.default_rng(0), 0

    def __call__(self, control, times):
        self.episodes += 1
        x, t, dt, seen = self.generator.uniform(0, 3, 1), 0.0, 0.02, []
        for time in times:
            while t < time - 1e-9:
                x = x + min(dt, time - t) * (control(x, t) - 0.5 * x)
                t = min(t + dt, time)
            seen.append((x.copy(), control(x, t)))
        return tuple(map(np.stack, zip(*seen, strict=True)))


def test_a_system_that_is_driven_by_a_function_is_learned_from_states_alone():
    device = Device()
    problem = tank(drift=None, initial=None, rollout=device, state_dim=1)
    assert (problem.eval_episodes, problem.lookahead) == (0, 1)
    windows = Windows(count=1, length=3.0, step=0.1, from_start=True)
    loop = Algorithm(windows, Batches((2, 2), "before", 4), LEARNER, LastPolicy()).build(problem, Budget(8 * 30))
    steps = list(loop.run(loop.init(Key.from_seed(0))))
    assert not any("rolled_back" in record.info for _, record in steps)
    state = steps[-1][0]
    assert device.episodes == 8
    policy = problem.controller(state.output.plan)
    assert policy([0.2])[0] > 1.2 > 0.2 > policy([2.0])[0]
    assert tank().evaluate(state.output.plan, Key.from_seed(1), 10)["return"] > 1.3 * best_return(tank())


def test_wrong_measurements_of_a_driven_system_are_named():
    plan, times = Plan(Constant(), ()), np.zeros((1, 2))
    short = tank(drift=None, initial=None, state_dim=1, rollout=lambda control, t: (np.zeros((1, 1)), np.zeros((2, 1))))
    with pytest.raises(MeasurementError, match=r"rollout returned x, u, t and r of shapes \[\(1, 1\), \(2, 1\)"):
        short.rollout(Key(0), plan, times)
    blind = tank(
        drift=None, initial=None, state_dim=1, reward_known=False, rollout=lambda control, t: (np.zeros((2, 1)),) * 2
    )
    with pytest.raises(MeasurementError, match="rollout returned no rewards, and the reward is unknown"):
        blind.rollout(Key(0), plan, times)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": -1.0}, "horizon: the episode length must be positive, not -1"),
        ({"drift": None}, "drift: a simulated system needs drift, initial and reward; or give rollout"),
        ({"drift": lambda x, u: x[0]}, r"drift: returns shape \[\] for x \[1\] and u \[1\], expected \[1\]"),
        ({"reward": lambda x, u: x}, r"reward: returns shape \[1\] for x \[1\] and u \[1\], expected \[\]"),
        ({"reward": lambda x, u: x @ jnp.ones(3)}, r"reward: cannot be evaluated on x \[1\] and u \[1\]"),
        ({"initial": lambda key: 1.0}, r"initial: returns shape \[\], expected \[d\]"),
        ({"state_dim": 2}, r"initial: returns shape \[1\], expected \[2\]"),
        ({"control_low": [3.0]}, "control_low: must be below control_high"),
        ({"control_high": [3.0, 1.0]}, "control_high: has 2 numbers, expected one per control, 1"),
        ({"angles": (1,)}, r"angles: the coordinates are 0 to 0, got \(1,\)"),
        ({"rollout": lambda control, times: ()}, "rollout: a driven system takes neither drift nor initial"),
        (
            {"drift": None, "initial": None, "rollout": lambda control, times: ()},
            "state_dim: needed if rollout is given",
        ),
        ({"reward": None}, "reward: needed unless reward_known is False"),
        ({"diffusion": -1.0}, "diffusion: must not be negative, got -1.0"),
        ({"drift": lambda x, u: np.sin(x) + u}, "drift: calls NumPy on a JAX array; call jax.numpy in its place"),
        ({"reward": lambda x, u: 1.0 if x[0] > 0 else 0.0}, r"reward: branches on a JAX array; write jnp\.where"),
        ({"control_low": 0.0}, "control_low: must be a list of numbers, one for each control, not 0.0"),
        ({"angles": 0}, "angles: must be a list of coordinates of the state, not 0"),
        ({"observed": 0}, "observed: must be a list of coordinates of the state, not 0"),
        ({"limits": [(0.0, 1.0)]}, r"limits: must be \{coordinate: \(low, high\)\}"),
        ({"limits": {0: 1.0}}, r"limits: must be \{coordinate: \(low, high\)\}"),
        ({"initial": lambda: jnp.zeros(1)}, "initial: must be a function of a JAX key"),
        ({"initial": jnp.zeros(1)}, "initial: must be a function of a JAX key"),
        ({"limits": {0: (4.0, 5.0)}}, "initial: episodes would end at once"),
        ({"terminated": lambda x: x[0] < 9.0}, "initial: episodes would end at once"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        tank(**arguments)


@pytest.mark.parametrize("traits", [{}, {"limits": {0: (-99.0, 99.0)}}])
def test_drift_and_initial_state_may_be_lists(traits):
    def seen(kind):
        two = {"control_low": [0.0], "reward": lambda x, u: -x[0], "initial": lambda key: kind([1.0, 2.0])}
        problem = tank(**two, **traits, drift=lambda x, u: kind([x[1], u[0] - x[0]]))
        return problem.rollout(Key(0), Plan(Constant(), ()), np.array([[0.0, 1.0, 2.0]]))

    assert np.array_equal(seen(list).x, seen(jnp.array).x)
