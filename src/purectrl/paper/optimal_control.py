"""Returns of open-loop optimal control with known equations, from iLQR: a ceiling that shares nothing with the planner."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.ilqr import Task, Trajectory, ilqr
from purectrl.control.known_equations import EquationsModel

SMALLEST = 1e-6
"""Added to rewards before their logarithm is taken."""


def optimal_returns(problem: str, states: int, guesses: int, steps: int, iterations: int) -> dict[str, Any]:
    """The best return ∫ b dt that iLQR finds from each of several initial states.

    The search begins at several smooth random controls. It first maximizes ∫ log b dt, which has a gradient far from the
    goal, and then ∫ b dt itself. Rewards that may be negative have no logarithm, and only the second search.

    Main arguments:
        problem: a problem that offers its equations.
        states: initial states.
        guesses: searches for each of them; the best one counts.
        steps: controls of an episode, each of which is held.
        iterations: of each search.
    """
    from purectrl.runs.spec import RunSpec

    found: Any = RunSpec.of(problem, "known-model").load_problem()
    returns = _search(found.equations, found.spec, found.horizon, states, guesses, steps, iterations)
    return {"returns": np.asarray(returns, float).max(axis=1).tolist()}


@functools.partial(jax.jit, static_argnums=tuple(range(7)))
def _search(equations: Any, spec: Any, horizon: float, states: int, guesses: int, steps: int, iterations: int) -> Array:
    """Returns [states, guesses]."""
    model, h = EquationsModel(jnp.ones(()), equations), horizon / steps
    low, high = jnp.asarray(spec.control_low, jnp.float32), jnp.asarray(spec.control_high, jnp.float32)

    def step(x: Array, u: Array, i: Array) -> Array:
        rate = lambda x: model.drift(x[None, None], u[None, None])[0, 0]  # noqa: E731
        a = rate(x)
        b = rate(x + h / 2 * a)
        c = rate(x + h / 2 * b)
        return x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))

    reward = lambda x, u: model.task.reward(x[None], u[None])[0]  # noqa: E731
    logarithm = lambda x, u: jnp.log(reward(x, u) + SMALLEST)  # noqa: E731
    if spec.mechanics is not None:
        logarithm = lambda x, u: model.task.log_reward(x[None], u[None])[0]  # noqa: E731

    def optimize(gain: Any, start: Array, controls: Array) -> Trajectory:
        task = Task(step, lambda x, u, i: -h * gain(x, u), lambda x: jnp.zeros(()))
        return ilqr(task, start, controls, low, high, iterations)

    def one(start: Array, controls: Array) -> Array:
        far = optimize(logarithm, start, controls)
        usable = jnp.isfinite(far.cost)
        near = optimize(reward, start, jnp.where(usable, far.u, controls))
        return -near.cost

    start_key, guess_key = jax.random.split(jax.random.key(0))
    starts = jax.vmap(equations.sample_initial_state)(jax.random.split(start_key, states))
    knots = jax.random.normal(guess_key, (states, guesses, max(steps // 15, 2), spec.control_dim))
    knots = knots * jnp.linspace(0.0, 1.0, guesses)[:, None, None]
    smooth = jax.image.resize(knots, (states, guesses, steps, spec.control_dim), "linear")
    controls = (low + high) / 2 + (high - low) / 2 * jnp.tanh(smooth)
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(starts, controls)
