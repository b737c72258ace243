"""Gaussian processes as a dynamics model: one per coordinate of the drift, fitted to measured drifts or to quotients.

symbol            here                      meaning
----------------  ------------------------  ---------------------------------------------------------------------------
μ(x, u), σ(x, u)  GpModel.mean_and_std      posterior mean and standard deviation of the drift
f_1, …, f_E       GpModel.drift             E functions drawn from the posterior: the members of an ensemble
φ(z)ᵀw            Draws.prior               a draw from the prior, by random Fourier features
v                 Draws.update              K⁻¹(y − φ(Z)ᵀw − ε): φ(z)ᵀw + k(z, Z)v is a draw from the posterior

The draws are functions of the state (Matheron's rule, Wilson et al. 2020), so what works with an ensemble works with them:
the policy optimization of ENODE, adaptive samplers, planners. Their prior part is approximate, their dependence on the data
exact; `mean_and_std` and `covariance` are exact.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.control.black_box import KnownReward, LearnedTask, data_region, typical_features
from purectrl.control.divergence import finite
from purectrl.control.dynamics import Fit
from purectrl.control.gaussian_process import GaussianProcess
from purectrl.control.imagination import MechanicalTask, Region, TaskModel
from purectrl.control.integrate import Integrator
from purectrl.control.regression import RegressionData, regression_data, root_mean_square
from purectrl.core.errors import UnsupportedError
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.schedules import Targets
from purectrl.systems.spec import StateSpec

FEATURES = 256
"""Random Fourier features of a draw from the prior."""
MIN_SCALE = 0.5
"""Neither a coordinate nor a drift is divided by less. Data that hardly vary say little about other states, and must not
shrink the prior to their own size; states and drifts of the order of one are assumed."""


class Draws(eqx.Module):
    """Functions drawn from the posterior of each output.

    Main arguments:
        frequencies: of the features, for unit length scales [outputs, features, D].
        phases: of the features [outputs, features].
        prior: w, weights of the features [members, outputs, features].
        update: v, weights of the data [members, outputs, rows].
    """

    frequencies: np.ndarray | Array
    phases: np.ndarray | Array
    prior: np.ndarray | Array
    update: np.ndarray | Array

    @classmethod
    def random(cls, generator: np.random.Generator, members: int, outputs: int, inputs: int, rows: int) -> "Draws":
        """Draws from the prior."""
        return cls(
            generator.standard_normal((outputs, FEATURES, inputs)),
            generator.uniform(0.0, 2 * np.pi, (outputs, FEATURES)),
            generator.standard_normal((members, outputs, FEATURES)),
            np.zeros((members, outputs, rows)),
        )

    def features(self, process: GaussianProcess, z: Float[Array, "*rows D"]) -> Float[Array, "outputs *rows features"]:
        """φ(z) of each output; φ(z)ᵀφ(z') is about k(z, z')."""
        scaled = jnp.einsum("...i,ofi->o...f", z, jnp.asarray(self.frequencies) / jnp.asarray(process.length)[:, None])
        shape = (-1, *(1,) * (z.ndim - 1))
        angle = scaled + jnp.asarray(self.phases).reshape(*shape, FEATURES)
        return jnp.asarray(process.amplitude).reshape(*shape, 1) * np.sqrt(2 / FEATURES) * jnp.cos(angle)

    def condition(self, process: GaussianProcess, y: np.ndarray, noise: np.ndarray) -> "Draws":
        """The same draws given the data of `process`.

        Main arguments:
            y: outputs [n, outputs].
            noise: standard normal numbers [members, n, outputs].
        """
        n = len(y)
        with jax.enable_x64(True):
            at_data = np.asarray(self.features(process, jnp.asarray(process.inputs[:n])))
        prior = np.einsum("onf,mof->mno", at_data, self.prior)
        residual = y - prior - noise * np.asarray(process.noise)
        factor = np.asarray(process.factor)[:, :n, :n]
        update = np.zeros(self.update.shape)
        update[:, :, :n] = np.einsum("oab,oac,mco->mob", factor, factor, residual, optimize=True)
        return Draws(self.frequencies, self.phases, self.prior, update)

    def __call__(
        self, process: GaussianProcess, z: Float[Array, "members rows D"]
    ) -> Float[Array, "members rows outputs"]:
        """Each function on its own rows."""
        prior = jnp.einsum("omrf,mof->mro", self.features(process, z), jnp.asarray(self.prior))
        return prior + jnp.einsum("omrn,mon->mro", process.cross(z), jnp.asarray(self.update))


class GpModel(eqx.Module):
    """An `ImaginationModel` whose drift is a Gaussian process; its members are draws from the posterior.

    Main arguments:
        process: one output per coordinate of the drift, inputs and outputs of about unit size.
        draws: the members.
        mean, scale: what is subtracted from each feature of x, and what it is divided by [features].
        size: what each output is multiplied by [d].
        learned: reward and initial distribution, unless the mechanics of the problem are known.
        spec: the features, the control limits and the known velocities.
    """

    process: GaussianProcess
    draws: Draws
    mean: np.ndarray | Array
    scale: np.ndarray | Array
    size: np.ndarray | Array
    learned: LearnedTask | None
    spec: StateSpec = eqx.field(static=True)

    @property
    def task(self) -> TaskModel:
        """Reward and initial distribution."""
        if self.learned is not None:
            return self.learned
        assert self.spec.mechanics is not None
        return MechanicalTask(self.spec.mechanics)

    @property
    def members(self) -> int:
        """Number of draws."""
        return self.draws.prior.shape[0]

    def inputs(self, x: Float[Array, "*rows d"], u: Float[Array, "*rows k"]) -> Float[Array, "*rows D"]:
        """The inputs of the processes."""
        features = (self.spec.featurize(x) - jnp.asarray(self.mean)) / jnp.asarray(self.scale)
        return jnp.concatenate([features, self.spec.scale_control(u)], axis=-1)

    def drift(
        self, x: Float[Array, "members rows d"], u: Float[Array, "members rows k"]
    ) -> Float[Array, "members rows d"]:
        """dx/dt under each member; known velocities replace the processes."""
        rate = self.draws(self.process, self.inputs(x, u)) * jnp.asarray(self.size)
        for position, velocity in self.spec.velocities:
            rate = rate.at[..., position].set(x[..., velocity])
        return rate

    def mean_and_std(
        self, x: Float[Array, "*rows d"], u: Float[Array, "*rows k"]
    ) -> tuple[Float[Array, "*rows d"], Float[Array, "*rows d"]]:
        """The posterior mean and standard deviation of the drift; known velocities have none."""
        mean, std = self.process.mean_and_std(self.inputs(x, u))
        mean, std = mean * jnp.asarray(self.size), std * jnp.asarray(self.size)
        for position, velocity in self.spec.velocities:
            mean, std = mean.at[..., position].set(x[..., velocity]), std.at[..., position].set(0.0)
        return mean, std

    def covariance(self, x: Float[Array, "n d"], u: Float[Array, "n k"]) -> Float[Array, "d n n"]:
        """The posterior covariance of each coordinate of the drift among some states and controls."""
        found = self.process.covariance(self.inputs(x, u)) * (jnp.asarray(self.size) ** 2)[:, None, None]
        for position, _ in self.spec.velocities:
            found = found.at[position].set(0.0)
        return found

    @property
    def noise(self) -> np.ndarray:
        """The variance of the noise of a measured drift [d]."""
        return (np.asarray(self.process.noise) * np.asarray(self.size)) ** 2

    def select_members(self, members: Array) -> "GpModel":
        """Some draws, by number."""
        chosen = lambda array: jnp.asarray(array)[members]  # noqa: E731
        where = lambda model: (model.draws.prior, model.draws.update)  # noqa: E731
        return eqx.tree_at(where, self, (chosen(self.draws.prior), chosen(self.draws.update)))


@dataclass(frozen=True)
class GpDynamics:
    """A `DynamicsModel` of Gaussian processes, for problems whose reward is known.

    Main arguments:
        spec: dimensions, limits and what is known.
        capacity, episodes: the measurements and the episodes that a run will take.
        integrate: the integrator of imagined rollouts.

    Other arguments:
        members: functions to draw from the posterior.
        max_rows: with more data, this many of them are used, evenly spaced in the order of measuring.
        max_gap: longest difference quotient, in seconds, where the drift is not measured.
        noise: the standard deviation of the noise of a measured drift [d] if it is known; otherwise it is fitted.
    """

    spec: StateSpec
    capacity: int
    episodes: int
    integrate: Integrator
    members: int = 10
    max_rows: int = 2000
    max_gap: float = 0.15
    noise: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.spec.reward is None and self.spec.mechanics is None:
            raise UnsupportedError(
                "learner.model.kind: gp needs a problem whose reward is known; use black-box, which learns the reward, too"
            )

    def init(self, key: Key) -> GpModel:
        """The prior."""
        d, inputs, rows = self.spec.state_dim, self.spec.feature_dim + self.spec.control_dim, self._rows
        process = GaussianProcess.prior(d, inputs, rows)
        draws = Draws.random(key.child("draws").generator(), self.members, d, inputs, rows)
        features = self.spec.feature_dim
        starts = jnp.zeros((self.episodes, d)), jnp.ones((), jnp.int32)
        task = self._task(jnp.ones(1), jnp.zeros(()), jnp.zeros(()), *starts)
        return GpModel(process, draws, np.zeros(features), np.ones(features), np.ones(d), task, self.spec)

    def fit(self, model: GpModel, seen: Measurements, which: Targets, first: bool, key: Key) -> Fit:
        """Maximizes the marginal likelihood of the measured drifts and draws new members."""
        data = self._data(seen)
        n = int(data.size)
        starts = np.zeros((self.episodes, self.spec.state_dim), np.float32)
        measured = seen.x[seen.valid[:, 0], 0]
        starts[: len(measured)] = measured
        unit = root_mean_square(data.r[:n])
        parts = unit, data.r[:n].min(), data.r[:n].max(), starts, np.int32(len(measured))
        task = self._task(*map(jnp.asarray, parts))
        if Targets.DRIFT not in which:
            return Fit(GpModel(model.process, model.draws, model.mean, model.scale, model.size, task, self.spec), {})
        rows = np.linspace(0, n - 1, min(n, self._rows)).round().astype(int)
        features = np.asarray(self.spec.featurize(jnp.asarray(data.x[rows])), np.float64)
        y = data.y[rows].astype(np.float64)
        size = np.maximum(root_mean_square(y), MIN_SCALE).astype(np.float64)
        fresh = Draws.random(
            key.child("draws").generator(), self.members, y.shape[1], model.process.inputs.shape[1], self._rows
        )
        scale = np.maximum(features.std(axis=0), MIN_SCALE)
        model = GpModel(model.process, fresh, features.mean(axis=0), scale, size, task, self.spec)
        with jax.enable_x64(True):
            inputs = np.asarray(model.inputs(jnp.asarray(data.x[rows]), jnp.asarray(data.u[rows])), np.float64)
        known = None if self.noise is None else np.array(self.noise) / size
        process = model.process.fit(inputs, y / size, known)
        noise = key.child("noise").generator().standard_normal((self.members, *y.shape))
        draws = fresh.condition(process, y / size, noise)
        model = eqx.tree_at(lambda model: (model.process, model.draws), model, (process, draws))
        info: dict[str, Any] = {"fit_noise": float(np.sqrt(model.noise).max())}
        return Fit(model, info)

    def check_fit(self, before: GpModel, after: GpModel, seen: Measurements) -> str:
        """Whether every number is finite."""
        numbers = (after.process, after.draws)
        return "" if finite(numbers) else "the fit of the gp diverged (it contains numbers that are not finite)"

    def region(self, seen: Measurements) -> Region:
        """All measured states."""
        return data_region(self.spec, self._data(seen))

    def feature_scale(self, region: Region) -> Array:
        """The typical size of each feature in the first data."""
        return typical_features(self.spec, region)

    def _task(self, unit: Array, worst: Array, best: Array, starts: Array, count: Array) -> LearnedTask | None:
        if self.spec.mechanics is not None:
            return None
        assert self.spec.reward is not None
        return LearnedTask(KnownReward(unit, self.spec.reward), worst, best, starts, count)

    @property
    def _rows(self) -> int:
        return min(self.capacity, self.max_rows)

    def _data(self, seen: Measurements) -> RegressionData:
        return regression_data(seen, self.spec, self.capacity, self.max_gap)
