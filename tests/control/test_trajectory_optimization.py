"""iLQR against the closed form of LQR and finite differences, searches by sampling, and what optimism promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from purectrl.control.ilqr import Task, ilqr, rollout
from purectrl.control.optimism import Discretization, planning_task
from purectrl.control.sequence_search import SearchSettings, search_sequence
from purectrl.systems.spec import StateSpec

N, WIDE = 60, (np.full(1, -1e3), np.full(1, 1e3))
A, B = np.array([[1.0, 0.1], [0.15, 0.98]]), np.array([[0.005], [0.1]])
Q, R, FINAL = np.diag([1.0, 0.1]), np.array([[0.3]]), np.diag([5.0, 2.0])


def linear(final=FINAL):
    """A linear system with quadratic costs."""
    return Task(lambda x, u, i: A @ x + B @ u, lambda x, u, i: x @ Q @ x + u @ R @ u, lambda x: x @ final @ x)


def riccati(final=FINAL):
    """The cost to go xᵀPx at step 0 and the gain of each step."""
    p, gains = final, []
    for _ in range(N):
        gains.append(-np.linalg.solve(R + B.T @ p @ B, B.T @ p @ A))
        p = Q + A.T @ p @ (A + B @ gains[-1])
    return p, np.array(gains[::-1])


def in_float64(function, *arguments):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(function)(*map(jnp.asarray, arguments)))


def test_on_a_linear_quadratic_problem_one_iteration_is_the_riccati_solution():
    start = np.array([1.0, -0.5])
    found = in_float64(lambda x, u: ilqr(linear(), x, u, *WIDE), start, np.zeros((N, 1)))
    p, gains = riccati()
    assert found.cost == pytest.approx(start @ p @ start, rel=1e-6)  # the first step is damped by 1e-6
    assert np.allclose(found.gains, gains, atol=1e-5)
    assert np.allclose(found.u[0], gains[0] @ start, atol=1e-5)
    assert found.iterations <= 3


def test_the_gain_is_that_of_the_algebraic_equation_on_a_long_horizon():
    exact = scipy.linalg.solve_discrete_are(A, B, Q, R)
    found = in_float64(lambda x, u: ilqr(linear(exact), x, u, *WIDE), np.ones(2), np.zeros((N, 1)))
    assert found.cost == pytest.approx(np.ones(2) @ exact @ np.ones(2), rel=1e-6)
    assert np.allclose(found.gains[0], found.gains[N // 2], atol=1e-5)


def test_controls_at_their_limits_satisfy_the_optimality_conditions():
    low, high = np.array([-0.9]), np.array([0.9])
    found = in_float64(
        lambda x, u: ilqr(linear(), x, u, low, high, 300, 1e-12), np.array([1.0, -0.5]), np.zeros((N, 1))
    )
    slope = in_float64(jax.grad(lambda u: rollout(linear(), jnp.array([1.0, -0.5]), u)[1]), found.u)[:, 0]
    u = found.u[:, 0]
    inside = (u > -0.9 + 1e-9) & (u < 0.9 - 1e-9)
    assert 0 < inside.sum() < N
    assert np.abs(slope[inside]).max() < 1e-3
    assert (slope[u >= 0.9 - 1e-9] <= 1e-6).all()
    assert (slope[u <= -0.9 + 1e-9] >= -1e-6).all()


PENDULUM = StateSpec(
    2, 1, (-10.0,), (10.0,), angles=(0,),
    reward=lambda x, u: -(x**2).sum() - (u**2).sum(), terminal_reward=lambda x: -(x**2).sum(),
)  # fmt: skip


class Certain:
    """A model that is the true pendulum, with the same uncertainty everywhere."""

    def __init__(self, std=0.0, gravity=9.81 / 5):
        self.std, self.gravity = std, gravity

    def mean_and_std(self, x, u):
        return jnp.stack([x[1], self.gravity * jnp.sin(x[0]) + u[0]]), jnp.array([0.0, self.std])


def planned(model, exploration="mean", strength=1.0, n=100, start=(np.pi, 0.0)):
    task = planning_task(Discretization(PENDULUM, 10.0, n), model, exploration, strength)
    more = 2 if exploration == "hallucinated" else 0
    limits = np.array([10.0] + [3.0] * more)
    guess = np.zeros((n, 1 + more))
    return in_float64(lambda x, u: ilqr(task, x, u, -limits, limits), np.array(start), guess)


def test_the_swing_up_has_the_published_cost_of_the_best_continuous_control():
    found = planned(Certain(), n=1000)
    x, u = found.x, found.u
    cost = 0.005 * ((x[:-1] ** 2).sum() + (x[1:] ** 2).sum()) + 0.01 * (u**2).sum() + (x[-1] ** 2).sum()
    assert cost == pytest.approx(20.16, abs=0.005)
    slope = in_float64(
        jax.grad(
            lambda u: rollout(
                planning_task(Discretization(PENDULUM, 10.0, 1000), Certain(), "mean", 0.0), jnp.array([np.pi, 0.0]), u
            )[1]
        ),
        u,
    )
    assert np.abs(slope).max() < 1e-2 * np.abs(u).max() * 0.02


def test_optimism_promises_at_least_the_cost_of_every_plausible_system():
    """Plausible: the mean plus at most β standard deviations. More of them can only lower the promised cost."""
    mean = planned(Certain(std=0.3)).cost
    promises = [planned(Certain(std=0.3), "hallucinated", beta).cost for beta in (0.0, 0.5, 1.0)]
    assert promises[0] == pytest.approx(mean, rel=1e-5)
    assert promises[2] < promises[1] < mean
    # a torque of ±0.3 for nothing is one plausible system
    helped = in_float64(
        lambda u: rollout(
            Task(
                lambda x, u, i: (
                    x
                    + 0.1
                    * jnp.stack(
                        [
                            x[1] + 0.05 * (9.81 / 5 * jnp.sin(x[0]) + u[0] - 0.29),
                            9.81 / 5 * jnp.sin(x[0] + 0.05 * x[1]) + u[0] - 0.29,
                        ]
                    )
                ),
                lambda x, u, i: 0.1 * ((x**2).sum() + (u**2).sum()),
                lambda x: (x**2).sum(),
            ),
            jnp.array([np.pi, 0.0]),
            u,
        )[1],
        planned(Certain(std=0.3), "hallucinated", 1.0).u[:, :1],
    )
    assert promises[2] < helped


def test_a_bonus_lowers_the_planned_cost_by_what_it_pays():
    """With the same uncertainty everywhere the bonus λσT is paid whatever is done, so the plan is that of the mean."""
    mean, bonus = planned(Certain(std=0.3)), planned(Certain(std=0.3), "bonus", 2.0)
    assert np.allclose(mean.u, bonus.u, atol=1e-3)
    assert bonus.cost == pytest.approx(mean.cost - 2.0 * 0.3 * 10.0, rel=1e-6)


def bowl(sequence):
    goal = jnp.sin(jnp.linspace(0.0, 3.0, sequence.shape[0]))[:, None]
    return ((sequence - goal) ** 2).mean()


@pytest.mark.parametrize("rule", ["cem", "mppi"])
def test_searches_find_the_minimum_of_a_bowl_and_never_return_less_than_they_had(rule):
    settings = SearchSettings(rule, iterations=40, samples=300, knots=6, temperature=0.03)
    limits = np.array([-2.0]), np.array([2.0])
    search = lambda mean, std: search_sequence(settings, bowl, jax.random.key(0), mean, std, *limits)  # noqa: E731
    best, cost = in_float64(search, np.zeros((30, 1)), np.ones(1))
    assert cost < 0.01
    assert cost == pytest.approx(float(bowl(best)), rel=1e-4)
    optimum = np.sin(np.linspace(0.0, 3.0, 30))[:, None]
    again, cost = in_float64(search, optimum, np.ones(1))
    assert np.array_equal(again, optimum)
    assert cost == pytest.approx(0.0, abs=1e-12)


def test_a_cost_that_is_not_a_number_is_never_chosen():
    settings = SearchSettings(iterations=5, samples=50, knots=3)
    cost = lambda u: jnp.where(u[0, 0] > 0.1, jnp.nan, (u - 1.0).sum() ** 2)  # noqa: E731
    limits = np.array([-2.0]), np.array([2.0])
    best, lowest = in_float64(
        lambda: search_sequence(settings, cost, jax.random.key(0), jnp.zeros((5, 1)), jnp.ones(1), *limits)
    )
    assert np.isfinite(lowest)
    assert best[0, 0] <= 0.1
