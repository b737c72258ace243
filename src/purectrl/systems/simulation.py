"""Simulated diffusions: one compiled Euler-Maruyama scan, and the rollout of a simulated system for `Oracle`.

The path is computed on a time grid that contains every measurement time, so irregular times, different in each episode,
need neither rounding nor interpolation, and several times on one path have their exact joint law (of the scheme).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.core.errors import InputError, MeasurementError, require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan
from purectrl.core.system import MeasurementModel, System
from purectrl.systems.compiled import pad_rows

Controller = Callable[[Array, Array], Array]
"""(x [d], t) -> u [k]."""
Initial = Callable[[Array], Array]
"""(JAX key) -> x(0) [d]."""


class Solver(Protocol):
    """What computes a path of an Itô diffusion; `euler_maruyama` documents the arguments."""

    def __call__(
        self,
        key: Array,
        drift: Callable[[Array, Array], Array],
        diffusion: Callable[[Array, Array], Array],
        policy: Controller,
        start: Array,
        times: Array,
    ) -> Array:
        """States at `times` [K+1, d]."""
        ...


def euler_maruyama(
    key: Array,
    drift: Callable[[Array, Array], Array],
    diffusion: Callable[[Array, Array], Array],
    policy: Controller,
    start: Array,
    times: Array,
) -> Array:
    """One path of dx = f(x, π(x, t)) dt + g(x, π(x, t)) dw.

    Main arguments:
        drift, diffusion: functions of one state and one control, as in `System`.
        policy: (x [d], t) -> u [k].
        start: x(t_0) [d].
        times: t_0 ≤ … ≤ t_K [K+1], not necessarily equidistant.

    Returns:
        States at those times [K+1, d].

    >>> still, none = (lambda x, u: u), (lambda x, u: 0.0)
    >>> times = jnp.array([0.0, 0.5, 1.0])
    >>> euler_maruyama(jax.random.key(0), still, none, lambda x, t: t[None], jnp.zeros(1), times)[:, 0].tolist()
    [0.0, 0.0, 0.25]
    """
    steps = jnp.diff(times)
    increments = jax.random.normal(key, (steps.size, start.size)) * jnp.sqrt(steps)[:, None]

    def advance(x: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        t, dt, dw = step
        u = policy(x, t)
        x = x + drift(x, u) * dt + diffusion(x, u) * dw
        return x, x

    _, path = jax.lax.scan(advance, start, (times[:-1], steps, increments))
    return jnp.concatenate([start[None], path])


def simulate_rollouts(
    system: System,
    measuring: MeasurementModel,
    steps: int,
    initial: Initial | None = None,
    explore: bool = True,
    solver: Solver = euler_maruyama,
) -> Rollout:
    """The rollout of a simulated true system, for `Oracle`.

    It executes any plan whose parts are pytrees and callable: `plan.policy(x, t)` is the control [k] at state x [d] and time
    t, `plan.initial(key)` the initial state [d] for a JAX key. A plain function becomes such a pytree as
    `jax.tree_util.Partial(function)`.

    Main arguments:
        system: the true system.
        measuring: Δ, the noise, and how y is measured.
        steps: equal steps over [0, T]; every measurement time is one more node of the path.

    Other arguments:
        initial: (JAX key) -> x(0) [d], the initial distribution of plans whose `initial` is None.
        explore: whether a policy with a method `explore(key, episode) -> ((x, t) -> u)` is executed as that controller
            instead, drawn once per episode from a JAX key; `episode` counts from 0 within the batch. False for evaluation.
        solver: computes the path; `purectrl.systems.solvers` has more accurate ones.

    Raises:
        InputError: a function of the system or of a plan returns the wrong shape; raised before anything is compiled.
        MeasurementError: a path left the finite numbers, g was negative on it, or b* outside its range.
    """
    episode = _checked_episode(system, measuring, steps, initial, explore, solver)
    batch = functools.partial(_batch, episode)

    @jax.jit
    def measured(words: Array, plan: Plan, times: Array) -> Array:
        return _packed(system, batch(words, plan, times))

    everything = jax.jit(batch)  # compiled only after an episode has failed

    def rollout(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        words, rows = key.jax_key_data(), np.asarray(times, np.float32)
        (packed,) = pad_rows(lambda rows: (measured(words, plan, rows),), rows)
        if np.count_nonzero(packed[:, -1]) < len(packed):
            _raise_first_failure(system, Episode(*pad_rows(lambda rows: everything(words, plan, rows), rows)))
        return _unpacked(packed, times, system.state_dim, system.control_dim)

    return rollout


Rows = Callable[[np.ndarray, Plan, np.ndarray], Measurements]
"""(words [n, 2], plans, times [n, m]) -> Measurements of n episodes, each of a run and under a plan of its own."""


def simulate_rows(
    system: System,
    measuring: MeasurementModel,
    steps: int,
    initial: Initial | None = None,
    explore: bool = True,
    solver: Solver = euler_maruyama,
) -> Rows:
    """Episodes of many runs at once, with the numbers of `simulate_rollouts`, whose arguments it takes.

    Episode i is the one that `simulate_rollouts` executes alone with the key whose `jax_key_data` is `words[i]`. `plans` is
    one plan whose leaves have a leading axis [n]. Numbers may differ in the last bit, since XLA rounds programs of different
    sizes differently; a row does not depend on the other rows.
    """
    episode = _checked_episode(system, measuring, steps, initial, explore, solver)

    def batch(words: Array, plans: Plan, times: Array) -> Episode:
        rows = jax.vmap(functools.partial(_batch, episode))(words, plans, times[:, None])
        return jax.tree.map(lambda array: array[:, 0], rows)

    @functools.partial(jax.jit, static_argnames="structure")
    def measured(words: Array, times: Array, *leaves: Array, structure: Any) -> Array:
        return _packed(system, batch(words, jax.tree.unflatten(structure, leaves), times))

    def rows(words: np.ndarray, plans: Plan, times: np.ndarray) -> Measurements:
        leaves, structure = jax.tree.flatten(plans)
        arrays = words, np.asarray(times, np.float32), *leaves
        (packed,) = pad_rows(lambda *arrays: (measured(*arrays, structure=structure),), *arrays)
        if np.count_nonzero(packed[:, -1]) < len(packed):
            failed = batch(jnp.asarray(words), plans, jnp.asarray(times, jnp.float32))
            _raise_first_failure(system, Episode(*map(np.asarray, failed)))
        return _unpacked(packed, times, system.state_dim, system.control_dim)

    return rows


def _checked_episode(
    system: System, measuring: MeasurementModel, steps: int, initial: Initial | None, explore: bool, solver: Solver
) -> "EpisodeFunction":
    require(steps >= 1, f"steps: the simulation needs at least one step, not {steps}")
    _check_system(system)
    grid = np.linspace(0.0, system.horizon, steps + 1, dtype=np.float32)
    return _episode(system, measuring, grid, initial, explore, solver)


def _batch(episode: "EpisodeFunction", words: Array, plan: Plan, times: Array) -> "Episode":
    """Episodes under one plan, with one key."""
    numbers = jnp.arange(times.shape[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.wrap_key_data(words), numbers)
    return jax.vmap(episode, (0, 0, None, 0))(keys, numbers, plan, times)


def _packed(system: System, seen: "Episode") -> Array:
    """What was measured in some episodes, and whether each was sound, as one array [episodes, columns]: each array that JAX
    returns takes as long as simulating a short path."""
    low, high = system.reward_range
    in_range = (seen.b >= low - ROUNDING) & (seen.b <= high + ROUNDING)
    finite = jnp.isfinite(seen.path).all(axis=(1, 2)) & jnp.isfinite(seen.y).all(axis=(1, 2))
    columns = (seen.x, seen.u, seen.y, seen.r, in_range.all(axis=1) & finite)
    return jnp.concatenate([jnp.reshape(column, (len(seen.x), -1)) for column in columns], axis=1)


ROUNDING = 1e-6
"""The tolerance on the declared range of the reward."""


Numbers = Array | np.ndarray


class Episode(NamedTuple):
    """What happens in one episode with m measurements and K+1 nodes; with one more axis in front, in many."""

    x: Numbers
    """States at the measurement times [m, d]."""
    u: Numbers
    """Controls [m, k]."""
    y: Numbers
    """Measured drifts [m, d]."""
    r: Numbers
    """Measured rewards [m]."""
    b: Numbers
    """Rewards without noise [m]."""
    nodes: Numbers
    """Times of the simulated path [K+1]."""
    path: Numbers
    """States at the nodes [K+1, d]; NaN after a node where g was negative."""
    g: Numbers
    """The diffusion at the nodes [K+1], as the system gave it; of several directions the smallest."""


EpisodeFunction = Callable[[Array, Array, Plan, Array], Episode]
"""(key, number, plan, times [m]) -> one episode."""


def _episode(
    system: System,
    measuring: MeasurementModel,
    grid: np.ndarray,
    initial: Initial | None,
    explore: bool,
    solver: Solver,
) -> EpisodeFunction:
    """(key, episode, plan, times [m]) -> one episode, simulated on `grid` and at the measurement times."""

    def diffusion(x: Array, u: Array) -> Array:
        # a negative g would go unnoticed, since g dw and −g dw have one law; NaN ends the path where it happens
        g = system.diffusion(x, u)
        return jnp.where(g < 0, jnp.nan, g)

    def episode(key: Array, number: Array, plan: Plan, times: Array) -> Episode:
        start_key, path_key, drift_key, reward_key = jax.random.split(key, 4)
        draw = initial if plan.initial is None else plan.initial
        require(draw is not None, f"initial: the plan has none, and no default is given for {system.name!r}")
        assert draw is not None
        start = draw(start_key)
        act: Controller = plan.policy
        if explore and hasattr(plan.policy, "explore"):
            act = plan.policy.explore(jax.random.fold_in(key, 4), number)  # the fifth key; `split` has 0 to 3
        _check_plan(system, act, start)
        measured = [times, times + measuring.step] if measuring.drift == "quotient" else [times]
        nodes, places = _merged(grid, *measured)
        path = solver(path_key, system.drift, diffusion, act, start, nodes)
        x = path[places[0]]
        u = jax.vmap(act)(x, times)
        if measuring.drift == "quotient":
            y = (path[places[1]] - x) / measuring.step
        else:
            noise = jax.random.normal(drift_key, x.shape) / np.sqrt(measuring.step)
            y = jax.vmap(system.drift)(x, u) + jax.vmap(diffusion)(x, u).reshape(len(x), -1) * noise
        b = jax.vmap(system.reward)(x, u)
        r = b + measuring.reward_std * jax.random.normal(reward_key, b.shape)
        g = jax.vmap(lambda x, t: jnp.min(system.diffusion(x, act(x, t))))(path, nodes)
        return Episode(x, u, y, r, b, nodes, path, g)

    return episode


def _merged(grid: np.ndarray, *others: Array) -> tuple[Array, list[Array]]:
    """`grid` with the other sorted lists of times merged into it, and the positions of the times of each list.

    Searching and scattering: sorting all of them again would take XLA several times as long as the path itself.
    """
    nodes, places = jnp.asarray(grid), []
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


def _check_plan(system: System, act: Controller, start: Array) -> None:
    """Raises unless the initial state and the policy fit the system; runs while JAX traces, so before it compiles."""
    require(callable(act), f"policy: must be callable as policy(x, t), not {act!r:.60}")
    d, k = [system.state_dim], [system.control_dim]
    found = list(jnp.shape(start))
    require(found == d, f"initial: returns a state of shape {found}, {system.name!r} has states of shape {d}")
    require(
        jnp.issubdtype(start.dtype, jnp.floating), f"initial: returns a state of type {start.dtype}, expected float32"
    )
    found = list(jnp.shape(jax.eval_shape(act, start, jnp.float32(0.0))))
    require(found == k, f"policy: returns a control of shape {found}, {system.name!r} has controls of shape {k}")


def _raise_first_failure(system: System, seen: Episode) -> None:
    """Raises `MeasurementError` for what failed first in the episodes `seen`: the path, g, or the range of b."""
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
            f"x = {seen.path[episode, node - 1].tolist()} at t = {seen.nodes[episode, node - 1]:g}: use more `steps`, "
            "a bounded drift or policy, or a shorter horizon"
        )
    low, high = system.reward_range
    outside = seen.b[~((seen.b >= low - ROUNDING) & (seen.b <= high + ROUNDING))]
    if outside.size:
        raise MeasurementError(
            f"the reward of {system.name!r} is {outside[0]:g}, outside its declared range [{low:g}, {high:g}]: "
            "scale it or declare its true range"
        )
