"""More accurate paths on request: the stochastic Runge-Kutta and Milstein methods of Diffrax, as solvers for `simulated`.

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

from purectrl.core.errors import InputError, require
from purectrl.core.problem import Array
from purectrl.systems.simulation import Solver

Brownian = Callable[[Array, tuple[int, ...], Array, type], Any]
"""(key, shape, times [K+1], Lévy area) -> a Brownian motion of Diffrax on [t_0, t_K] with values of `shape`."""


def independent(key: Array, shape: tuple[int, ...], times: Array, levy_area: Any) -> diffrax.UnsafeBrownianPath:
    """Independent increments on the steps that are taken: exact in law for any steps, and cheap."""
    return diffrax.UnsafeBrownianPath(shape, key, levy_area)


def tree(tolerance: float) -> Brownian:
    """One Brownian path a key, whatever the steps, so that the errors of several step sizes can be compared.

    Costs a walk down a binary tree at each step. Steps shorter than `tolerance` do not have the right law.
    """
    require(tolerance > 0, f"tolerance: must be positive, not {tolerance}")

    def grow(key: Array, shape: tuple[int, ...], times: Array, levy_area: Any) -> diffrax.VirtualBrownianTree:
        return diffrax.VirtualBrownianTree(times[0], times[-1], tolerance, shape, key, levy_area)

    return grow


def diffrax_solver(method: diffrax.AbstractSolver, substeps: int = 1, brownian: Brownian = independent) -> Solver:
    """A solver that advances with `method`, to be passed as `simulated(..., solver=...)`.

    Main arguments:
        method: any fixed-step method of Diffrax. Those that converge to the Stratonovich solution are given the drift
            f − ½ g ∇g, so that the path is that of the Itô equation all the same.
        substeps: equal steps between two of the times that are asked for.

    Other arguments:
        brownian: where the noise comes from.

    >>> still, unit = (lambda x, u: 0.0 * x), (lambda x, u: jnp.float32(1.0))
    >>> solver = diffrax_solver(diffrax.ShARK(), substeps=2)
    >>> times = jnp.array([0.0, 0.5, 0.5, 2.0])
    >>> path = solver(jax.random.key(0), still, unit, lambda x: x, jnp.zeros(1), times)
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
        policy: Callable[[Array], Array],
        start: Array,
        times: Array,
    ) -> Array:
        # one g for each direction, whether the system gives one for all or several
        g = lambda x: jnp.broadcast_to(diffusion(x, policy(x)), x.shape)  # noqa: E731
        f = lambda x: drift(x, policy(x))  # noqa: E731
        flow = (lambda x: f(x) - 0.5 * g(x) * jnp.diagonal(jax.jacfwd(g)(x))) if stratonovich else f
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, x, args: flow(x)),
            diffrax.ControlTerm(
                lambda t, x, args: g(x) * jnp.eye(x.size),
                brownian(key, start.shape, times, _levy_area(method)),
            ),
        )
        nodes = _refined(times, substeps)
        memory = _prepared(method, terms, nodes, start)

        def advance(carry: tuple[Array, Any], span: tuple[Array, Array]) -> tuple[tuple[Array, Any], Array]:
            t, later = span
            x, _, _, memory, _ = method.step(terms, t, later, carry[0], None, carry[1], made_jump=False)
            # a time that is asked for twice is a step of length zero, which not every method survives
            moved = jax.tree.map(lambda new, old: jnp.where(later > t, new, old), (x, memory), carry)
            return moved, moved[0]

        _, path = jax.lax.scan(advance, (start, memory), (nodes[:-1], nodes[1:]))
        return jnp.concatenate([start[None], path[substeps - 1 :: substeps]])

    return solve


def _prepared(method: diffrax.AbstractSolver, terms: diffrax.MultiTerm, nodes: Array, start: Array) -> Any:
    """What the method remembers from step to step; raises if it is for constant g and g is not constant."""
    try:
        return method.init(terms, nodes[0], nodes[1], start, None)
    except ValueError as error:
        if "should be constant" not in str(error):
            raise
        raise InputError(
            f"method: {type(method).__name__} is for constant g, and this g depends on the state: take "
            "diffrax.SlowRK() in one dimension, `euler_maruyama` in more"
        ) from error


def _refined(times: Array, substeps: int) -> Array:
    """`times` [K+1] with substeps − 1 equidistant times put between each two: [K·substeps + 1]."""
    fractions = jnp.arange(substeps, dtype=times.dtype) / substeps
    inner = times[:-1, None] + jnp.diff(times)[:, None] * fractions
    return jnp.append(inner.ravel(), times[-1])


def _levy_area(method: diffrax.AbstractSolver) -> type:
    """What the method must know of the Brownian path on a step besides its increment."""
    least = getattr(method, "minimal_levy_area", diffrax.AbstractBrownianIncrement)
    kinds = (diffrax.BrownianIncrement, diffrax.SpaceTimeLevyArea, diffrax.SpaceTimeTimeLevyArea)
    return next(kind for kind in kinds if issubclass(kind, least))
