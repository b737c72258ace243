"""Search over sequences of controls by sampling: the cross-entropy method and model-predictive path integrals.

Both draw sequences around a mean and move the mean towards those of low cost: the cross-entropy method (CEM) to the mean of
the best share of them, MPPI to their average with weights exp(−cost/λ). They need no derivatives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from purectrl.core.settings import Settings, check_counts, check_positive


@dataclass(frozen=True)
class SearchSettings(Settings):
    """How sequences of controls are searched."""

    rule: Literal["cem", "mppi"] = "cem"
    """Mean of the best share of the samples, or an average with weights exp(−cost/λ)."""
    iterations: int = 10
    """Number of times that samples are drawn."""
    samples: int = 200
    """Sequences per iteration."""
    knots: int = 20
    """Controls are interpolated linearly between this many values, so that sampled sequences are smooth."""
    elite_share: float = 0.1
    """The share of samples that the cross-entropy method keeps."""
    temperature: float = 0.1
    """λ of MPPI, in units of the standard deviation of the costs."""

    def check(self) -> None:
        """Positive numbers, a share of at most one."""
        check_counts(self, "iterations", "samples", "knots")
        check_positive(self, "elite_share", "temperature")


def search_sequence(
    settings: SearchSettings,
    cost: Callable[[Float[Array, "n k"]], Array],
    key: Array,
    mean: Float[Array, "n k"],
    std: Float[Array, " k"],
    low: Float[Array, " k"],
    high: Float[Array, " k"],
) -> tuple[Float[Array, "n k"], Array]:
    """The best sequence that was found, and its cost; never worse than `mean`.

    Main arguments:
        cost: of a sequence, a scalar; infinite or NaN counts as worst.
        key: a JAX key.
        mean, std: of the first samples.
        low, high: limits of each control.
    """
    n, k = mean.shape
    knots = min(settings.knots, n)
    weights = _interpolation(n, knots, mean.dtype)
    safe = lambda sequence: jnp.nan_to_num(cost(sequence), nan=jnp.inf)  # noqa: E731
    elites = max(1, round(settings.elite_share * settings.samples))

    def iterate(carry: tuple[Array, Array, Array, Array], key: Array) -> tuple[tuple[Array, Array, Array, Array], None]:
        center, spread, best, lowest = carry
        noise = jax.random.normal(key, (settings.samples, knots, k), mean.dtype)
        values = center + spread * noise.at[0].set(0.0)  # the center itself is one of the samples
        sequences = jnp.clip(mean + weights @ values, low, high)
        costs = jax.vmap(safe)(sequences)
        order = jnp.argsort(costs)
        if settings.rule == "cem":
            chosen = values[order[:elites]]
            center, spread = chosen.mean(axis=0), chosen.std(axis=0) + 1e-6
        else:
            finite = jnp.isfinite(costs)
            unit = jnp.where(finite, costs, 0.0).std() + 1e-12
            share = jax.nn.softmax(jnp.where(finite, -(costs - costs.min()) / (settings.temperature * unit), -jnp.inf))
            center = jnp.einsum("s,snk->nk", share, values)
        better = costs[order[0]] < lowest
        best, lowest = jnp.where(better, sequences[order[0]], best), jnp.minimum(costs[order[0]], lowest)
        return (center, spread, best, lowest), None

    start = jnp.clip(mean, low, high)
    begin = jnp.zeros((knots, k), mean.dtype), jnp.broadcast_to(std, (knots, k)), start, safe(start)
    (_, _, best, lowest), _ = jax.lax.scan(iterate, begin, jax.random.split(key, settings.iterations))
    return best, lowest


def _interpolation(n: int, knots: int, dtype: jnp.dtype) -> Array:
    """The matrix [n, knots] that interpolates linearly between equidistant knots."""
    place = jnp.linspace(0.0, knots - 1.0, n, dtype=dtype)
    return jnp.maximum(0.0, 1.0 - jnp.abs(place[:, None] - jnp.arange(knots, dtype=dtype)))
