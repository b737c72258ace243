"""Difference quotients: the flow of a model, the scale of their noise, and sets that keep the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from purectrl.core import Algorithm, Budget, InputError, Key
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import OnExcessLoss, Targets
from purectrl.problems.quotient_trials import multiples_by_size
from purectrl.problems.theory import finite, lqr
from purectrl.theory.problem import true_solver
from purectrl.theory.quotient import flow_excess, flow_quotient, noise_growth
from purectrl.theory.settings import FiniteSets, LinearSets

LQR = {"dimension": 1, "steps": 8, "drift": "quotient", "step": 0.2}


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.1, 0.2]))
def test_the_flow_of_a_linear_field_is_the_matrix_exponential(seed, step):
    draws = np.random.default_rng(seed)
    A, x = draws.normal(size=(3, 3)), draws.normal(size=3)
    exact = (expm(step * A) @ x - x) / step
    assert np.allclose(flow_quotient(lambda x: A @ x, x, step), exact, atol=1e-3 * np.linalg.norm(exact) + 1e-4)


def test_the_flow_has_order_four_and_the_drift_order_one():
    """x' = x², Φ_s(x) = x/(1 − sx)."""
    x, field = np.float64(1.0), lambda x: x**2
    exact = lambda step: (x / (1 - step * x) - x) / step  # noqa: E731
    flow = [abs(flow_quotient(field, x, step, substeps=1) - exact(step)) for step in (0.2, 0.1)]
    drift = [abs(field(x) - exact(step)) for step in (0.2, 0.1)]
    assert np.log2(flow[0] / flow[1]) == pytest.approx(4.0, abs=0.6)  # of Φ five, and one is lost in dividing by Δ
    assert np.log2(drift[0] / drift[1]) == pytest.approx(1.0, abs=0.3)
    assert flow_excess(field, x, 0.1) == pytest.approx(exact(0.1) - 1.0, abs=1e-4)


@given(st.floats(-3.0, 3.0), st.floats(0.01, 0.5))
def test_the_noise_of_a_linear_field_has_the_stated_scale_or_less(rate, step):
    """x' = rate · x: the variance of x(t+Δ) is g² ∫ e^{2 rate s} ds, which the scale attains where the field expands."""
    s, weights = np.polynomial.legendre.leggauss(20)
    variance = step / 2 * (weights * np.exp(2 * rate * step * (s + 1) / 2)).sum()
    bound = step * noise_growth(rate, step) ** 2
    assert variance <= bound * (1 + 1e-9)
    if rate > 1e-3:
        assert variance == pytest.approx(bound, rel=1e-6)


def test_a_step_of_zero_is_refused():
    with pytest.raises(InputError, match="step: Δ must be positive"):
        noise_growth(1.0, 0.0)


def measured(learner, problem, state, episodes=16_384):
    """Episodes under the plan of `state`, each measured once."""
    plan = learner.policy(state)
    times = np.random.default_rng(0).uniform(0.0, problem.horizon - problem.measuring.step, size=(episodes, 1))
    return problem.rollout(Key(1), plan, times)


@pytest.mark.parametrize(("way", "kept"), [("flow", True), ("drift", False)])
def test_the_truth_of_a_list_is_the_best_member_only_if_flows_are_compared(way, kept):
    """With little noise a few thousand measurements show the bias of the comparison with the drift at t."""
    problem = finite(
        grid="dyadic", scales=4, a=0.2, c=0.3, goal=0.5, drift="quotient", step=0.5, steps=8, diffusion=0.02
    )
    learner = FiniteSets(radius="anytime", paths=2, quotient=way).build(problem, Budget(measurements=4096), Uniform(1))
    state = learner.init(Key(0))
    block = measured(learner, problem, state, 4096)
    state = learner.observe(state, block)
    truth = problem.truth.drift.index
    assert (state.drift_loss[truth] - state.drift_loss.min() <= learner.beta_drift) == kept


def test_corrected_rows_of_a_linear_class_have_the_drift_as_their_mean():
    """Where the best fit is the truth, y minus the correction is f*(z) plus noise."""
    problem = lqr(**LQR, diffusion=0.02)
    learner = LinearSets(radius="anytime").build(problem, Budget(measurements=4096), Uniform(1))
    state = learner.init(Key(0))
    theta = problem.truth.drift.parameter.astype(np.float64)
    gram = 1e6 * np.eye(2)
    known = state.drift_fit._replace(gram=gram, cross=gram @ theta)
    policy = {"gain": np.full((1, 1), -0.5, np.float32), "offset": np.full(1, 0.5, np.float32)}
    state = state._replace(drift_set=known, variables=state.variables._replace(policy=policy))
    block = measured(learner, problem, state)
    rows = learner.rows(state, block)[0]
    drift = np.asarray(jax.vmap(problem.system.drift)(rows.x, rows.u))
    error = problem.noise_std[0] / np.sqrt(len(drift))
    raw = block.y[:, 0] - drift
    assert abs((rows.y - drift).mean()) < 4 * error
    assert abs(raw.mean()) > 8 * error


def test_looking_ahead_with_quotients_decides_as_one_episode_at_a_time():
    learner = LinearSets(radius="anytime").build(lqr(**LQR), Budget(measurements=256), Uniform(1))
    problem, state = lqr(**LQR), learner.init(Key(0))
    block = measured(learner, problem, state, 40)
    state = learner.observe(state, block)
    state = learner.update(state, Empty(block), Targets.BOTH, Key(0)).state
    block = measured(learner, problem, state, 12)
    ahead = learner.excess_loss_per_episode(state, block)
    for n in range(1, 13):
        later = learner.observe(state, block.first(n))
        assert learner.excess_loss(later, Empty(block), Key(0))[0] == pytest.approx(ahead[n - 1], rel=1e-4)


class Empty:
    """A data set of one block."""

    def __init__(self, block):
        self.all = block


def test_in_trials_the_truth_stays_with_flows_and_leaves_with_drifts():
    """With Δ = 0.4 a few thousand measurements suffice."""
    needed = {way: multiples_by_size("linear", way, 1, [256, 16_384], 0.1, 0.4)[0] for way in ("drift", "flow")}
    assert needed["flow"][1] < 1
    assert needed["drift"][0] < 1 < needed["drift"][1]


def test_a_finer_truth_has_another_solver_of_second_order():
    """x' = 1 − 2x from 0 without noise: x(1) = (1 − e^{−2})/2."""
    still, policy = (lambda x, u: jnp.float32(0.0)), lambda x, t: 1 - 2 * x
    errors = []
    for substeps in (1, 2, 4):
        times = jnp.linspace(0.0, 1.0, 5 * substeps + 1)
        end = true_solver(substeps)(jax.random.key(0), lambda x, u: u, still, policy, jnp.zeros(1), times)[-1, 0]
        errors.append(abs(float(end) - (1 - np.exp(-2)) / 2))
    assert errors[1] < 0.2 * errors[0]
    assert np.log2(errors[1] / errors[2]) == pytest.approx(2.0, abs=0.5)


def test_quotients_have_a_finer_truth_by_default_and_drawn_measurements_have_not():
    assert finite().substeps == 1
    assert finite(drift="quotient").substeps == 4
    assert finite(drift="quotient", substeps=1).substeps == 1
    with pytest.raises(InputError, match="substeps: must lie between"):
        finite(substeps=0)


def test_the_noise_of_quotients_is_larger_where_drifts_of_the_list_expand():
    drawn, quotient = finite().noise_std[0], finite(drift="quotient").noise_std[0]
    assert quotient == pytest.approx(drawn * noise_growth(1.0 + 0.5 * 4, 0.1))


@pytest.mark.parametrize("sets", [FiniteSets(radius="anytime", paths=4), LinearSets(radius="anytime", iterations=5)])
def test_algorithm_2_covers_the_truth_on_quotients(sets):
    problem = lqr(**LQR)
    loop = Algorithm(Uniform(1), OnExcessLoss(), sets).build(problem, Budget(300))
    *_, (state, _) = loop.run(loop.init(Key(0)))
    assert state.ledger.measurements == 300
    assert loop.learner.covers(state.learner, state.data, problem.truth)
