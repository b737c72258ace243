"""Planning that states its errors: the search error, the shortfall of an earlier plan, audits."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core import Algorithm, Budget, InputError, Key
from purectrl.core.samplers import Uniform
from purectrl.core.schedules import Every
from purectrl.core.system import System
from purectrl.problems.theory import lqr
from purectrl.theory.classes import FiniteClass, RegressionData
from purectrl.theory.gradient_planner import GradientPlanner
from purectrl.theory.linear import LinearClass, Statistics
from purectrl.theory.planning import OptimisticPlanner
from purectrl.theory.policy_classes import GaussianInitials
from purectrl.theory.settings import LinearSets

NOTHING = RegressionData(*(np.zeros((0, 1), np.float32),) * 3)


@given(st.integers(0, 10_000))
def test_enumeration_never_rises_on_a_shrinking_set(seed):
    draws = np.random.default_rng(seed)
    planner = OptimisticPlanner.of(draws.random((3, 2, 6, 5)))
    large = draws.random(6) < 0.7, draws.random(5) < 0.7
    large[0][0] = large[1][0] = True
    small = [mask & (draws.random(len(mask)) < 0.7) for mask in large]
    small[0][0] = small[1][0] = True
    assert planner(*small)[4] <= planner(*large)[4]


def line(iterations, num_restarts=6):
    """dx = θ dt with |θ| ≤ 1 and reward w·x with |w| ≤ 1: the optimistic value is ∫ t dt as a left sum."""
    system = System("line", 1, 1, 1.0, lambda x, u: x, lambda x, u: jnp.float32(0.01), lambda x, u: x[0], (-9, 9))
    drifts, rewards = LinearClass(lambda x, u: jnp.ones(1), 1.0, outputs=1), LinearClass(lambda x, u: x, 1.0)
    push, initials = FiniteClass.of([lambda x: jnp.zeros(1)]), GaussianInitials(1, limit=0.0, std=0.0)
    budget = {"steps": 10, "paths": 8, "num_restarts": num_restarts, "iterations": iterations, "learning_rate": 0.1}
    planner = GradientPlanner(system, push, initials, drifts, rewards, **budget)
    sets = [members.confidence_set(members.init(Key(0), 1, 1), NOTHING, 1.0) for members in (drifts, rewards)]
    return planner, sets


BEST = 0.5 * 9 / 10


def test_the_search_error_is_small_where_the_search_converges_and_not_where_it_is_cut():
    """Two starting points reach the best sign of θ and w: the best two of six agree once the ascent has converged."""
    errors = {}
    for iterations in (3, 300):
        planner, sets = line(iterations)
        found, _ = planner(Key(1), *sets, planner.sample(Key(2), *sets))
        errors[iterations] = found.search_error, BEST - found.value
    assert errors[300][0] < 0.01
    assert errors[300][1] < 0.02
    assert errors[3][0] > 5 * errors[300][0]
    assert errors[3][1] > 0.05
    assert all(estimate >= 0 for estimate, _ in errors.values())


def test_an_audit_finds_what_a_short_search_missed():
    planner, sets = line(3)
    found, where = planner(Key(1), *sets, planner.sample(Key(2), *sets))
    larger, better = planner.larger(8)(Key(3), *sets, where)
    gain, error = planner.gain(Key(4), *sets, better, where)
    assert gain > 3 * error
    assert gain == pytest.approx(larger.value - found.value, abs=0.02)
    assert planner.gain(Key(4), *sets, where, where) == (0.0, 0.0)
    assert planner.larger(8).num_restarts == 48


@given(st.integers(0, 10_000), st.floats(0.1, 10.0), st.floats(0.3, 3.0))
def test_membership_is_the_definition_of_the_set(seed, beta, size):
    draws = np.random.default_rng(seed)
    phi, y = draws.normal(size=(20, 3)), draws.normal(size=(20, 2))
    seen = Statistics(phi.T @ phi, phi.T @ y, float((y**2).sum()))
    members = LinearClass(lambda x, u: x, bound=1.5, outputs=2)
    best, least = members.fit(seen)
    theta = best + size * 0.2 * draws.normal(size=best.shape)
    inside = ((phi @ theta - y) ** 2).sum() <= least + beta and np.linalg.norm(theta) <= 1.5
    assert members.contains(seen, theta, NOTHING, beta) == inside
    decoded = members.decode(members.confidence_set(seen, NOTHING, beta), jnp.asarray(theta, jnp.float32))
    assert members.contains(seen, np.asarray(decoded, np.float64), NOTHING, beta * 1.001)


@pytest.fixture(scope="module")
def audited():
    """A run with a search of two steps, every plan of which is audited."""
    sets = LinearSets(radius="anytime", num_restarts=2, iterations=2, paths=16, audited=1.0)
    loop = Algorithm(Uniform(m=30), Every(), sets).build(lqr(dimension=1, steps=8), Budget(120))
    return loop, list(loop.run(loop.init(Key(5))))


def test_every_update_states_its_errors(audited):
    infos = [record.info for _, record in audited[1] if record.updated]
    assert len(infos) == 4
    for info in infos:
        assert info["planning_error"] == pytest.approx(info["search_error"] + info["value_error"])
        assert min(info[name] for name in ("search_error", "value_error", "shortfall", "audit_error")) >= 0
    assert max(info["audit_gain"] / max(info["audit_error"], 1e-6) for info in infos) > 3


def test_a_value_that_could_have_been_had_before_is_a_shortfall(audited):
    loop, steps = audited
    state = steps[-1][0]
    learner, now = loop.learner, state.learner
    rows = learner.rows(now, state.data.all)
    low = now._replace(value=now.value - 1.0)
    margin = 2 * np.hypot(now.value_error, now.value_error)
    assert learner._shortfall(low, now, *rows) == pytest.approx(1.0 - margin)
    assert learner._shortfall(now, now, *rows) == 0.0
    far = now._replace(drift=now.drift + 10.0)
    assert learner._shortfall(low, far, *rows) == 0.0


def test_without_audits_none_is_recorded():
    sets = LinearSets(radius="anytime", num_restarts=2, iterations=2, paths=16)
    loop = Algorithm(Uniform(m=30), Every(), sets).build(lqr(dimension=1, steps=8), Budget(60))
    infos = [record.info for _, record in loop.run(loop.init(Key(5))) if record.updated]
    assert infos
    assert all("audit_gain" not in info for info in infos)
    with pytest.raises(InputError, match="audited: the share of audited updates must lie between 0 and 1, not 2"):
        LinearSets(audited=2.0)
