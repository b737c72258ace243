"""Planning under uncertainty with any model that predicts a mean μ(x, u) and a standard deviation σ(x, u) of the drift.

    mean            dx/dt = μ                        minimize ∫ c dt
    hallucinated    dx/dt = μ + β tanh(η) σ          over u and η: the best of all plausible systems (OCoRL)
    bonus           dx/dt = μ                        minimize ∫ (c − λ Σ_j σ_j) dt: uncertain places are rewarded (COMBRL)

Hallucinated control η [d] turns optimism into trajectory optimization with d more controls. c is the negative reward.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from purectrl.control.ilqr import Task
from purectrl.systems.spec import StateSpec

Exploration = Literal["hallucinated", "bonus", "mean"]
Predict = Callable[[Array, Array], tuple[Array, Array]]
"""(x [d], u [k]) -> mean [d] and standard deviation [d] of the drift."""


def predictor(model: Any) -> Predict:
    """The predictions of a Gaussian process, or the mean and the spread of the members of an ensemble."""
    if hasattr(model, "mean_and_std"):
        return model.mean_and_std

    def predict(x: Array, u: Array) -> tuple[Array, Array]:
        rows = [jnp.broadcast_to(one, (model.members, 1, one.shape[-1])) for one in (x, u)]
        drift = model.drift(*rows)[:, 0]
        deviation = drift - drift.mean(axis=0)
        variance = (deviation**2).sum(axis=0) / max(model.members - 1, 1)
        return drift.mean(axis=0), jnp.sqrt(variance + 1e-12)  # differentiable where members agree

    return predict


class Discretization(NamedTuple):
    """An episode in steps during which the control is held."""

    spec: StateSpec
    horizon: float
    steps: int

    @property
    def step(self) -> float:
        """Length of a step in seconds."""
        return self.horizon / self.steps


def planning_task(grid: Discretization, model: Any, exploration: Exploration, strength: float) -> Task:
    """What a planner minimizes; with hallucinated control, a control is (u, η) [k + d].

    Main arguments:
        grid: the problem and the time steps.
        model: an `ImaginationModel`.
        exploration: see the table above.
        strength: β or λ.
    """
    spec, h, predict = grid.spec, grid.step, predictor(model)
    reward, k = reward_function(spec, model), spec.control_dim

    def step(x: Array, control: Array, i: Array) -> Array:
        u, eta = control[:k], control[k:]

        def rate(x: Array) -> Array:
            mean, std = predict(x, u)
            return mean + strength * jnp.tanh(eta) * std if exploration == "hallucinated" else mean

        return x + h * rate(x + h / 2 * rate(x))

    def cost(x: Array, control: Array, i: Array) -> Array:
        u = control[:k]
        found = -reward(x, u)
        if exploration == "bonus":
            found = found - strength * predict(x, u)[1].sum()
        return h * found

    return Task(step, cost, terminal_cost(spec))


def tracking_task(grid: Discretization, model: Any, x_plan: Array, u_plan: Array) -> Task:
    """Follows a plan on the mean model: ∫ ‖x − x_plan‖² + ‖u − u_plan‖² dt; x_plan [n+1, d], u_plan [n, k]."""
    h, predict = grid.step, predictor(model)

    def step(x: Array, u: Array, i: Array) -> Array:
        return x + h * predict(x + h / 2 * predict(x, u)[0], u)[0]

    def cost(x: Array, u: Array, i: Array) -> Array:
        return h * (((x - x_plan[i]) ** 2).sum() + ((u - u_plan[i]) ** 2).sum())

    return Task(step, cost, lambda x: ((x - x_plan[-1]) ** 2).sum())


def reward_function(spec: StateSpec, model: Any) -> Callable[[Array, Array], Array]:
    """The reward rate of one state and control: the known one, or the mean over the members of a model that learns it."""
    if spec.reward is not None:
        return spec.reward
    return lambda x, u: model.task.reward(x[None], u[None])[0] * model.task.reward_unit


def terminal_cost(spec: StateSpec) -> Callable[[Array], Array]:
    """The negative reward of the final state."""
    final = spec.terminal_reward
    return (lambda x: jnp.zeros((), x.dtype)) if final is None else lambda x: -final(x)
