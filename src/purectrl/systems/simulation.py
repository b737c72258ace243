"""Simulated diffusions: one compiled Euler-Maruyama scan, and the rollout that an oracle hides.

The path is computed on a time grid that contains every measurement time, so irregular times, different in each episode,
need neither rounding nor interpolation, and several times on one path have their exact joint law (of the scheme).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.problem import Array, Measuring, Plan, System


class Solver(Protocol):
    """What computes a path of an Itô diffusion; `euler_maruyama` says what the arguments mean."""

    def __call__(
        self,
        key: Array,
        drift: Callable[[Array, Array], Array],
        diffusion: Callable[[Array, Array], Array],
        policy: Callable[[Array], Array],
        start: Array,
        times: Array,
    ) -> Array:
        """States at `times` [K+1, d]."""
        ...


def euler_maruyama(
    key: Array,
    drift: Callable[[Array, Array], Array],
    diffusion: Callable[[Array, Array], Array],
    policy: Callable[[Array], Array],
    start: Array,
    times: Array,
) -> Array:
    """One path of dx = f(x, π(x)) dt + g(x, π(x)) dw.

    Main arguments:
        drift, diffusion, policy: functions of one state, as in `System`.
        start: x(t_0) [d].
        times: t_0 ≤ … ≤ t_K [K+1], not necessarily equidistant.

    Returns:
        States at those times [K+1, d].
    """
    steps = jnp.diff(times)
    increments = jax.random.normal(key, (steps.size, start.size)) * jnp.sqrt(steps)[:, None]

    def advance(x: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        dt, dw = step
        u = policy(x)
        x = x + drift(x, u) * dt + diffusion(x, u) * dw
        return x, x

    _, path = jax.lax.scan(advance, start, (steps, increments))
    return jnp.concatenate([start[None], path])


def simulated(
    system: System,
    policy: Callable[[Any, Array], Array],
    initial: Callable[[Any, Array], Array],
    measuring: Measuring,
    steps: int,
    solver: Solver = euler_maruyama,
) -> Rollout:
    """The rollout of a simulated true system, for `Oracle`.

    Main arguments:
        system: the truth.
        policy: (parameters, x [d]) -> u [k]; the parameters are `plan.policy`.
        initial: (parameters, JAX key) -> x(0) [d]; the parameters are `plan.initial`.
        measuring: Δ, the noise, and how y comes about.
        steps: equal steps over [0, T]; every measurement time is one more node of the path.

    Other arguments:
        solver: computes the path; `purectrl.systems.solvers` has more accurate ones.

    Raises:
        InputError: a function of the system returns the wrong shape; said before anything is compiled.
        MeasurementError: a path left the finite numbers, g was negative on it, or b* outside its range.
    """
    require(steps >= 1, f"steps: the simulation needs at least one step, not {steps}")
    _check_system(system)
    grid = np.linspace(0.0, system.horizon, steps + 1, dtype=np.float32)
    episode = _episode(system, policy, initial, measuring, grid, solver)
    low, high = system.reward_range

    def block(words: Array, plan: Plan, times: Array) -> Episode:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(words), jnp.arange(times.shape[0]))
        return jax.vmap(episode, (0, None, 0))(keys, plan, times)

    @jax.jit
    def measured(words: Array, plan: Plan, times: Array) -> Array:
        # one array and not six, since each that comes back from JAX takes as long as simulating a short path
        seen = block(words, plan, times)
        in_range = (seen.b >= low - ROUNDING) & (seen.b <= high + ROUNDING)
        sound = in_range.all(axis=1) & jnp.isfinite(seen.path).all(axis=(1, 2)) & jnp.isfinite(seen.y).all(axis=(1, 2))
        columns = (seen.x, seen.u, seen.y, seen.r, sound)
        return jnp.concatenate([column.reshape(len(times), -1) for column in columns], axis=1)

    everything = jax.jit(block)  # compiled when an episode has gone wrong, and not before

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        words, rows = key.words(), np.asarray(times, np.float32)
        (packed,) = pad_rows(lambda rows: (measured(words, plan, rows),), rows)
        if np.count_nonzero(packed[:, -1]) < len(packed):
            _name_the_fault(system, Episode(*pad_rows(lambda rows: everything(words, plan, rows), rows)))
        return _unpacked(packed, times, system.state_dim, system.control_dim)

    return rollout


ROUNDING = 1e-6
"""By this much a reward may miss its declared range."""


class Episode(NamedTuple):
    """What happens in one episode with m measurements and K+1 nodes; with one more axis in front, in many."""

    x: Array
    """States at the measurement times [m, d]."""
    u: Array
    """Controls [m, k]."""
    y: Array
    """Measured drifts [m, d]."""
    r: Array
    """Measured rewards [m]."""
    b: Array
    """Rewards without noise [m]."""
    nodes: Array
    """Times of the simulated path [K+1]."""
    path: Array
    """States at the nodes [K+1, d]; NaN after a node where g was negative."""
    g: Array
    """The diffusion at the nodes [K+1], as the system gave it; of several directions the smallest."""


def _episode(
    system: System,
    policy: Callable[[Any, Array], Array],
    initial: Callable[[Any, Array], Array],
    measuring: Measuring,
    grid: np.ndarray,
    solver: Solver,
) -> Callable[[Array, Plan, Array], Episode]:
    """(key, plan, times [m]) -> one episode, simulated on `grid` and at the measurement times."""

    def diffusion(x: Array, u: Array) -> Array:
        # a negative g would pass unseen, since g dw and −g dw have one law; NaN ends the path where it happens
        g = system.diffusion(x, u)
        return jnp.where(g < 0, jnp.nan, g)

    def episode(key: Array, plan: Plan, times: Array) -> Episode:
        start_key, path_key, drift_key, reward_key = jax.random.split(key, 4)
        start = initial(plan.initial, start_key)
        act = lambda x: policy(plan.policy, x)  # noqa: E731
        _check_plan(system, act, start)
        looked = [times, times + measuring.step] if measuring.drift == "quotient" else [times]
        nodes, places = _merged(grid, *looked)
        path = solver(path_key, system.drift, diffusion, act, start, nodes)
        x = path[places[0]]
        u = jax.vmap(act)(x)
        if measuring.drift == "quotient":
            y = (path[places[1]] - x) / measuring.step
        else:
            noise = jax.random.normal(drift_key, x.shape) / np.sqrt(measuring.step)
            y = jax.vmap(system.drift)(x, u) + jax.vmap(diffusion)(x, u).reshape(len(x), -1) * noise
        b = jax.vmap(system.reward)(x, u)
        r = b + measuring.reward_std * jax.random.normal(reward_key, b.shape)
        g = jax.vmap(lambda x: jnp.min(system.diffusion(x, act(x))))(path)
        return Episode(x, u, y, r, b, nodes, path, g)

    return episode


def _merged(nodes: Array, *others: Array) -> tuple[Array, list[Array]]:
    """`nodes` with the other sorted lists of times merged into them, and where the times of each have come to lie.

    Searching and scattering: sorting all of them again would take XLA several times as long as the path itself.
    """
    places: list[Array] = []
    for times in others:
        own = jnp.searchsorted(nodes, times, side="right") + jnp.arange(times.size)
        kept = jnp.searchsorted(times, nodes, side="left") + jnp.arange(nodes.size)
        merged = jnp.zeros(nodes.size + times.size, times.dtype)
        nodes = merged.at[kept].set(nodes, unique_indices=True).at[own].set(times, unique_indices=True)
        places = [*[kept[place] for place in places], own]
    return nodes, places


def _unpacked(packed: np.ndarray, times: np.ndarray, d: int, k: int) -> Measurements:
    """The measurements in the columns of `packed` [episodes, m·(2d + k + 1) + 1], without copying."""
    episodes, m = times.shape
    x_end, u_end, y_end = m * d, m * (d + k), m * (2 * d + k)
    return Measurements(
        times,
        packed[:, :x_end].reshape(episodes, m, d),
        packed[:, x_end:u_end].reshape(episodes, m, k),
        packed[:, u_end:y_end].reshape(episodes, m, d),
        packed[:, y_end:-1],
    )


def _check_system(system: System) -> None:
    """Raises unless drift, diffusion and reward return the shapes that `System` promises."""
    x, u = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in (system.state_dim, system.control_dim))
    d = (system.state_dim,)
    for name, function, shapes in (
        ("drift", system.drift, [d]),
        ("diffusion", system.diffusion, [(), d]),
        ("reward", system.reward, [()]),
    ):
        arguments = f"x {list(x.shape)} and u {list(u.shape)}"
        try:
            found = jnp.shape(jax.eval_shape(function, x, u))
        except (TypeError, ValueError, IndexError) as error:
            first = str(error).splitlines()[0]
            raise InputError(f"{name}: {system.name!r} cannot be evaluated on {arguments}: {first}") from error
        require(
            found in shapes,
            f"{name}: {system.name!r} returns shape {list(found)} for {arguments}, expected "
            f"{' or '.join(str(list(shape)) for shape in shapes)}",
        )


def _check_plan(system: System, act: Callable[[Array], Array], start: Array) -> None:
    """Raises unless the initial state and the policy fit the system; runs while JAX traces, so before it compiles."""
    d, k = [system.state_dim], [system.control_dim]
    found = list(jnp.shape(start))
    require(found == d, f"initial: returns a state of shape {found}, {system.name!r} has states of shape {d}")
    require(
        jnp.issubdtype(start.dtype, jnp.floating), f"initial: returns a state of type {start.dtype}, expected float32"
    )
    found = list(jnp.shape(jax.eval_shape(act, start)))
    require(found == k, f"policy: returns a control of shape {found}, {system.name!r} has controls of shape {k}")


def _name_the_fault(system: System, seen: Episode) -> None:
    """Raises with what went wrong first in the episodes `seen`: the path, g, or the range of b."""
    lost = ~np.isfinite(seen.path).all(axis=2)
    negative = (seen.g < 0) & ~lost
    if negative.any():
        episode, node = np.argwhere(negative)[0]
        raise MeasurementError(
            f"the diffusion of {system.name!r} is {seen.g[episode, node]:g} in episode {episode} of this block at time "
            f"t = {seen.nodes[episode, node]:g} in state x = {seen.path[episode, node].tolist()}: g must be ≥ 0"
        )
    if lost.any():
        episode, node = np.argwhere(lost)[0]
        where = f"in episode {episode} of this block at time t = {seen.nodes[episode, node]:g}"
        if node == 0:
            raise MeasurementError(f"initial: the state {seen.path[episode, 0].tolist()} {where} is not finite")
        raise MeasurementError(
            f"the simulation of {system.name!r} has left the finite numbers {where}; the last finite state was "
            f"x = {seen.path[episode, node - 1].tolist()} at t = {seen.nodes[episode, node - 1]:g}: take more `steps`, "
            "a bounded drift or policy, or a shorter horizon"
        )
    low, high = system.reward_range
    outside = seen.b[~((seen.b >= low - ROUNDING) & (seen.b <= high + ROUNDING))]
    if outside.size:
        raise MeasurementError(
            f"the reward of {system.name!r} is {outside[0]:g}, outside its declared range [{low:g}, {high:g}]: "
            "scale it or declare its true range"
        )


def pad_rows(
    function: Callable[..., tuple[Array, ...]], *arrays: np.ndarray, sizes: tuple[int, ...] = (1, 16, 256)
) -> tuple[np.ndarray, ...]:
    """Calls `function` on arrays whose first axis is padded to one of `sizes` or a larger power of two, and cuts its results
    back: a run with blocks of many sizes compiles a handful of programs instead of many. The last row fills the rest."""
    rows = len(arrays[0])
    padded = next((size for size in sizes if rows <= size), 1 << (rows - 1).bit_length())
    if padded > rows:
        arrays = tuple(np.concatenate([a, np.repeat(a[-1:], padded - rows, axis=0)]) for a in arrays)
    return tuple(np.asarray(result)[:rows] for result in function(*arrays))
