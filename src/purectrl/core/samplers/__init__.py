"""WHEN to measure: samplers draw the times of a batch of episodes.

A sampler is a frozen dataclass that carries its parameters. It is called as `sampler(key, episodes, context)` and returns
times [episodes, m], sorted within each episode and inside [0, T]; `sampler.m` is the number of measurements per episode. An
adaptive sampler reads the model's predictive uncertainty from `context`.
"""

from purectrl.core.samplers.adaptive import AdaptiveSampler
from purectrl.core.samplers.auto_m import AutoM
from purectrl.core.samplers.base import Context, Sampler, Selection
from purectrl.core.samplers.fixed import Equidistant, ExponentialGaps, Final, Uniform
from purectrl.core.samplers.geometric import Geometric, GeometricDistinct, geometric_probabilities
from purectrl.core.samplers.largest_bonus import LargestBonus
from purectrl.core.samplers.max_determinant import MaxDeterminant
from purectrl.core.samplers.max_kernel_distance import MaxKernelDistance
from purectrl.core.samplers.paced import PacedWindows
from purectrl.core.samplers.receding import Receding
from purectrl.core.samplers.snapped import Snapped
from purectrl.core.samplers.stratified import Stratified
from purectrl.core.samplers.variance_threshold import VarianceThreshold
from purectrl.core.samplers.windows import Windows

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "equidistant": Equidistant,
    "final": Final,
    "exponential-gaps": ExponentialGaps,
    "geometric": Geometric,
    "geometric-distinct": GeometricDistinct,
    "windows": Windows,
    "stratified": Stratified,
    "max-determinant": MaxDeterminant,
    "max-kernel-distance": MaxKernelDistance,
    "receding": Receding,
    "variance-threshold": VarianceThreshold,
    "paced-windows": PacedWindows,
    "auto-m": AutoM,
    "largest-bonus": LargestBonus,
}
"""The names that `--sampler` takes. A new sampler is a file in this directory and a line here."""

__all__ = [
    "SAMPLERS",
    "AdaptiveSampler",
    "AutoM",
    "Context",
    "Equidistant",
    "ExponentialGaps",
    "Final",
    "Geometric",
    "GeometricDistinct",
    "LargestBonus",
    "MaxDeterminant",
    "MaxKernelDistance",
    "PacedWindows",
    "Receding",
    "Sampler",
    "Selection",
    "Snapped",
    "Stratified",
    "Uniform",
    "VarianceThreshold",
    "Windows",
    "geometric_probabilities",
]
