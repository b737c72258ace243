"""Logs of a system as the first data of a learner: `continuous(logs=...)`.

A log is an `Episode` that somebody else has driven: states, controls, times, and rewards unless the reward is known. It is
not charged to the budget, and its first state counts as a possible initial state.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import InputError, require
from purectrl.core.first_data import widened
from purectrl.core.measurement import Measurements
from purectrl.problems.driven_systems import Episode
from purectrl.systems.device import Device, History
from purectrl.systems.spec import StateSpec

LONGEST = 1_000
"""A log with more measurements is divided; later parts count as episodes, too."""


def first_data(
    logs: Sequence[Any], spec: StateSpec, device: Device | None, abort_reward: float, drift_measured: bool
) -> Measurements | None:
    """All logs as measurements; None if there are none.

    Main arguments:
        logs: (x [n, d], u [n, k], r [n] or None, t [n]) each, as `Episode`.
        spec: of the true state.
        device: the digital controller, whose history policies see in the place of a measured state.
        abort_reward: what the rewards of learners are relative to; that of `spec` is already.
        drift_measured: whether measurements contain the drift, which here is the difference quotient of two states.
    """
    if not len(logs):
        return None
    blocks = [_block(number, log, spec, device, abort_reward, drift_measured) for number, log in enumerate(logs)]
    parts = [part for block in blocks for part in _divided(block)]
    width = max(part.m for part in parts)
    wide = [widened(part, width) for part in parts]
    names = ("t", "x", "u", "r", "count", "final", *(["y"] if drift_measured else []))
    return Measurements(**{name: np.concatenate([getattr(one, name) for one in wide]) for name in names})


def _divided(block: Measurements) -> list[Measurements]:
    """Rows of at most `LONGEST` measurements."""
    found = []
    for start in range(0, block.m, LONGEST):
        part = slice(start, start + LONGEST)
        y, r = (None if array is None else array[:, part] for array in (block.y, block.r))
        final = block.final if start + LONGEST >= block.m else None
        found.append(Measurements(block.t[:, part], block.x[:, part], block.u[:, part], y, r, final=final))
    return found


def _block(
    number: int, log: Any, spec: StateSpec, device: Device | None, abort_reward: float, drift_measured: bool
) -> Measurements:
    """One log as an episode."""
    what = f"logs: number {number}"
    x, u, r, t, terminated = _arrays(what, log, spec, device)
    if r is None:
        if spec.reward is None or x.shape[1] != spec.state_dim:
            raise InputError(f"{what} has no rewards, and the reward is not a known function of what is measured")
        r = np.asarray(jax.vmap(spec.reward)(jnp.asarray(x), jnp.asarray(u)))
    else:
        r = r - np.float32(abort_reward)
    z = x if device is None else _seen(x, u, device)
    final, y = np.full((1, z.shape[1]), np.nan, np.float32), None
    if terminated:
        final[0] = z[-1]
    if drift_measured:  # of the last state it is unknown
        y = (np.diff(z, axis=0) / np.diff(t)[:, None]).astype(np.float32)[None]
        z, u, r, t = z[:-1], u[:-1], r[:-1], t[:-1]
    return Measurements(t[None], z[None], u[None], y, r[None].astype(np.float32), final=final)


def _arrays(what: str, log: Any, spec: StateSpec, device: Device | None) -> tuple[Any, ...]:
    """x, u, r, t of a log without rows that are not finite, and whether it terminated; raises unless their shapes fit."""
    found = log if isinstance(log, Episode) else Episode(*log)
    require(found.t is not None, f"{what} has no times; give Episode(x, u, t=t)")
    x, u = np.asarray(found.x, np.float32), np.asarray(found.u, np.float32)
    t, r = np.asarray(found.t, np.float64), None if found.r is None else np.asarray(found.r, np.float32)
    n, d, k = len(t), spec.state_dim if device is None else len(device.observed), spec.control_dim
    fits = x.shape == (n, d) and u.shape == (n, k) and t.ndim == 1 and (r is None or r.shape == (n,))
    shapes = f"x {list(x.shape)}, u {list(u.shape)}, t {list(t.shape)}" + ("" if r is None else f", r {list(r.shape)}")
    require(fits, f"{what} has {shapes}, expected x [n, {d}], u [n, {k}], t [n] and r [n]")
    sound = np.isfinite(x).all(axis=1) & np.isfinite(u).all(axis=1) & np.isfinite(t)
    x, u, t, r = x[sound], u[sound], t[sound], None if r is None else r[sound]
    require(len(t) >= 2, f"{what} has fewer than two measurements that are finite")
    require(bool((np.diff(t) > 0).all()), f"{what}: the times must increase")
    require(r is None or bool(np.isfinite(r).all()), f"{what}: a reward is not finite")
    return x, u, r, t - t[0], found.terminated


def _seen(x: np.ndarray, u: np.ndarray, device: Device) -> np.ndarray:
    """What a policy would have seen at each measurement [n, D]."""
    history = History(len(device.observed), u.shape[1], device.history, device.rest)
    rows = []
    for observation, control in zip(x, u, strict=True):
        rows.append(history(observation))
        history.applied(control)
    return np.stack(rows)
