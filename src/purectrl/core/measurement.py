"""Measurements (t, x, u, y, r) of some episodes, and the data set D_n that they add up to."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from purectrl.core.errors import MeasurementError


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """What was seen in some episodes, m times in each. Shapes are checked on entry; the arrays are read-only.

    Main arguments:
        t: times [episodes, m], sorted within an episode.
        x: states [episodes, m, *state].
        u: controls [episodes, m, *control].

    Other arguments:
        y: measured drifts, shaped as `x`; None where the drift is known.
        r: measured rewards [episodes, m]; None where the reward is known.

    >>> one = Measurements(t=np.zeros((1, 2)), x=np.zeros((1, 2, 3)), u=np.zeros((1, 2, 1)), r=np.zeros((1, 3)))
    Traceback (most recent call last):
    ...
    purectrl.core.errors.MeasurementError: r has shape (1, 3), expected (1, 2), one reward for each time
    """

    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    y: np.ndarray | None = None
    r: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, array in self._present():
            view = np.asarray(array).view()
            if view.dtype.kind in "biu":  # a system that counts in integers must not make the whole data set integer
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

    def _present(self) -> list[tuple[str, np.ndarray]]:
        pairs = zip(NAMES, (self.t, self.x, self.u, self.y, self.r), strict=True)
        return [(name, array) for name, array in pairs if array is not None]

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return self.t.shape[0]

    @property
    def m(self) -> int:
        """Measurements an episode."""
        return self.t.shape[1]

    def kinds(self) -> tuple[Any, ...]:
        """Type and shape of one episode in each field, None where there is none: what must agree between blocks."""
        fields = (self.t, self.x, self.u, self.y, self.r)
        return tuple([None if array is None else (array.dtype, array.shape[1:]) for array in fields])

    def rows(self) -> "Measurements":
        """The same measurements as episodes·m episodes of one measurement each: [n, 1, ...]."""
        return Measurements(**{name: array.reshape(-1, 1, *array.shape[2:]) for name, array in self._present()})

    def first(self, episodes: int) -> "Measurements":
        """The first episodes alone."""
        return Measurements(**{name: array[:episodes] for name, array in self._present()})

    def check(self, reward_range: tuple[float, float] | None = None) -> None:
        """Raises unless every number is finite and every reward inside `reward_range`."""
        for name, array in self._present():
            if not np.isfinite(array).all():
                episode, index = np.argwhere(~np.isfinite(array))[0][:2]
                raise MeasurementError(
                    f"{name} is not finite in episode {episode} of this block at time t = {self.t[episode, index]:g}: "
                    "the system has left the finite numbers; check its equations, the policy's range or the time step"
                )
        if self.r is not None and reward_range is not None and self.r.size:
            low, high = reward_range
            if self.r.min() < low or self.r.max() > high:
                worst = self.r.min() if self.r.min() < low else self.r.max()
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
    >>> one.episodes, two.episodes, two.view.x.shape
    (2, 4, (4, 1, 3))
    """

    __slots__ = ("_buffer", "episodes")

    def __init__(self, block: Measurements | None = None) -> None:
        self._buffer = _EMPTY
        self.episodes = 0
        if block is not None:
            arrays = {name: array.copy() for name, array in block._present()}
            self._buffer = _Buffer(arrays, block.episodes, block.kinds())
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
    def view(self) -> Measurements:
        """Everything, without copying."""
        if not self.episodes:
            raise MeasurementError("the data set is empty: no episode has been measured yet")
        return Measurements(**{name: array[: self.episodes] for name, array in self._buffer.arrays.items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are present, by name; empty when nothing was measured."""
        return dict(self.view._present()) if self.episodes else {}


@dataclass(slots=True)
class _Buffer:
    """Arrays with room at the end. `filled` tells how much of them is spoken for by some data set."""

    arrays: dict[str, Any]
    filled: int
    kinds: tuple[Any, ...]

    def room_for(self, start: int, total: int, block: Measurements) -> "_Buffer":
        """This buffer if rows `start` to `total` are free in it, else a copy with twice the room."""
        if block.kinds() != self.kinds:
            name, now, before = next(
                (name, now, before)
                for name, now, before in zip(NAMES, block.kinds(), self.kinds, strict=True)
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
        return _Buffer(grown, start, self.kinds)


_EMPTY = _Buffer({}, 0, ())
