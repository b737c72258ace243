"""What PURE-auto has learned and decided, and how an executed policy becomes the champion."""

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from purectrl.control.policy import Actor, Critic


class AutoState(NamedTuple):
    """Everything that was learned and decided."""

    model: Any
    """An `ImaginationModel`."""
    actor: Actor
    """The policy that the next episode executes."""
    critic: Critic
    champion: Actor
    """The best executed policy, by measured returns."""
    champion_critic: Critic
    feature_mean: Array
    """What planning subtracts from the features [features]."""
    use_actor: float = 0.0
    """0 before the first update, when episodes explore at random; then 1."""
    rate: float = 0.0
    """ρ, zero before the first update."""
    fitted: int = 0
    """The measurements that the model was fitted to."""
    measurement_step: float = 0.0
    """Seconds between two measurements, zero before the first update; `PacedWindows` reads it."""
    executes_champion: bool = False
    """Whether `actor` is the champion."""
    converged: bool = False
    """Whether the last planning ended because the imagined return was good or no longer rose."""
    good: bool = False
    """Whether it was good: no imagined episode ends far from the highest reward."""
    agreed: bool = False
    """Whether no member of the model promises less for `actor` than all together, beyond the tolerance."""
    champion_return: float = -np.inf
    """Mean of c over the champion's episodes, and their number."""
    champion_episodes: int = 0
    champion_error: float = np.inf
    """|promised − measured| of its last episode."""
    random_reward: float = 0.0
    best_reward: float = 1.0
    best_imagined: float = -np.inf
    """The highest J so far."""
    stalled: int = 0
    """Updates since it last rose."""
    refused: int = 0
    """Updates in a row that found no better policy."""
    imagined: float = np.inf
    """J of `actor` from all known initial states, in the model that it was planned in."""
    promised: float = 0.0
    """What was imagined for the last measured episode, and what was measured in it."""
    measured: float = 0.0
    ended: bool = False
    """Whether the run has ended."""
    decision: str = "explore at random"
    """What was decided last, and why."""

    @property
    def scale(self) -> float:
        """The unit of tolerances."""
        return max(self.best_reward - self.random_reward, 1e-6 * abs(self.best_reward), 1e-12)


def crown(state: AutoState, measured: float, error: float, better: bool) -> AutoState:
    """The state after the executed policy measured this return, and was or was not better than the champion's promise.

    `error` is |promised − measured|, infinite if the episode shows little.
    """
    if state.executes_champion:
        count = state.champion_episodes + 1
        mean = (state.champion_episodes * state.champion_return + measured) / count
        error = error if np.isfinite(error) else state.champion_error
        return state._replace(champion_return=mean, champion_episodes=count, champion_error=error)
    if measured <= state.champion_return and not better:
        return state
    return state._replace(
        champion=state.actor,
        champion_critic=state.critic,
        champion_return=measured,
        champion_episodes=1,
        champion_error=error,
        executes_champion=True,
    )
