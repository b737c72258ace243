"""Problems of the literature on when to measure: bring a system from one initial state to a target at the least cost.

States are measured exactly, drifts with noise: (x, u, y = f(x, u) + noise). The policy acts on the true state at every
instant; only what is used for learning counts as a measurement. The metric `cost` is that of an episode of the true system
under the policy, ∫ c dt plus that of the final state; `return` is its negative.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import require
from purectrl.core.keys import Key
from purectrl.core.measurement import Measurements
from purectrl.core.plan import Plan
from purectrl.core.prices import Prices
from purectrl.core.problem import SHOWN_EPISODES, Evaluation, Metrics, Source
from purectrl.problems.continuous_systems import SIMULATION_STEPS, ContinuousSystem
from purectrl.systems import controlled_costs as systems
from purectrl.systems.closed_loop import closed_loop_rollouts
from purectrl.systems.controlled_costs import ControlledCost
from purectrl.systems.spec import StateProblem, StateSpec, return_metrics, without_noise

EVAL_POINTS = 1000
"""Costs of an evaluation episode."""


FREE = Prices()


@dataclass(frozen=True, kw_only=True)
class CostProblem(StateProblem):
    """A simulated system with a cost; the functions of this module build it."""

    name: str
    spec: StateSpec
    system: ContinuousSystem
    horizon: float
    noise: tuple[float, ...]
    """Standard deviation of the noise of a measured drift [d]."""
    prices: Prices = FREE
    measurements: int = 220
    eval_episodes: int = 1
    evaluate_episodes: int = 1
    source: Source | None = None

    def rollout(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        """Simulated episodes under continuous feedback; the drift is measured with noise."""
        seen = self._simulate(key.child("episodes"), plan, times)
        noise = key.child("noise").generator().standard_normal(seen.x.shape) * np.array(self.noise)
        y = np.asarray(self.system.drift(jnp.asarray(seen.x), jnp.asarray(seen.u))) + noise
        return Measurements(times, seen.x, seen.u, y.astype(np.float32), seen.r)

    def evaluate(self, plan: Plan, key: Key, episodes: int) -> Metrics:
        """The cost of episodes of the true system."""
        return self.evaluation(plan, key, episodes).metrics

    def evaluation(self, plan: Plan, key: Key, episodes: int) -> Evaluation:
        """The same, with the first episodes."""
        times = np.tile(np.linspace(0.0, self.horizon, EVAL_POINTS + 1), (episodes, 1))
        seen = self._simulate(key, without_noise(plan), times)
        assert seen.r is not None
        costs = np.asarray(-np.trapezoid(seen.r.astype(np.float64), seen.t, axis=1))
        if self.spec.terminal_reward is not None:
            costs = costs - np.asarray(jax.vmap(self.spec.terminal_reward)(jnp.asarray(seen.x[:, -1])))
        return Evaluation(return_metrics(-costs) | {"cost": float(costs.mean())}, seen.first(SHOWN_EPISODES))

    def _simulate(self, key: Key, plan: Plan, times: np.ndarray) -> Measurements:
        step = self.horizon / SIMULATION_STEPS
        return closed_loop_rollouts(self.system, self.horizon, max_step=step, batch_sizes=(1, 10))(key, plan, times)


def cost_problem(made: ControlledCost, noise_scale: float = 1.0, prices: Prices = FREE) -> CostProblem:
    """The problem of a system with a cost.

    Main arguments:
        made: the system.
        noise_scale: the noise of measured drifts in units of that of the system.
        prices: of measurements, rollouts and updates, in the unit of the cost.
    """
    require(noise_scale >= 0, f"noise_scale: must not be negative, got {noise_scale}")
    prices.check()
    d, final = len(made.start), made.terminal
    reward = lambda x, u: -made.cost(x, u)  # noqa: E731
    start = np.array(made.start, np.float32)
    spec = StateSpec(
        d,
        len(made.control_low),
        made.control_low,
        made.control_high,
        angles=made.angles,
        reward=reward,
        terminal_reward=None if final is None else lambda x: -final(x),
        initial_state=tuple(map(float, made.start)),
    )
    system = ContinuousSystem(d, made.drift, reward, lambda key: jnp.asarray(start))
    noise = tuple(noise_scale * one for one in made.noise)
    return CostProblem(name=made.name, spec=spec, system=system, horizon=made.horizon, noise=noise, prices=prices)


def _function(made: ControlledCost, about: str) -> Callable[..., CostProblem]:
    """The function behind a name, with the arguments that all these problems share."""

    def problem(
        noise_scale: float = 1.0,
        measurement_price: float = made.prices.measurement,
        rollout_price: float = made.prices.rollout,
        update_price: float = made.prices.update,
    ) -> CostProblem:
        return cost_problem(made, noise_scale, Prices(measurement_price, rollout_price, update_price))

    problem.__doc__ = f"""{about}

    Main arguments:
        noise_scale: the noise of measured drifts, in units of the published one.

    Other arguments:
        measurement_price: what a measurement costs, in the unit of the cost.
        rollout_price: what an episode costs.
        update_price: what a policy update costs.
    """
    problem.__name__ = problem.__qualname__ = made.name.replace("-", "_")
    return problem


ocorl_pendulum = _function(systems.PENDULUM, "Swing up a pendulum with a quadratic cost and more torque than needed.")
ocorl_mountain_car = _function(systems.MOUNTAIN_CAR, "Drive up a hill within a second.")
ocorl_cancer = _function(systems.CANCER, "Shrink a tumour with a drug.")
ocorl_glucose = _function(systems.GLUCOSE, "Lower a glucose level with insulin.")
ocorl_quadrotor = _function(systems.QUADROTOR, "Fly a planar quadrotor to the origin.")
ocorl_furuta = _function(systems.FURUTA, "Swing up a pendulum by turning its arm.")
ocorl_bicycle = _function(systems.BICYCLE, "Drive a bicycle to a pose.")
chemo_radiotherapy = _function(
    systems.CHEMO_RADIOTHERAPY, "Shrink a tumour with drug and radiation; a scan per measurement."
)
bioreactor = _function(systems.BIOREACTOR, "Grow cyanobacteria for phycocyanin; an assay per measurement.")
