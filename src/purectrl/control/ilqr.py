"""The iterative linear-quadratic regulator: trajectory optimization on any differentiable dynamics.

symbol           here                  meaning
---------------  --------------------  ------------------------------------------------------------------------
x_{i+1}          Task.step(x, u, i)    dynamics in discrete time
ℓ_i(x, u)        Task.cost(x, u, i)    cost of step i
ℓ_n(x)           Task.terminal(x)      cost of the final state
V_x, V_xx        -                     gradient and Hessian of the cost to go, from the last step to the first
k_i, K_i         feedforward, gains    u_i ← u_i + α k_i + K_i (x_i − x̄_i) along the new trajectory
μ                damping               added to the Hessian by u after a step that did not lower the cost

Costs are expanded to second order with negative curvature removed, dynamics to first order. Controls stay inside a box: one
that is at its limit and would leave it is held there (Tassa et al. 2014, with one clipping instead of a quadratic program).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

STEP_SIZES = np.array([2.0**-i for i in range(9)])
"""Step lengths α of the line search, all of which are tried at once."""
FIRST_DAMPING, MAX_DAMPING, DAMPING_FACTOR = 1e-6, 1e8, 10.0
"""μ at first, the largest one, and the factor by which it changes."""
MIN_CURVATURE = 1e-8
"""Smallest curvature of a cost after the negative one was removed."""


class Task(NamedTuple):
    """What is to be optimized. Functions of one state x [d] and one control u [k]; i is the number of the step."""

    step: Callable[[Array, Array, Array], Array]
    cost: Callable[[Array, Array, Array], Array]
    terminal: Callable[[Array], Array]


class Trajectory(NamedTuple):
    """A locally optimal trajectory with n steps."""

    x: Float[Array, "n+1 d"]
    u: Float[Array, "n k"]
    gains: Float[Array, "n k d"]
    """K_i: the optimal response to a deviation from x."""
    cost: Float[Array, ""]
    iterations: Array


class _Progress(NamedTuple):
    found: Trajectory
    damping: Array
    finished: Array


def rollout(task: Task, start: Float[Array, " d"], controls: Float[Array, "n k"]) -> tuple[Array, Array]:
    """The states [n+1, d] under a sequence of controls, and the cost.

    >>> double = Task(lambda x, u, i: x + u, lambda x, u, i: (u**2).sum(), lambda x: (x**2).sum())
    >>> states, cost = rollout(double, jnp.zeros(1), jnp.ones((3, 1)))
    >>> states[:, 0].tolist(), float(cost)
    ([0.0, 1.0, 2.0, 3.0], 12.0)
    """

    def advance(x: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        u, i = now
        x_next = task.step(x, u, i)
        return x_next, (x_next, task.cost(x, u, i))

    last, (path, costs) = jax.lax.scan(advance, start, (controls, jnp.arange(len(controls))))
    return jnp.concatenate([start[None], path]), costs.sum() + task.terminal(last)


def ilqr(
    task: Task,
    start: Float[Array, " d"],
    controls: Float[Array, "n k"],
    low: Float[Array, " k"],
    high: Float[Array, " k"],
    iterations: int = 100,
    tolerance: float = 1e-6,
) -> Trajectory:
    """A local optimum near the trajectory under `controls`.

    Main arguments:
        task: dynamics and costs.
        start: x_0 [d].
        controls: where the search begins [n, k].
        low, high: limits of each control [k].

    Other arguments:
        iterations: the largest number of iterations.
        tolerance: the relative decrease of the cost at which the search ends.
    """
    controls = jnp.clip(controls, low, high)
    x, cost = rollout(task, start, controls)
    gains = jnp.zeros((*controls.shape, len(start)), controls.dtype)
    first = Trajectory(x, controls, gains, cost, jnp.zeros((), jnp.int32))

    def unfinished(now: _Progress) -> Array:
        return (now.found.iterations < iterations) & ~now.finished

    def iterate(now: _Progress) -> _Progress:
        found = now.found
        feedforward, gains = _backward(task, found, low, high, now.damping)
        sizes = jnp.asarray(STEP_SIZES, found.u.dtype)
        tried = jax.vmap(lambda size: _forward(task, found, feedforward, gains, low, high, size))(sizes)
        costs = jnp.where(jnp.isfinite(tried[2]), tried[2], jnp.inf)
        best = jnp.argmin(costs)
        better = costs[best] < found.cost
        small = found.cost - costs[best] <= tolerance * (jnp.abs(found.cost) + 1e-12)
        choose = lambda new, old: jnp.where(better, new, old)  # noqa: E731
        x, u, cost = (choose(new[best], old) for new, old in zip(tried, (found.x, found.u, found.cost), strict=True))
        damping = jnp.where(
            better, jnp.maximum(now.damping / DAMPING_FACTOR, FIRST_DAMPING), now.damping * DAMPING_FACTOR
        )
        # a step that does not help at small damping is no proof of an optimum
        finished = jnp.where(better, small & (now.damping <= 1.0), damping > MAX_DAMPING)
        return _Progress(Trajectory(x, u, choose(gains, found.gains), cost, found.iterations + 1), damping, finished)

    begin = _Progress(first, jnp.asarray(FIRST_DAMPING, controls.dtype), jnp.asarray(False))
    found = jax.lax.while_loop(unfinished, iterate, begin).found
    # gains of the trajectory that is returned, not of the one before it
    return found._replace(gains=_backward(task, found, low, high, jnp.asarray(FIRST_DAMPING, controls.dtype))[1])


def _convex(hessian: Array) -> Array:
    """The matrix with negative curvature removed."""
    values, vectors = jnp.linalg.eigh((hessian + hessian.T) / 2)
    return (vectors * jnp.maximum(values, MIN_CURVATURE)) @ vectors.T


def _backward(task: Task, found: Trajectory, low: Array, high: Array, damping: Array) -> tuple[Array, Array]:
    """Feedforward [n, k] and gains [n, k, d]."""
    (n, k), d = found.u.shape, found.x.shape[1]
    steps = jnp.arange(n)
    a, b = jax.vmap(jax.jacfwd(task.step, (0, 1)))(found.x[:-1], found.u, steps)
    joint = lambda z, i: task.cost(z[:d], z[d:], i)  # noqa: E731
    z = jnp.concatenate([found.x[:-1], found.u], axis=1)
    gradients = jax.vmap(jax.grad(joint))(z, steps)
    hessians = jax.vmap(_convex)(jax.vmap(jax.hessian(joint))(z, steps))

    def back(carry: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        v_x, v_xx = carry
        a, b, gradient, hessian, u = now
        jacobian = jnp.concatenate([a, b], axis=1)
        q = gradient + jacobian.T @ v_x
        h = hessian + jacobian.T @ v_xx @ jacobian
        q_u, h_uu, h_ux = q[d:], h[d:, d:] + damping * jnp.eye(k, dtype=h.dtype), h[d:, :d]
        held = ((u <= low) & (q_u > 0)) | ((u >= high) & (q_u < 0))
        free = jnp.where(held, 0.0, 1.0)
        h_uu = free[:, None] * h_uu * free[None] + jnp.diag(1.0 - free)
        solved = -jnp.linalg.solve(h_uu, free[:, None] * jnp.concatenate([q_u[:, None], h_ux], axis=1))
        forward, gain = solved[:, 0], solved[:, 1:]
        v_x = q[:d] + gain.T @ q_u + (h_ux.T + gain.T @ h[d:, d:]) @ forward
        v_xx = h[:d, :d] + gain.T @ h_ux + h_ux.T @ gain + gain.T @ h[d:, d:] @ gain
        return (v_x, (v_xx + v_xx.T) / 2), (forward, gain)

    last = found.x[-1]
    begin = jax.grad(task.terminal)(last), _convex(jax.hessian(task.terminal)(last))
    _, (feedforward, gains) = jax.lax.scan(back, begin, (a, b, gradients, hessians, found.u), reverse=True)
    return feedforward, gains


def _forward(
    task: Task, found: Trajectory, feedforward: Array, gains: Array, low: Array, high: Array, size: Array
) -> tuple[Array, Array, Array]:
    """States, controls and cost of a step of length `size`."""

    def advance(x: Array, now: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        u, old, forward, gain, i = now
        u = jnp.clip(u + size * forward + gain @ (x - old), low, high)
        x_next = task.step(x, u, i)
        return x_next, (x_next, u, task.cost(x, u, i))

    steps = (found.u, found.x[:-1], feedforward, gains, jnp.arange(len(found.u)))
    last, (path, controls, costs) = jax.lax.scan(advance, found.x[0], steps)
    return jnp.concatenate([found.x[:1], path]), controls, costs.sum() + task.terminal(last)
