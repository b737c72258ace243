"""ENODE and PURE_ENODE where nothing is known but the spaces: fit drift and reward, improve the policy in both.

It is `ControlLearner` with other models. Those of a mechanism know its kinematics and its reward; these know neither.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.actor_critic import Improving, Region, improve
from purectrl.control.learner import AMPLITUDES
from purectrl.control.networks import Layer
from purectrl.control.observed import (
    LearnedWorld,
    Networks,
    Observed,
    ObservedModel,
    Rows,
    euler,
    regress,
    rows_of,
    size,
    spread,
)
from purectrl.control.policy import Actor, Behaviour, Critic
from purectrl.control.soundness import finite
from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.problem import Array, Plan
from purectrl.core.schedules import Excess, Which

MARGIN = 1.3
"""Imagination is at home where measured states are, and this many times further."""


class ObservedState(NamedTuple):
    """Everything that was learned."""

    rates: Networks
    rewards: Networks
    actor: Actor
    critic: Critic
    follow: float
    """0 before the first update, when episodes explore at random; then 1."""
    amplitudes: np.ndarray
    """Size of the noise in the episodes to come [levels]."""
    explored: int
    """Episodes before the first update."""


@dataclass(frozen=True)
class ObservedLearner:
    """Algorithm 5, lines 6 and 7, with a reward that is learned, too.

    Main arguments:
        observed: how many numbers there are in an observation and in a control.
        rows, episodes: the measurements and the episodes that a run will take.
        improving: the policy improvement; its `step` is the environment's.
        first_iterations, later_iterations: steps of each fit at the first update and later.

    Other arguments:
        batch: measurements in a step of a fit, for each member.
        members, width: networks for drift and for reward, and units in each hidden layer of any network.
        rate, last_rate: of Adam at the beginning and at the end of a fit.
    """

    observed: Observed
    rows: int
    episodes: int
    improving: Improving
    first_iterations: int
    later_iterations: int
    batch: int = 64
    members: int = 5
    width: int = 128
    rate: float = 1e-3
    last_rate: float = 2e-5

    def init(self, key: Key) -> ObservedState:
        """Untrained networks (Algorithm 5, line 1); the first plan explores at random."""
        observed, hidden, d = self.observed, (self.width,), self.observed.state_dim
        return ObservedState(
            Networks.random(key.child("rates").generator(), observed, d, self.members, 2 * hidden),
            Networks.random(key.child("rewards").generator(), observed, 1, self.members, 2 * hidden),
            Actor.random(key.child("actor").generator(), observed, 2 * hidden),
            Critic.random(key.child("critic").generator(), observed, 2 * hidden),
            follow=0.0,
            amplitudes=np.ones(len(AMPLITUDES), np.float32),
            explored=0,
        )

    def observe(self, state: ObservedState, block: Measurements) -> ObservedState:
        """Keeps no running statistics."""
        return state

    def excess(self, state: ObservedState, data: Dataset, key: Key) -> tuple[Excess, ObservedState]:
        """Not there."""
        raise InputError("schedule: on-misfit does not know how well these networks fit; take batches or geometric")

    def excesses(self, state: ObservedState, block: Measurements) -> Sequence[Excess]:
        """Not there."""
        raise InputError("schedule: on-misfit does not know how well these networks fit; take batches or geometric")

    def update(self, state: ObservedState, data: Dataset, which: Which, key: Key) -> Update:
        """Trains f and b on all data, then π in both (Algorithm 5, lines 6 and 7).

        If one of them leaves the finite numbers, what was there before stays, and `info` says `rolled_back`.
        """
        begin = time.perf_counter()
        first = not state.follow
        rows = rows_of(data.view, self.rows)
        fitted, losses = self._fit(state, rows, which, key)
        sound = finite((fitted.rates, fitted.rewards, losses))
        between = time.perf_counter()
        if not sound:
            return Update(state, {"rolled_back": "the fit of the models diverged"}, {"fit": between - begin})

        model, region = self._model(fitted, data.view, rows), self._region(rows)
        if first:
            fitted = _scaled_to(fitted, region)
        better = improve(self.improving, euler, model, fitted.actor, fitted.critic, _jax(key, "improve"), region)
        sound = finite((better.actor, better.critic))
        seconds = {"fit": between - begin, "plan": time.perf_counter() - between}
        if not sound:
            return Update(fitted, {"rolled_back": "the policy improvement diverged", **losses}, seconds)

        explored = data.episodes if first else state.explored
        amplitudes = np.roll(np.array(AMPLITUDES, np.float32), explored - data.episodes)
        unit = float(fitted.rewards.size[0])
        info = {
            **losses,
            "imagined_reward": unit * float(np.mean(better.reward)),
            "imagined_worst": unit * float(np.min(better.reward)),
        }
        learned = (fitted.rates, fitted.rewards, better.actor, better.critic)
        return Update(ObservedState(*learned, 1.0, amplitudes, explored), info, seconds)

    def plan(self, state: ObservedState) -> Plan:
        """The actor with the noise of the episodes to come; the environment draws where they start."""
        return Plan(Behaviour(state.actor, state.follow, state.amplitudes), ())

    def _fit(self, state: ObservedState, rows: Rows, which: Which, key: Key) -> tuple[ObservedState, dict[str, float]]:
        """The models named by `which` from where they stand, their scales adapted to the data, and their losses."""
        n = int(rows.count)
        x, iterations = spread(rows.x[:n]), self.later_iterations if state.follow else self.first_iterations

        def fitted(networks: Networks, targets: Array, name: str) -> tuple[Networks, float]:
            networks = networks.rescaled(*map(jnp.asarray, (*x, size(targets[:n]))))
            data = rows.x, rows.u, targets, rows.count
            networks, loss = regress(self.batch, networks, _jax(key, name), data, iterations, self.rate, self.last_rate)
            return networks, float(loss)

        rates, rewards, losses = state.rates, state.rewards, {}
        if Which.DRIFT in which:
            rates, losses["fit_loss"] = fitted(rates, rows.y, "rates")
        if Which.REWARD in which:
            rewards, losses["reward_loss"] = fitted(rewards, rows.r, "rewards")
        critic = _in_unit(state.critic, rewards.size / state.rewards.size)
        return state._replace(rates=rates, rewards=rewards, critic=critic), losses

    def _model(self, state: ObservedState, seen: Measurements, rows: Rows) -> ObservedModel:
        """What to imagine with; episodes start where the first measurement of one was."""
        starts = np.zeros((self.episodes, self.observed.state_dim), np.float32)
        starts[: seen.episodes] = seen.x[:, 0]
        best = rows.r[: int(rows.count)].max()
        return ObservedModel(state.rates, LearnedWorld(state.rewards, best, starts, np.int32(seen.episodes)))

    def _region(self, rows: Rows) -> Region:
        """All that was seen."""
        limits = MARGIN * np.abs(rows.x).max(axis=0)
        return Region(rows.x, rows.count, np.where(limits > 0, limits, 1.0).astype(np.float32))


def _in_unit(critic: Critic, growth: Array) -> Critic:
    """The same values when the unit of reward is `growth` times as large."""
    *layers, last = critic.layers
    last = Layer(last.weight / growth, last.bias / growth)
    return eqx.tree_at(lambda critic: critic.layers, critic, (*layers, last))


def _scaled_to(state: ObservedState, region: Region) -> ObservedState:
    """Actor and critic divide what they see by its size in the first data; once trained, that is never changed."""
    scale = jnp.asarray(size(region.states[: int(region.count)]))
    actor, critic = (eqx.tree_at(lambda net: net.scale, net, scale) for net in (state.actor, state.critic))
    return state._replace(actor=actor, critic=critic)


def _jax(key: Key, name: str) -> Array:
    return jax.random.wrap_key_data(key.child(name).words())
