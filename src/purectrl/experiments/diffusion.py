"""`digits` with SEIKO and PURE_SEIKO: a small diffusion model of handwritten digits, tuned to be legible.

The reward is what a text recogniser says, a black box. It is measured on training classes alone. After every update the new
iterate is tested on all classes, by the recogniser and by a judge that learning never asks: a model that pleases the one and
not the other has learned to cheat. Those images are booked as evaluation: they cost the budget nothing, and nothing is
learned from them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.oracle import Oracle
from purectrl.core.problem import Plan
from purectrl.diffusion import pictures
from purectrl.diffusion.crew import Crew
from purectrl.diffusion.digits import judge as judges
from purectrl.diffusion.digits import network
from purectrl.diffusion.digits.data import CLASSES, SIZE, TRAINING
from purectrl.diffusion.learner import SeikoLearner
from purectrl.diffusion.models import DiffusionModel, Iterate, PixelModel
from purectrl.diffusion.pictures import Samples
from purectrl.diffusion.process import Ddim
from purectrl.diffusion.reward_model import Fitting, Link, RewardModel, logistic, slight_noise, squared
from purectrl.diffusion.reward_networks import ImageTrunk, Trunk
from purectrl.diffusion.rewards import Reward, Scorer, compressibility
from purectrl.diffusion.rewards.ocr import Legibility
from purectrl.diffusion.rewards.own import own_scorer
from purectrl.diffusion.rollout import Condition, Embed, denoising, itself, measured_images, predicted_image, step_of
from purectrl.diffusion.uncertainty import Uncertainty, bootstrap, greedy, thompson, ucb
from purectrl.diffusion.update import Tuning, path_divergence
from purectrl.experiments.config import make_output, make_sampler, make_schedule
from purectrl.experiments.diffusion_config import DiffusionConfig
from purectrl.experiments.files import write_atomically
from purectrl.experiments.registry import EVALUATED, Task

FINAL = 4
"""How many times more images test the plan that a run hands over."""


LINKS = {"logistic": logistic, "squared": squared}
REWARDS: Mapping[str, Callable[[], Scorer]] = {"legibility": Legibility, "jpeg": lambda: compressibility}


def digits(config: DiffusionConfig) -> Task:
    """The digits, to be made legible."""
    config = config.resolved()
    model = PixelModel.conditional(network.pretrained(), (1, SIZE, SIZE), empty=network.UNCONDITIONAL)
    process = Ddim.from_scheduler(network.schedule(), config.denoising_steps)
    score = REWARDS[config.reward]() if config.reward in REWARDS else own_scorer(config.reward)
    account = Account(Reward(score, name=config.reward, limit=config.reward_limit, noisy=config.reward_noisy))
    judge = judges.pretrained()
    view = View(ImageTrunk(1, SIZE, len(TRAINING)), link=LINKS[config.link], augment=slight_noise)
    loop = make_loop(config, model, process, TRAINING, account, view)
    pretrained = loop.learner.plan(loop.learner.init(Key(0)))

    def drawn(plan: Plan, key: Key, each: int, classes: Sequence[int] = range(CLASSES)) -> Samples:
        asked = np.repeat(np.asarray(classes), each)
        images = np.concatenate(list(sample(model, process, plan, asked.tolist(), key, config)))
        return Samples(images, asked, account.apart(images, asked.tolist()))

    def judged(found: Samples) -> dict[str, Any]:
        training = np.isin(found.classes, TRAINING)
        return {
            "reward": float(found.scores[training].mean()),
            "reward_held_out": float(found.scores[~training].mean()),
            "second_opinion": float(judge.agrees(found.images, found.classes).mean()),
            "diversity": judges.diversity(found.images, found.classes),
        }

    def probe(state: State, record: Record) -> dict[str, Any]:
        line = spent(record, config)
        if record.updated:
            found = judged(drawn(state.output.plan, state.key.child("test"), config.test_images))
            line |= {EVALUATED: CLASSES * config.test_images}
            line |= {f"test_{name}": value for name, value in found.items()}
        return line

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        key, each = state.key.child("final"), FINAL * config.test_images
        before, after = drawn(pretrained, key, each), drawn(state.output.plan, key, each)
        told = {f"{name}_pretrained": value for name, value in judged(before).items()}
        paths, key = list(TRAINING) * 8, key.child("divergence")
        return (
            judged(after)
            | told
            | {
                "reward_by_class": by_class(after),
                "reward_by_class_pretrained": by_class(before),
                "kl_pretrained": divergence_of(model, process, state.output.plan, paths, key, config),
                "final_test_images": len(before.images) + len(after.images),
            }
            | totals(records)
        )

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        found = drawn(plan, Key.from_seed(seed).child("evaluate"), max(2, episodes // CLASSES))
        return judged(found) | {"reward_by_class": by_class(found), "images": len(found.images)}

    def leave(plan: Plan, seed: int, directory: Path) -> list[Path]:
        key = Key.from_seed(seed).child("pictures")
        groups = {
            "before": drawn(pretrained, key, 10),
            "after": drawn(plan, key, 10),
        }
        (directory / "media").mkdir(exist_ok=True)
        pictures.save(pictures.side_by_side(groups), picture := directory / "media" / "samples.png")
        save_samples(groups["before"], groups["after"], numbers := directory / "media" / "samples.safetensors")
        return [picture, numbers, save_model(plan, directory / "policy" / "denoiser")]

    return Task(loop, probe, metrics, evaluate, episodes=40 * CLASSES, attach=account.attach, leave=leave)


class Account:
    """The reward of a run. Its logs lie in the run's directory, so that no query is paid for twice, not after a crash."""

    def __init__(self, reward: Reward) -> None:
        self._reward, self._apart = reward, reward.apart()

    def attach(self, directory: Path) -> None:
        """Goes on with the logs in `directory`: what the run paid for, and what its tests asked."""
        self._reward = self._reward.apart(directory / "queries.jsonl")
        self._apart = self._reward.apart(directory / "evaluation.jsonl")

    def __call__(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """Scores [n] that the run pays for."""
        return self._reward(images, conditions)

    def apart(self, images: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
        """Scores [n] for evaluation."""
        return self._apart(images, conditions)


class View(NamedTuple):
    """What the reward model sees of an image, and how it learns from it."""

    trunk: Trunk
    embed: Embed = lambda images: images
    link: Link = logistic
    augment: Callable[[Tensor, torch.Generator], Tensor] = lambda seen, generator: seen


def make_loop(
    config: DiffusionConfig,
    model: DiffusionModel,
    process: Ddim,
    conditions: Sequence[Condition],
    reward: Callable[[np.ndarray, Sequence[Condition]], np.ndarray],
    view: View,
    crew: Crew | None = None,
) -> Loop:
    """SEIKO or PURE_SEIKO with the settings of `config`: they differ in sampler and batches alone."""
    torch.set_num_threads(config.threads)  # sums of another number of threads differ in their last bits
    looks, crew = {"image": predicted_image, "state": itself}, crew or Crew()
    seen = (looks[config.look], view.embed)
    rollout = denoising(
        model,
        process,
        conditions,
        reward,
        *seen,
        guidance=config.guidance,
        deterministic=not config.reward_noisy,
        chunk=config.chunk,
        crew=crew,
    )
    oracle = Oracle(rollout, float(process.steps), Budget(config.measurements))
    learner = SeikoLearner(
        model,
        process,
        conditions,
        RewardModel(
            view.trunk,
            make_uncertainty(config),
            view.link,
            Fitting(
                config.fit_steps, config.fit_batch, config.fit_rate, held_out=config.held_out, augment=view.augment
            ),
            config.ridge,
            model.device,
        ),
        make_tuning(config),
        view.embed,
        crew,
    )
    return Loop(oracle, make_sampler(config), make_schedule(config), learner, make_output(config))


def make_uncertainty(config: DiffusionConfig) -> Uncertainty:
    """The uncertainty that `config` names."""
    makers: dict[str, Callable[[], Uncertainty]] = {
        "ucb": lambda: ucb(config.bonus),
        "bootstrap": lambda: bootstrap(config.bonus, config.heads),
        "thompson": lambda: thompson(config.bonus),
        "greedy": greedy,
    }
    return makers[config.uncertainty]()


def make_tuning(config: DiffusionConfig) -> Tuning:
    """The update of (f, q) with the settings of `config`."""
    return Tuning(
        iterations=config.tune_iterations,
        batch=config.tune_batch,
        rate=config.tune_rate,
        initial_rate=config.initial_rate,
        alpha=config.alpha,
        beta=lambda updates: config.beta,
        clip=config.clip,
        shortest=config.shortest,
        longest=config.longest or None,
        divergence_draws=config.divergence_draws or None,
        checkpointing=config.checkpointing,
        guidance=config.guidance,
        chunk=config.tune_chunk or None,
        loss_scale=config.loss_scale,
    )


def sample(
    model: DiffusionModel, process: Ddim, plan: Plan, conditions: Sequence[Condition], key: Key, config: DiffusionConfig
) -> Iterator[np.ndarray]:
    """Final images [n, channels, height, width] for the given conditions, some at a time."""
    end = np.full((config.chunk, 1), process.steps)
    for number, start in enumerate(range(0, len(conditions), config.chunk)):
        asked = conditions[start : start + config.chunk]
        here = key.child("images", number)
        found = measured_images(
            model, process, plan, model.encode(asked), end[: len(asked)], itself, config.guidance, here
        )
        yield found[:, 0].cpu().numpy()


def spent(record: Record, config: DiffusionConfig) -> dict[str, int]:
    """What a step has cost beside the ledger: images that the reward was asked for, and denoiser evaluations."""
    steps = step_of(record.block.t)
    distinct = steps.shape[0] + int((steps[:, 1:] != steps[:, :-1]).sum())
    queries = steps.size if config.reward_noisy else distinct
    rolled = record.block.episodes * config.denoising_steps * (1 if config.guidance == 1.0 else 2)
    return {"queries": queries, "network_evaluations": rolled + record.info.get("update_evaluations", 0)}


def by_class(found: Samples) -> list[float]:
    """Mean reward of each class, from 0 on."""
    return [float(found.scores[found.classes == c].mean()) for c in range(CLASSES)]


def totals(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all steps have cost beside the ledger, and the tests after each update."""
    tests = [record for record in records if EVALUATED in record]
    failed = sum("rolled_back" in record for record in records)
    return ({"rolled_back": failed} if failed else {}) | {
        "queries": sum(record["queries"] for record in records),
        "network_evaluations": sum(record["network_evaluations"] for record in records),
        "reward_curve": [[test["measurements"], test["test_reward"]] for test in tests],
    }


def divergence_of(
    model: DiffusionModel, process: Ddim, plan: Plan, conditions: Sequence[Condition], key: Key, config: DiffusionConfig
) -> float:
    """KL(P^{f,q} | P^{f₁,q₁}), the mean over a path for each of the conditions."""
    tuned = Iterate(plan.policy, plan.initial)
    return path_divergence(model, process, tuned, model.pretrained(), model.encode(conditions), key, config.guidance)


def save_samples(before: Samples, after: Samples, file: Path) -> None:
    """Images as bytes [n, 1, 16, 16], their scores and classes, for `purectrl paper diffusion-samples`."""
    from safetensors.numpy import save

    as_bytes = lambda images: np.round(255 * images).astype(np.uint8)  # noqa: E731
    kept = {
        "before": as_bytes(before.images),
        "after": as_bytes(after.images),
        "before_scores": before.scores,
        "after_scores": after.scores,
        "classes": np.asarray(before.classes),
    }
    write_atomically(file, save(kept))


def save_model(plan: Plan, folder: Path) -> Path:
    """The tuned denoiser as a diffusers directory, which plain `UNet2DModel.from_pretrained(folder)` reads; q and the noise
    schedule beside it."""
    from safetensors.torch import save_file

    denoiser = network.pretrained()
    denoiser.load_state_dict(plan.policy)
    denoiser.save(folder)
    network.schedule().save_pretrained(folder)
    save_file({"mean": plan.initial.mean, "log_scale": plan.initial.log_scale}, folder / "initial.safetensors")
    return folder
