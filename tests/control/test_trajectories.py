"""Fits to trajectories: what the ensemble knows by construction, what it learns, and that scales do not change it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_cart import DAMPING, FORCE, SPRING, cart, measured, rows

from purectrl.control.ensembles import Ensemble
from purectrl.control.fit import fit_ensemble
from purectrl.control.integrate import midpoint, midpoint_in
from purectrl.control.trajectories import Pairs, TrajectoryLoss, scales, sequences, trajectory_loss, window_starts
from purectrl.core import InputError, Measurements
from purectrl.systems.acrobot import acrobot
from purectrl.systems.pendulum import pendulum

SMALL = (16, 16, 16)


def ensemble(system, members=3, seed=0):
    return Ensemble.random(np.random.default_rng(seed), system, members, SMALL)


def test_positions_move_with_the_velocities_and_angles_are_periodic():
    arm = acrobot()
    model = ensemble(arm)
    x, u = rows(arm, 3, 5)
    found = model.drift(x, u)
    assert np.array_equal(found[..., :2], x[..., 2:])
    turned = x + 2 * np.pi * np.array([3, -2, 0, 0], np.float32)
    assert np.allclose(model.drift(turned, u), found, atol=1e-4)


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_rescaling_keeps_the_function(seed):
    arm, generator = acrobot(), np.random.default_rng(seed)
    x, u = rows(arm, 3, 5, seed)
    model = ensemble(arm, seed=seed)
    other = model.rescale(
        jnp.asarray(generator.uniform(0.3, 30, arm.feature_dim), jnp.float32),
        jnp.asarray(generator.uniform(0.3, 30, arm.nq), jnp.float32),
    )
    assert not np.allclose(other.layers[0].weight, model.layers[0].weight)
    assert np.allclose(other.drift(x, u), model.drift(x, u), rtol=1e-3, atol=1e-4)


def test_members_are_independent_and_can_be_selected():
    arm = acrobot()
    model = ensemble(arm)
    x, u = (np.broadcast_to(array[:1], array.shape) for array in rows(arm, 3, 5))
    whole = model.drift(x, u)
    assert not np.allclose(whole[0], whole[1])
    assert np.allclose(model.select_members(jnp.array([2, 0])).drift(x[:2], u[:2]), whole[jnp.array([2, 0])], atol=1e-6)


def test_sub_sequences_are_all_and_only_those_without_a_long_gap():
    generator = np.random.default_rng(3)
    t = np.cumsum(generator.choice([0.1, 0.5], (4, 30), p=[0.8, 0.2]), axis=1)
    seen = Measurements(t, np.arange(240.0).reshape(4, 30, 2), np.zeros((4, 30, 1)))
    for length in (2, 3, 5):
        found = sequences(seen, length, Pairs(0.15), capacity=150)
        expected = [
            30 * episode + i
            for episode in range(4)
            for i in range(30 - length + 1)
            if (np.diff(t[episode, i : i + length]) < 0.15).all()
        ]
        assert found.starts[: found.size].tolist() == expected
        assert len(found.starts) == len(found.x) == 150


def test_measurements_without_neighbours_are_refused():
    seen = Measurements(np.arange(5.0)[None], np.zeros((1, 5, 2)), np.zeros((1, 5, 1)))
    with pytest.raises(InputError, match=r"max_gap: no 2 consecutive measurements lie within 0\.15 s"):
        sequences(seen, 2, Pairs(0.15), capacity=5)


def test_scales_are_those_of_the_data_and_outliers_do_not_matter():
    t = np.tile(np.arange(100) * 0.1, (2, 1))
    x = np.zeros((2, 100, 2))
    x[..., 1] = 3.0 * t  # an acceleration of 3
    x[0, 50, 0] = 1e6
    features, accelerations = scales(cart(), Measurements(t, x, np.zeros((2, 100, 1))), Pairs(0.15))
    assert accelerations == pytest.approx([3.0], rel=1e-3)
    assert features[0] == pytest.approx(0.3)
    assert features[1] == pytest.approx(np.sqrt((x[..., 1] ** 2).mean()), rel=0.02)


@pytest.fixture(scope="module")
def fitted():
    """Gradient matching on irregular, exact measurements of the linear cart."""
    seen = measured(cart(), episodes=12, m=25, generator=np.random.default_rng(0))
    model = ensemble(cart(), members=2).rescale(*map(jnp.asarray, scales(cart(), seen, Pairs(0.15))))
    data = sequences(seen, 2, Pairs(0.15), capacity=400)
    objective = TrajectoryLoss(midpoint, sequence_length=2, batch_size=64, step=0.1)
    return model, data, fit_ensemble(objective, model, jax.random.key(0), data, 1500, 5e-3, 1e-4)


def test_gradient_matching_recovers_a_linear_acceleration(fitted):
    _, _, (model, loss) = fitted
    x, u = np.random.default_rng(5).uniform(-0.8, 0.8, (2, 2, 100, 2)).astype(np.float32)
    u = u[..., :1]
    truth = SPRING * x[..., :1] + DAMPING * x[..., 1:] + FORCE * u
    assert np.abs(model.drift(x, u)[..., 1:] - truth).max() < 0.1
    one = model.select_members(jnp.array([0]))
    slopes = jax.jacobian(lambda row: one.drift(row[None, None, :2], row[None, None, 2:])[0, 0, 1])(jnp.zeros(3))
    assert np.allclose(slopes, [SPRING, DAMPING, FORCE], atol=0.1)
    assert loss < 2e-3


def test_padding_changes_nothing(fitted):
    model, data, _ = fitted
    longer = data._replace(
        **{
            name: np.pad(getattr(data, name), [(0, 99)] + [(0, 0)] * (getattr(data, name).ndim - 1), constant_values=7)
            for name in ("x", "u", "gaps", "starts")
        }
    )
    objective = TrajectoryLoss(midpoint, 2, 8, 0.1)
    run = lambda data: fit_ensemble(objective, model, jax.random.key(1), data, 5, 1e-3, 1e-3)  # noqa: E731
    one, other = run(data), run(longer)
    assert all(np.array_equal(*pair) for pair in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_the_truth_has_no_loss_on_exact_trajectories():
    """All that is left is the error of the integrator, which fine steps take away."""

    class Truth:
        members, acceleration_scale = 1, jnp.ones(1)
        drift = staticmethod(cart().drift)

    seen = measured(cart(), episodes=6, m=10, generator=np.random.default_rng(1))
    arrays = [np.moveaxis(array, 1, 0)[:, None] for array in (seen.x, seen.u)]
    gaps = np.moveaxis(np.diff(seen.t, axis=1, append=0.0), 1, 0)[:, None, :, None].astype(np.float32)
    loss = lambda integrate: trajectory_loss(TrajectoryLoss(integrate, 10, 6, 0.1), Truth, *arrays, gaps)  # noqa: E731
    assert loss(midpoint_in(20)) < 1e-5 < loss(midpoint) < 0.02


def test_a_time_that_was_measured_twice_does_not_change_the_scales():
    seen = measured(cart(), 3, 20, np.random.default_rng(0))
    twice = [np.repeat(array, 1 + (np.arange(20) == 7), axis=1) for array in (seen.t, seen.x, seen.u)]
    once, again = scales(cart(), seen, Pairs(0.15)), scales(cart(), Measurements(*twice), Pairs(0.15))
    assert np.isfinite(again[1]).all()
    assert np.array_equal(once[1], again[1])


def spinning(velocities, gap=0.05):
    """One episode [1, m] of an angle with these velocities, measured every `gap` seconds."""
    v = np.asarray(velocities, float)
    x = np.stack([np.cumsum(v) * gap, v], axis=-1)[None]
    return Measurements(np.arange(len(v))[None] * gap, x, np.zeros((1, len(v), 1)))


def test_pairs_between_which_an_angle_turns_too_far_are_left_out():
    seen = spinning([1.0] * 20 + [30.0] * 5)
    pairs = Pairs(0.15, (True,), max_turn=0.5)
    data = sequences(seen, 2, pairs, capacity=30)
    assert sorted(np.asarray(data.starts)[: int(data.size)].tolist()) == list(range(19))
    # the features of fast measurements do not count, either
    features, _ = scales(pendulum(), seen, pairs)
    assert features[2] == pytest.approx(1.0, rel=0.2)
    assert len(window_starts(seen, 2, Pairs(0.15))) == 24  # without a limit


def test_a_position_that_is_no_angle_may_move_fast():
    seen = spinning([1.0] * 20 + [30.0] * 5)
    assert np.isfinite(Pairs(0.15, (False,), max_turn=0.5).gaps(seen)).sum() == 24


@given(st.lists(st.floats(0.0, 100.0), min_size=3, max_size=30))
@settings(deadline=None, max_examples=50)
def test_at_least_half_of_the_pairs_are_kept(velocities):
    seen = spinning(velocities)
    kept = np.isfinite(Pairs(0.15, (True,), max_turn=0.5).gaps(seen)).sum()
    assert 2 * kept >= len(velocities) - 1
