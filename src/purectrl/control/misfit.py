"""When an ensemble has stopped fitting: the test of Algorithm 2, line 6, for a learner that has no confidence radius.

Algorithm 2                     here
------------------------------  ---------------------------------------------------------------------------------------
f_n                             the ensemble after its last fit, to the episodes D_n
L_e(f)                          its mean loss on the sub-sequences of an episode e, of its members on average
min_f L_e(f), e after D_n       ℓ_n, the mean of L_e(f_n) over the newest episodes of D_n: what a fit leaves
L(f_n) − min L                  the sum of L_e(f_n) − ℓ_n over the episodes e after D_n, started anew when below zero
β_F                             ℓ_n, once: in Theorem 1, too, the radius is a multiple of the noise that no fit explains
L(f_n) ≥ min L + 5 β_F          S ≥ 5, where S ← max(0, S + L_e(f_n)/ℓ_n − 1) after each episode

To find min L, one would have to fit, which is the work that the test should save. But the last fit has shown what a fit
leaves, on the episodes that it saw for the first time: they are most like those to come. Older episodes are not: in those
that explore at random the loss is up to thirty times as large, and no fit changes that. For the same reason nothing is known
before the ensemble was fitted to an episode under a policy, and S is infinite: the second update follows the first such
episode. The sum is Page's (1954), which forgets episodes that fitted well, so that they cannot hide those that do not.

Episodes of the old kind have L_e near ℓ_n, and S stays small. An ensemble whose losses are twice what they could be has five
episodes to go, one whose losses are six times that has one.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purectrl.control.dynamics import Dynamics
from purectrl.control.imagination import Model
from purectrl.control.integrate import Integrator, path
from purectrl.control.model import Fitting, gaps_of
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Array
from purectrl.systems.simulation import pad_rows

ROWS = 256
"""Sub-sequences that are looked at together: one compiled program does for any data."""
BEYOND = 1e9
"""A loss that is larger, or no number, is this."""


class Watch(NamedTuple):
    """What is known about the fit of the current ensemble."""

    level: float = 0.0
    """ℓ_n, zero if it is not known."""
    sum: float = 0.0
    """S, where ℓ_n is known."""
    fitted: int = 0
    """Episodes in D_n."""
    since: int = 0
    """Episodes after them that were looked at."""

    def after(self, loss: float) -> "Watch":
        """When one more episode had this loss.

        >>> Watch(level=2.0, sum=1.0, fitted=3).after(8.0)
        Watch(level=2.0, sum=4.0, fitted=3, since=1)
        >>> Watch(level=2.0, sum=0.2).after(1.0).sum
        0.0
        """
        total = max(0.0, self.sum + loss / self.level - 1) if self.level > 0 else 0.0
        return self._replace(sum=total, since=self.since + 1)

    @property
    def excess(self) -> float:
        """What Algorithm 2 compares with 5.

        >>> Watch(level=2.0, sum=4.0).excess, Watch().excess
        (4.0, inf)
        """
        return self.sum if self.level > 0 else float("inf")


def places(seen: Measurements, points: int, longest_gap: float) -> np.ndarray:
    """Where a sub-sequence begins: number of its episode, and of its first measurement there [n, 2].

    >>> one = Measurements(t=np.array([[0.0, 0.1, 0.2, 0.9]]), x=np.zeros((1, 4, 2)), u=np.zeros((1, 4, 1)))
    >>> places(one, points=2, longest_gap=0.15).tolist()
    [[0, 0], [0, 1]]
    """
    linked = gaps_of(seen) <= longest_gap
    return np.argwhere(np.lib.stride_tricks.sliding_window_view(linked, points - 1, axis=1).all(axis=-1))


def evenly(rows: np.ndarray, most: int = ROWS) -> np.ndarray:
    """At most that many rows, spread evenly.

    >>> evenly(np.arange(10), most=4).tolist()
    [0, 3, 6, 9]
    """
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(int)]


def error_scale(fitting: Fitting, ensemble: Dynamics) -> Array:
    """What errors are divided by [2·nq], as in `trajectory_loss`."""
    velocity = ensemble.acceleration_scale * fitting.step
    return jnp.concatenate([velocity / 2, velocity])


def mean_loss(
    fitting: Fitting, integrate: Integrator, model: Model, scale: Array, seen: Measurements, where: np.ndarray
) -> float:
    """The mean loss of members and of the sub-sequences of `seen` at `where` [n, 2], with errors in units of `scale`.

    It is zero where there are none.
    """
    episodes, rows = where[:, :1], where[:, 1:] + np.arange(fitting.points)
    data = [array[episodes, rows].astype(np.float32) for array in (seen.x, seen.u, gaps_of(seen)[..., None])]
    total = 0.0
    for begin in range(0, len(where), ROWS):
        some = [array[begin : begin + ROWS] for array in data]
        (found,) = pad_rows(lambda *some: (_losses(fitting, integrate, model, scale, *some),), *some, sizes=(ROWS,))
        total += float(found.sum(dtype=np.float64))
    return min(float(np.nan_to_num(total, nan=np.inf)) / max(len(where), 1), BEYOND)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _losses(
    fitting: Fitting, integrate: Integrator, model: Model, scale: Array, x: Array, u: Array, gaps: Array
) -> Array:
    """x [rows, points, 2·nq], u [rows, points, k], gaps [rows, points, 1] -> [rows]."""
    shared = [jnp.broadcast_to(array, (model.members, *array.shape)) for array in (x, u, gaps)]
    x, u, gaps = (jnp.moveaxis(array, 2, 0) for array in shared)  # [points, members, rows, ...]
    errors = (path(integrate, model.drift, x[0], u, gaps[:-1]) - x[1:]) / scale
    return 2 * optax.huber_loss(errors, delta=fitting.huber).mean(axis=(0, 1, 3))


def watching(
    fitting: Fitting, integrate: Integrator, ensemble: Dynamics, seen: Measurements, where: np.ndarray, since: int
) -> Watch:
    """The watch over an ensemble that was just fitted to `seen`.

    Main arguments:
        where: all sub-sequences of `seen` [n, 2].
        since: the number of the first episode that it had not been fitted to before; as many as there are, if none counts.
    """
    newest = evenly(where[where[:, 0] >= since])
    level = mean_loss(fitting, integrate, ensemble, error_scale(fitting, ensemble), seen, newest)
    return Watch(level, fitted=seen.episodes)


def watched(
    fitting: Fitting, integrate: Integrator, ensemble: Dynamics, watch: Watch, seen: Measurements, longest_gap: float
) -> list[Watch]:
    """The watch after each episode of `seen`. One at a time, so that an episode has the same loss in any block."""
    where, scale = places(seen, fitting.points, longest_gap), error_scale(fitting, ensemble)
    found = []
    for episode in range(seen.episodes):
        own = where[where[:, 0] == episode] if watch.level else where[:0]  # without a level, its loss is of no use
        watch = watch.after(mean_loss(fitting, integrate, ensemble, scale, seen, own))
        found.append(watch)
    return found
