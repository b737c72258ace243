"""Dynamics of which dq/dt = v and the reward are known: networks for the accelerations, fitted to trajectories."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.divergence import check_loss, finite
from purectrl.control.dynamics import Fit
from purectrl.control.ensembles import MakeEnsemble, MechanicalEnsemble, noise_info
from purectrl.control.fit import fit_ensemble
from purectrl.control.imagination import Region
from purectrl.control.integrate import Integrator
from purectrl.control.monitor import CusumMonitor, start_monitor, update_monitor
from purectrl.control.settings import FitSettings
from purectrl.control.trajectories import (
    Pairs,
    TrajectoryLoss,
    error_scale,
    mean_loss,
    scales,
    sequences,
    subsample,
    window_starts,
)
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.schedules import Targets
from purectrl.systems.compiled import jax_key
from purectrl.systems.mechanical import MechanicalSystem

NO_LIMIT = 1e6
"""The limit of an angle."""
EARLY = 5.0
"""Seconds at the beginning of an episode whose states determine the region to plan in."""
MIN_STATES = 100
"""The region to plan in is determined by at least this many states."""
MATCHING_BATCH_SIZE = 64
"""Pairs of measurements per step of gradient matching, for each member."""
LEARNING_RATE_DECAY = 50
"""The last learning rate of a fit is the first divided by this."""


@dataclass(frozen=True)
class MechanicalDynamics:
    """A `DynamicsModel` of a mechanical system.

    Main arguments:
        system: angles, reward and initial distribution. Its acceleration is not used.
        settings: of the fit.
        capacity: N, the measurements that a run will take.
        step: Δt, the time between two measurements.
        integrate: the integrator.
        make: the untrained model: (generator, system, members, hidden widths) -> model.
        members, width, depth: number of networks, units in each hidden layer, and number of these layers.

    Other arguments:
        max_turn: pairs of measurements between which an angle turns further, in radians, are left out; see `Pairs`.
        refit: whether each fit begins with untrained networks. Networks that were fitted to misleading data before can stay
            wrong, however many steps follow.
    """

    system: MechanicalSystem
    settings: FitSettings
    capacity: int
    step: float
    integrate: Integrator
    make: MakeEnsemble
    members: int = 10
    width: int = 200
    depth: int = 3
    max_turn: float = math.inf
    refit: bool = False

    @property
    def pairs(self) -> Pairs:
        """Which neighbouring measurements are fitted."""
        return Pairs(self.settings.max_gap, self.system.angles, self.max_turn)

    @property
    def objective(self) -> TrajectoryLoss:
        """The loss of trajectories."""
        return TrajectoryLoss(self.integrate, self.settings.sequence_length, self.settings.batch_size, self.step)

    def init(self, key: Key) -> MechanicalEnsemble:
        """Untrained networks."""
        return self.make(key.child("ensemble").generator(), self.system, self.members, (self.width,) * self.depth)

    def fit(self, model: MechanicalEnsemble, seen: Measurements, which: Targets, first: bool, key: Key) -> Fit:
        """At the first update gradient matching, then at every update the likelihood of trajectories."""
        settings, objective = self.settings, self.objective
        data = sequences(seen, objective.sequence_length, self.pairs, self.capacity)
        if self.refit and not first:
            model = self.init(key.child("networks"))
        model = model.rescale(*map(jnp.asarray, scales(self.system, seen, self.pairs)))
        rate = settings.learning_rate
        if first and settings.gradient_matching_steps:
            matching = TrajectoryLoss(self.integrate, 2, MATCHING_BATCH_SIZE, self.step)
            pairs = sequences(seen, 2, self.pairs, self.capacity)
            steps = settings.gradient_matching_steps
            model, _ = fit_ensemble(matching, model, jax_key(key.child("match")), pairs, steps, rate, rate)
        steps = settings.count(int(data.size), first)
        last = rate / LEARNING_RATE_DECAY
        model, loss = fit_ensemble(objective, model, jax_key(key.child("fit")), data, steps, rate, last)
        return Fit(model, {"fit_loss": float(loss), **noise_info(model)})

    def check_fit(self, before: MechanicalEnsemble, after: MechanicalEnsemble, seen: Measurements) -> str:
        """Compares the loss with those of the previous model and of zero acceleration."""
        if not finite(after):
            return "the fit of the model diverged (it contains numbers that are not finite)"
        starts = subsample(window_starts(seen, self.settings.sequence_length, self.pairs))
        scale = error_scale(self.objective, after)
        new, old, baseline = (
            mean_loss(self.objective, model, scale, seen, starts)
            for model in (after, before, zero_acceleration_baseline(before))
        )
        return check_loss("model", old, baseline, new)

    def region(self, seen: Measurements) -> Region:
        """Where the early part of episodes goes. Later, a cart on a long rail may be a kilometre away."""
        x, t = seen.x[seen.valid], seen.t[seen.valid]
        until = max(EARLY, np.sort(t)[min(MIN_STATES, len(t)) - 1])
        limits = 1.3 * np.maximum(np.quantile(np.abs(x[t < until + 1e-9]), 0.995, axis=0), 1.0)
        limits[: self.system.nq][np.array(self.system.angles)] = NO_LIMIT
        inside = x[(np.abs(x) <= limits).all(axis=1)]
        states = np.zeros((self.capacity, x.shape[-1]), np.float32)
        states[: len(inside)] = inside
        return Region(*map(jnp.asarray, (states, np.int32(len(inside)), limits.astype(np.float32))))

    def feature_scale(self, region: Region) -> Array:
        """The root of the typical size of each feature, between 1 and 3.

        A larger one would flatten the policy near the goal, where it has to be precise.
        """
        features = np.asarray(self.system.featurize(region.states))[: int(region.size)]
        return jnp.asarray(np.clip((features**2).mean(axis=0) ** 0.25, 1.0, 3.0), jnp.float32)

    def start_monitor(self, model: MechanicalEnsemble, seen: Measurements, first_new: int) -> CusumMonitor:
        """The monitor of a model that was just fitted to `seen`."""
        return start_monitor(self.objective, model, seen, self.pairs, first_new)

    def update_monitor(
        self, model: MechanicalEnsemble, monitor: CusumMonitor, seen: Measurements
    ) -> list[CusumMonitor]:
        """The monitor after each episode of `seen`."""
        return update_monitor(self.objective, model, monitor, seen, self.pairs)


def zero_acceleration_baseline(model: MechanicalEnsemble) -> MechanicalEnsemble:
    """The model with dq/dt = v and no acceleration."""
    return eqx.tree_at(lambda model: model.acceleration_scale, model, jnp.zeros_like(model.acceleration_scale))
