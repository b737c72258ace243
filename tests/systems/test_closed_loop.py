"""Episodes of a simulated system: physics, feedback, noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import cart, spec

from purectrl.control.exploration import SmoothNoise
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.core import InputError, Key, Plan
from purectrl.systems.closed_loop import closed_loop_rollouts
from purectrl.systems.pendulum import pendulum


def behavior(system, use_actor=1.0, amplitudes=(0.0,), seed=0):
    actor = Actor.random(np.random.default_rng(seed), spec(system), (8, 8))
    return Plan(BehaviorPolicy(actor, use_actor, np.array(amplitudes, np.float32), SmoothNoise(5.0)), ())


def irregular(episodes, m, horizon, seed=0):
    return np.sort(np.random.default_rng(seed).uniform(0, horizon, (episodes, m)), axis=1)


def test_a_pendulum_without_control_keeps_its_energy():
    rod = pendulum()
    seen = closed_loop_rollouts(rod, 5.0)(Key.from_seed(0), behavior(rod, use_actor=0.0), irregular(3, 40, 5.0))
    energy = seen.x[..., 1] ** 2 / 2 + 15 * np.cos(seen.x[..., 0])
    assert np.ptp(energy, axis=1).max() < 2e-3
    assert not seen.u.any()
    assert np.allclose(seen.r, np.exp(-2 * (1 - np.cos(seen.x[..., 0])) - 0.01 * seen.x[..., 1] ** 2), atol=1e-5)


def test_the_policy_acts_at_every_instant():
    """u = 2 tanh(w·q) in closed loop, against many small Euler steps."""
    rail = cart(acceleration=lambda q, v, u: u)
    plan = behavior(rail)
    times = irregular(2, 6, 3.0)
    seen = closed_loop_rollouts(rail, 3.0)(Key.from_seed(1), plan, np.concatenate([np.zeros((2, 1)), times], axis=1))
    assert np.allclose(seen.u, plan.policy(jnp.asarray(seen.x)), atol=1e-6)
    x, t = seen.x[:, 0].astype(float), 0.0
    act = jax.jit(lambda x: plan.policy(x))
    steps = np.linspace(0.0, 3.0, 1501)
    for h in np.diff(steps):
        x = x + h * np.concatenate([x[:, 1:], np.asarray(act(x.astype(np.float32)))], axis=1)
        t += h
        near = np.abs(times - t) < h / 2
        for episode, index in zip(*np.nonzero(near), strict=True):
            assert np.allclose(x[episode], seen.x[episode, index + 1], atol=1e-2)


def test_amplitudes_alternate_and_an_episode_is_the_same_in_any_batch():
    rod = pendulum()
    rollout = closed_loop_rollouts(rod, 2.0)
    plan = behavior(rod, use_actor=0.0, amplitudes=(0.0, 0.5))
    times = np.tile(np.linspace(0, 2, 21), (5, 1))
    five = rollout(Key.from_seed(0), plan, times)
    size = np.abs(np.arctanh(five.u / 2)).max(axis=(1, 2))
    assert (size[[0, 2, 4]] == 0).all()
    assert (size[[1, 3]] > 0.1).all()
    two = rollout(Key.from_seed(0), plan, times[:2])
    assert np.allclose(five.x[:2], two.x, atol=1e-4)


def test_process_noise_has_the_variance_of_brownian_motion():
    rail = cart(acceleration=lambda q, v, u: jnp.zeros_like(q), start=0.0)
    rollout = closed_loop_rollouts(rail, 2.0, 0.3, batch_sizes=(2048,))
    seen = rollout(Key.from_seed(0), behavior(rail, use_actor=0.0), np.tile([0.5, 2.0], (2048, 1)))
    assert np.allclose(seen.x[..., 1].var(axis=0), [0.09 * 0.5, 0.09 * 2.0], rtol=0.15)
    # dq = v dt + g dw: Var q(t) = g²t + g²t³/3
    assert np.allclose(seen.x[..., 0].var(axis=0), [0.09 * (t + t**3 / 3) for t in (0.5, 2.0)], rtol=0.15)


def test_the_drift_is_measured_over_a_short_step():
    rail = cart(start=1.0)
    seen = closed_loop_rollouts(rail, 2.0, drift_step=0.001)(Key.from_seed(0), behavior(rail), irregular(3, 10, 2.0))
    assert np.allclose(seen.y, rail.drift(seen.x, seen.u), atol=2e-2)


def test_policies_that_do_not_explore_are_executed_as_they_are():
    rail = cart(acceleration=lambda q, v, u: u)
    seen = closed_loop_rollouts(rail, 2.0)(Key.from_seed(0), Plan(Still(), ()), irregular(2, 5, 2.0))
    assert np.array_equal(seen.u, np.full((2, 5, 1), 0.5))


class Still(eqx.Module):
    """A policy with a constant control."""

    def __call__(self, x, t=0.0):
        return jnp.full(1, 0.5)


def test_negative_noise_is_refused():
    with pytest.raises(InputError, match=r"diffusion: must not be negative, got -1"):
        closed_loop_rollouts(pendulum(), 1.0, diffusion=-1.0)
