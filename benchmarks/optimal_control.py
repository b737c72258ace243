"""Trajectory optimization on the problems of the item `battery`, with known equations: a ceiling that shares nothing with
the planner but the equations. Results go to docs/results/optimal_control.json, beside the planner's in battery.json.

python benchmarks/optimal_control.py        about 6 minutes on one core
"""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from page import RESULTS, write_result

from purectrl.control.ilqr import Task, Trajectory, ilqr
from purectrl.control.known_equations import EquationsModel
from purectrl.paper.battery import PROBLEMS
from purectrl.problems.mechanical_systems import EVAL_SECONDS
from purectrl.runs.spec import RunSpec
from purectrl.systems.integration import runge_kutta_step

STATES, GUESSES, STEPS, ITERATIONS = 4, 12, 200, 150
"""Initial states, searches for each of them, of which the best one counts, held controls, and iterations of a search."""
PLANNED = 1 / 3
"""The share of an episode for which controls are optimized."""
SMALLEST = 1e-6
"""Added to rewards before their logarithm is taken."""


def optimal_returns(problem: str) -> list[float]:
    """The best return ∫ b dt that iLQR finds from each of several initial states.

    Controls are optimized over the first third of the episode; what is reached there counts for the rest, as if it could be
    held. The search begins at several smooth random controls. It first maximizes ∫ log b dt, which has a gradient far from
    the goal, and then ∫ b dt itself.
    """
    found: Any = RunSpec.of(problem, "known-model").load_problem()
    seconds = found.horizon if found.spec.mechanics is None else EVAL_SECONDS
    return np.asarray(_search(found.equations, found.spec, seconds), float).max(axis=1).tolist()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _search(equations: Any, spec: Any, horizon: float) -> Array:
    """Returns [states, guesses]."""
    model, h = EquationsModel(jnp.ones(()), equations), PLANNED * horizon / STEPS
    low, high = jnp.asarray(spec.control_low, jnp.float32), jnp.asarray(spec.control_high, jnp.float32)

    def step(x: Array, u: Array, i: Array) -> Array:
        return runge_kutta_step(lambda x, t: model.drift(x[None, None], u[None, None])[0, 0], x, 0.0, h)

    reward = lambda x, u: model.task.reward(x[None], u[None])[0]  # noqa: E731
    logarithm = lambda x, u: jnp.log(reward(x, u) + SMALLEST)  # noqa: E731
    if spec.mechanics is not None:
        logarithm = lambda x, u: model.task.log_reward(x[None], u[None])[0]  # noqa: E731

    def optimize(gain: Any, start: Array, controls: Array) -> Trajectory:
        rest, middle = (1 - PLANNED) * horizon, (low + high) / 2
        task = Task(step, lambda x, u, i: -h * gain(x, u), lambda x: -rest * gain(x, middle))
        return ilqr(task, start, controls, low, high, ITERATIONS)

    def one(start: Array, controls: Array) -> Array:
        far = optimize(logarithm, start, controls)
        usable = jnp.isfinite(far.cost)
        near = optimize(reward, start, jnp.where(usable, far.u, controls))
        return -near.cost

    start_key, guess_key = jax.random.split(jax.random.key(0))
    starts = jax.vmap(equations.sample_initial_state)(jax.random.split(start_key, STATES))
    knots = jax.random.normal(guess_key, (STATES, GUESSES, STEPS // 15, spec.control_dim))
    knots = knots * jnp.linspace(0.0, 1.0, GUESSES)[:, None, None]
    smooth = jax.image.resize(knots, (STATES, GUESSES, STEPS, spec.control_dim), "linear")
    controls = (low + high) / 2 + (high - low) / 2 * jnp.tanh(smooth)
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(starts, controls)


if __name__ == "__main__":
    rows = json.loads((RESULTS / "battery.json").read_text())["numbers"]["problems"]
    planner, found = {row["problem"]: row["ceiling"] for row in rows}, {}
    for name in PROBLEMS:
        found[name] = {"planner": planner[name], "ilqr": optimal_returns(name)}
        print(f"{name}: {np.mean(found[name]['ilqr']):.4g}", flush=True)
    write_result("optimal_control", found)
