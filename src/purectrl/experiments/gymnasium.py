"""`gymnasium`: any environment with continuous observations and actions, learned from measurements alone.

The learner knows the sizes of observation and action, and the limits of the action. Drift, reward and initial states it
learns. After every update the new policy is tested in whole episodes of the environment. They are booked as evaluation:
they cost the budget nothing, and the learner never sees them. Returns are reported in the environment's own unit.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import RescaleAction

from purectrl.control.actor_critic import Improving
from purectrl.control.episodes import exploring, played
from purectrl.control.exploration import SmoothNoise
from purectrl.control.observed import Observed, as_it_is
from purectrl.control.observed_learner import ObservedLearner
from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.oracle import Oracle
from purectrl.core.problem import Plan
from purectrl.experiments.config import make_output, make_sampler, make_schedule
from purectrl.experiments.gym_config import GymConfig
from purectrl.experiments.registry import EVALUATED, Task
from purectrl.systems.gym import gym_episodes, snapped, step_of, width_of


def environment(config: GymConfig) -> Task:
    """The environment that `config` names, to be controlled for the highest return."""
    env = make(config.env)
    dt = config.dt or step_of(env)
    require(
        config.sampler != "windows" or config.window_step >= dt * (1 - 1e-9),
        f"window_step: must not be shorter than a step of {config.env}, {dt:g} s; got {config.window_step:g}",
    )
    observed = Observed(width_of(env, "observation"), width_of(env, "action"))
    begin = exploring(SmoothNoise(config.horizon), observed.control_dim)
    rollout = gym_episodes(env, begin, dt, config.terminal_reward)
    oracle = Oracle(rollout, config.horizon, Budget(config.measurements))
    sampler = snapped(make_sampler(config), dt)
    learner = make_learner(observed, config, dt, sampler.m)
    loop = Loop(oracle, sampler, make_schedule(config), learner, make_output(config))
    limit = own_limit(env) or round(config.horizon / dt)

    def test(key: Key, plan: Plan, episodes: int) -> dict[str, float]:
        return played(env, plan.policy, key, episodes, limit).judged()

    def probe(state: State, record: Record) -> dict[str, Any]:
        # other rules than `last` may hand over another plan without an update
        if not record.updated and config.output == "last":
            return {}
        found = test(state.key.child("test", state.steps), state.output.plan, config.tests)
        return {EVALUATED: config.tests, **{f"test_{name}": value for name, value in found.items()}}

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        tests = [record for record in records if EVALUATED in record]
        if not tests:
            return {}
        last = {name.removeprefix("test_"): value for name, value in tests[-1].items() if name.startswith("test_")}
        return last | {"return_curve": [[test["rollouts"], test["test_return"]] for test in tests]}

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        return test(Key.from_seed(seed).child("evaluate"), plan, episodes)

    return Task(
        loop, probe, metrics, evaluate, episodes=config.tests, policy=lambda plan: policy_of(env, observed, plan)
    )


def make(name: str) -> gymnasium.Env:
    """The environment without its time limit, whose actions are fractions of their limits in [−1, 1]^k."""
    try:
        env = gymnasium.make(name, max_episode_steps=-1)
    except (gymnasium.error.Error, ImportError) as error:
        raise InputError(f"env: {' '.join(str(error).split())}") from None
    width_of(env, "observation")
    width_of(env, "action")
    space = env.action_space
    require(
        bool(np.isfinite(space.low).all() and np.isfinite(space.high).all()),  # pyright: ignore
        f"env: the actions of {name} have no limits, and a policy needs some; wrap it in an environment that has",
    )
    return RescaleAction(env, np.float32(-1.0), np.float32(1.0))


def own_limit(env: gymnasium.Env) -> int | None:
    """Steps after which the registered environment would be truncated; None if it would never be."""
    registered = env.unwrapped.spec
    return None if registered is None else gymnasium.spec(registered.id).max_episode_steps


def make_learner(observed: Observed, config: GymConfig, dt: float, m: int) -> ObservedLearner:
    """The learner with the settings of `config`, for episodes of m measurements."""
    return ObservedLearner(
        observed,
        rows=config.measurements,
        episodes=config.measurements // m,
        improving=Improving(
            iterations=config.plan_iterations,
            rows=config.plan_rows,
            members=config.plan_members,
            horizon=config.plan_horizon,
            discount=config.discount,
            optimistic=config.planning == "optimistic",
            step=dt,
            actor_rate=config.actor_rate,
            critic_rate=config.critic_rate,
            planned=as_it_is,
        ),
        first_iterations=config.first_iterations,
        later_iterations=config.later_iterations,
        batch=config.fit_rows,
        members=config.members,
        width=config.width,
        rate=config.fit_rate,
        last_rate=config.fit_rate / 50,
    )


def policy_of(env: gymnasium.Env, observed: Observed, plan: Plan) -> Callable[..., np.ndarray]:
    """The plan's actor as a function (observation [d], time) -> action [k] in the environment's own unit."""
    space = env.unwrapped.action_space
    low, high = space.low, space.high  # pyright: ignore

    def policy(x: Any, t: float = 0.0) -> np.ndarray:
        """The action at observation x; the policy does not depend on the time t."""
        x = np.asarray(x, np.float32)
        d = observed.state_dim
        require(x.shape[-1:] == (d,), f"x: has shape {x.shape}, expected [{d}] or [..., {d}]")
        return low + (np.asarray(plan.policy.actor(x)) + 1) / 2 * (high - low)

    return policy
