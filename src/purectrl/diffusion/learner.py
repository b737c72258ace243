"""The learner of SEIKO and PURE_SEIKO (Algorithm 4): fit r̂ to all measurements, then fine-tune (f, q) optimistically.

Both algorithms use this learner. SEIKO measures at the end of a trajectory, PURE_SEIKO at m times of it: that is the
sampler of the loop, and nothing here depends on it.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from purectrl.core.keys import Key
from purectrl.core.learner import Update
from purectrl.core.measurement import Dataset, Measurements
from purectrl.core.plan import Plan
from purectrl.core.schedules import Targets
from purectrl.diffusion.cost import UpdateWork, backpropagation_work
from purectrl.diffusion.diagnosis import compare, final_rewards, warn_of_fall
from purectrl.diffusion.distributed import SINGLE, Ranks, Tensors
from purectrl.diffusion.finetune import finetune
from purectrl.diffusion.models import Condition, GuidedDiffusion, Params
from purectrl.diffusion.process import Gaussian
from purectrl.diffusion.reward_model import RewardModel, RewardState, Score, reward_data
from purectrl.diffusion.reward_networks import FixedTrunk
from purectrl.diffusion.rewards.registry import RewardGradient
from purectrl.diffusion.rollout import Embed, Measure, identity, noisy_state
from purectrl.diffusion.settings import FinetuneSettings, Seiko

if TYPE_CHECKING:
    from purectrl.diffusion.problem import DiffusionProblem


class SeikoState(NamedTuple):
    """Everything that was learned."""

    params: Params
    """(f_n, q_n)."""
    reward: RewardState
    """r̂_n."""
    updates: int
    promised: float
    """The reward of final images that the last update predicted for (f_n, q_n); infinite if there is none."""
    asked: float
    """The mean measured reward of final images under the model before the last update; infinite if there is none."""
    episodes: int
    """Trajectories at the last update."""
    ended: bool
    """Whether the run is over, since the measured reward fell."""


@dataclass(frozen=True, eq=False)
class SeikoLearner:
    """Algorithm 4, line 8.

    Main arguments:
        diffusion: the pretrained model, its denoising steps and guidance.
        conditions: the classes or prompts that are measured.
        reward_model: the reward model.
        settings: the update of (f, q).

    Other arguments:
        embed: the input of the reward model for an image, as in the rollout.
        measure: what r̂ sees of a state before the end of a trajectory, as in the rollout.
        ranks: processes that share the chunks of an iteration.
        known: the differentiable reward that takes the place of the reward model; None learns one.
        stop_when_worse: whether a fall of the measured reward ends the run.
        representative: whether measurements are a fair sample of the images of a model.
    """

    diffusion: GuidedDiffusion
    conditions: Sequence[Condition]
    reward_model: RewardModel
    settings: FinetuneSettings
    embed: Embed = identity
    ranks: Ranks = SINGLE
    measure: Measure = noisy_state
    known: RewardGradient | None = None
    stop_when_worse: bool = False
    representative: bool = True

    def init(self, key: Key) -> SeikoState:
        """f_1 = f^pre, q_1 = q (Algorithm 4, line 1)."""
        reward = self.reward_model.init(key.child("reward"))
        return SeikoState(self.diffusion.model.pretrained(), reward, 0, math.inf, math.inf, 0, False)

    def finished(self, state: SeikoState) -> bool:
        """Whether the measured reward fell after an update, and the settings say that this ends the run."""
        return state.ended

    def update(self, state: SeikoState, data: Dataset, which: Targets, key: Key) -> Update:
        """Fits r̂ to all data, then fine-tunes (f, q) on it. If the fine-tuning diverges, (f, q) stays as it was."""
        begin = time.perf_counter()
        asked, diagnosis = self._diagnose(state, data)
        if self.stop_when_worse and diagnosis.get("measured_reward_fell"):
            return Update(state._replace(asked=asked, episodes=data.episodes, ended=True), diagnosis, {})
        reward, info = state.reward, {}
        if which & Targets.REWARD and self.known is None:
            reward, info = self._fit(data, key.child("fit"))
        fitted = time.perf_counter()

        model = self.diffusion.model
        result = finetune(
            self.settings,
            self.diffusion,
            lambda x, condition, t: self._score(reward, x, condition, t),
            state.params,
            model.pretrained(),
            model.encode(self.conditions),
            key.child("tune"),
            self.ranks,
            self.measure,
        )
        params = params_from_main(self.ranks, result.params)
        seconds = {"fit": fitted - begin, "plan": time.perf_counter() - fitted}
        if self.known is not None:
            info["reward_gradients"] = self.settings.iterations * self.settings.batch_size * self.settings.reward_points
        diverged = "" if result.finite else "the fine-tuning of the diffusion model diverged; it keeps its parameters"
        promised = float(result.info["predicted_reward"]) if result.finite else math.inf
        new = SeikoState(params, reward, state.updates + 1, promised, asked, data.episodes, False)
        return Update(new, diagnosis | info | result.info, seconds, diverged)

    def _diagnose(self, state: SeikoState, data: Dataset) -> tuple[float, dict[str, float]]:
        """The mean measured reward of final images since the last update, and columns that compare it with the promise."""
        if not self.representative:
            return math.inf, {}
        final = final_rewards(data.all.after(state.episodes), self.diffusion.process.steps)
        found = compare(state.promised, state.asked, final)
        if found.get("measured_reward_fell"):
            warn_of_fall(state.updates, found, self.stop_when_worse, regularised=self.settings.alpha > 0)
        return (float(final.mean()) if len(final) else math.inf), found

    def policy(self, state: SeikoState) -> Plan:
        """(f_n, q_n): the weights by name, and the initial distribution."""
        return state.params.plan()

    @torch.no_grad()
    def bonus(self, state: SeikoState, offered: Measurements) -> np.ndarray:
        """The bonus of r̂_n for images that could be measured [episodes, m]."""
        rows = reward_data(offered, self.diffusion.process.steps, self.diffusion.model.device)
        found = self.reward_model.score(state.reward, *rows[:3]).bonus
        return found.double().cpu().numpy().reshape(offered.t.shape)

    def update_work(self, update: int, episodes: int) -> UpdateWork:
        """What the update with this number costs: from the second on, there are two references."""
        finetune, fit = self.settings, self.reward_model.settings
        weights = [finetune.alpha, finetune.beta] if update > 1 else [finetune.alpha + finetune.beta]
        references = sum(weight > 0 for weight in weights)
        evaluations = self.diffusion.evaluations_per_step
        work = backpropagation_work(finetune, self.diffusion.process, evaluations, references)
        return work._replace(fitted=0.0 if self.known is not None else fit.steps * fit.batch_size)

    def _score(self, reward: RewardState, x: Tensor, condition: Tensor, t: float) -> Score:
        """r̂ of the images of measured states [n, *shape] at time t/T."""
        if self.known is not None:
            found = self.known(self.diffusion.model.decode(x), [self.conditions[i] for i in condition.tolist()])
            return Score(found, torch.zeros_like(found))
        time = torch.full((len(x),), t, device=x.device)
        return self.reward_model.score(reward, self.embed(self.diffusion.model.decode(x)), time, condition)

    def _fit(self, data: Dataset, key: Key) -> tuple[RewardState, dict[str, float]]:
        """The reward model that the main process fits, on every rank."""

        def fit() -> Tensors:
            measured, model = data.all, self.diffusion.model
            rows = reward_data(measured, self.diffusion.process.steps, model.device)
            sizes = measured.m if measured.count is None else torch.tensor(measured.count[measured.count > 0])
            state, info = self.reward_model.fit(rows, sizes, key)
            weights = {f"weights/{name}": tensor for name, tensor in state.weights.items()}
            others = {name: tensor for name, tensor in state._asdict().items() if name != "weights"}
            numbers = {f"info/{name}": torch.tensor(value, dtype=torch.float64) for name, value in info.items()}
            return weights | others | numbers

        found = self.ranks.from_main(fit)
        weights, info = _under(found, "weights/"), _under(found, "info/")
        state = RewardState(weights, found["heads"], found["factor"], found["direction"])
        return state, {name: float(value) for name, value in info.items()}


def build_learner(settings: Seiko, problem: "DiffusionProblem", representative: bool = True) -> SeikoLearner:
    """The learner with these settings for a problem, which determines the input of the reward model."""
    inputs, device = problem.reward_input, problem.diffusion.model.device
    trunk = inputs.trunk
    if settings.reward_model.fit == "ridge":
        assert trunk.inputs is not None
        trunk = FixedTrunk(trunk.inputs)
    reward_model = RewardModel(trunk, settings.reward_model, inputs.augment, device)
    return SeikoLearner(
        problem.diffusion,
        problem.conditions,
        reward_model,
        settings.finetune,
        inputs.embed,
        problem.ranks,
        problem.measure,
        problem.reward_gradient if settings.gradient == "reward" else None,
        settings.stop_when_worse,
        representative,
    )


def _under(tensors: Tensors, prefix: str) -> Tensors:
    """The tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def params_from_main(ranks: Ranks, params: Params) -> Params:
    """The parameters of the main process on every rank: a GPU may round differently from the next."""
    if ranks.size == 1:
        return params
    found = ranks.from_main(lambda: {**params.weights, **params.initial._asdict()})
    return Params({name: found[name] for name in params.weights}, Gaussian(found["mean"], found["log_scale"]))
