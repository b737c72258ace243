"""More accurate paths: the stochastic Runge-Kutta and Milstein methods of Diffrax, as solvers for `simulate_rollouts`.

With a step of length h, the strong order is that of E|x_h(T) − x(T)| on one Brownian path, the weak order that of
|E φ(x_h(T)) − E φ(x(T))|.

method                    for which noise           strong                 weak
------------------------  ------------------------  ---------------------  ----
euler_maruyama (default)  any                       1 if g is constant, ½  1
diffrax.ShARK, SRA1       g constant                1½                     2
diffrax.ItoMilstein       g(x, u) in one dimension  1                      1
diffrax.SlowRK            g(x, u) in one dimension  1½                     2

In more dimensions g(x, u) multiplies a separate noise in each direction. These noises do not commute, and every method here
has strong order ½ there.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from jax import Array

from purectrl.core.errors import InputError, require
from purectrl.systems.simulation import Controller, Solver

Brownian = Callable[[Array, tuple[int, ...], Array, type], Any]
"""(key, shape, times [K+1], Lévy area) -> a Brownian motion of Diffrax on [t_0, t_K] with values of `shape`."""


def independent_increments(
    key: Array, shape: tuple[int, ...], times: Array, levy_area: Any
) -> diffrax.UnsafeBrownianPath:
    """Independent increments on the steps that are taken: exact in law for any steps, and cheap."""
    return diffrax.UnsafeBrownianPath(shape, key, levy_area)


def virtual_brownian_tree(tolerance: float) -> Brownian:
    """One Brownian path per key, whatever the steps, so that the errors of several step sizes can be compared.

    Each step costs a descent of a binary tree. Steps shorter than `tolerance` do not have the right law.
    """
    require(tolerance > 0, f"tolerance: must be positive, not {tolerance}")

    def brownian(key: Array, shape: tuple[int, ...], times: Array, levy_area: Any) -> diffrax.VirtualBrownianTree:
        return diffrax.VirtualBrownianTree(times[0], times[-1], tolerance, shape, key, levy_area)

    return brownian


def diffrax_solver(
    method: diffrax.AbstractSolver, substeps: int = 1, brownian: Brownian = independent_increments
) -> Solver:
    """A solver that advances with `method`, to be passed as `simulate_rollouts(..., solver=...)`.

    Main arguments:
        method: any fixed-step method of Diffrax. Those that converge to the Stratonovich solution are given the drift
            f − ½ g ∇g, so that the path is that of the Itô equation nevertheless.
        substeps: equal steps between two of the requested times.

    Other arguments:
        brownian: the source of the noise.

    >>> still, unit = (lambda x, u: 0.0 * x), (lambda x, u: jnp.float32(1.0))
    >>> solver = diffrax_solver(diffrax.ShARK(), substeps=2)
    >>> times = jnp.array([0.0, 0.5, 0.5, 2.0])
    >>> path = solver(jax.random.key(0), still, unit, lambda x, t: x, jnp.zeros(1), times)
    >>> path.shape, bool(path[1] == path[2]), bool(path[2] == path[3])
    ((4, 1), True, False)
    """
    require(isinstance(method, diffrax.AbstractSolver), f"method: expected a solver of Diffrax, not {method!r}")
    require(substeps >= 1, f"substeps: at least one step between two times is needed, not {substeps}")
    stratonovich = isinstance(method, diffrax.AbstractStratonovichSolver)

    def solve(
        key: Array,
        drift: Callable[[Array, Array], Array],
        diffusion: Callable[[Array, Array], Array],
        policy: Controller,
        start: Array,
        times: Array,
    ) -> Array:
        # one g per direction, whether the system returns a scalar or a vector
        g = lambda x, t: jnp.broadcast_to(diffusion(x, policy(x, t)), x.shape)  # noqa: E731
        f = lambda x, t: drift(x, policy(x, t))  # noqa: E731
        corrected = lambda x, t: f(x, t) - 0.5 * g(x, t) * jnp.diagonal(jax.jacfwd(g)(x, t))  # noqa: E731
        flow = corrected if stratonovich else f
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, x, args: flow(x, t)),
            diffrax.ControlTerm(
                lambda t, x, args: g(x, t) * jnp.eye(x.size),
                brownian(key, start.shape, times, _levy_area(method)),
            ),
        )
        nodes = _refined(times, substeps)
        memory = _solver_state(method, terms, nodes, start)

        def advance(carry: tuple[Array, Any], span: tuple[Array, Array]) -> tuple[tuple[Array, Any], Array]:
            t, later = span
            x, _, _, memory, _ = method.step(terms, t, later, carry[0], None, carry[1], made_jump=False)
            # a time that is requested twice is a step of length zero, for which some methods return NaN
            moved = jax.tree.map(lambda new, old: jnp.where(later > t, new, old), (x, memory), carry)
            return moved, moved[0]

        _, path = jax.lax.scan(advance, (start, memory), (nodes[:-1], nodes[1:]))
        return jnp.concatenate([start[None], path[substeps - 1 :: substeps]])

    return solve


def _solver_state(method: diffrax.AbstractSolver, terms: diffrax.MultiTerm, nodes: Array, start: Array) -> Any:
    """The initial state of the method; raises if it is for constant g and g is not constant."""
    try:
        return method.init(terms, nodes[0], nodes[1], start, None)
    except ValueError as error:
        if "should be constant" not in str(error):
            raise
        raise InputError(
            f"method: {type(method).__name__} is for constant g, and this g depends on the state: use "
            "diffrax.SlowRK() in one dimension, `euler_maruyama` in more"
        ) from error


def _refined(times: Array, substeps: int) -> Array:
    """`times` [K+1] with substeps − 1 equidistant times inserted between each two: [K·substeps + 1]."""
    fractions = jnp.arange(substeps, dtype=times.dtype) / substeps
    inner = times[:-1, None] + jnp.diff(times)[:, None] * fractions
    return jnp.append(inner.ravel(), times[-1])


def _levy_area(method: diffrax.AbstractSolver) -> type:
    """What the method needs of the Brownian path on a step besides its increment."""
    least = getattr(method, "minimal_levy_area", diffrax.AbstractBrownianIncrement)
    kinds = (diffrax.BrownianIncrement, diffrax.SpaceTimeLevyArea, diffrax.SpaceTimeTimeLevyArea)
    return next(kind for kind in kinds if issubclass(kind, least))
