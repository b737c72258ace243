"""The learner of ENODE and PURE_ENODE: fit the ensemble to all trajectories, improve the policy in it.

Both algorithms are this learner; they differ in the schedule (and, if one likes, the sampler) of the loop around it.
"""

import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.actor_critic import Improving, Region, improve
from purectrl.control.dynamics import Dynamics, Maker, noise_of
from purectrl.control.integrate import Integrator, midpoint
from purectrl.control.misfit import Watch, places, watched, watching
from purectrl.control.model import Ensemble, Fitting, fit, scales, sequences
from purectrl.control.policy import Actor, Behaviour, Critic
from purectrl.control.soundness import Diverged, judge_fit, judge_policy
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
    updates: int = 0
    """Updates so far, those that were rolled back among them."""
    watch: Watch = Watch()
    """How well the ensemble fits the episodes since the last update."""


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
        """What Algorithm 2 compares with 5 (`control/misfit.py`). The reward is known, so it always fits."""
        seen, looked = data.view, state.watch.fitted + state.watch.since
        new = Measurements(seen.t[looked:], seen.x[looked:], seen.u[looked:])
        watch = [state.watch, *self._watched(state, new)][-1]
        return Excess(watch.excess, 0.0), state._replace(watch=watch)

    def excesses(self, state: ControlState, block: Measurements) -> Sequence[Excess]:
        """The same after each episode of `block`."""
        return [Excess(watch.excess, 0.0) for watch in self._watched(state, block)]

    def update(self, state: ControlState, data: Dataset, which: Which, key: Key) -> Update:
        """Trains f on all data, then π in f (Algorithm 5, lines 6 and 7).

        A part that has diverged (`control/soundness.py`) is rolled back: what was there before stays, `info` says
        `rolled_back`, and a warning tells the user. The run goes on, even if that was the first fit and episodes go on
        exploring: to end it here would throw away the measurements of this step, which are what is scarce, and the next
        update has more of them. Whoever reads the warning may stop, and nothing is lost.
        """
        begin = time.perf_counter()
        seen, first = data.view, not state.follow
        state = state._replace(updates=state.updates + 1)
        if not first:
            amplitudes = np.roll(np.array(AMPLITUDES, np.float32), state.explored - data.episodes)
            state = state._replace(amplitudes=amplitudes)
        with ThreadPoolExecutor(1) as aside:
            # the longest compilation of a run, on another core than the fit
            compiled = aside.submit(self._compile, state, data, key) if first else None
            ensemble, loss = self._fit(state.ensemble, seen, first, key)
        if compiled is not None:
            compiled.result()
        where = places(seen, self.fitting.points, self.longest_gap)
        wrong = judge_fit(self.fitting, self.integrate, state.ensemble, ensemble, seen, where)
        if wrong:
            info = _rolled_back(state, data, f"{wrong}: model and policy stay as they were")
            return Update(state, info, {"fit": time.perf_counter() - begin})
        # episodes that explored at random say nothing about those to come
        newest = data.episodes if first else state.watch.fitted
        watch = watching(self.fitting, self.integrate, ensemble, seen, where, newest)
        state = state._replace(ensemble=ensemble, watch=watch)
        fitted = time.perf_counter()

        state, info = self._improve(state, data, key)
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        return Update(state, {"fit_loss": float(loss), **noise_of(ensemble)} | info, seconds)

    def _improve(self, state: ControlState, data: Dataset, key: Key) -> tuple[ControlState, dict[str, Any]]:
        """The policy improved under the ensemble, or the state as it was if that has diverged; and what to say about it."""
        first = not state.follow
        actor, critic, region = self._before(state, data)
        how = self.improving, self.integrate, state.ensemble
        better = improve(*how, actor, critic, _jax(key, "improve"), region)
        wrong = judge_policy(*how, (actor, critic), (better.actor, better.critic), _jax(key, "judge"), region)
        if wrong:
            return state, _rolled_back(state, data, f"{wrong}: actor and critic stay as they were")
        state = state._replace(actor=better.actor, critic=better.critic)
        if first:
            amplitudes = np.array(AMPLITUDES, np.float32)
            state = state._replace(follow=1.0, amplitudes=amplitudes, explored=data.episodes)
        rewards = np.asarray(better.reward)
        info = {
            "planned_reward": float(better.planned[-1]),
            "imagined_reward": float(rewards.mean()),
            "imagined_worst": float(rewards.min()),
        }
        return state, info

    def _before(self, state: ControlState, data: Dataset) -> tuple[Actor, Critic, Region]:
        """What policy improvement starts from. At the first update the scale of the features is known, too."""
        region = self._region(data.view)
        if state.follow:
            return state.actor, state.critic, region
        scale = policy_scale(self.mechanism, region)
        actor, critic = (eqx.tree_at(lambda net: net.scale, net, scale) for net in (state.actor, state.critic))
        return actor, critic, region

    def _compile(self, state: ControlState, data: Dataset, key: Key) -> None:
        """Compiles the policy improvement for later; it depends on the shapes alone."""
        actor, critic, region = self._before(state, data)
        how = self.improving, self.integrate, state.ensemble
        improve.lower(*how, actor, critic, _jax(key, "improve"), region).compile()

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

    def _watched(self, state: ControlState, seen: Measurements) -> list[Watch]:
        """The watch over the ensemble after each episode of `seen`."""
        return watched(self.fitting, self.integrate, state.ensemble, state.watch, seen, self.longest_gap)

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


def policy_scale(mechanism: Mechanism, region: Region) -> Array:
    """What actor and critic divide the features by [features]: the root of their typical size, between 1 and 3.

    A larger one would flatten the policy near the goal, where it has to be precise.
    """
    features = np.asarray(mechanism.observe(region.states[: int(region.count)]))
    return jnp.asarray(np.clip((features**2).mean(axis=0) ** 0.25, 1.0, 3.0), jnp.float32)


def _jax(key: Key, name: str) -> Any:
    return jax.random.wrap_key_data(key.child(name).words())


def _rolled_back(state: ControlState, data: Dataset, what: str) -> dict[str, Any]:
    """What to write down about an update that was rolled back; the user is told, too."""
    message = f"update {state.updates}, after {data.episodes} episodes: {what}"
    warnings.warn(message, Diverged, stacklevel=4)
    return {"rolled_back": message}
