"""The simulator against closed forms, and what it says when a system does not keep its promises."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from purectrl.core import InputError, Key, MeasurementError, MeasurementModel, Plan, System
from purectrl.systems.compiled import pad_rows
from purectrl.systems.lqr import lqr
from purectrl.systems.ou import ou
from purectrl.systems.simulation import euler_maruyama, simulate_rollouts
from purectrl.systems.washboard import washboard

OU = System(  # dx = -x dt + sqrt(2) dw, stationary variance 1
    name="ou",
    state_dim=1,
    control_dim=1,
    horizon=2.0,
    drift=lambda x, u: -x,
    diffusion=lambda x, u: jnp.sqrt(2.0),
    reward=lambda x, u: jnp.exp(-(x[0] ** 2)),
)


def zero(x, t):
    return jnp.zeros(1)


def origin(key):
    return jnp.zeros(1)


PLAN = Plan(Partial(zero), Partial(origin))


def test_ou_variance_and_covariance_at_irregular_times():
    times = np.tile([0.13, 0.5, 0.51, 1.9], (40_000, 1))
    seen = simulate_rollouts(OU, MeasurementModel(), steps=200)(Key.from_seed(0), PLAN, times)
    x, t = seen.x[:, :, 0], times[0]
    # Cov(x(s), x(t)) = e^(-|t-s|) - e^(-(t+s)) for x(0) = 0
    expected = np.exp(-np.abs(t[:, None] - t)) - np.exp(-(t[:, None] + t))
    assert np.allclose(x.T @ x / len(x), expected, atol=0.03)
    assert np.allclose(x.mean(axis=0), 0.0, atol=0.03)


def test_weak_error_falls_linearly_with_the_step():
    """E[x(T)] of dx = -x dt from 1 is e^-T; Euler has (1 - T/K)^K, an error of order 1/K."""
    errors = []
    for steps in (16, 32, 64):
        times = jnp.linspace(0.0, 2.0, steps + 1)
        drift, none, still = (lambda x, u: -x), (lambda x, u: jnp.float32(0.0)), (lambda x, t: jnp.zeros(1))
        path = euler_maruyama(jax.random.key(0), drift, none, still, jnp.ones(1), times)
        errors.append(abs(float(path[-1, 0]) - np.exp(-2.0)))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.allclose(orders, 1.0, atol=0.15)


def test_measured_drift_and_reward_have_the_models_noise():
    measuring = MeasurementModel(step=0.05, reward_std=0.5)
    seen = simulate_rollouts(OU, measuring, steps=50)(Key.from_seed(1), PLAN, np.full((40_000, 1), 1.0))
    drift_noise = seen.y - -seen.x
    reward_noise = seen.r - np.exp(-(seen.x[..., 0] ** 2))
    assert drift_noise.var() == pytest.approx(2.0 / 0.05, rel=0.03)  # g²/Δ
    assert reward_noise.std() == pytest.approx(0.5, rel=0.03)
    assert abs(drift_noise.mean()) < 0.1


def test_difference_quotient_measures_the_same_drift():
    """(x(t+Δ) − x(t))/Δ on one path: mean f up to O(Δ), variance g²/Δ."""
    measuring = MeasurementModel(step=0.02, drift="quotient")
    seen = simulate_rollouts(OU, measuring, steps=50)(Key.from_seed(2), PLAN, np.full((40_000, 1), 1.0))
    x, y = seen.x.ravel(), seen.y.ravel()
    slope = (x * y).sum() / (x * x).sum()
    assert slope == pytest.approx(-1.0, abs=0.15)
    assert (y + x).var() == pytest.approx(2.0 / 0.02, rel=0.05)


def test_an_episode_does_not_depend_on_how_many_run_beside_it():
    rollout = simulate_rollouts(OU, MeasurementModel(), steps=20)
    many = rollout(Key.from_seed(3), PLAN, np.full((13, 2), 1.0))
    few = rollout(Key.from_seed(3), PLAN, np.full((5, 2), 1.0))
    assert np.array_equal(many.x[:5], few.x)
    assert np.array_equal(many.r[:5], few.r)
    one = rollout(Key.from_seed(3), PLAN, np.full((1, 2), 1.0))  # a program without lanes: it may round otherwise
    assert np.allclose(many.r[:1], one.r, rtol=0, atol=1e-6)


@pytest.mark.parametrize("drift", ["drawn", "quotient"])
def test_measurements_on_one_time_see_one_state(drift):
    """Times that repeat, or fall on a node of the grid, or on another measurement's t + Δ, are one moment of one path."""
    times = np.array([[0.0, 0.5, 0.5, 0.625, 0.625, 2.0]])  # the grid has 0.5, and 0.5 + Δ = 0.625
    seen = simulate_rollouts(OU, MeasurementModel(step=0.125, drift=drift), steps=4)(Key.from_seed(4), PLAN, times)
    x = seen.x[0, :, 0]
    assert x[0] == 0.0
    assert x[1] == x[2] != x[3] == x[4] != x[5]
    if drift == "quotient":
        assert seen.y[0, 1, 0] == pytest.approx((x[3] - x[1]) / 0.125, rel=1e-5)


def test_the_path_passes_through_every_node_once():
    """With dx = dt every state is its own time, whatever the order in which grid and measurements come."""
    clock = replace(OU, drift=lambda x, u: jnp.ones(1), diffusion=lambda x, u: jnp.float32(0.0))
    times = np.sort(np.random.default_rng(0).uniform(0.0, 2.0, (7, 9)), axis=1)
    for drift in ("drawn", "quotient"):
        seen = simulate_rollouts(clock, MeasurementModel(drift=drift), steps=10)(Key.from_seed(0), PLAN, times)
        assert np.allclose(seen.x[..., 0], times, atol=1e-6)
        assert np.allclose(seen.y, 1.0, atol=1e-4)


def test_padding_changes_no_result():
    rows = np.arange(11.0)
    assert np.array_equal(pad_rows(lambda a: (2 * a,), rows)[0], 2 * rows)


def test_a_reward_outside_its_declared_range_is_named():
    wrong = System("wrong", 1, 1, 1.0, OU.drift, OU.diffusion, lambda x, u: jnp.float32(2.0))
    with pytest.raises(MeasurementError, match=r"the reward of 'wrong' is 2, outside its declared range \[0, 1\]"):
        simulate_rollouts(wrong, MeasurementModel(), 5)(Key.from_seed(0), PLAN, np.ones((1, 1)))


def test_a_path_that_leaves_the_finite_numbers_is_named_even_after_the_last_measurement():
    """dx = x³ dt from 2 in steps of 0.2 goes 2, 3.6, 12.9, 445, 1.8e7, 1.1e21, and the next is beyond all floats."""
    wild = replace(OU, drift=lambda x, u: x**3, diffusion=lambda x, u: jnp.float32(0.0))
    rollout = simulate_rollouts(wild, MeasurementModel(), steps=10)
    plan = PLAN._replace(initial=Partial(lambda key: jnp.full(1, 2.0)))
    last = 2.0
    for _ in range(5):
        last += 0.2 * last**3
    with pytest.raises(MeasurementError, match=r"in episode 0 of this block at time t = 1\.2;") as caught:
        rollout(Key.from_seed(0), plan, np.full((3, 1), 0.2))
    text = str(caught.value)
    assert "the simulation of 'ou' has left the finite numbers" in text
    state, time = re.search(r"the last finite state was x = \[(.*)\] at t = (.*?):", text).groups()
    assert (float(state), float(time)) == (pytest.approx(last, rel=1e-3), 1.0)
    assert text.endswith("use more `steps`, a bounded drift or policy, or a shorter horizon")


def test_only_the_episodes_that_were_asked_for_are_judged():
    """A block of 3 is padded to 4; the fourth must not be able to fail the others."""
    unlucky = Partial(lambda key: jnp.where(jax.random.uniform(key, (1,)) < 0.3, jnp.nan, 0.0))
    rollout = simulate_rollouts(OU, MeasurementModel(), steps=5)
    outcomes = {}
    for seed in range(40):
        for count in (3, 4):
            try:
                rollout(Key.from_seed(seed), Plan(Partial(zero), unlucky), np.ones((count, 1)))
                outcomes[seed, count] = True
            except MeasurementError as error:
                assert "initial: the state [nan]" in str(error)  # noqa: PT017
                outcomes[seed, count] = False
    assert all(outcomes[seed, 3] for seed in range(40) if outcomes[seed, 4])
    assert any(outcomes[seed, 3] and not outcomes[seed, 4] for seed in range(40))


def test_a_negative_diffusion_is_named_where_it_happens():
    """With dx = dt and g = 1 − x from x = 1.1 on, the first node that sees a negative g is t = x = 1.25."""
    late = replace(OU, drift=lambda x, u: jnp.ones(1), diffusion=lambda x, u: jnp.where(x[0] < 1.1, 0.0, 1.0 - x[0]))
    rollout = simulate_rollouts(late, MeasurementModel(), steps=8)
    message = r"the diffusion of 'ou' is -0\.25 in episode 0 of this block at time t = 1\.25 in state x = \[1\.25\]: "
    with pytest.raises(MeasurementError, match=message + "g must be ≥ 0"):
        rollout(Key.from_seed(0), PLAN, np.full((2, 1), 0.5))
    at_the_end = replace(late, horizon=1.25)
    with pytest.raises(MeasurementError, match=message):
        simulate_rollouts(at_the_end, MeasurementModel(), steps=5)(Key.from_seed(0), PLAN, np.full((1, 1), 1.25))


def test_a_reward_that_is_not_a_number_is_named():
    wrong = replace(OU, reward=lambda x, u: jnp.float32(jnp.nan))
    with pytest.raises(MeasurementError, match="the reward of 'ou' is nan, outside its declared range"):
        simulate_rollouts(wrong, MeasurementModel(), 5)(Key.from_seed(0), PLAN, np.ones((1, 1)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drift": lambda x, u: x[0]}, r"drift: 'ou' returns shape \[\] for x \[1\] and u \[1\], expected \[1\]"),
        ({"drift": lambda x, u: jnp.ones(2)}, r"drift: 'ou' returns shape \[2\]"),
        ({"drift": lambda x, u: jnp.ones((2, 2)) @ x}, r"drift: 'ou' cannot be evaluated on x \[1\] and u \[1\]: "),
        ({"diffusion": lambda x, u: jnp.ones(2)}, r"diffusion: 'ou' returns shape \[2\] .*, expected \[\] or \[1\]"),
        ({"reward": lambda x, u: jnp.exp(-(x**2))}, r"reward: 'ou' returns shape \[1\] .*, expected \[\]"),
    ],
)
def test_wrong_shapes_of_the_system_are_named_before_anything_runs(change, message):
    with pytest.raises(InputError, match=message):
        simulate_rollouts(replace(OU, **change), MeasurementModel(), 5)


@pytest.mark.parametrize(
    ("policy", "initial", "message"),
    [
        (
            lambda x, t: jnp.zeros(2),
            origin,
            r"policy: returns a control of shape \[2\], 'ou' has controls of shape \[1\]",
        ),
        (lambda x, t: jnp.float32(0), origin, r"policy: returns a control of shape \[\]"),
        (
            zero,
            lambda key: jnp.zeros((1, 1)),
            r"initial: returns a state of shape \[1, 1\], 'ou' has states of shape \[1\]",
        ),
        (zero, lambda key: jnp.zeros(1, int), "initial: returns a state of type int32"),
    ],
)
def test_a_plan_that_does_not_fit_is_named(policy, initial, message):
    with pytest.raises(InputError, match=message):
        simulate_rollouts(OU, MeasurementModel(), 5)(
            Key.from_seed(0), Plan(Partial(policy), Partial(initial)), np.ones((1, 1))
        )


def test_a_plan_that_cannot_be_executed_is_named():
    rollout = simulate_rollouts(OU, MeasurementModel(), 5)
    with pytest.raises(InputError, match=r"policy: must be callable as policy\(x, t\)"):
        rollout(Key.from_seed(0), Plan(0, Partial(origin)), np.ones((1, 1)))
    with pytest.raises(InputError, match="initial: the plan has none, and no default is given for 'ou'"):
        rollout(Key.from_seed(0), Plan(Partial(zero), None), np.ones((1, 1)))


def test_a_plan_without_an_initial_distribution_starts_from_the_default():
    start = lambda key: jnp.full(1, 3.0)  # noqa: E731
    rollout = simulate_rollouts(OU, MeasurementModel(), 5, initial=start)
    times = np.zeros((2, 1))
    assert np.array_equal(rollout(Key(1), Plan(Partial(zero), None), times).x, np.full((2, 1, 1), 3.0))
    assert np.array_equal(rollout(Key(1), PLAN, times).x, np.zeros((2, 1, 1)))


def test_a_policy_may_depend_on_time():
    """With dx = u dt and u = 2t the state is t², which Euler's method reaches up to the step; u is measured at its time."""
    clock = replace(OU, drift=lambda x, u: u, diffusion=lambda x, u: jnp.float32(0.0))
    times = np.sort(np.random.default_rng(1).uniform(0.0, 2.0, (3, 4)), axis=1)
    plan = PLAN._replace(policy=Partial(lambda x, t: 2 * t[None]))
    seen = simulate_rollouts(clock, MeasurementModel(), steps=2000)(Key(0), plan, times)
    assert np.allclose(seen.u[..., 0], 2 * times, atol=1e-6)
    assert np.allclose(seen.x[..., 0], times**2, atol=0.005)


@jax.tree_util.register_pytree_node_class
class Exploring:
    """The control `level` and, when it explores, noise per episode on top of the episode's number."""

    def __init__(self, level):
        self.level = level

    def __call__(self, x, t):
        return jnp.full(1, self.level)

    def explore(self, key, episode):
        noise = 0.01 * jax.random.uniform(key, (1,))
        return lambda x, t: self(x, t) + episode + noise

    def tree_flatten(self):
        return (self.level,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_a_policy_that_explores_does_so_in_rollouts_for_learning_only():
    plan, times = PLAN._replace(policy=Exploring(5.0)), np.tile([0.5, 1.5], (3, 1))
    seen = simulate_rollouts(OU, MeasurementModel(), 5)(Key(2), plan, times).u[..., 0]
    assert np.array_equal(seen[:, 0], seen[:, 1])  # one controller per episode
    noise = seen[:, 0] - 5.0 - np.arange(3)
    assert np.all((noise > 0) & (noise < 0.01))
    assert len(set(noise.round(6))) == 3  # another one in each
    plain = simulate_rollouts(OU, MeasurementModel(), 5, explore=False)(Key(2), plan, times)
    assert np.array_equal(plain.u, np.full((3, 2, 1), 5.0))
    steady = simulate_rollouts(OU, MeasurementModel(), 5)(
        Key(2), PLAN._replace(policy=Partial(lambda x, t: jnp.full(1, 5.0))), times
    )
    assert np.array_equal(plain.x, steady.x)  # exploration has a key of its own


@pytest.mark.parametrize("system", [washboard(), ou(), *[lqr(dimension) for dimension in (1, 2, 3, 4)]])
def test_shipped_systems_keep_their_promises(system):
    draws = np.random.default_rng(0)
    x = jnp.asarray(draws.normal(size=(500, system.state_dim)) * 2, jnp.float32)
    u = jnp.asarray(draws.uniform(-1, 1, (500, system.control_dim)), jnp.float32)
    assert jax.vmap(system.drift)(x, u).shape == x.shape
    rewards = jax.vmap(system.reward)(x, u)
    assert rewards.shape == (500,)
    assert rewards.min() >= 0.0
    assert rewards.max() <= 1.0
    assert jax.vmap(system.diffusion)(x, u).min() >= 0.0
