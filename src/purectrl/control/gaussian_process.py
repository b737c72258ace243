"""Exact Gaussian processes, one per output, with hyperparameters from the marginal likelihood.

symbol        here                    meaning
------------  ----------------------  ------------------------------------------------------------------------------
z             inputs                  inputs of unit size [D]
k(z, z')      -                       s² exp(−½ Σ_i (z_i − z'_i)²/ℓ_i²), a Gaussian kernel with one length scale per input
ℓ, s, σ       Hyperparameters         length scales [D], amplitude, standard deviation of the noise, in units of the output
K             -                       k(Z, Z) + σ²I on the data: the noise enters as its variance
L⁻¹           GaussianProcess.factor  inverse of the Cholesky factor of K
α             GaussianProcess.weights K⁻¹y, so that the posterior mean is k(z, Z)α

Hyperparameters maximize log p(y | Z) plus log-normal priors (`PRIOR_*`), which matter while there are few data. The fit is
computed by NumPy in float64. Prediction is a JAX function, in float64 under `jax.enable_x64(True)` and in float32 otherwise.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize
from jax import Array
from jaxtyping import Float

PRIOR_LENGTH, PRIOR_AMPLITUDE, PRIOR_NOISE = (np.log(2.0), 1.0), (0.0, 1.0), (np.log(0.03), 1.5)
"""Mean and standard deviation of log ℓ, log s and log σ, for inputs and outputs of unit size."""
LIMITS = {"length": (0.05, 100.0), "amplitude": (0.5, 100.0), "noise": (1e-4, 3.0)}
"""Range of ℓ, s and σ. An amplitude far below the size of the outputs would call unseen states certain."""
MAX_ITERATIONS = 60
"""Iterations of L-BFGS-B."""
FIT_ROWS = 256
"""The marginal likelihood is evaluated on at most this many rows, evenly spaced; predictions use all of them."""


POTRI, TRTRI = scipy.linalg.get_lapack_funcs(("potri", "trtri"), dtype=np.float64)
"""Inverses, of a matrix from its Cholesky factor and of a triangular matrix."""


class Hyperparameters(NamedTuple):
    """Of one process."""

    length: np.ndarray
    """ℓ [D]."""
    amplitude: float = 1.0
    """s."""
    noise: float = 0.03
    """σ."""


def kernel(hyper: Hyperparameters, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """k(a, b); a [n, D], b [m, D] -> [n, m].

    >>> kernel(Hyperparameters(np.ones(1), 2.0), np.zeros((1, 1)), np.array([[0.0], [1.0]])).round(3)  # 4 and 4 e^(−1/2)
    array([[4.   , 2.426]])
    """
    a, b = a / hyper.length, b / hyper.length
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return hyper.amplitude**2 * np.exp(-0.5 * squares.clip(0.0))


def log_posterior(hyper: Hyperparameters, inputs: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """log p(y | Z) + log prior up to constants, and its gradient by (log ℓ, log s, log σ) [D + 2].

    Main arguments:
        inputs: Z [n, D].
        y: outputs [n].
    """
    n = len(y)
    signal = kernel(hyper, inputs, inputs)
    factor = scipy.linalg.cholesky(signal + hyper.noise**2 * np.eye(n), lower=True, check_finite=False)
    weights = scipy.linalg.cho_solve((factor, True), y, check_finite=False)
    value = -0.5 * y @ weights - np.log(factor.diagonal()).sum()
    inverse, _ = POTRI(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    outer = 0.5 * (np.outer(weights, weights) - inverse)
    weighted = outer * signal
    scaled = inputs / hyper.length  # Σ_ab M_ab (z_a − z_b)² = 2 Σ_a z_a² Σ_b M_ab − 2 zᵀMz
    lengths = 2 * ((scaled**2 * weighted.sum(axis=1)[:, None]).sum(axis=0) - (scaled * (weighted @ scaled)).sum(axis=0))
    gradient = np.concatenate([lengths, [2 * weighted.sum(), 2 * hyper.noise**2 * outer.trace()]])
    means, stds = _prior(inputs.shape[1])
    distance = (_logarithms(hyper) - means) / stds
    return float(value - 0.5 * (distance**2).sum()), gradient - distance / stds


def fit_hyperparameters(
    inputs: np.ndarray, y: np.ndarray, start: Hyperparameters | None = None, noise: float | None = None
) -> Hyperparameters:
    """The hyperparameters of highest posterior density, found by L-BFGS-B from the prior mean and from `start`.

    Main arguments:
        inputs, y: data of unit size [n, D] and [n].

    Other arguments:
        start: a second initial value, such as that of the last fit.
        noise: σ if it is known; then it is not fitted.
    """
    rows = np.linspace(0, len(y) - 1, min(len(y), FIT_ROWS)).round().astype(int)
    inputs, y = inputs[rows], y[rows]
    names = ["length"] * inputs.shape[1] + ["amplitude", "noise"]
    bounds = [tuple(np.log(LIMITS[name])) for name in names]
    if noise is not None:
        bounds[-1] = (np.log(noise),) * 2

    def loss(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = log_posterior(_exponentials(logarithms), inputs, y)
        return -value, -gradient

    low, high = np.array(bounds).T
    starts = [_prior(inputs.shape[1])[0]] + ([] if start is None else [_logarithms(start)])
    begin = min((np.clip(one, low, high) for one in starts), key=lambda one: loss(one)[0])
    options = {"maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS, "ftol": 1e-8}
    found = scipy.optimize.minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return _exponentials(found.x)


def _logarithms(hyper: Hyperparameters) -> np.ndarray:
    return np.log(np.concatenate([hyper.length, [hyper.amplitude, hyper.noise]]))


def _exponentials(logarithms: np.ndarray) -> Hyperparameters:
    values = np.exp(logarithms)
    return Hyperparameters(values[:-2], float(values[-2]), float(values[-1]))


def _prior(inputs: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([PRIOR_LENGTH] * inputs + [PRIOR_AMPLITUDE, PRIOR_NOISE])
    return pairs[:, 0], pairs[:, 1]


class GaussianProcess(eqx.Module):
    """Independent processes for each of some outputs, on shared inputs; arrays are padded to a fixed number of rows.

    Main arguments:
        inputs: Z [rows, D], zero beyond the data.
        weights: α [outputs, rows], zero beyond the data.
        factor: L⁻¹ [outputs, rows, rows], zero beyond the data.
        length, amplitude, noise: hyperparameters [outputs, D], [outputs], [outputs].
    """

    inputs: np.ndarray | Array
    weights: np.ndarray | Array
    factor: np.ndarray | Array
    length: np.ndarray | Array
    amplitude: np.ndarray | Array
    noise: np.ndarray | Array

    @classmethod
    def prior(cls, outputs: int, inputs: int, rows: int) -> "GaussianProcess":
        """Processes without data, with room for `rows` of them."""
        arrays = np.zeros((rows, inputs)), np.zeros((outputs, rows)), np.zeros((outputs, rows, rows))
        length = np.full((outputs, inputs), np.exp(PRIOR_LENGTH[0]))
        return cls(
            *arrays, length, np.full(outputs, np.exp(PRIOR_AMPLITUDE[0])), np.full(outputs, np.exp(PRIOR_NOISE[0]))
        )

    def fit(self, inputs: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None) -> "GaussianProcess":
        """Fitted to data of unit size.

        Main arguments:
            inputs: [n, D], n at most the number of rows.
            y: outputs [n, outputs].

        Other arguments:
            noise: the standard deviation of the noise of each output [outputs] if it is known.
        """
        found = []
        for j, column in enumerate(y.T):
            before = Hyperparameters(np.asarray(self.length[j]), float(self.amplitude[j]), float(self.noise[j]))
            found.append(fit_hyperparameters(inputs, column, before, None if noise is None else float(noise[j])))
        return self.condition(inputs, y, found)

    def condition(self, inputs: np.ndarray, y: np.ndarray, hyper: list[Hyperparameters]) -> "GaussianProcess":
        """The posterior given the data, with these hyperparameters."""
        (outputs, rows), n = self.weights.shape, len(y)
        weights, factor = np.zeros((outputs, rows)), np.zeros((outputs, rows, rows))
        for j, one in enumerate(hyper):
            gram = kernel(one, inputs, inputs)
            gram[np.diag_indices(n)] += one.noise**2
            lower = scipy.linalg.cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
            inverse, _ = TRTRI(lower, lower=1)
            factor[j, :n, :n] = np.tril(inverse)
            weights[j, :n] = factor[j, :n, :n].T @ (factor[j, :n, :n] @ y[:, j])
        padded = np.zeros((rows, inputs.shape[1]))
        padded[:n] = inputs
        length, amplitude, noise = (np.array([getattr(one, name) for one in hyper]) for name in Hyperparameters._fields)
        return GaussianProcess(padded, weights, factor, length, amplitude, noise)

    def cross(self, z: Float[Array, "*rows D"]) -> Float[Array, "outputs *rows n"]:
        """k(z, Z) of each output."""
        lead = z.shape[:-1]
        flat = z.reshape(-1, z.shape[-1])

        def one(length: Array, amplitude: Array) -> Array:
            a, b = flat / length, jnp.asarray(self.inputs) / length
            squares = (a**2).sum(axis=-1)[:, None] + (b**2).sum(axis=-1)[None] - 2 * a @ b.T
            return amplitude**2 * jnp.exp(-0.5 * jnp.maximum(squares, 0.0))

        found = jax.vmap(one)(jnp.asarray(self.length), jnp.asarray(self.amplitude))
        return found.reshape(found.shape[0], *lead, found.shape[-1])

    def mean(self, z: Float[Array, "*rows D"]) -> Float[Array, "*rows outputs"]:
        """The posterior mean of each output."""
        return jnp.einsum("o...n,on->...o", self.cross(z), jnp.asarray(self.weights))

    def mean_and_std(
        self, z: Float[Array, "*rows D"]
    ) -> tuple[Float[Array, "*rows outputs"], Float[Array, "*rows outputs"]]:
        """The posterior mean, and the standard deviation of the function, without the noise of a measurement."""
        cross = self.cross(z)
        mean = jnp.einsum("o...n,on->...o", cross, jnp.asarray(self.weights))
        explained = (jnp.einsum("oan,o...n->...oa", jnp.asarray(self.factor), cross) ** 2).sum(axis=-1)
        prior = jnp.asarray(self.amplitude) ** 2
        return mean, jnp.sqrt(jnp.maximum(prior - explained, 1e-10 * prior))

    def covariance(self, z: Float[Array, "n D"]) -> Float[Array, "outputs n n"]:
        """The posterior covariance of each output among some inputs."""

        def one(length: Array, amplitude: Array) -> Array:
            a = z / length
            squares = (a**2).sum(axis=-1)
            return amplitude**2 * jnp.exp(-0.5 * jnp.maximum(squares[:, None] + squares[None] - 2 * a @ a.T, 0.0))

        prior = jax.vmap(one)(jnp.asarray(self.length), jnp.asarray(self.amplitude))
        half = jnp.einsum("oan,ozn->oza", jnp.asarray(self.factor), self.cross(z))
        return prior - jnp.einsum("oza,owa->ozw", half, half)
