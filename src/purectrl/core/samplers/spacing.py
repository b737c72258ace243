"""Which candidates a sensor still allows when chosen times must be some steps apart, so that all of them can be placed."""

import itertools
from typing import NamedTuple

import numpy as np


class Spacing(NamedTuple):
    """n candidates on an equidistant grid, of which chosen ones are at least `apart` steps from each other."""

    n: int
    apart: int

    @property
    def capacity(self) -> int:
        """The largest number of candidates that can be chosen.

        >>> Spacing(n=10, apart=3).capacity  # 0, 3, 6 and 9
        4
        """
        return _capacity(0, self.n - 1, self.apart)

    def allowed(self, chosen: list[int], count: int) -> np.ndarray:
        """Whether each candidate can be the next of `count` that are still to be chosen [n], with room for the others.

        >>> Spacing(n=10, apart=3).allowed([], 4).nonzero()[0].tolist()  # four fit in one way only
        [0, 3, 6, 9]
        >>> Spacing(n=10, apart=3).allowed([4], 2).nonzero()[0].tolist()
        [0, 1, 7, 8, 9]
        """
        edges = [-self.apart, *sorted(chosen), self.n - 1 + self.apart]
        free = [(left + self.apart, right - self.apart) for left, right in itertools.pairwise(edges)]
        room = sum(_capacity(first, last, self.apart) for first, last in free)
        allowed = np.zeros(self.n, bool)
        for first, last in free:
            if last < first:
                continue
            i = np.arange(first, last + 1)
            split = (i - first) // self.apart + (last - i) // self.apart  # what fits to the left and to the right of i
            allowed[first : last + 1] = room - _capacity(first, last, self.apart) + split >= count - 1
        return allowed

    def equidistant(self, count: int, from_start: bool = False) -> np.ndarray:
        """`count` candidates that divide the grid evenly: inner ones, or from the first one on [count].

        >>> Spacing(n=101, apart=1).equidistant(4).tolist(), Spacing(n=101, apart=1).equidistant(4, True).tolist()
        ([20, 40, 60, 80], [0, 25, 50, 75])
        """
        last = self.n - 1
        inner = last * np.arange(1, count + 1) // (count + 1)
        if from_start:
            inner = last * np.arange(count) // count
        if count > 1 and np.diff(inner).min() < self.apart:  # no room for margins
            inner = last * np.arange(count) // (count - 1)
        return inner


def _capacity(first: int, last: int, apart: int) -> int:
    """How many candidates fit into first, …, last."""
    return 0 if last < first else (last - first) // apart + 1
