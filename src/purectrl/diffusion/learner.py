"""The learner of SEIKO and PURE_SEIKO (Algorithm 4): fit r̂ to all measurements, then tune (f, q) optimistically.

Both algorithms are this learner. SEIKO measures at the end of a trajectory, PURE_SEIKO at m times on the way; that is the
sampler of the loop around it, and nothing here knows which of them runs.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from purectrl.core.errors import InputError
from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.problem import Plan
from purectrl.core.schedules import Excess, Which
from purectrl.diffusion.crew import Crew
from purectrl.diffusion.models import Condition, DiffusionModel, Iterate, detached
from purectrl.diffusion.process import Ddim
from purectrl.diffusion.reward_model import RewardModel, RewardState, Score, rows_of
from purectrl.diffusion.rollout import Embed
from purectrl.diffusion.update import Judge, Part, Pulled, Tuning, anchors_of, pull, tune

NO_EXCESS = "schedule: on-misfit does not know how well a reward network fits; take batches or geometric"


class SeikoState(NamedTuple):
    """Everything that was learned."""

    iterate: Iterate
    """(f_n, q_n)."""
    reward: RewardState
    """r̂_n."""
    updates: int


@dataclass(frozen=True, eq=False)
class SeikoLearner:
    """Algorithm 4, line 8.

    Main arguments:
        model, process: the pretrained diffusion model and its denoising steps.
        conditions: what images are asked for.
        reward: the reward model.
        tuning: the update of (f, q).

    Other arguments:
        embed: what the reward model sees of an image, as in the rollout.
        crew: processes that share the parts of an iteration of the update.
    """

    model: DiffusionModel
    process: Ddim
    conditions: Sequence[Condition]
    reward: RewardModel
    tuning: Tuning
    embed: Embed = lambda images: images
    crew: Crew = field(default_factory=Crew)

    def __post_init__(self) -> None:
        self.crew.learn("update", self._pull)

    def init(self, key: Key) -> SeikoState:
        """f_1 = f^pre, q_1 = q (Algorithm 4, line 1)."""
        return SeikoState(self.model.pretrained(), self.reward.init(key.child("reward")), 0)

    def observe(self, state: SeikoState, block: Measurements) -> SeikoState:
        """Keeps no running statistics: features change with every fit."""
        return state

    def excess(self, state: SeikoState, data: Dataset, key: Key) -> tuple[Excess, SeikoState]:
        """Not there: the drift is known, and a reward network has no confidence radius."""
        raise InputError(NO_EXCESS)

    def excesses(self, state: SeikoState, block: Measurements) -> Sequence[Excess]:
        """Not there."""
        raise InputError(NO_EXCESS)

    def update(self, state: SeikoState, data: Dataset, which: Which, key: Key) -> Update:
        """Trains r̂ on D, then (f, q) in it. If (f, q) leaves the finite numbers, what was there before stays, and `info`
        says `rolled_back`."""
        begin = time.perf_counter()
        reward, info = state.reward, {}
        if which & Which.REWARD:
            seen = data.view
            reward, info = self.reward.fit(
                rows_of(seen, self.process.steps, self.model.device), seen.m, key.child("fit")
            )
        fitted = time.perf_counter()

        now = SeikoState(state.iterate, reward, state.updates)
        tuned = tune(
            self.tuning,
            self.model,
            self.process,
            self._judge(reward),
            state.iterate,
            self.model.pretrained(),
            self.model.encode(self.conditions),
            state.updates,
            key.child("tune"),
            lambda iterate, parts: self.crew.map("update", (now, iterate), parts),
        )
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        info = {**info, **tuned.info}
        if not tuned.finite:
            info["rolled_back"] = "the update of the diffusion model diverged: it stays as it was"
            warnings.warn(f"{info['rolled_back']}; a smaller --tune-rate may help", stacklevel=2)
        return Update(SeikoState(tuned.iterate, reward, state.updates + 1), info, seconds)

    def _judge(self, reward: RewardState) -> Judge:
        """Final states by what r̂ says of their images."""

        def judge(x: Tensor, condition: Tensor) -> Score:
            end = torch.ones(len(x), device=x.device)
            return self.reward.score(reward, self.embed(self.model.decode(x)), end, condition)

        return judge

    def _pull(self, shared: tuple[SeikoState, Iterate], part: Part) -> Pulled:
        """One part of an iteration, in whichever process: from what was learned before the update, and the iterate now."""
        (state, iterate), (which, seed) = shared, part
        beta = self.tuning.beta(state.updates)
        anchors = anchors_of(self.model.pretrained(), detached(state.iterate), self.tuning.alpha, beta)
        generator = torch.Generator(self.model.device).manual_seed(seed)
        told = (self.tuning, self.model, self.process, self._judge(state.reward), anchors)
        return pull(*told, self.model.encode(self.conditions), iterate, which, generator)

    def plan(self, state: SeikoState) -> Plan:
        """(f_n, q_n): the weights by name, and the initial distribution."""
        return Plan(state.iterate.weights, state.iterate.initial)
