"""Neural classes: descent that reaches least squares, sets that are kept, plans that are optimistic."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purectrl.core import InputError, Key, System
from purectrl.experiments import Spec
from purectrl.theory import Ascent, FiniteClass, GaussianInitials, LinearClass, MlpPolicies, NeuralClass, Rows
from purectrl.theory.linear import Statistics


class Affine(eqx.Module):
    """A module whose least squares have a closed form."""

    weight: jax.Array
    bias: jax.Array

    def __call__(self, x, u):
        return self.weight @ jnp.concatenate([x, u]) + self.bias


AFFINE = NeuralClass(lambda key: Affine(jnp.zeros((2, 3)), jnp.zeros(2)), outputs=2, rate=0.05, update_steps=1500)


def data(seed=0, n=60):
    draws = np.random.default_rng(seed)
    x, u = np.float32(draws.normal(size=(n, 2))), np.float32(draws.normal(size=(n, 1)))
    return Rows(x, u, np.float32(x @ [[1.0, 2.0], [0.0, -1.0]] + u + 0.5 + 0.3 * draws.normal(size=(n, 2))))


def least(rows):
    design = np.concatenate([rows.x, rows.u, np.ones((len(rows.x), 1))], axis=1)
    return float(np.linalg.lstsq(design, rows.y, rcond=None)[1].sum())


def test_descent_reaches_least_squares_and_goes_on_when_data_grow():
    rows = data()
    fit = AFFINE.start(Key(0), 2, 1)
    part = Rows(*(array[:30] for array in rows))
    fit = AFFINE.refit(fit, part, thorough=True)
    assert fit.minimum == pytest.approx(least(part), rel=1e-3)
    assert fit.count == 30
    for _ in range(60):
        fit = AFFINE.refit(fit, rows)
    assert fit.minimum == pytest.approx(least(rows), rel=1e-2)
    assert fit.minimum >= least(rows) * (1 - 1e-5)  # it is a loss that some member has
    assert AFFINE.excess(fit, fit.best, rows) == pytest.approx(0.0, abs=1e-3)


def test_the_excess_is_that_of_the_sum_of_squares():
    rows = data()
    fit = AFFINE.refit(AFFINE.start(Key(0), 2, 1), rows, thorough=True)
    flat = AFFINE.start(Key(0), 2, 1).best
    assert AFFINE.excess(fit, flat, rows) == pytest.approx(float((rows.y**2).sum()) - least(rows), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_settled_is_in_the_set_and_as_far_out_as_its_segment_goes(seed):
    rows = data(seed)
    fit = AFFINE.refit(AFFINE.start(Key(0), 2, 1), rows, thorough=True)
    region = AFFINE.region(fit, rows, beta=3.0)
    draws = np.random.default_rng(seed)
    far = jax.tree.map(lambda leaf: leaf + np.float32(draws.normal(size=leaf.shape)), fit.best)
    assert float(AFFINE.violation(region, far)) > 0
    settled = AFFINE.settle(region, far)
    assert -1e-3 < float(AFFINE.violation(region, settled)) <= 1e-5
    near = jax.tree.map(lambda leaf: leaf + np.float32(1e-3), fit.best)
    kept = AFFINE.settle(region, near)
    assert all(np.allclose(a, b) for a, b in zip(jax.tree.leaves(near), jax.tree.leaves(kept), strict=True))


def test_a_set_is_that_of_the_rows_it_was_made_from():
    rows = data()
    part = Rows(*(array[:30] for array in rows))
    fit = AFFINE.refit(AFFINE.start(Key(0), 2, 1), part, thorough=True)
    one, other = AFFINE.region(fit, rows, 1.0), AFFINE.region(fit, part, 1.0)
    assert np.array_equal(one.data.y, other.data.y)
    truth = lambda x, u: x @ jnp.array([[1.0, 2.0], [0.0, -1.0]]) + u + 0.5  # noqa: E731
    assert AFFINE.contains(fit, rows, 10.0, truth)
    assert not AFFINE.contains(fit, rows, 10.0, lambda x, u: truth(x, u) + 3.0)
    assert AFFINE.contains(AFFINE.start(Key(0), 2, 1), rows, 1.0, lambda x, u: truth(x, u) + 3.0)  # F_1 = F


def push(x):
    return jnp.zeros(1)


def test_the_multiplier_stops_the_ascent_at_the_edge_of_the_set():
    """dx = s dt from 0 with reward θx: R = θ s T²/2. With s in {Σ(s − y)² ≤ min + β} and |θ| ≤ 1 the best s is known."""

    class Slope(eqx.Module):
        s: jax.Array

        def __call__(self, x, u):
            return self.s[None]

    drifts = NeuralClass(lambda key: Slope(jnp.zeros(())), outputs=1, rate=0.05, update_steps=800)
    rewards = LinearClass(lambda x, u: x, bound=1.0)
    system = System("line", 1, 1, 1.0, lambda x, u: x, lambda x, u: jnp.float32(0.01), lambda x, u: x[0], (-9, 9))
    y = np.float32(2.0 + 0.5 * np.random.default_rng(0).normal(size=(50, 1)))
    rows = Rows(np.zeros((50, 1), np.float32), np.zeros((50, 1), np.float32), y)
    fit = drifts.refit(drifts.start(Key(0), 1, 1), rows, thorough=True)
    beta = 8.0
    edge = float(y.mean()) + np.sqrt(beta / 50)
    policies, initials = FiniteClass.of([push]), GaussianInitials(1, limit=0.0, std=0.0)
    ascent = Ascent(system, policies, initials, drifts, rewards, steps=20, paths=8, starts=4, iterations=400, rate=0.02)
    regions = (
        drifts.region(fit, rows, beta),
        rewards.region(Statistics(np.zeros((1, 1)), np.zeros((1, 1)), 0.0), rows, 1.0),
    )
    found, _ = ascent(Key(3), *regions, ascent.random(Key(4), *regions))
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
    nothing = Rows(*(np.zeros((0, 1), np.float32),) * 3)
    values = {}
    for names in [(pi, q) for pi in range(2) for q in range(2)] + ["all"]:
        chosen = (pushes, starts) if names == "all" else ([pushes[names[0]]], [starts[names[1]]])
        classes = [FiniteClass.of(functions) for functions in chosen]
        ascent = Ascent(line, *classes, drifts, rewards, steps=8, paths=64, starts=4, iterations=100)
        regions = [c.region(c.start(Key(0), 1, 1), nothing, 1.0) for c in (drifts, rewards)]
        values[names], where = ascent(Key(1), *regions, ascent.random(Key(2), *regions))
    best = max((name for name in values if name != "all"), key=lambda name: values[name].value)
    assert values["all"].value == pytest.approx(values[best].value, abs=0.02)
    assert (int(where.policy), int(where.initial)) == best


def test_mlp_policies_stay_within_their_limit():
    policies = MlpPolicies(2, 3, limit=1.5, features=lambda x: jnp.concatenate([jnp.cos(x), jnp.sin(x)]))
    parameters = jax.tree.map(lambda leaf: 100 * leaf, policies.start(Key(0)))
    u = jax.vmap(policies.apply, (None, 0))(parameters, np.float32(np.random.default_rng(0).normal(size=(50, 2))))
    assert u.shape == (50, 3)
    assert np.abs(u).max() <= 1.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NeuralClass(lambda key: Affine(jnp.zeros((2, 3)), jnp.zeros(2)), rate=0.0), "rate: must be positive"),
        (lambda: NeuralClass(lambda key: push, check_steps=0), "check_steps: at least one step is needed, not 0"),
        (
            lambda: NeuralClass(lambda key: Affine(jnp.zeros((2, 3)), jnp.zeros(2)), outputs=3).start(Key(0), 2, 1),
            r"make: the module returns shape \(2,\), expected \(3,\)",
        ),
        (lambda: AFFINE.start(Key(0), 5, 1), r"make: the module cannot be evaluated on x \[5\], u \[1\]"),
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
    ascent = Ascent(system, FiniteClass.of([push]), GaussianInitials(1, 0.0), drifts, rewards, 20, 16, 2, 5)
    nothing = Rows(*(np.zeros((0, 1), np.float32),) * 3)
    regions = [c.region(c.start(Key(0), 1, 1), nothing, 1.0) for c in (drifts, rewards)]
    with pytest.raises(InputError, match="every start of the optimistic ascent leaves the finite numbers"):
        ascent(Key(1), *regions, ascent.random(Key(2), *regions))


def test_plans_with_networks_are_optimistic():
    """R(π_n, q_n, f_n, b_n) ≥ R(π*, q*, f*, b*) up to the Monte-Carlo error, wherever the truth is covered."""
    small = {"measurements": 48, "width": 16, "update_steps": 300, "starts": 6, "iterations": 200}
    task = Spec.of("neural", "pure-low-both", **small).build()
    steps = list(task.loop.run(task.loop.init(Key.from_seed(0))))
    records = [{"episodes": record.block.episodes, **task.probe(state, record)} for state, record in steps]
    metrics = task.metrics(steps[-1][0], records)
    assert metrics["covered"]
    assert steps[-1][0].ledger.updates >= 2
    errors = [record.info["value_error"] for _, record in steps if record.updated]
    for state, _ in steps:
        assert state.learner.value >= metrics["optimum"] - 3 * (max(errors) + metrics["truth_error"])
