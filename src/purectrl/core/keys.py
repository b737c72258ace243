"""Random keys: values that say which random numbers come next, with no generator that remembers.

A key is 128 bits. `child` derives another one by hashing, so the numbers of step 7 depend on the seed and on "step 7"
alone, never on how many numbers were drawn before. That is what lets a stopped run go on bit for bit.
"""

import hashlib
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
        digest = hashlib.blake2b(repr((self.bits, names)).encode(), digest_size=16).digest()
        return Key(int.from_bytes(digest, "little"))

    def generator(self) -> np.random.Generator:
        """A new NumPy generator that starts where this key says."""
        return np.random.Generator(np.random.Philox(key=self.bits))

    def words(self) -> np.ndarray:
        """Two 32-bit words [2], as `jax.random.wrap_key_data` takes them."""
        return np.array([self.bits & 0xFFFFFFFF, (self.bits >> 32) & 0xFFFFFFFF], dtype=np.uint32)
