"""Controls that are held: paths in closed form, one decision per period, the law of the noise between decisions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import Key
from purectrl.core.plan import Plan
from purectrl.systems.closed_loop import closed_loop_rollouts
from purectrl.systems.device import Device, device_rollouts
from purectrl.systems.held_policy import HeldControl, HeldPolicy

PERIOD = 0.25


class Feedback(eqx.Module):
    """u = −x at each decision; the memory counts decisions."""

    gain: Any = 1.0
    period: float = eqx.field(static=True, default=PERIOD)

    def begin(self, key):
        return jnp.zeros(())

    def decide(self, memory, x, t):
        return jnp.asarray(-self.gain * x), memory + 1

    def __call__(self, x, t=0.0):
        return self.decide(self.begin(None), x, t)[0]


class Counting(Feedback):
    """u = the number of earlier decisions in the episode."""

    def decide(self, memory, x, t):
        return memory[None], memory + 1


class Integrator:
    """dx/dt = u from x = 1."""

    state_dim = 1

    def sample_initial_state(self, key):
        return jnp.ones(1)

    def drift(self, x, u):
        return u

    def reward(self, x, u):
        return -x[..., 0]


SYSTEM = Integrator()
TIMES = np.array([[0.0, 0.1, 0.25, 0.6, 0.75, 1.0], [0.05, 0.25, 0.26, 0.5, 0.9, 0.999]])


def decayed(t):
    """x(t) of dx/dt = −x(last decision): a polygon through (1 − p)^k."""
    k = np.floor(t / PERIOD + 1e-9)
    return (1 - PERIOD) ** k * (1 - (t - k * PERIOD))


def test_the_path_is_a_polygon_through_the_powers_of_one_minus_the_period():
    seen = closed_loop_rollouts(SYSTEM, 1.0, max_step=0.01)(Key(0), Plan(Feedback(), None), TIMES)
    assert np.allclose(seen.x[..., 0], decayed(TIMES), atol=1e-5)
    held = -((1 - PERIOD) ** np.minimum(np.floor(TIMES / PERIOD + 1e-9), 3))  # nothing is decided at the end
    assert np.allclose(seen.u[..., 0], held, atol=1e-5)
    assert np.allclose(seen.r, -seen.x[..., 0])


def test_a_measured_drift_is_the_held_control():
    rollout = closed_loop_rollouts(SYSTEM, 1.0, max_step=0.01, drift_step=0.002)
    times = np.array([[0.0, 0.1, 0.25, 0.6]])
    seen = rollout(Key(0), Plan(Feedback(), None), times)
    assert seen.y is not None
    assert np.allclose(seen.y, seen.u, atol=1e-3)


def test_the_memory_passes_from_each_decision_to_the_next():
    seen = closed_loop_rollouts(SYSTEM, 1.0, max_step=0.01)(Key(0), Plan(Counting(), None), TIMES)
    assert seen.u[0, :, 0].tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 3.0]
    assert seen.x[0, -1, 0] == pytest.approx(1 + PERIOD * (0 + 1 + 2 + 3), abs=1e-5)


def test_noise_between_decisions_has_the_covariance_of_brownian_motion():
    """Without control x − 1 is Brownian motion: Cov(x(s), x(t)) = g² min(s, t), at nodes and between them."""
    times = np.tile([0.103, 0.25, 0.456, 0.777], (20_000, 1))
    rollout = closed_loop_rollouts(SYSTEM, 1.0, 0.5, max_step=0.05)
    x = rollout(Key(1), Plan(Feedback(0.0), None), times).x[..., 0]
    expected = 0.25 * np.minimum.outer(times[0], times[0])
    assert np.allclose(np.cov(x.T), expected, atol=4 * 0.25 / np.sqrt(20_000))


def test_behind_a_device_the_policy_decides_once_per_period():
    device = Device(PERIOD, observed=(0,), rest=(0.0,))
    rollout = device_rollouts(SYSTEM, device, 1.0, max_step=0.01)
    seen = rollout(Key(0), Plan(Counting(), None), np.arange(5)[None] * PERIOD)
    assert seen.u[0, :, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_outside_of_a_simulation_a_control_is_held_until_the_next_period():
    control = HeldControl(Counting(), jax.random.key(0))
    assert [control([3.0], t)[0] for t in (0.0, 0.1, 0.24, 0.25, 0.4, 0.51)] == [0, 0, 0, 1, 1, 2]
    assert control([3.0], 0.3)[0] == 0  # an earlier time begins an episode
    assert control([[1.0], [2.0]], 0.6).tolist() == [[0.0], [0.0]]  # and so does another number of states


def test_outside_of_a_simulation_decisions_are_the_same_as_inside():
    times = np.arange(4)[None] * PERIOD
    seen = closed_loop_rollouts(SYSTEM, 1.0, max_step=0.01)(Key(0), Plan(Feedback(), None), times)
    control = HeldControl(Feedback(), jax.random.key(0))
    outside = [control(x, t) for x, t in zip(seen.x[0], times[0], strict=True)]
    assert np.array_equal(np.stack(outside), seen.u[0])


def test_a_policy_without_memory_is_no_held_policy():
    assert isinstance(Feedback(), HeldPolicy)
    assert not isinstance(lambda x, t: x, HeldPolicy)
