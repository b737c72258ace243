"""`stable-diffusion` with SEIKO and PURE_SEIKO: animals that a model of images is taught to paint better (appendix E).

The loop, the learner and the accounts are those of `digits`. What differs is the model, a pipeline of diffusers with
low-rank adapters; the reward, of any size; and what the reward model sees of a large image, which is small.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.problem import Plan
from purectrl.diffusion import pictures
from purectrl.diffusion.animals import TRAINING, UNSEEN
from purectrl.diffusion.crew import Crew, join
from purectrl.diffusion.models import Iterate
from purectrl.diffusion.pictures import Samples, spread_within
from purectrl.diffusion.pipeline import PipelineModel, load_pipeline, save_lora
from purectrl.diffusion.reward_networks import ImageTrunk, VectorTrunk, cells
from purectrl.diffusion.rewards import Reward, Scorer, compressibility
from purectrl.diffusion.rewards.own import own_scorer
from purectrl.experiments.diffusion import FINAL, LINKS, Account, View, divergence_of, make_loop, sample, spent, totals
from purectrl.experiments.registry import EVALUATED, Task
from purectrl.experiments.stable_diffusion_config import StableDiffusionConfig

PRECISIONS = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CELLS = 16
"""The reward model sees this many cells of an image in each direction, if there is no embedding of it."""
THUMBNAIL = 96
"""Pixels of an image that is kept to be looked at."""
ROWS, COLUMNS = 8, 4
"""Prompts and images of each in a picture."""


def stable_diffusion(config: StableDiffusionConfig) -> Task:
    """Stable Diffusion, to be tuned by the reward that `config` names."""
    both = set(config.prompts or TRAINING) & set(config.unseen or UNSEEN)
    require(not both, f"unseen: {min(both, default='')!r} is measured, too; take it out of one of the lists")
    device = choose_device(config)
    require(config.precision != "fp16" or device != "cpu", "precision: fp16 needs a GPU; on a CPU take bf16 or no")
    assert config.model is not None  # `check` has seen to it
    pipeline = load_pipeline(config.model, PRECISIONS[config.precision])
    crew = join(device)
    model = PipelineModel(pipeline, config.rank, size=config.size, device=crew.device)
    score, view = REWARDS.get(config.reward, own)(config, crew.device)
    reward = Reward(score, name=config.reward, limit=config.reward_limit, noisy=config.reward_noisy)
    return tuning_task(config, model, reward, view._replace(link=LINKS[config.link]), crew)


def tuning_task(
    config: StableDiffusionConfig, model: PipelineModel, reward: Reward, view: View, crew: Crew | None = None
) -> Task:
    """A pipeline, to be tuned by any reward: what the reward model sees of an image must go with it."""
    crew = crew or Crew()
    config = config.resolved()  # type: ignore[assignment]
    prompts, unseen = config.prompts or TRAINING, config.unseen or UNSEEN
    process, account, gallery = model.process(config.denoising_steps), Account(reward), Gallery()
    loop = make_loop(config, model, process, prompts, account, view, crew)
    pretrained = loop.learner.plan(loop.learner.init(Key(0)))

    def drawn(plan: Plan, key: Key, each: int) -> Samples:
        """Images of all prompts, `each` of them; large ones are scored as they are and kept small."""
        asked = np.repeat((*prompts, *unseen), each).tolist()
        small, scores, done = [], [], 0
        for images in sample(model, process, plan, asked, key, config):
            scores.append(account.apart(images, asked[done : done + len(images)]))
            small.append(thumbnails(images))
            done += len(images)
        return Samples(np.concatenate(small), np.array(asked), np.concatenate(scores))

    def probe(state: State, record: Record) -> dict[str, Any]:
        line = spent(record, config)
        if record.updated:
            found = drawn(state.output.plan, state.key.child("test"), config.test_images)
            gallery.show(f"update-{state.ledger.updates}", {"": found}, prompts, unseen)
            line |= {EVALUATED: len(found.scores)} | {
                f"test_{name}": value for name, value in judged(found, prompts).items()
            }
        return line

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        key, each = state.key.child("final"), FINAL * config.test_images
        before, after = drawn(pretrained, key, each), drawn(state.output.plan, key, each)
        told = {f"{name}_pretrained": value for name, value in judged(before, prompts).items()}
        rewards = {"reward_by_prompt": by_prompt(after), "reward_by_prompt_pretrained": by_prompt(before)}
        paths, key = prompts[: config.chunk], key.child("divergence")
        divergence = divergence_of(model, process, state.output.plan, paths, key, config)
        return (
            judged(after, prompts)
            | told
            | rewards
            | {"kl_pretrained": divergence, "final_test_images": len(before.scores) + len(after.scores)}
            | totals(records)
        )

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        each = max(2, episodes // len((*prompts, *unseen)))
        found = drawn(plan, Key.from_seed(seed).child("evaluate"), each)
        return judged(found, prompts) | {"reward_by_prompt": by_prompt(found), "images": len(found.images)}

    def leave(plan: Plan, seed: int, directory: Path) -> list[Path]:
        key = Key.from_seed(seed).child("pictures")
        groups = {"before": drawn(pretrained, key, COLUMNS), "after": drawn(plan, key, COLUMNS)}
        files = gallery.show("samples", groups, prompts, unseen)
        return files + save_lora(Iterate(plan.policy, plan.initial), directory / "policy")

    def attach(directory: Path) -> None:
        account.attach(directory)
        gallery.attach(directory)

    episodes = FINAL * config.test_images * len((*prompts, *unseen))
    serve = crew.serve if crew.rank else None
    return Task(loop, probe, metrics, evaluate, episodes=episodes, attach=attach, leave=leave, serve=serve)


class Gallery:
    """The pictures of a run, in its directory."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def attach(self, directory: Path) -> None:
        """Puts pictures into `directory` from now on; before, none is kept."""
        self._folder = directory / "media"

    def show(
        self, name: str, groups: Mapping[str, Samples], prompts: Sequence[str], unseen: Sequence[str]
    ) -> list[Path]:
        """Writes `name`-training.png and `name`-unseen.png, of a few prompts each."""
        if self._folder is None:
            return []
        self._folder.mkdir(exist_ok=True)
        files = []
        for kind, chosen in (("training", prompts[:ROWS]), ("unseen", unseen[:ROWS])):
            some = {title: only(samples, chosen) for title, samples in groups.items()}
            columns = min(COLUMNS, min(int((samples.classes == chosen[0]).sum()) for samples in some.values()))
            files.append(self._folder / f"{name}-{kind}.png")
            pictures.save(pictures.side_by_side(some, columns=columns), files[-1])
        return files


def only(samples: Samples, prompts: Sequence[str]) -> Samples:
    """Those samples that were asked for by one of `prompts`."""
    chosen = np.isin(samples.classes, prompts)
    return Samples(*(array[chosen] for array in samples))


def thumbnails(images: np.ndarray) -> np.ndarray:
    """images [n, 3, h, w] -> [n, 3, at most 96, at most 96]."""
    if images.shape[-1] <= THUMBNAIL:
        return images
    return interpolate(torch.from_numpy(images), (THUMBNAIL, THUMBNAIL), mode="area").numpy()


def judged(found: Samples, prompts: Sequence[str]) -> dict[str, float]:
    """Mean reward of the measured prompts and of the others, and how different the images of a prompt are."""
    seen = np.isin(found.classes, prompts)
    return {
        "reward": float(found.scores[seen].mean()),
        "reward_held_out": float(found.scores[~seen].mean()),
        "diversity": spread_within(found.images, found.classes),
    }


def by_prompt(found: Samples) -> dict[str, float]:
    """Mean reward of each prompt."""
    return {str(prompt): float(found.scores[found.classes == prompt].mean()) for prompt in np.unique(found.classes)}


def choose_device(config: StableDiffusionConfig) -> Literal["cpu", "cuda"]:
    """The kind of device that `config` names."""
    there = torch.cuda.is_available()
    require(there or config.device != "cuda", "device: there is no GPU that torch can use; take cpu")
    return "cuda" if there and config.device != "cpu" else "cpu"


def aesthetic(config: StableDiffusionConfig, device: torch.device) -> tuple[Scorer, View]:
    """The aesthetic score; the reward model sees CLIP's embedding, as the score does."""
    from purectrl.diffusion.rewards.aesthetic import Aesthetic

    assert config.aesthetic_clip is not None
    assert config.aesthetic_head is not None
    score = Aesthetic(config.aesthetic_clip, config.aesthetic_head, device=str(device))

    def embed(images: Tensor) -> Tensor:
        """Of length √width, so that its numbers are of order one."""
        return score.width**0.5 * score.embed(images)

    return score, View(VectorTrunk(score.width, len(config.prompts or TRAINING)), embed)


def jpeg(config: StableDiffusionConfig, device: torch.device) -> tuple[Scorer, View]:
    """Compressibility; the reward model sees how bright each cell of an image is, and how much it varies in there."""
    trunk = ImageTrunk(6, CELLS, len(config.prompts or TRAINING))
    return compressibility, View(trunk, lambda images: cells(images, CELLS))


def own(config: StableDiffusionConfig, device: torch.device) -> tuple[Scorer, View]:
    """A reward of the user's; the reward model sees what it sees for JPEG."""
    _, view = jpeg(config, device)
    return own_scorer(config.reward), view


REWARDS: Mapping[str, Callable[[StableDiffusionConfig, torch.device], tuple[Scorer, View]]] = {
    "aesthetic": aesthetic,
    "jpeg": jpeg,
}
