"""Measurements (t, x, u, y, r) of some episodes, and the data set D_n that they add up to."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from purectrl.core.errors import MeasurementError


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """Measurements of some episodes, m per episode or fewer. Shapes are checked on construction; the arrays are read-only.

    Main arguments:
        t: times [episodes, m], sorted within an episode.
        x: states [episodes, m, *state].
        u: controls [episodes, m, *control].

    Other arguments:
        y: measured drifts, shaped as `x`; None where the drift is known.
        r: measured rewards [episodes, m]; None where the reward is known.
        count: how many measurements each episode has [episodes], if some have fewer than m: the first ones of each row. What
            follows them in the other arrays has no meaning.
        final: the state in which each episode terminated [episodes, *state], NaN where it did not.

    >>> one = Measurements(t=np.zeros((1, 2)), x=np.zeros((1, 2, 3)), u=np.zeros((1, 2, 1)), r=np.zeros((1, 3)))
    Traceback (most recent call last):
    ...
    purectrl.core.errors.MeasurementError: r has shape (1, 3), expected (1, 2), one reward for each time
    >>> short = Measurements(np.zeros((2, 3)), np.ones((2, 3, 1)), np.ones((2, 3, 1)), count=np.array([3, 1]))
    >>> short.total, short.valid.tolist()
    (4, [[True, True, True], [True, False, False]])
    """

    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    y: np.ndarray | None = None
    r: np.ndarray | None = None
    count: np.ndarray | None = None
    final: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, array in self._present():
            view = np.asarray(array).view()
            if view.dtype.kind in "biu" and name != "count":  # integers from one system must not make all data integer
                view = view.astype(np.float64)
            view.setflags(write=False)
            object.__setattr__(self, name, view)
        if self.t.ndim != 2:
            raise MeasurementError(f"t has shape {self.t.shape}, expected [episodes, m]")
        lead = self.t.shape
        for name, array in (("x", self.x), ("u", self.u)):
            if array.shape[:2] != lead or array.ndim < 3:
                raise MeasurementError(f"{name} has shape {array.shape}, expected {lead} and at least one more axis")
        if self.y is not None and self.y.shape != self.x.shape:
            raise MeasurementError(f"y has shape {self.y.shape}, expected {self.x.shape}, one drift for each state")
        if self.r is not None and self.r.shape != lead:
            raise MeasurementError(f"r has shape {self.r.shape}, expected {lead}, one reward for each time")
        self._check_ends()

    def _check_ends(self) -> None:
        """Raises unless `count` and `final` fit the other arrays."""
        episodes, m = self.t.shape
        if self.count is not None:
            if self.count.shape != (episodes,) or self.count.dtype.kind not in "iu":
                raise MeasurementError(
                    f"count is {self.count.dtype} {list(self.count.shape)}, expected one integer per episode, [{episodes}]"
                )
            if self.count.size and not (self.count.min() >= 0 and self.count.max() <= m):
                raise MeasurementError(f"count must be between 0 and m = {m}, got {self.count.tolist()}")
        expected = (episodes, *self.x.shape[2:])
        if self.final is not None and self.final.shape != expected:
            raise MeasurementError(f"final has shape {self.final.shape}, expected {expected}, one state per episode")

    def _present(self) -> list[tuple[str, np.ndarray]]:
        pairs = zip(NAMES, (self.t, self.x, self.u, self.y, self.r, self.count, self.final), strict=True)
        return [(name, array) for name, array in pairs if array is not None]

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return self.t.shape[0]

    @property
    def m(self) -> int:
        """The largest number of measurements per episode."""
        return self.t.shape[1]

    @property
    def total(self) -> int:
        """Number of measurements that were taken."""
        return self.t.size if self.count is None else int(self.count.sum())

    @property
    def valid(self) -> np.ndarray:
        """Which places of the arrays hold a measurement [episodes, m]."""
        if self.count is None:
            return np.ones(self.t.shape, bool)
        return np.arange(self.m) < self.count[:, None]

    @property
    def terminated(self) -> np.ndarray:
        """Which episodes terminated [episodes]."""
        if self.final is None:
            return np.zeros(self.episodes, bool)
        return ~np.isnan(self.final).any(axis=tuple(range(1, self.final.ndim)), keepdims=True).reshape(-1)

    @property
    def ending(self) -> np.ndarray:
        """Which measurements are the last ones of episodes that terminated [episodes, m]."""
        found = np.zeros(self.t.shape, bool)
        episodes = np.flatnonzero(self.terminated)
        found[episodes, self.valid[episodes].sum(axis=1) - 1] = True
        return found

    @property
    def repeated(self) -> np.ndarray:
        """Which measurements show the state of the one before, and so nothing new [episodes, m]."""
        found = np.zeros(self.t.shape, bool)
        axes = tuple(range(2, self.x.ndim))
        found[:, 1:] = (self.x[:, 1:] == self.x[:, :-1]).all(axis=axes)
        return found & self.valid

    def signature(self) -> tuple[Any, ...]:
        """Type and shape of one episode in each field, None where there is none: what must agree between blocks."""
        fields = (self.t, self.x, self.u, self.y, self.r, self.count, self.final)
        return tuple([None if array is None else (array.dtype, array.shape[1:]) for array in fields])

    def rows(self) -> "Measurements":
        """All measurements as episodes of one measurement each: [n, 1, ...]."""
        arrays = [(name, array) for name, array in self._present() if name not in ("count", "final")]
        if self.count is None:
            return Measurements(**{name: array.reshape(-1, 1, *array.shape[2:]) for name, array in arrays})
        return Measurements(**{name: array[self.valid][:, None] for name, array in arrays})

    def first(self, episodes: int) -> "Measurements":
        """The first episodes alone."""
        return Measurements(**{name: array[:episodes] for name, array in self._present()})

    def after(self, episodes: int) -> "Measurements":
        """All but the first episodes."""
        return Measurements(**{name: array[episodes:] for name, array in self._present()})

    def distinct(self) -> "Measurements":
        """The same with one measurement for each time: of times that were measured more than once, the first.

        >>> x = np.arange(3.0)[None, :, None]
        >>> twice = Measurements(np.array([[0.1, 0.1, 0.2]]), x, x)
        >>> twice.distinct().count.tolist(), twice.distinct().x[0, :2, 0].tolist()
        ([2], [0.0, 2.0])
        """
        again = np.zeros(self.t.shape, bool)
        again[:, 1:] = self.t[:, 1:] <= self.t[:, :-1]
        kept = self.valid & ~again
        return self if np.array_equal(kept, self.valid) else self.at(kept)

    def at(self, kept: np.ndarray) -> "Measurements":
        """Those measurements alone that `kept` [episodes, m] names, moved to the beginning of each episode.

        >>> x = np.arange(3.0)[None, :, None]
        >>> some = Measurements(np.array([[0.1, 0.2, 0.3]]), x, x).at(np.array([[False, True, True]]))
        >>> some.count.tolist(), some.t[some.valid].tolist()
        ([2], [0.2, 0.3])
        """
        order = np.argsort(~kept, axis=1, kind="stable")
        arrays = {}
        for name, array in self._present():
            if name not in ("count", "final"):
                index = order.reshape(*order.shape, *[1] * (array.ndim - 2))
                arrays[name] = np.take_along_axis(array, index, axis=1)
        return Measurements(**arrays, count=kept.sum(axis=1), final=self.final)

    def check(self, reward_range: tuple[float, float] | None = None) -> None:
        """Raises unless every number is finite and every reward inside `reward_range`."""
        for name, array in self._present():
            if name in ("count", "final"):
                continue
            if not np.isfinite(array if self.count is None else array[self.valid]).all():
                wrong = ~np.isfinite(array) & self.valid.reshape(*self.t.shape, *[1] * (array.ndim - 2))
                episode, index = np.argwhere(wrong)[0][:2]
                raise MeasurementError(
                    f"{name} is not finite in episode {episode} of this block at time t = {self.t[episode, index]:g}: "
                    "the system has left the finite numbers; check its equations, the policy's range or the time step"
                )
        if self.r is not None and reward_range is not None and self.total:
            low, high = reward_range
            rewards = self.r[self.valid]
            if rewards.min() < low or rewards.max() > high:
                worst = rewards.min() if rewards.min() < low else rewards.max()
                raise MeasurementError(
                    f"r = {worst:g} is outside the declared range [{low:g}, {high:g}]: scale the reward or declare "
                    "its true range"
                )


NAMES = tuple(field.name for field in fields(Measurements))


class Dataset:
    """All measurements so far: D_n. Appending is a value operation, `new = old.append(block)`, and costs the same at the
    hundred-thousandth measurement as at the thousandth: both share one buffer, of which each sees its own beginning.

    >>> block = Measurements(t=np.zeros((2, 1)), x=np.ones((2, 1, 3)), u=np.ones((2, 1, 1)))
    >>> one = Dataset().append(block)
    >>> two = one.append(block)
    >>> one.episodes, two.episodes, two.all.x.shape
    (2, 4, (4, 1, 3))
    """

    __slots__ = ("_buffer", "episodes")

    def __init__(self, block: Measurements | None = None) -> None:
        self._buffer = _EMPTY
        self.episodes = 0
        if block is not None:
            arrays = {name: array.copy() for name, array in block._present()}
            self._buffer = _Buffer(arrays, block.episodes, block.signature())
            self.episodes = block.episodes

    def append(self, block: Measurements) -> "Dataset":
        """The data set with `block` added at the end; `self` stays as it was."""
        if not self.episodes:
            return Dataset(block)
        total = self.episodes + block.episodes
        buffer = self._buffer.room_for(self.episodes, total, block)
        for name, array in buffer.arrays.items():
            array[self.episodes : total] = getattr(block, name)
        buffer.filled = total
        new = Dataset()
        new._buffer, new.episodes = buffer, total
        return new

    @property
    def all(self) -> Measurements:
        """Everything, without copying."""
        if not self.episodes:
            raise MeasurementError("the data set is empty: no episode has been measured yet")
        return Measurements(**{name: array[: self.episodes] for name, array in self._buffer.arrays.items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are present, by name; empty when nothing was measured."""
        return dict(self.all._present()) if self.episodes else {}


@dataclass(slots=True)
class _Buffer:
    """Arrays with room at the end. `filled` tells how much of them is spoken for by some data set."""

    arrays: dict[str, Any]
    filled: int
    signature: tuple[Any, ...]

    def room_for(self, start: int, total: int, block: Measurements) -> "_Buffer":
        """This buffer if rows `start` to `total` are free in it, else a copy with twice the room."""
        if block.signature() != self.signature:
            name, now, before = next(
                (name, now, before)
                for name, now, before in zip(NAMES, block.signature(), self.signature, strict=True)
                if now != before
            )
            now, before = ("nothing" if kind is None else f"{kind[0]}{list(kind[1])}" for kind in (now, before))
            raise MeasurementError(f"{name} is {now} in each episode, in the earlier episodes {before}")
        capacity = len(self.arrays["t"])
        if self.filled == start and total <= capacity:
            return self
        grown = {}
        for name, array in self.arrays.items():
            grown[name] = np.empty((max(2 * capacity, total), *array.shape[1:]), array.dtype)
            grown[name][:start] = array[:start]
        return _Buffer(grown, start, self.signature)


_EMPTY = _Buffer({}, 0, ())
