"""What an episode of a discrete-time environment executes: the policy, with smooth noise if it explores."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from purectrl.control.export import policy_network
from purectrl.control.numpy_policy import Policy
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.core.keys import Key
from purectrl.core.plan import Plan
from purectrl.systems.compiled import jax_key
from purectrl.systems.held_policy import HeldControl, HeldPolicy
from purectrl.systems.spec import Control, ExploringPolicy

_act: Callable[..., Array] = jax.jit(lambda policy, x, t: policy(x, t))
_explore: Callable[..., Array] = jax.jit(lambda policy, key, number, x, t: policy.explore(key, number)(x, t))
_control: Callable[..., Array] = jax.jit(lambda behavior, x, noise: behavior.control(x, noise))


def begin_episode(key: Key, plan: Plan, number: int) -> Control:
    """The control (x [d], t) -> u [k] of episode `number` of a batch, for `gym_episodes`.

    The noise of a `BehaviorPolicy` is drawn by NumPy, since steps of an environment are not compiled.
    """
    behavior = plan.policy
    if isinstance(behavior, HeldPolicy):
        held = HeldControl(behavior, jax_key(key.child("noise")))
        return lambda x, t: jnp.asarray(held(x, t))
    if not isinstance(behavior, BehaviorPolicy):
        if not isinstance(behavior, ExploringPolicy):
            return lambda x, t: _act(behavior, np.asarray(x, np.float32), t)
        noise = jax_key(key.child("noise"))  # compiled once, not once per episode: the noise is an argument
        return lambda x, t: _explore(behavior, noise, number, np.asarray(x, np.float32), t)
    factor, controls = behavior.noise.factor, behavior.actor.spec.control_dim
    amplitude = behavior.amplitudes[number % len(behavior.amplitudes)]
    path = amplitude * factor @ key.child("noise").generator().standard_normal((len(factor), controls), np.float32)
    knots = np.arange(len(factor)) * behavior.noise.step

    def control(x: Any, t: float) -> Array:
        noise = np.array([np.interp(t, knots, column) for column in path.T], np.float32)
        return _control(behavior, np.asarray(x, np.float32), noise)

    return control


def begin_evaluation(plan: Plan) -> Callable[[Any, float], np.ndarray]:
    """The control (x [d], t) -> u [k] of an episode without exploration noise.

    An actor is evaluated by NumPy: a step of an environment is not compiled, and calling JAX takes ten times as long.
    """
    if isinstance(plan.policy, HeldPolicy):
        return HeldControl(plan.policy, jax.random.key(0))
    if isinstance(getattr(plan.policy, "actor", None), Actor):
        network = Policy(policy_network(plan.policy).arrays())
        return lambda x, t: network.control(np.asarray(x, np.float32))
    return lambda x, t: np.asarray(_act(plan.policy, np.asarray(x, np.float32), t))
