"""Whether an update may be trusted. What has left the finite numbers is bad; what is finite can be bad, too.

A model is judged by its loss on sub-sequences spread evenly over all data. It must not be much worse than the model before,
nor than a model that knows dq/dt = v and nothing else. A policy is judged under the new model by its worth: the reward in
imagined tests less the effort, as policy improvement subtracts it. It must not be worth much less than the policy before.
An untrained policy has little to lose, so actor and critic are also judged by their weights: features are of unit size, and
if the weights are ten times those of Glorot, hardly any unit has a slope left to learn with. The values of the critic must
not be much larger than rewards can add up to.

The limits are for a step size that is a thousand times too large, not for an update that helps little. Healthy updates are
far from them, and the same numbers come out whether they are judged or not.
"""

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.dynamics import Dynamics
from purectrl.control.imagination import Improving, Model, Region, imagined_test
from purectrl.control.integrate import Integrator
from purectrl.control.misfit import error_scale, evenly, mean_loss
from purectrl.control.model import Fitting
from purectrl.control.networks import Layer
from purectrl.control.policy import Actor, Critic
from purectrl.core.measurement import Measurements
from purectrl.core.problem import Array

WORSE = 2.0
"""A fit may not multiply the loss by more than this."""
LOST = 0.3
"""A policy may not be worth less by more than this; the largest reward is 1."""
TOO_LARGE = 10.0
"""Weights may not be more than this many times Glorot's, nor a critic's values this many times what is possible."""


class Diverged(UserWarning):
    """Part of an update was rolled back."""


def finite(tree: Any) -> bool:
    """Whether every number in a tree of arrays is finite.

    >>> finite((1.0, jnp.ones(2))), finite([jnp.array([0.0, jnp.nan])])
    (True, False)
    """
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def judge_fit(
    fitting: Fitting, integrate: Integrator, before: Dynamics, after: Dynamics, seen: Measurements, where: np.ndarray
) -> str:
    """What is wrong with the fit that made `after` of `before`; nothing if it is sound.

    Main arguments:
        seen: all data.
        where: all sub-sequences in it [n, 2].
    """
    if not finite(after):
        return "the fit of the model diverged (it has left the finite numbers)"
    scale, some = error_scale(fitting, after), evenly(where)
    new, old, known = (
        mean_loss(fitting, integrate, model, scale, seen, some) for model in (after, before, coasting(before))
    )
    if new > WORSE * min(old, known):
        return f"the fit of the model diverged (loss {min(old, known):.3g} before it, {new:.3g} after it)"
    return ""


def coasting(ensemble: Dynamics) -> Dynamics:
    """The model that knows dq/dt = v and no acceleration."""
    return eqx.tree_at(lambda model: model.acceleration_scale, ensemble, jnp.zeros_like(ensemble.acceleration_scale))


def judge_policy(
    improving: Improving,
    integrate: Integrator,
    model: Model,
    before: tuple[Actor, Critic],
    after: tuple[Actor, Critic],
    key: Array,
    region: Region,
) -> str:
    """What is wrong with the policy improvement that made `after` of `before`; nothing if it is sound."""
    for name, net in zip(("actor", "critic"), after, strict=True):
        if not finite(net):
            return f"the {name} diverged (it has left the finite numbers)"
        if (size := heaviness(net.layers)) > TOO_LARGE:
            return f"the {name} diverged (its weights are {size:.3g} times Glorot's)"
    look = lambda pair: map(float, worth(improving, integrate, model, *pair, key, region))  # noqa: E731
    (old, _), (new, size) = look(before), look(after)
    most = improving.discount * max(map(abs, after[0].mechanism.reward_range))
    if size > TOO_LARGE * most:
        return f"the critic diverged (its values are about {size:.3g}, rewards add up to {most:.3g} at most)"
    if new < old - LOST:  # against one that is worth NaN, anything will do
        return f"the actor diverged (the policy was worth {old:.3g} before, {new:.3g} after)"
    return ""


def heaviness(layers: Sequence[Layer]) -> float:
    """The root mean square of the weights of a layer, in units of Glorot's; the largest of all layers.

    >>> from purectrl.control.networks import glorot
    >>> round(heaviness(glorot(np.random.default_rng(0), (50, 100, 50))))
    1
    """
    return max(float(np.sqrt((layer.weight**2).mean() * sum(layer.weight.shape) / 2)) for layer in layers)


@functools.partial(jax.jit, static_argnums=(0, 1))
def worth(
    improving: Improving, integrate: Integrator, model: Model, actor: Actor, critic: Critic, key: Array, region: Region
) -> tuple[Array, Array]:
    """The mean reward in imagined tests less the effort, and the mean size of the critic's values.

    Effort and values are those at the states to plan in. By the effort, a saturated actor is worth little.
    """
    there = jnp.arange(len(region.states)) < region.count
    mean = lambda values: jnp.where(there, values, 0.0).sum() / region.count  # noqa: E731
    effort = improving.calm * mean((actor.before_tanh(region.states) ** 2).mean(axis=-1))
    reward = imagined_test(improving, integrate, model, actor, key, region.limits).mean()
    return reward - effort, mean(jnp.abs(critic(region.states)))
