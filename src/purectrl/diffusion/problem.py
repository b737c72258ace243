"""Problems with images: a diffusion model and a black-box reward on its images.

The reward is measured on the training conditions alone. Evaluation covers held-out conditions as well; its queries have
their own log, do not draw on the budget, and the learner does not see them.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch.nn.functional import interpolate

from purectrl.core.errors import require
from purectrl.core.io import subdirectory
from purectrl.core.keys import Key
from purectrl.core.learner import Record
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.prices import Prices
from purectrl.core.problem import Evaluation, Metrics, Problem, Source, record_numbers
from purectrl.core.samplers import Selection
from purectrl.diffusion.diagnosis import overestimation, warn_of_exploitation, warn_of_parting
from purectrl.diffusion.distributed import SINGLE, Ranks
from purectrl.diffusion.finetune import path_kl
from purectrl.diffusion.images import Samples
from purectrl.diffusion.models import Condition, GuidedDiffusion, Params
from purectrl.diffusion.reward_model import Augment
from purectrl.diffusion.reward_networks import Trunk
from purectrl.diffusion.rewards import Reward
from purectrl.diffusion.rewards.registry import RewardGradient
from purectrl.diffusion.rollout import DenoisingRollout, Embed, Measure, final_images, identity, query, step_of

if TYPE_CHECKING:
    from purectrl.core.loop import Loop

FINAL = 4
"""The final evaluation of a run has this many times the images of the evaluation after an update."""
FREE = Prices()
THUMBNAIL = 96
"""Largest height and width of images that are kept in memory and written to files."""


class RewardInput(NamedTuple):
    """What a reward model sees of an image, and a network for it: knowledge that the problem offers to the learner."""

    trunk: Trunk
    embed: Embed = identity
    augment: Augment = lambda inputs, generator: inputs


@dataclass(frozen=True, eq=False, kw_only=True)
class DiffusionProblem(Problem, abc.ABC):
    """A diffusion model and a black-box reward on its images.

    Main arguments:
        name: the name in reports and run directories.
        diffusion: the pretrained model, its denoising steps and guidance.
        conditions: the classes or prompts that are measured.
        eval_conditions: the classes or prompts of the evaluation; those that are not measured are held out.
        reward: the black box.
        reward_input: what a reward model sees of an image.
        measure: what is measured of a state of a trajectory.

    Other arguments:
        eval_reward: the black box of evaluations, by default the same, or none if that one asks people; it has its own log.
        reward_gradient: the same reward as a differentiable function of torch tensors, if it has one.
        kl_conditions: the conditions of the paths that estimate the final divergence from the pretrained model.
        eval_images: images per condition of the evaluation after each update; four times as many at the end of a run.
        rollout_batch_size: trajectories that are rolled out together.
        threads: CPU threads of PyTorch. The last bits of a run depend on it. It is a global setting of PyTorch, applied
            at every rollout and evaluation.
        prices: what a measurement, a rollout and an update cost, in the unit of the reward.
        ranks: processes that share the work.
        directory: the directory of the run, see `open`.
        source: where the problem comes from.
    """

    kind: ClassVar[str] = "images"
    grid_columns: ClassVar[int] = 10
    """Images per condition in image grids."""

    name: str
    diffusion: GuidedDiffusion
    conditions: tuple[Condition, ...]
    eval_conditions: tuple[Condition, ...]
    reward: Reward
    reward_input: RewardInput
    measure: Measure
    eval_reward: Reward | None = None
    reward_gradient: RewardGradient | None = None
    kl_conditions: tuple[Condition, ...] = ()
    eval_images: int = 10
    rollout_batch_size: int = 64
    threads: int = 1
    ranks: Ranks = SINGLE
    directory: Path | None = None
    source: Source | None = None
    measurements: int = 19_200
    prices: Prices = FREE
    horizon: float = field(init=False)
    eval_episodes: int = field(init=False)

    def __post_init__(self) -> None:
        require(self.diffusion.guidance > 0, f"guidance: must be positive, not {self.diffusion.guidance}")
        require(self.eval_images >= 2, f"eval_images: must be at least 2 per condition, not {self.eval_images}")
        for name in ("rollout_batch_size", "threads"):
            value = getattr(self, name)
            require(1 <= value <= 1_000_000, f"{name}: must be between 1 and 1,000,000, not {value}")
        self.prices.check()
        object.__setattr__(self, "horizon", float(self.diffusion.process.steps))
        object.__setattr__(self, "eval_episodes", self.eval_images * len(self.eval_conditions))
        if self.eval_reward is None and not self.reward.waits:
            object.__setattr__(self, "eval_reward", self.reward.with_log())

    @abc.abstractmethod
    def metrics(self, samples: Samples) -> Metrics:
        """Metrics of images of all `eval_conditions`."""

    @abc.abstractmethod
    def reward_by_condition(self, samples: Samples) -> Metrics:
        """The mean reward of each condition."""

    @abc.abstractmethod
    def save_images(self, name: str, groups: Mapping[str, Samples], directory: Path) -> list[Path]:
        """Writes image grids whose file names begin with `name` into `directory`, and returns the files."""

    @abc.abstractmethod
    def save_policy(self, params: Params, directory: Path) -> list[Path]:
        """Writes (f, q) into `directory` so that plain diffusers can load it, and returns the files."""

    @property
    def pretrained(self) -> Plan:
        """The plan of the pretrained model."""
        return self.diffusion.model.pretrained().plan()

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Denoising trajectories under `plan` and their rewards at `times` [episodes, m]."""
        return self._rollout(key, plan, times, None)

    def selective_rollout(self, key: Key, plan: Plan, times: np.ndarray, selection: Selection) -> Measurements:
        """The same with the rewards of those images that `selection` chooses."""
        return self._rollout(key, plan, times, selection)

    def _rollout(self, key: Key, plan: Plan, times: np.ndarray, selection: Selection | None) -> Measurements:
        torch.set_num_threads(self.threads)
        rollout = DenoisingRollout(
            self.diffusion,
            self.conditions,
            self.reward,
            self.measure,
            self.reward_input.embed,
            self.reward.stochastic,
            self.rollout_batch_size,
            self.ranks,
        )
        return rollout(key, plan, times, selection)

    def sample(self, plan: Plan, key: Key, images: int) -> Samples:
        """`images` final images of each of `eval_conditions`, with their evaluation scores, NaN if there are none; large
        ones are scored at their size and returned as thumbnails."""
        torch.set_num_threads(self.threads)
        conditions = np.repeat(np.array(self.eval_conditions), images).tolist()
        kept, scores, done = [], [], 0
        for batch in final_images(self.diffusion, plan, conditions, key, self.rollout_batch_size, self.ranks):
            some = conditions[done : done + len(batch)]
            none = np.full(len(batch), np.nan)
            scores.append(none if self.eval_reward is None else query(self.eval_reward, batch, some, self.ranks))
            kept.append(thumbnails(batch.float().cpu().numpy()))
            done += len(batch)
        return Samples(np.concatenate(kept), np.array(conditions), np.concatenate(scores))

    def estimate(self, loop: "Loop") -> str | None:
        """Network evaluations, FLOP, memory and hours of a run of `loop`, on one line."""
        from purectrl.diffusion.cost import estimate

        torch.set_num_threads(self.threads)
        found = estimate(self, loop)
        return None if found is None else found.text()

    def update_bytes(self, loop: "Loop") -> float:
        """Weights, and the activations that an update keeps; 0 on a GPU, whose memory is not the machine's."""
        from purectrl.diffusion.cost import estimate

        found = estimate(self, loop, rate=1.0) if self.diffusion.model.device.type == "cpu" else None
        return 0.0 if found is None else found.memory

    def evaluated_images(self, updates: int) -> int:
        """Images that a run with so many updates generates for evaluations, image grids and the final divergence."""
        final = 2 * (FINAL * self.eval_images + self.grid_columns) * len(self.eval_conditions)
        paths = self._divergence_paths
        return updates * (self.eval_episodes + 2 * max(1, paths // FINAL)) + final + 2 * paths

    def evaluation_key(self, key: Key, steps: int) -> Key:
        """The key of the evaluation after `steps` steps: always the same initial noise, so that images can be compared."""
        return key.child("test")

    def evaluate(self, plan: Plan, key: Key, episodes: int, label: str = "evaluation") -> Metrics:
        """Metrics of about `episodes` images, at least two of each condition; with a run directory, a grid of them is
        written to `media/` under the name `label`."""
        samples = self.sample(plan, key, max(2, episodes // len(self.eval_conditions)))
        if self.directory is not None and self.ranks.is_main:
            self.save_images(label, {"": samples}, subdirectory(self.directory, "media", create=True))
        return self.scored(self.metrics(samples))

    def scored(self, metrics: Metrics) -> Metrics:
        """The metrics without rewards, if evaluations have no reward."""
        rewards = () if self.eval_reward is not None else [name for name in metrics if name.startswith("reward")]
        return {name: value for name, value in metrics.items() if name not in rewards}

    def open(self, directory: Path | None) -> Self:
        """A copy that logs queries in `directory/queries.jsonl`, so that no query is repeated after a crash, and those of
        the evaluation in `directory/evaluation.jsonl`; it writes image grids into `directory/media`."""
        logs = None if directory is None or not self.ranks.is_main else directory
        reward = self.reward.with_log(logs and logs / "queries.jsonl")
        eval_reward = self.eval_reward and self.eval_reward.with_log(logs and logs / "evaluation.jsonl")
        return dataclasses.replace(self, reward=reward, eval_reward=eval_reward, directory=directory)

    def columns(self, record: Record) -> Metrics:
        """Queries of the reward and evaluations of the network in one step of the loop."""
        steps = step_of(record.block.t)
        distinct = steps.shape[0] + int((steps[:, 1:] != steps[:, :-1]).sum())
        if record.block.count is not None:  # some were chosen, and all of these were queried
            distinct = record.block.total
        per_episode = self.diffusion.process.steps * self.diffusion.evaluations_per_step
        evaluations = record.block.episodes * per_episode + record.info.get("update_evaluations", 0)
        return {
            "queries": record.block.total if self.reward.stochastic else distinct,
            "network_evaluations": evaluations,
        }

    def evaluate_update(self, plan: Plan, key: Key, updates: int) -> Evaluation:
        """The evaluation after an update and the divergence from the pretrained model, which not every learner computes; the
        images are named after the update."""
        metrics = self.evaluate(plan, key, self.eval_episodes, label=f"update-{updates}")
        return Evaluation(metrics | {"kl_pretrained": self.divergence(plan, key, self._divergence_paths // FINAL)})

    @property
    def _divergence_paths(self) -> int:
        """Paths that estimate the final divergence; after an update, a quarter of them, as of the images."""
        return len(self.kl_conditions or self.conditions)

    def divergence(self, plan: Plan, key: Key, paths: int | None = None) -> float:
        """KL of the paths of `plan` from those of the pretrained model, in nats: the mean over one path for each of
        `kl_conditions`, or of the first few."""
        model, conditions = self.diffusion.model, self.kl_conditions or self.conditions
        condition = model.encode(conditions[: None if paths is None else max(1, paths)])
        return path_kl(self.diffusion, Params.of(plan), model.pretrained(), condition, key.child("divergence"))

    def summarize(self, plan: Plan, last: Plan, key: Key, records: Sequence[Mapping[str, Any]]) -> Metrics:
        """Metrics of the returned and of the pretrained model, their divergence, and the totals of `columns`."""
        warn_of_exploitation(records)
        key, images = key.child("final"), FINAL * self.eval_images
        before, after = self.sample(self.pretrained, key, images), self.sample(plan, key, images)
        pretrained, now = (
            self.scored(self.metrics(samples) | self.reward_by_condition(samples)) for samples in (before, after)
        )
        warn_of_parting(pretrained, now)
        curve = [[one["measurements"], one["eval_reward"]] for one in records if "eval_reward" in one]
        return (
            now
            | {f"{name}_pretrained": value for name, value in pretrained.items()}
            | {
                "kl_pretrained": self.divergence(plan, key),
                "final_eval_images": len(before.scores) + len(after.scores),
            }
            | {
                name: sum(value for (value,) in record_numbers(records, name))
                for name in ("queries", "network_evaluations")
            }
            | overestimation(records)
            | ({"reward_curve": curve} if curve else {})
        )

    def artifacts(self, plan: Plan, key: Key, directory: Path) -> list[Path]:
        """Images before and after, from the same initial noise, and the model in diffusers' format."""
        key = key.child("pictures")
        groups = {
            "before": self.sample(self.pretrained, key, self.grid_columns),
            "after": self.sample(plan, key, self.grid_columns),
        }
        if not self.ranks.is_main:
            return []
        files = self.save_images("samples", groups, subdirectory(directory, "media", create=True))
        return files + self.save_policy(Params.of(plan), subdirectory(directory, "policy", create=True))


def thumbnails(images: np.ndarray) -> np.ndarray:
    """images [n, c, h, w] -> [n, c, at most 96, at most 96]."""
    if images.shape[-1] <= THUMBNAIL:
        return images
    return interpolate(torch.from_numpy(images), (THUMBNAIL, THUMBNAIL), mode="area").numpy()
