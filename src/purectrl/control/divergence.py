"""Whether an update has diverged. Numbers that are not finite are rejected; finite ones can be wrong, too.

A model is checked by its loss on measurements spread evenly over all data. It must not be much larger than that of the
previous model, nor than that of a baseline without a learned part. A policy is checked in the new model by its regularized
return: the reward in imagined tests less the effort, as policy optimization subtracts it. It must not be much lower than
that of the previous policy. An untrained policy has little to lose, so actor and critic are also checked by their weights:
features are of unit size, and if the weights are ten times those of Glorot, hardly any unit has a gradient left. The values
of the critic must not be much larger than rewards can add up to.

The thresholds are for a learning rate that is a thousand times too large, not for an update that helps little. Healthy
updates are far from them, and their numbers are the same whether they are checked or not.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.imagination import ImaginationModel, Region, imagined_test
from purectrl.control.integrate import Integrator
from purectrl.control.networks import Layer
from purectrl.control.policy import Actor, Critic
from purectrl.control.settings import PlanSettings

MAX_LOSS_RATIO = 2.0
"""A fit must not multiply the loss by more than this."""
NEGLIGIBLE_LOSS = 1e-3
"""Smaller losses, in units of the squared scale of the errors, count as this: targets may be zero throughout."""
MAX_RETURN_DROP = 0.3
"""An update must not lower the regularized return by more than this share of the largest reward."""
MAX_RELATIVE_SIZE = 10.0
"""Weights must not exceed this many times Glorot's, nor the values of the critic this many times what is possible."""


def finite(tree: Any) -> bool:
    """Whether every number in a tree of arrays is finite.

    >>> finite((1.0, jnp.ones(2))), finite([jnp.array([0.0, jnp.nan])])
    (True, False)
    """
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def check_loss(name: str, before: float, baseline: float, after: float) -> str:
    """What is wrong with a fit that changed the loss from `before` to `after`; empty if nothing is.

    >>> check_loss("model", before=0.1, baseline=1.0, after=0.15), check_loss("model", 0.1, 1.0, float("nan"))
    ('', 'the fit of the model diverged (loss 0.1 before it, nan after it)')
    """
    reference = min(before, baseline)
    if after <= MAX_LOSS_RATIO * max(reference, NEGLIGIBLE_LOSS):
        return ""
    return f"the fit of the {name} diverged (loss {reference:.3g} before it, {after:.3g} after it)"


def check_policy(
    plan: PlanSettings,
    integrate: Integrator,
    model: ImaginationModel,
    before: tuple[Actor, Critic],
    after: tuple[Actor, Critic],
    key: Array,
    region: Region,
) -> str:
    """What is wrong with the policy optimization that led from `before` to `after`; empty if nothing is."""
    for name, network in zip(("actor", "critic"), after, strict=True):
        if not finite(network):
            return f"the {name} diverged (it contains numbers that are not finite)"
        if (size := relative_weight_norm(network.layers)) > MAX_RELATIVE_SIZE:
            return f"the {name} diverged (its weights are {size:.3g} times Glorot's)"
    measure = lambda pair: map(float, regularized_return(plan, integrate, model, *pair, key, region))  # noqa: E731
    (old, _), (new, size) = measure(before), measure(after)
    largest = max(abs(float(limit)) for limit in model.task.reward_range)
    most = plan.discount * largest
    if size > MAX_RELATIVE_SIZE * most:
        return f"the critic diverged (its values are about {size:.3g}, rewards add up to {most:.3g} at most)"
    if new < old - MAX_RETURN_DROP * largest:  # false if the old return is NaN: then any policy is accepted
        return f"the actor diverged (the imagined return was {old:.3g} before, {new:.3g} after)"
    return ""


def relative_weight_norm(layers: Sequence[Layer]) -> float:
    """The root mean square of the weights of a layer, in units of Glorot's; the largest of all layers.

    >>> from purectrl.control.networks import glorot
    >>> round(relative_weight_norm(glorot(np.random.default_rng(0), (50, 100, 50))))
    1
    """
    return max(float(np.sqrt((layer.weight**2).mean() * sum(layer.weight.shape) / 2)) for layer in layers)


@functools.partial(jax.jit, static_argnums=(0, 1))
def regularized_return(
    plan: PlanSettings,
    integrate: Integrator,
    model: ImaginationModel,
    actor: Actor,
    critic: Critic,
    key: Array,
    region: Region,
) -> tuple[Array, Array]:
    """The mean reward in imagined tests less the effort, and the mean size of the critic's values.

    Effort and values are those at the states to plan in. By the effort, a saturated actor has a low return.
    """
    present = jnp.arange(len(region.states)) < region.size
    mean = lambda values: jnp.where(present, values, 0.0).sum() / region.size  # noqa: E731
    effort = plan.action_l2 * mean((actor.before_tanh(region.states) ** 2).mean(axis=-1))
    reward = imagined_test(plan, integrate, model, actor, key, region.limits).mean()
    return reward - effort, mean(jnp.abs(critic(region.states)))
