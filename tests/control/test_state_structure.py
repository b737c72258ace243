"""Circles and constants among the coordinates of a state, and imagined states that stay among those that can occur."""

import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.control.auto_settings import RoundSettings
from purectrl.control.black_box import BlackBoxModel, LearnedTask
from purectrl.control.integrate import euler
from purectrl.control.planner import Normalized, roll_out
from purectrl.control.policy import Actor
from purectrl.control.regression import Networks
from purectrl.control.state_structure import StateStructure
from purectrl.systems.spec import StateSpec

SPEC = StateSpec(5, 1, (-1.0,), (1.0,))


def states(n=200, noise=0.0, seed=0):
    """Cosine and sine of an angle as coordinates 3 and 1, a speed, a constant, and a coordinate that changes once."""
    generator = np.random.default_rng(seed)
    angle, speed = generator.uniform(-3, 3, n), generator.normal(size=n)
    x = np.stack([speed, np.sin(angle), np.full(n, 0.4), np.cos(angle), np.zeros(n)], axis=1)
    y = np.stack([0.1 * speed, np.cos(angle) * speed, np.zeros(n), -np.sin(angle) * speed, np.eye(n)[0]], axis=1)
    return x + noise * generator.normal(size=x.shape), y


def test_circles_and_constants_are_found():
    found = StateStructure.of(*states())
    assert np.argwhere(np.asarray(found.partner)).tolist() == [[1, 3], [3, 1]]
    assert found.changes.tolist() == [1, 1, 0, 1, 0]


def test_noisy_coordinates_and_those_of_a_resting_angle_are_no_circle():
    assert not StateStructure.of(*states(noise=0.01)).partner.any()
    x, y = states()
    x[:, 1], x[:, 3] = 0.6, 0.8
    assert not StateStructure.of(x, y).partner.any()


def test_projection_is_idempotent_and_changes_nothing_but_the_radius():
    structure = StateStructure.of(*states())
    x = jnp.asarray(np.random.default_rng(1).normal(size=(4, 5)), jnp.float32)
    once = structure.project(x)
    assert np.hypot(once[:, 1], once[:, 3]) == pytest.approx(np.ones(4), abs=1e-6)
    assert np.arctan2(once[:, 1], once[:, 3]) == pytest.approx(np.arctan2(x[:, 1], x[:, 3]), abs=1e-6)
    assert (once[:, [0, 2, 4]] == x[:, [0, 2, 4]]).all()
    assert np.asarray(structure.project(once)) == pytest.approx(np.asarray(once), abs=1e-6)
    assert (StateStructure.unknown(5).project(x) == x).all()


def test_imagined_states_stay_on_the_circles_and_constants_stay_constant():
    """Untrained networks predict anything: only the structure keeps the states where they can be."""
    generator = np.random.default_rng(2)
    networks = lambda outputs: Networks.random(generator, SPEC, outputs, 2, (16, 16))  # noqa: E731
    actor = Normalized.of(Actor.random(generator, SPEC, (8, 8)), jnp.zeros(5))
    start = jnp.asarray(generator.normal(size=(2, 3, 5)), jnp.float32)
    settings, free = RoundSettings(rollout_steps=30), jnp.full(5, jnp.inf)

    def last_states(structure):
        task = LearnedTask(networks(1), jnp.zeros(()), jnp.ones(()), start[0], jnp.int32(3), structure=structure)
        model = BlackBoxModel(networks(5), task)
        return roll_out(settings, euler, model, actor, start, jnp.zeros((30, 2, 3, 1)), 0.3, free, jnp.ones(5)).x[-1]

    found, other = last_states(StateStructure.of(*states())), last_states(StateStructure.unknown(5))
    radius = lambda x: np.hypot(x[..., 1], x[..., 3])  # noqa: E731
    assert radius(found) == pytest.approx(np.ones((2, 3)), abs=1e-5)
    assert (found[..., [2, 4]] == start[..., [2, 4]]).all()
    assert np.abs(radius(other) - 1).min() > 0.01
