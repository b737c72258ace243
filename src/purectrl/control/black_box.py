"""Dynamics of which nothing is known but the spaces: drift and reward are learned from measurements (x, u, y, r).

symbol             here                       meaning
-----------------  -------------------------  -------------------------------------------------------------------
f ∈ F              BlackBoxModel.rates        dx/dt of the whole state, one network per member
b ∈ R              LearnedTask.rewards        the reward, one network per member, unless it is known
y, r               RegressionData.y, .r       the measured drift and the measured reward
q                  LearnedTask.starts         first states of the episodes: nothing else is known about x(0)

Both models are fitted as in Algorithm 1, line 5, by the squared error (with Huber's tails) of each measurement: the times
between measurements do not matter, so any sampler can be used. An environment in discrete time holds the control for dt
seconds and measures y = (x(t + dt) − x(t))/dt, which one Euler step of length dt inverts exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from purectrl.control.divergence import check_loss, finite
from purectrl.control.dynamics import Fit
from purectrl.control.fit import fit_ensemble
from purectrl.control.imagination import Region, mixture
from purectrl.control.integrate import Integrator, euler
from purectrl.control.mechanical import LEARNING_RATE_DECAY, NO_LIMIT
from purectrl.control.regression import (
    SMALLEST_REWARD,
    Networks,
    RegressionData,
    RegressionLoss,
    centre_and_scale,
    mean_loss,
    regression_data,
    robust_scale,
    root_mean_square,
)
from purectrl.control.settings import FitSettings
from purectrl.control.state_structure import StateStructure
from purectrl.control.termination import EndLoss, TerminalStates, end_data
from purectrl.control.trajectories import subsample
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.schedules import Targets
from purectrl.systems.compiled import jax_key
from purectrl.systems.spec import StateSpec

DRIFT_HUBER = 0.3
"""Errors of the drift larger than this, in units of its robust scale, count linearly."""
MOST = 0.95
"""The quantile of measured rewards whose distance from the largest one limits imagined rewards."""
MARGIN = 1.3
"""Imagined states may be this many times larger than measured ones before their reward is lowered."""


class KnownReward(eqx.Module):
    """The reward function of the problem in the place of learned networks.

    Main arguments:
        size: its typical size in the data [1].
        function: (x [d], u [k]) -> scalar.
        logarithm: the logarithm of the reward, if it is known.
    """

    size: Array
    function: Callable[[Array, Array], Array] = eqx.field(static=True)
    logarithm: Callable[[Array, Array], Array] | None = eqx.field(static=True, default=None)

    def __call__(self, x: Float[Array, "*rows d"], u: Float[Array, "*rows k"]) -> Float[Array, "*rows 1"]:
        """The reward."""
        return jnp.vectorize(self.function, signature="(d),(k)->()")(x, u)[..., None]

    def log(self, x: Float[Array, "*rows d"], u: Float[Array, "*rows k"]) -> Float[Array, "*rows"] | None:
        """The logarithm of the reward; None if it is not known."""
        if self.logarithm is None:
            return None
        return jnp.vectorize(self.logarithm, signature="(d),(k)->()")(x, u)

    def select_members(self, members: Array) -> "KnownReward":
        """The same reward for every member."""
        return self


class LearnedTask(eqx.Module):
    """Where episodes start and what is rewarded, as far as it was measured. Rewards are in units of their typical size.

    An imagined reward of a learned function is larger than all measured ones by at most as much as those are larger than
    their 95 % quantile. Without data a network may predict anything, and a policy would go there; but if no imagined reward
    were larger, a policy would have no reason to come closer to a goal than random controls did.

    Main arguments:
        rewards: networks, or the known reward.
        worst, best: the smallest and the largest measured reward, in the unit of the measurements.
        starts: first states of the episodes [rows, d], zero beyond `count`.
        count: the number of episodes.
        ends: in which states episodes terminate; None if they do not.
        structure: which states can occur; None if nothing is known.
        ending_reward: the mean reward of steps that terminated an episode, in the unit of the measurements; None if
            they have no reward of their own.
        largest: the largest imagined reward, in the same unit; None if it is `best`.
    """

    rewards: Networks | KnownReward
    worst: Array
    best: Array
    starts: Array
    count: Array
    ends: TerminalStates | None = None
    structure: StateStructure | None = None
    ending_reward: Array | None = None
    largest: Array | None = None

    @property
    def reward_unit(self) -> Array:
        """The typical size of a reward."""
        return self.rewards.size[0]

    @property
    def reward_range(self) -> tuple[Array, Array]:
        """The range of the measured rewards, in their unit."""
        worst, best = self.worst, self.best
        if self.ending_reward is not None:
            worst, best = jnp.minimum(worst, self.ending_reward), jnp.maximum(best, self.ending_reward)
        return worst / self.reward_unit, best / self.reward_unit

    def sample_initial_state(self, key: Array) -> Array:
        """x(0) [d], one of those that were measured."""
        return self.starts[jax.random.randint(key, (), 0, self.count)]

    def reward(self, x: Array, u: Array) -> Array:
        """x [..., members, rows, d] -> [..., members, rows]. For x [rows, d] the members are averaged -> [rows]."""
        if isinstance(self.rewards, KnownReward):
            return (self.rewards(x, u) / self.rewards.size)[..., 0]
        if x.ndim > 2:
            largest = self.best if self.largest is None else self.largest
            return (jnp.minimum(self.rewards(x, u), largest) / self.rewards.size)[..., 0]
        shared = (jnp.broadcast_to(array, (self.rewards.members, *array.shape)) for array in (x, u))
        return self.reward(*shared).mean(axis=0)

    def log_reward(self, x: Array, u: Array) -> Array:
        """The logarithm of the reward if it is known, else the reward itself: it may be negative."""
        known = self.rewards.log(x, u) if isinstance(self.rewards, KnownReward) else None
        return self.reward(x, u) if known is None else known

    def planning_reward(self, x: Array, u: Array, penalty: Array) -> Array:
        """The reward less the penalty; the mixture b̃ if its logarithm is known, as for mechanical systems."""
        known = self.rewards.log(x, u) if isinstance(self.rewards, KnownReward) else None
        if known is not None:
            return mixture(known - penalty) / self.reward_unit
        return self.reward(x, u) - penalty


class BlackBoxModel(eqx.Module):
    """An `ImaginationModel` whose drift is learned, and its reward unless it is known."""

    rates: Networks
    task: LearnedTask

    @property
    def members(self) -> int:
        """Number of members."""
        return self.rates.members

    def drift(
        self, x: Float[Array, "members rows d"], u: Float[Array, "members rows k"]
    ) -> Float[Array, "members rows d"]:
        """dx/dt under each member: the networks' outputs, added to an approximate model; known velocities replace them."""
        rate, structure = self.rates(x, u), self.task.structure
        if structure is not None:
            rate = rate * structure.changes
        if self.rates.spec.approximate_drift is not None:
            rate = rate + approximate(self.rates.spec.approximate_drift, x, u)
        for position, velocity in self.rates.spec.velocities:
            rate = rate.at[..., position].set(x[..., velocity])
        return rate

    def select_members(self, members: Array) -> "BlackBoxModel":
        """Some members, by number, with their rewards."""
        rewards = self.task.rewards.select_members(members)
        return BlackBoxModel(
            self.rates.select_members(members), eqx.tree_at(lambda task: task.rewards, self.task, rewards)
        )


@dataclass(frozen=True)
class BlackBoxDynamics:
    """A `DynamicsModel` for systems of which only the spaces are known, and the reward if the problem declares it.

    Main arguments:
        spec: dimensions and limits.
        settings: of the fit.
        capacity, episodes: the measurements and the episodes that a run will take.
        integrate: the integrator; Euler's method in discrete time.
        members, width: networks for drift and for reward, and units in each of their two hidden layers.
    """

    spec: StateSpec
    settings: FitSettings
    capacity: int
    episodes: int
    integrate: Integrator
    members: int = 5
    width: int = 128

    @property
    def objectives(self) -> dict[str, RegressionLoss]:
        """The loss of a measurement, of drift and reward."""
        rows = self.settings.batch_size
        return {"rates": RegressionLoss(rows, huber=DRIFT_HUBER), "rewards": RegressionLoss(rows)}

    def init(self, key: Key) -> BlackBoxModel:
        """Untrained networks."""
        make = lambda name, outputs: Networks.random(  # noqa: E731
            key.child(name).generator(), self.spec, outputs, self.members, (self.width,) * 2
        )
        known = self.spec.reward
        rewards = make("rewards", 1) if known is None else KnownReward(jnp.ones(1), known, self.spec.log_reward)
        starts = jnp.zeros((self.episodes, self.spec.state_dim))
        ends = TerminalStates.random(key.child("ends").generator(), self.spec) if self.spec.may_terminate else None
        structure = StateStructure.unknown(self.spec.state_dim)
        none = jnp.zeros(())
        ending = none if self._ends_rewarded else None
        task = LearnedTask(rewards, none, none, starts, jnp.zeros((), jnp.int32), ends, structure, ending, none)
        return BlackBoxModel(make("rates", self.spec.state_dim), task)

    def fit(self, model: BlackBoxModel, seen: Measurements, which: Targets, first: bool, key: Key) -> Fit:
        """Regresses the measured drifts, and the measured rewards unless the reward is known."""
        data = self._data(seen)
        n, settings = int(data.size), self.settings
        features = centre_and_scale(np.asarray(self.spec.featurize(jnp.asarray(data.x[:n]))))
        steps = settings.count(n, first)
        rates, last = settings.learning_rate, settings.learning_rate / LEARNING_RATE_DECAY
        rewarded, ending = self._rewards(seen, data)

        def fitted(networks: Networks, targets: np.ndarray, name: str) -> tuple[Networks, float]:
            known = targets[:n]
            size = robust_scale(known) if name == "rates" else root_mean_square(known, SMALLEST_REWARD)
            units = [jnp.asarray(array) for array in (*features, size)]
            networks = networks.adapt(*units) if first else networks.rescale(*units)
            rows = (data.x, data.u, targets, data.size) if name == "rates" else rewarded
            objective, start = self.objectives[name], jax_key(key.child(name))
            networks, loss = fit_ensemble(objective, networks, start, rows, steps, rates, last)
            return networks, float(loss)

        drift, rewards, info = model.rates, model.task.rewards, {}
        if Targets.DRIFT in which:
            drift, info["fit_loss"] = fitted(drift, data.y, "rates")
        if isinstance(rewards, KnownReward):
            size = jnp.asarray(root_mean_square(data.r[:n], SMALLEST_REWARD))
            rewards = KnownReward(size, rewards.function, rewards.logarithm)
        elif Targets.REWARD in which:
            rewards, info["reward_loss"] = fitted(rewards, data.r, "rewards")
        starts, measured = np.zeros((self.episodes, self.spec.state_dim), np.float32), seen.x[seen.valid[:, 0], 0]
        starts[: len(measured)] = measured
        least, high, most = np.quantile(rewarded[2][: int(rewarded[3])], (0.0, MOST, 1.0)).astype(np.float32)
        worst, best, begins, count = map(jnp.asarray, (least, most, starts, np.int32(len(measured))))
        ends, found = self._fit_ends(model.task.ends, seen, data, features, first, key.child("ends"))
        structure = StateStructure.of(data.x[:n], data.y[:n])
        task = LearnedTask(rewards, worst, best, begins, count, ends, structure, ending, jnp.asarray(2 * best - high))
        return Fit(BlackBoxModel(drift, task), info | found)

    @property
    def _ends_rewarded(self) -> bool:
        """Whether the step that terminates an episode has a reward of its own, such as that for reaching a goal.

        In discrete time it does. In continuous time a reward is a rate, and an instant earns nothing.
        """
        return self.spec.may_terminate and self.spec.reward is None and self.integrate is euler

    def _rewards(self, seen: Measurements, data: RegressionData) -> tuple[tuple, Array | None]:
        """The data of the reward, (x, u, r, size), and the mean reward of steps that terminated an episode."""
        every = data.x, data.u, data.r, data.size
        if not self._ends_rewarded or seen.y is None:
            return every, None
        ending = seen.ending[seen.valid & ~seen.repeated]
        if not ending.any() or ending.all():
            return every, jnp.zeros(())
        kept = np.flatnonzero(~ending)
        shifted = [np.zeros_like(array) for array in every[:3]]
        for array, new in zip(every[:3], shifted, strict=True):
            new[: len(kept)] = array[kept]
        mean = data.r[: int(data.size)][ending].mean()
        return (*shifted, np.int32(len(kept))), jnp.asarray(mean)

    def _fit_ends(
        self,
        ends: TerminalStates | None,
        seen: Measurements,
        data: RegressionData,
        features: tuple[np.ndarray, np.ndarray],
        first: bool,
        key: Key,
    ) -> tuple[TerminalStates | None, dict[str, float]]:
        """The classifier of terminal states, fitted unless none is known."""
        if ends is None:
            return None, {}
        states = np.asarray(data.x)[: int(data.size)]
        if seen.final is not None:  # in continuous time, the terminal state itself is a measurement
            terminal = {row.tobytes() for row in seen.final[seen.terminated].astype(np.float32)}
            states = states[[row.tobytes() not in terminal for row in states]]
        known = end_data(seen, states, self.spec, self.capacity, key.generator())
        if not known.terminal_size or not known.other_size:
            return ends, {"terminations": float(seen.terminated.sum())}
        steps, rate = self.settings.steps if first else self.settings.finetune_steps, self.settings.learning_rate
        replaced = eqx.tree_at(lambda ends: (ends.mean, ends.scale), ends, tuple(map(jnp.asarray, features)))
        objective = EndLoss(self.settings.batch_size)
        fitted, loss = fit_ensemble(
            objective, replaced, jax_key(key), tuple(known), steps, rate, rate / LEARNING_RATE_DECAY
        )
        return fitted, {"terminations": float(seen.terminated.sum()), "termination_loss": float(loss)}

    def check_fit(self, before: BlackBoxModel, after: BlackBoxModel, seen: Measurements) -> str:
        """Compares the losses of drift and reward with those of the previous networks and of predicting zero."""
        data = self._data(seen)
        objectives = self.objectives
        pairs = [("drift", objectives["rates"], before.rates, after.rates, (data.x, data.u, data.y, data.size))]
        if isinstance(before.task.rewards, Networks) and isinstance(after.task.rewards, Networks):
            networks = before.task.rewards, after.task.rewards
            pairs.append(("reward", objectives["rewards"], *networks, self._rewards(seen, data)[0]))
        for name, objective, old, new, known in pairs:
            if new is old:
                continue
            if not finite(new):
                return f"the fit of the {name} diverged (it contains numbers that are not finite)"
            old = old.rescale(new.mean, new.scale, new.size)  # the same function; losses in the same unit
            zero = eqx.tree_at(lambda networks: networks.layers, new, jax.tree.map(jnp.zeros_like, new.layers))
            rows = subsample(np.arange(int(known[3])))
            arrays = [np.asarray(array)[rows] for array in known[:3]]
            losses = (mean_loss(objective, networks, *arrays) for networks in (old, zero, new))
            if wrong := check_loss(name, *losses):
                return wrong
        if not finite(after.task.ends):
            return "the fit of the termination diverged (it contains numbers that are not finite)"
        return ""

    def region(self, seen: Measurements) -> Region:
        """All measured states."""
        return data_region(self.spec, self._data(seen))

    def feature_scale(self, region: Region) -> Array:
        """The typical size of each feature in the first data."""
        return typical_features(self.spec, region)

    def _data(self, seen: Measurements) -> RegressionData:
        """All measurements; the drift is what an approximate model leaves, zero in coordinates that hardly ever change."""
        data = regression_data(seen, self.spec, self.capacity, self.settings.max_gap)
        y = data.y
        if self.spec.approximate_drift is not None:
            y = y - np.asarray(approximate(self.spec.approximate_drift, jnp.asarray(data.x), jnp.asarray(data.u)))
        n = int(data.size)
        return data._replace(y=y * np.asarray(StateStructure.of(data.x[:n], y[:n]).changes))


def approximate(drift: Callable[[Array, Array], Array], x: Array, u: Array) -> Array:
    """An approximate model of dx/dt; x [..., d], u [..., k] -> [..., d]."""
    return jnp.vectorize(lambda x, u: jnp.asarray(drift(x, u)), signature="(d),(k)->(d)")(x, u)


def data_region(spec: StateSpec, data: RegressionData) -> Region:
    """All measured states, and limits a little beyond them."""
    limits = MARGIN * np.abs(data.x).max(axis=0)
    limits[list(spec.angles)] = NO_LIMIT
    limits = np.where(limits > 0, limits, 1.0).astype(np.float32)
    return Region(*map(jnp.asarray, (data.x, data.size, limits)))


def typical_features(spec: StateSpec, region: Region) -> Array:
    """The typical size of each feature at the states of a region [features]."""
    return jnp.asarray(root_mean_square(np.asarray(spec.featurize(region.states))[: int(region.size)]))
