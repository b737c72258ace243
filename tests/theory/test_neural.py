"""Neural classes: descent that reaches least squares, sets that are kept, planners that stay in them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import InputError, Key, System
from purectrl.theory.classes import FiniteClass, RegressionData, TrueFunction
from purectrl.theory.gradient_planner import GradientPlanner
from purectrl.theory.linear import LinearClass, Statistics
from purectrl.theory.neural import NeuralClass
from purectrl.theory.policy_classes import GaussianInitials, MlpPolicies


class Affine(eqx.Module):
    """A module whose least squares have a closed form."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x, u):
        return self.weight @ jnp.concatenate([x, u]) + self.bias


AFFINE = NeuralClass(
    lambda key: Affine(jnp.zeros((2, 3)), jnp.zeros(2)), outputs=2, learning_rate=0.05, update_steps=1500
)


def data(seed=0, n=60):
    draws = np.random.default_rng(seed)
    x, u = np.float32(draws.normal(size=(n, 2))), np.float32(draws.normal(size=(n, 1)))
    return RegressionData(x, u, np.float32(x @ [[1.0, 2.0], [0.0, -1.0]] + u + 0.5 + 0.3 * draws.normal(size=(n, 2))))


def least(rows):
    design = np.concatenate([rows.x, rows.u, np.ones((len(rows.x), 1))], axis=1)
    return float(np.linalg.lstsq(design, rows.y, rcond=None)[1].sum())


def test_descent_reaches_least_squares_and_continues_when_data_grow():
    rows = data()
    fit = AFFINE.init(Key(0), 2, 1)
    part = RegressionData(*(array[:30] for array in rows))
    fit = AFFINE.refit(fit, part, thorough=True)
    assert fit.minimum == pytest.approx(least(part), rel=1e-3)
    assert fit.rows == 30
    for _ in range(60):
        fit = AFFINE.refit(fit, rows)
    assert fit.minimum == pytest.approx(least(rows), rel=1e-2)
    assert fit.minimum >= least(rows) * (1 - 1e-5)  # it is a loss that some member has
    assert AFFINE.excess_loss(fit, fit.best, rows) == pytest.approx(0.0, abs=1e-3)


def test_the_excess_loss_is_that_of_the_sum_of_squares():
    rows = data()
    fit = AFFINE.refit(AFFINE.init(Key(0), 2, 1), rows, thorough=True)
    flat = AFFINE.init(Key(0), 2, 1).best
    assert AFFINE.excess_loss(fit, flat, rows) == pytest.approx(float((rows.y**2).sum()) - least(rows), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_a_projection_is_in_the_set_and_as_far_out_as_its_segment_goes(seed):
    rows = data(seed)
    fit = AFFINE.refit(AFFINE.init(Key(0), 2, 1), rows, thorough=True)
    confidence_set = AFFINE.confidence_set(fit, rows, beta=3.0)
    draws = np.random.default_rng(seed)
    far = jax.tree.map(lambda leaf: leaf + np.float32(draws.normal(size=leaf.shape)), fit.best)
    assert float(AFFINE.violation(confidence_set, far)) > 0
    projected = AFFINE.project(confidence_set, far)
    assert -1e-3 < float(AFFINE.violation(confidence_set, projected)) <= 1e-5
    near = jax.tree.map(lambda leaf: leaf + np.float32(1e-3), fit.best)
    kept = AFFINE.project(confidence_set, near)
    assert all(np.allclose(a, b) for a, b in zip(jax.tree.leaves(near), jax.tree.leaves(kept), strict=True))


def test_a_set_is_that_of_the_rows_it_was_made_from():
    rows = data()
    part = RegressionData(*(array[:30] for array in rows))
    fit = AFFINE.refit(AFFINE.init(Key(0), 2, 1), part, thorough=True)
    one, other = AFFINE.confidence_set(fit, rows, 1.0), AFFINE.confidence_set(fit, part, 1.0)
    assert np.array_equal(one.data.y, other.data.y)
    truth = lambda x, u: x @ jnp.array([[1.0, 2.0], [0.0, -1.0]]) + u + 0.5  # noqa: E731
    assert AFFINE.truth_excess(fit, rows, TrueFunction(truth)) <= 10.0
    other = TrueFunction(lambda x, u: truth(x, u) + 3.0)
    assert AFFINE.truth_excess(fit, rows, other) > 10.0
    assert AFFINE.truth_excess(AFFINE.init(Key(0), 2, 1), rows, other) == 0.0  # F_1 = F


def push(x):
    return jnp.zeros(1)


def test_the_multiplier_stops_the_ascent_at_the_edge_of_the_set():
    """dx = s dt from 0 with reward θx: R = θ s T²/2. With s in {Σ(s − y)² ≤ min + β} and |θ| ≤ 1 the best s is known."""

    class Slope(eqx.Module):
        s: jax.Array

        def __call__(self, x, u):
            return self.s[None]

    drifts = NeuralClass(lambda key: Slope(jnp.zeros(())), outputs=1, learning_rate=0.05, update_steps=800)
    rewards = LinearClass(lambda x, u: x, bound=1.0)
    system = System("line", 1, 1, 1.0, lambda x, u: x, lambda x, u: jnp.float32(0.01), lambda x, u: x[0], (-9, 9))
    y = np.float32(2.0 + 0.5 * np.random.default_rng(0).normal(size=(50, 1)))
    rows = RegressionData(np.zeros((50, 1), np.float32), np.zeros((50, 1), np.float32), y)
    fit = drifts.refit(drifts.init(Key(0), 1, 1), rows, thorough=True)
    beta = 8.0
    edge = float(y.mean()) + np.sqrt(beta / 50)
    policies, initials = FiniteClass.of([push]), GaussianInitials(1, limit=0.0, std=0.0)
    planner = GradientPlanner(
        system,
        policies,
        initials,
        drifts,
        rewards,
        steps=20,
        paths=8,
        num_restarts=4,
        iterations=400,
        learning_rate=0.02,
    )
    sets = (
        drifts.confidence_set(fit, rows, beta),
        rewards.confidence_set(Statistics(np.zeros((1, 1)), np.zeros((1, 1)), 0.0), rows, 1.0),
    )
    found, _ = planner(Key(3), *sets, planner.sample(Key(4), *sets))
    assert float(found.drift.s) <= edge * (1 + 1e-4)
    assert float(found.drift.s) == pytest.approx(edge, rel=0.03)
    assert found.value == pytest.approx(edge * 0.5 * 19 / 20, rel=0.05)  # the left sum of ∫ t dt with 20 steps


def test_a_finite_list_of_policies_is_searched_to_its_end():
    """Each policy alone, then all together: the best of them, with its value."""
    line = System("line", 1, 1, 1.0, lambda x, u: x, lambda x, u: jnp.float32(0.05), lambda x, u: x[0], (-9, 9))
    drifts = LinearClass(lambda x, u: u, bound=1.0, outputs=1)
    rewards = LinearClass(lambda x, u: jnp.stack([jnp.exp(-((x[0] - 0.4) ** 2)), u[0] ** 2]), bound=1.0)
    pushes = [lambda x, c=c: jnp.full(1, c) for c in (-0.3, 0.9)]
    starts = [lambda key, c=c: jnp.full(1, c) for c in (0.0, 0.3)]
    nothing = RegressionData(*(np.zeros((0, 1), np.float32),) * 3)
    values = {}
    for names in [(pi, q) for pi in range(2) for q in range(2)] + ["all"]:
        chosen = (pushes, starts) if names == "all" else ([pushes[names[0]]], [starts[names[1]]])
        classes = [FiniteClass.of(functions) for functions in chosen]
        planner = GradientPlanner(line, *classes, drifts, rewards, steps=8, paths=64, num_restarts=4, iterations=100)
        sets = [c.confidence_set(c.init(Key(0), 1, 1), nothing, 1.0) for c in (drifts, rewards)]
        values[names], where = planner(Key(1), *sets, planner.sample(Key(2), *sets))
    best = max((name for name in values if name != "all"), key=lambda name: values[name].value)
    assert values["all"].value == pytest.approx(values[best].value, abs=0.02)
    assert (int(where.policy), int(where.initial)) == best


def test_mlp_policies_stay_within_their_limit():
    policies = MlpPolicies(2, 3, limit=1.5, features=lambda x: jnp.concatenate([jnp.cos(x), jnp.sin(x)]))
    parameters = jax.tree.map(lambda leaf: 100 * leaf, policies.init(Key(0)))
    u = jax.vmap(policies.apply, (None, 0))(parameters, np.float32(np.random.default_rng(0).normal(size=(50, 2))))
    assert u.shape == (50, 3)
    assert np.abs(u).max() <= 1.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: NeuralClass(lambda key: Affine(jnp.zeros((2, 3)), jnp.zeros(2)), learning_rate=0.0),
            "learning_rate: must be positive",
        ),
        (
            lambda: NeuralClass(lambda key: push, check_steps=0),
            "check_steps: at least one gradient step is needed, not 0",
        ),
        (
            lambda: NeuralClass(lambda key: Affine(jnp.zeros((2, 3)), jnp.zeros(2)), outputs=3).init(Key(0), 2, 1),
            r"make: the module returns shape \(2,\), expected \(3,\)",
        ),
        (lambda: AFFINE.init(Key(0), 5, 1), r"make: the module cannot be evaluated on x \[5\], u \[1\]"),
        (lambda: MlpPolicies(1, 1, limit=-1.0), "limit: controls need a positive limit"),
        (lambda: MlpPolicies(1, 1, hidden=(3, 0)), "hidden: every layer needs a unit"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_an_ascent_that_cannot_stay_finite_says_so():
    drifts = LinearClass(lambda x, u: jnp.exp(50 * x), bound=100.0, outputs=1)
    rewards = LinearClass(lambda x, u: x, bound=1.0)
    system = System("wild", 1, 1, 9.0, lambda x, u: x, lambda x, u: jnp.float32(5.0), lambda x, u: x[0], (-9, 9))
    planner = GradientPlanner(system, FiniteClass.of([push]), GaussianInitials(1, 0.0), drifts, rewards, 20, 16, 2, 5)
    nothing = RegressionData(*(np.zeros((0, 1), np.float32),) * 3)
    sets = [c.confidence_set(c.init(Key(0), 1, 1), nothing, 1.0) for c in (drifts, rewards)]
    with pytest.raises(InputError, match="every optimistic ascent leaves the finite numbers"):
        planner(Key(1), *sets, planner.sample(Key(2), *sets))
