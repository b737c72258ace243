"""Sensor noise, added to any rollout. Process noise is the diffusion of the system."""

from dataclasses import replace

import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.oracle import Rollout
from purectrl.core.plan import Plan


def with_observation_noise(rollout: Rollout, std: float) -> Rollout:
    """`rollout` with N(0, std²) added to each coordinate of each measured state.

    The policy acts on the true state, and u, y and r stay those of the true state, as in the released code of ENODE.
    """
    require(std >= 0, f"std: a standard deviation cannot be negative, got {std}")

    def noisy(key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        block = rollout(key.child("rollout"), plan, times)
        noise = key.child("noise").generator().standard_normal(block.x.shape)
        return replace(block, x=(block.x + std * noise).astype(block.x.dtype))

    return noisy
