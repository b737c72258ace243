"""`pendulum`, `cartpole` and `acrobot` with ENODE and PURE_ENODE.

The learner knows the reward and which numbers of the state are angles and velocities; the equations it learns from
measurements. After every update the new policy is tested on the true mechanism. Those episodes are booked as evaluation:
they cost the budget nothing, and the learner never sees them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.control.actor_critic import Improving
from purectrl.control.dynamics import learned_noise
from purectrl.control.evaluation import EPISODES, judged, times_of_tests, trial
from purectrl.control.exploration import SmoothNoise
from purectrl.control.families import BatchEnsemble, Implicit
from purectrl.control.integrate import dopri5, midpoint
from purectrl.control.learner import AMPLITUDES, ControlLearner
from purectrl.control.model import Ensemble, Fitting
from purectrl.control.rollout import feedback
from purectrl.core.errors import InputError, require
from purectrl.core.keys import Key
from purectrl.core.learner import Record, State
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.oracle import Oracle
from purectrl.core.problem import Plan
from purectrl.experiments.config import make_output, make_sampler, make_schedule
from purectrl.experiments.control_config import ControlConfig
from purectrl.experiments.progress import say
from purectrl.experiments.registry import EVALUATED, Task
from purectrl.systems.catalogue import mechanism as named
from purectrl.systems.mechanism import Mechanism
from purectrl.systems.noise import observed_with_noise

MATCH_ROWS = 64
"""Pairs of measurements a step of gradient matching, for each member."""
FAMILIES = {"ensemble": Ensemble.random, "batch-ensemble": BatchEnsemble.random, "implicit": Implicit.random}
"""Untrained models by the name of their family."""
FILM_SECONDS, FILM_RATE = 10.0, 20
"""Length of a film, and its pictures a second."""


def swing_up(name: str, config: ControlConfig) -> Task:
    """The mechanism called `name`, to be brought to its goal and held there."""
    mechanism = named(name, config.variant)
    rollout = feedback(mechanism, SmoothNoise(config.horizon), config.diffusion)
    if config.observation_std:
        rollout = observed_with_noise(rollout, config.observation_std)
    # where the schedule decides after each episode, the simulation runs as far ahead as the exploration noise has sizes
    oracle = Oracle(rollout, config.horizon, Budget(config.measurements), ahead=len(AMPLITUDES))
    learner = make_learner(mechanism, config)
    loop = Loop(oracle, make_sampler(config), make_schedule(config), learner, make_output(config))
    test = trial(mechanism, config.diffusion)

    def probe(state: State, record: Record) -> dict[str, Any]:
        # other rules than `last` may hand over another plan without an update
        if not record.updated and config.output == "last":
            return {}
        key = state.key.child("test", state.steps)
        found = judged(test(key, state.output.plan, times_of_tests(EPISODES)))
        return {EVALUATED: EPISODES, **{f"test_{name}": value for name, value in found.items()}}

    def metrics(state: State, records: list[dict[str, Any]]) -> dict[str, Any]:
        tests = [record for record in records if EVALUATED in record]
        if not tests:
            return {}
        last = {name.removeprefix("test_"): value for name, value in tests[-1].items() if name.startswith("test_")}
        failed = sum("rolled_back" in record for record in records)
        curve = {"reward_curve": [[test["rollouts"], test["test_reward"]] for test in tests]}
        return last | curve | ({"rolled_back": failed} if failed else {})

    def evaluate(plan: Plan, seed: int, episodes: int) -> dict[str, Any]:
        return judged(test(Key.from_seed(seed).child("evaluate"), plan, times_of_tests(episodes)))

    return Task(
        loop,
        probe,
        metrics,
        evaluate,
        episodes=EPISODES,
        stop=lambda record: config.stop_when_solved and record.get("test_solved", False),
        policy=lambda plan: policy_of(mechanism, plan),
        film=lambda plan, seed, directory: film(mechanism, test, plan, seed, directory),
    )


def make_learner(mechanism: Mechanism, config: ControlConfig) -> ControlLearner:
    """The learner with the settings of `config`."""
    family = FAMILIES[config.dynamics]
    return ControlLearner(
        mechanism,
        rows=config.measurements,
        matching=Fitting(points=2, rows=MATCH_ROWS, step=config.window_step),
        fitting=Fitting(config.points, config.fit_rows, config.window_step),
        match_iterations=config.match_iterations,
        first_iterations=config.first_iterations,
        later_iterations=config.later_iterations,
        improving=Improving(
            iterations=config.plan_iterations,
            rows=config.plan_rows,
            members=config.plan_members,
            horizon=config.plan_horizon,
            discount=config.discount,
            optimistic=config.planning == "optimistic",
            step=config.window_step,
            actor_rate=config.actor_rate,
            critic_rate=config.critic_rate,
        ),
        members=config.members,
        width=config.width,
        rate=config.fit_rate,
        last_rate=config.fit_rate / 50,
        longest_gap=config.longest_gap,
        integrate={"midpoint": midpoint, "dopri5": dopri5()}[config.integrator],
        dynamics={"fixed": family, "learned": learned_noise(family)}[config.noise],
    )


def policy_of(mechanism: Mechanism, plan: Plan) -> Callable[..., np.ndarray]:
    """The plan's actor as a function (state [2·nq], time) -> control [k]; leading axes are welcome."""
    actor = plan.policy.actor
    act = jax.jit(lambda x: actor(x))

    def policy(x: Any, t: float = 0.0) -> np.ndarray:
        """The control at state x; the policy does not depend on the time t."""
        x = np.asarray(x, np.float32)
        dimension = mechanism.state_dim
        require(x.shape[-1:] == (dimension,), f"x: has shape {x.shape}, expected [{dimension}] or [..., {dimension}]")
        return np.asarray(act(jnp.asarray(x)))

    return policy


def film(mechanism: Mechanism, test: Any, plan: Plan, seed: int, directory: Path) -> list[Path]:
    """A film of the first ten seconds of one test: a GIF, and an MP4 where there is ffmpeg."""
    from purectrl.systems.drawing import frames, trace
    from purectrl.systems.film import save_film

    times = times_of_tests(1, 1 / FILM_RATE, FILM_SECONDS)
    seen = test(Key.from_seed(seed).child("film"), plan, times)
    pictures = frames(mechanism, trace(mechanism, seen.t[0], seen.x[0], seen.u[0]))
    written = [save_film(directory / f"{mechanism.name}-seed{seed}.gif", pictures, FILM_RATE)]
    try:
        written.append(save_film(directory / f"{mechanism.name}-seed{seed}.mp4", pictures, FILM_RATE))
    except InputError as error:
        say(f"no MP4: {error}")
    return written
