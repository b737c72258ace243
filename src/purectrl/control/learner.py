"""The learner of ENODE and PURE_ENODE: fit the ensemble to all trajectories, improve the policy in it.

Both algorithms are this learner; they differ in the schedule (and, if one likes, the sampler) of the loop around it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.actor_critic import Improving, Region, improve
from purectrl.control.dynamics import Dynamics, Maker, noise_of
from purectrl.control.integrate import Integrator, midpoint
from purectrl.control.model import Ensemble, Fitting, fit, scales, sequences
from purectrl.control.policy import Actor, Behaviour, Critic
from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.problem import Array, Plan
from purectrl.core.schedules import Excess, Which
from purectrl.systems.mechanism import Mechanism

AMPLITUDES = (0.0, 0.1, 0.2, 0.3)
"""Size of the exploration noise in one episode after the other, once there is a policy."""
FREE = 1e6
"""The limit of an angle: none."""
ENOUGH = 100
"""The region to plan in is taken from at least this many states."""


class ControlState(NamedTuple):
    """Everything that was learned."""

    ensemble: Dynamics
    actor: Actor
    critic: Critic
    follow: float
    """0 before the first update, when episodes explore at random; then 1."""
    amplitudes: np.ndarray
    """Size of the noise in the episodes to come [levels]."""
    explored: int
    """Episodes before the first update."""


@dataclass(frozen=True)
class ControlLearner:
    """Algorithm 5, lines 6 and 7.

    Main arguments:
        mechanism: what the state means, and the reward, which ENODE knows. Its acceleration is not used.
        rows: N, the measurements that a run will take.
        matching: gradient matching, at the first update only.
        fitting: the likelihood of trajectories, at every update.
        match_iterations, first_iterations, later_iterations: steps of `matching`, and of `fitting` at first and later.
        improving: the policy improvement.

    Other arguments:
        members, width: networks in the ensemble, and units in each hidden layer of any network.
        rate, last_rate: of Adam at the beginning and at the end of `fitting`; `matching` keeps the first.
        longest_gap: two measurements further apart are not used as neighbours.
        early: seconds from the start of an episode whose states say where to plan.
        integrate: how the model is integrated.
        dynamics: makes the untrained model; another family, or one that learns its noise.
    """

    mechanism: Mechanism
    rows: int
    matching: Fitting
    fitting: Fitting
    match_iterations: int
    first_iterations: int
    later_iterations: int
    improving: Improving
    members: int = 10
    width: int = 200
    rate: float = 1e-3
    last_rate: float = 2e-5
    longest_gap: float = 0.15
    early: float = 5.0
    integrate: Integrator = midpoint
    dynamics: Maker = Ensemble.random

    def init(self, key: Key) -> ControlState:
        """Untrained networks (Algorithm 5, line 1); the first plan explores at random."""
        mechanism, hidden = self.mechanism, (self.width,)
        return ControlState(
            self.dynamics(key.child("ensemble").generator(), mechanism, self.members, 3 * hidden),
            Actor.random(key.child("actor").generator(), mechanism, 2 * hidden),
            Critic.random(key.child("critic").generator(), mechanism, 2 * hidden),
            follow=0.0,
            amplitudes=np.ones(len(AMPLITUDES), np.float32),
            explored=0,
        )

    def observe(self, state: ControlState, block: Measurements) -> ControlState:
        """Keeps no running statistics."""
        return state

    def excess(self, state: ControlState, data: Dataset, key: Key) -> tuple[Excess, ControlState]:
        """Not there yet."""
        raise InputError("schedule: on-misfit does not know yet how well an ensemble fits; take batches or geometric")

    def excesses(self, state: ControlState, block: Measurements) -> Sequence[Excess]:
        """Not there yet."""
        raise InputError("schedule: on-misfit does not know yet how well an ensemble fits; take batches or geometric")

    def update(self, state: ControlState, data: Dataset, which: Which, key: Key) -> Update:
        """Trains f on all data, then π in f (Algorithm 5, lines 6 and 7).

        If one of them leaves the finite numbers, what was there before stays, and `info` says `rolled_back`.
        """
        begin = time.perf_counter()
        seen, first = data.view, not state.follow
        ensemble, loss = self._fit(state.ensemble, seen, first, key)
        sound = finite((ensemble, loss))
        fitted = time.perf_counter()
        if not sound:
            return Update(state, {"rolled_back": "the fit of the model diverged"}, {"fit": fitted - begin})

        region = self._region(seen)
        actor, critic = state.actor, state.critic
        if first:
            scale = policy_scale(self.mechanism, region)
            actor, critic = (eqx.tree_at(lambda net: net.scale, net, scale) for net in (actor, critic))
        better = improve(self.improving, self.integrate, ensemble, actor, critic, _jax(key, "improve"), region)
        sound = finite((better.actor, better.critic))
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        if not sound:
            kept = state._replace(ensemble=ensemble)
            return Update(kept, {"rolled_back": "the policy improvement diverged", "fit_loss": float(loss)}, seconds)

        rewards, planned = np.asarray(better.reward), np.asarray(better.planned)
        explored = data.episodes if first else state.explored
        amplitudes = np.roll(np.array(AMPLITUDES, np.float32), explored - data.episodes)
        state = ControlState(ensemble, better.actor, better.critic, 1.0, amplitudes, explored)
        info = {
            "fit_loss": float(loss),
            "planned_reward": float(planned[-1]),
            "imagined_reward": float(rewards.mean()),
            "imagined_worst": float(rewards.min()),
            **noise_of(ensemble),
        }
        return Update(state, info, seconds)

    def plan(self, state: ControlState) -> Plan:
        """The actor with the noise of the episodes to come; they start in the mechanism's box."""
        return Plan(Behaviour(state.actor, state.follow, state.amplitudes), ())

    def _fit(self, ensemble: Dynamics, seen: Measurements, first: bool, key: Key) -> tuple[Dynamics, Array]:
        """The ensemble from where it stands, its scales adapted to the data."""
        data = sequences(seen, self.fitting.points, self.longest_gap, self.rows)
        ensemble = ensemble.rescaled(*map(jnp.asarray, scales(self.mechanism, seen, self.longest_gap)))
        if first and self.match_iterations:
            pairs = sequences(seen, self.matching.points, self.longest_gap, self.rows)
            rates = self.match_iterations, self.rate, self.rate
            ensemble, _ = fit(self.matching, self.integrate, ensemble, _jax(key, "match"), pairs, *rates)
        rates = self.first_iterations if first else self.later_iterations, self.rate, self.last_rate
        return fit(self.fitting, self.integrate, ensemble, _jax(key, "fit"), data, *rates)

    def _region(self, seen: Measurements) -> Region:
        """Where the early part of episodes goes. Later on, a cart on a long rail may be a kilometre away."""
        x, t = seen.x.reshape(-1, seen.x.shape[-1]), seen.t.ravel()
        until = max(self.early, np.sort(t)[min(ENOUGH, len(t)) - 1])
        limits = 1.3 * np.maximum(np.quantile(np.abs(x[t < until + 1e-9]), 0.995, axis=0), 1.0)
        limits[: self.mechanism.nq][np.array(self.mechanism.angles)] = FREE
        inside = x[(np.abs(x) <= limits).all(axis=1)]
        states = np.zeros((self.rows, x.shape[-1]), np.float32)
        states[: len(inside)] = inside
        return Region(states, np.int32(len(inside)), limits.astype(np.float32))


def finite(tree: Any) -> bool:
    """Whether every number in a tree of arrays is finite.

    >>> finite((1.0, jnp.ones(2))), finite([jnp.array([0.0, jnp.nan])])
    (True, False)
    """
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def policy_scale(mechanism: Mechanism, region: Region) -> Array:
    """What actor and critic divide the features by [features]: the root of their typical size, between 1 and 3.

    A larger one would flatten the policy near the goal, where it has to be precise.
    """
    features = np.asarray(mechanism.observe(region.states[: int(region.count)]))
    return jnp.asarray(np.clip((features**2).mean(axis=0) ** 0.25, 1.0, 3.0), jnp.float32)


def _jax(key: Key, name: str) -> Any:
    return jax.random.wrap_key_data(key.child(name).words())
