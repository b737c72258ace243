"""Rewards by name. A new one is a function that returns a `RewardSpec`, and one line in `REWARDS`."""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from purectrl.core.errors import InputError, choose, require
from purectrl.core.references import load_reference
from purectrl.diffusion.rewards.jpeg import compressibility
from purectrl.diffusion.rewards.reward import Condition, Reward, Scorer

if TYPE_CHECKING:
    from torch import Tensor


RewardGradient = Callable[["Tensor", Sequence[Condition]], "Tensor"]
"""The same reward as a differentiable function: (images [n, channels, height, width], n conditions) -> scores [n]."""


class RewardOptions(NamedTuple):
    """What a reward can use when it is built."""

    device: str = "cpu"
    """Where networks are evaluated."""
    aesthetic_clip: str | None = None
    """Directory with CLIP ViT-L/14, or its name on the hub."""
    aesthetic_head: str | None = None
    """File with the aesthetic head on CLIP, or its name on the hub."""
    label_levels: int = 5
    """Levels of an answer of people."""


DEFAULTS = RewardOptions()


class RewardSpec(NamedTuple):
    """A reward and what is known about it."""

    score: Scorer
    range: tuple[float, float] | None = None
    """The smallest and the largest possible score; None if unknown."""
    embed: "Callable[[Tensor], Tensor] | None" = None
    """images [n, channels, height, width] -> embeddings [n, width] that a reward model should see instead of images."""
    width: int = 0
    """The dimension of the embedding."""
    gradient: RewardGradient | None = None
    """The same reward on torch tensors, differentiable; None for a black box."""
    waits: bool = False
    """Whether scores take as long as people need: no time limit, and nobody is asked about images of evaluations."""


def legibility(options: RewardOptions) -> RewardSpec:
    """The probability that a text recogniser reads the condition."""
    from purectrl.diffusion.rewards.ocr import Legibility

    return RewardSpec(Legibility(), (0.0, 1.0))


def jpeg(options: RewardOptions) -> RewardSpec:
    """Minus the size of the image as JPEG, in kilobytes."""
    return RewardSpec(compressibility, (-math.inf, 0.0))


def aesthetic(options: RewardOptions) -> RewardSpec:
    """The LAION Aesthetics V2 score; a reward model sees CLIP's embedding, as the score does."""
    from purectrl.diffusion.rewards.aesthetic import CLIP, HEAD, Aesthetic

    missing = "head" if options.aesthetic_clip else "clip"
    if not (options.aesthetic_clip and options.aesthetic_head):
        raise InputError(
            f"aesthetic_{missing}: the aesthetic reward is a head on CLIP ViT-L/14; give both as paths or as names on the "
            f"hub, aesthetic_clip={CLIP!r} and aesthetic_head={HEAD!r}; reward 'jpeg' needs neither"
        )
    score = Aesthetic(options.aesthetic_clip, options.aesthetic_head, device=options.device)

    def embed(images: "Tensor") -> "Tensor":
        """Of length √width, so that its coordinates are of order one."""
        return score.width**0.5 * score.embed(images)

    return RewardSpec(score, (-math.inf, math.inf), embed, score.width, lambda images, _: score.differentiable(images))


def people(options: RewardOptions) -> RewardSpec:
    """Labels of people, in [0, 1], whom `purectrl label` asks."""
    from purectrl.diffusion.rewards.people import People

    return RewardSpec(People(levels=options.label_levels), (0.0, 1.0), waits=True)


REWARDS: dict[str, Callable[[RewardOptions], RewardSpec]] = {
    "legibility": legibility,
    "jpeg": jpeg,
    "aesthetic": aesthetic,
    "people": people,
}
"""Factories by the names that a problem's `reward` takes."""


def reward_spec(reward: str | Scorer, options: RewardOptions = DEFAULTS) -> tuple[str, RewardSpec]:
    """Name and specification of a reward: a name in `REWARDS`, `module:function`, `path/file.py:function`, or a callable.

    >>> reward_spec("purectrl.diffusion.rewards.jpeg:compressibility")[1].score.__name__
    'compressibility'
    """
    require(
        reward == "people" or options.label_levels == DEFAULTS.label_levels,
        f"label_levels: only the reward 'people' uses them, not {reward!r:.60}",
    )
    if not isinstance(reward, str):
        require(
            callable(reward), f"reward: must be a name or callable as score(images, conditions), not {reward!r:.60}"
        )
        return getattr(reward, "__name__", type(reward).__name__), _own(reward)
    if ":" not in reward:
        return choose("reward", reward, REWARDS), _shipped(reward, options)
    found = load_reference(reward)
    require(
        callable(found) and _takes_two(found),
        f"reward: {reward!r:.100} cannot be called with two arguments; it must be a function score(images, conditions)",
    )
    return reward, _own(found)  # pyright: ignore[reportArgumentType] (callable, see above)


def black_box(name: str, spec: RewardSpec, timeout: float, stochastic: bool = False) -> Reward:
    """The reward of a specification, with checks, a timeout and a log."""
    return Reward(spec.score, name=name, range=spec.range, timeout=timeout, stochastic=stochastic, waits=spec.waits)


def evaluation_reward(reward: str | Scorer | None, options: RewardOptions, timeout: float) -> Reward | None:
    """The reward of evaluations, if it is another one than that which is measured; None for None."""
    if reward is None:
        return None
    name, spec = reward_spec(reward, options._replace(label_levels=DEFAULTS.label_levels))
    require(not spec.waits, "eval_reward: nobody is asked about images of evaluations; use a reward that is computed")
    return black_box(name, spec, timeout)


def _takes_two(score: Callable[..., Any]) -> bool:
    """Whether a function can be called with images and conditions; True if it does not tell."""
    try:
        inspect.signature(score).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def _own(score: Scorer) -> RewardSpec:
    """A user's reward; its attribute `gradient`, if it has one, is the same reward on torch tensors."""
    return RewardSpec(score, gradient=getattr(score, "gradient", None))


@functools.lru_cache(maxsize=8)
def _shipped(name: str, options: RewardOptions) -> RewardSpec:
    """A named reward; runs of one process share its networks."""
    return REWARDS[name](options)
