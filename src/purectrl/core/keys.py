"""Random keys: explicit values that determine random numbers, without a generator that has state.

A key has 128 bits. New keys are derived by hashing, so the random numbers of step 7 depend on the seed and on "step 7"
only, never on how many numbers were drawn before. A run that was stopped can therefore resume bit for bit.
"""

import hashlib
import math
import operator
from typing import NamedTuple

import numpy as np


class Key(NamedTuple):
    """A splittable random key.

    >>> key = Key.from_seed(0)
    >>> key.child("times", 3) == key.child("times", 3), key.child("times", 3) == key.child("times", 4)
    (True, False)
    """

    bits: int
    """128 bits, as a Python integer."""

    @classmethod
    def from_seed(cls, seed: int) -> "Key":
        """The root key of a run."""
        return cls(0).child("seed", seed)

    def child(self, *names: int | str) -> "Key":
        """The key for one named purpose."""
        return Key(int.from_bytes(self._hash(names, 16), "little"))

    def split(self, *names: int | str) -> "tuple[Key, Key, Key, Key]":
        """Four keys for one named purpose, from one hash."""
        digest = self._hash(names, 64)
        return (
            Key(int.from_bytes(digest[:16], "little")),
            Key(int.from_bytes(digest[16:32], "little")),
            Key(int.from_bytes(digest[32:48], "little")),
            Key(int.from_bytes(digest[48:], "little")),
        )

    def _hash(self, names: tuple[int | str, ...], size: int) -> bytes:
        # a NumPy integer must name the same key as the Python one
        plain = tuple([name if isinstance(name, str) else operator.index(name) for name in names])
        return hashlib.blake2b(f"{self.bits:x} {plain}".encode(), digest_size=size).digest()

    def generator(self) -> np.random.Generator:
        """A new NumPy generator seeded with this key."""
        return np.random.Generator(np.random.Philox(key=np.array([self.bits & MASK, self.bits >> 64], np.uint64)))

    def uniform_scalar(self) -> float:
        """One uniform number in [0, 1), from the upper bits of the key."""
        return (self.bits >> 75) * 2.0**-53

    def uniform(self, *shape: int) -> np.ndarray:
        """Uniform numbers in [0, 1), an array of `shape`. A few come from a hash, since a generator takes 20 µs to make.

        >>> Key.from_seed(0).uniform(2).round(3)
        array([0.476, 0.8  ])
        """
        size = math.prod(shape)
        if size == 1:
            return np.full(shape, self.uniform_scalar())
        if not 1 < size <= 8:
            return self.generator().random(shape)
        return (np.frombuffer(self._hash(("uniform",), 8 * size), np.uint64) >> 11).reshape(shape) * 2.0**-53

    def jax_key_data(self) -> np.ndarray:
        """Two 32-bit words [2] for `jax.random.wrap_key_data`."""
        return np.array([self.bits & 0xFFFFFFFF, self.bits >> 32 & 0xFFFFFFFF], np.uint32)


MASK = (1 << 64) - 1
