"""A system of your own in one page: a leaky water tank with an unknown leak and an unknown best level.

    python examples/own_system.py

The tank's level x falls with a leak and rises with the pump's power u in [0, 1]:

    dx = (u − leak · x) dt + 0.1 dw,      reward = exp(−8 (x − level)²)

You write the equations, say which drifts, rewards, policies and starts are possible, and choose when to measure and when to
update. The ledger counts what it cost.
"""

import math

import jax.numpy as jnp
import numpy as np

from purectrl import Budget, Key, Loop, Measuring, Oracle, System
from purectrl.core.samplers import uniform
from purectrl.core.schedules import on_misfit
from purectrl.systems.simulation import simulated
from purectrl.theory import FiniteClass, FiniteLearner, Optimist, radius, tabulator


def drift(leak, x, u):
    return u - leak * x


def reward(level, x, u):
    return jnp.exp(-8 * (x[0] - level) ** 2)


def pump(level, x):  # full power below the level, none above, soft in between
    return jnp.clip(0.5 + 4 * (level - x), 0.0, 1.0)


def main(measurements: int = 2000) -> None:
    tank = System(
        name="tank",
        state_dim=1,
        control_dim=1,
        horizon=5.0,
        drift=lambda x, u: drift(0.4, x, u),
        diffusion=lambda x, u: jnp.float32(0.1),
        reward=lambda x, u: reward(1.5, x, u),
    )
    levels = np.array([0.5, 1.0, 1.5, 2.0], np.float32)
    drifts = FiniteClass.family(drift, np.array([0.1, 0.2, 0.4, 0.8], np.float32))
    rewards = FiniteClass.family(reward, levels)
    policies = FiniteClass.family(pump, levels)
    starts = FiniteClass.of([lambda key: jnp.zeros(1)])

    measuring = Measuring(step=0.1, reward_std=1.0)
    values = tabulator(tank, policies, starts, drifts, rewards, steps=50, paths=256)(Key.from_seed(0))
    beta_drift = radius(math.log(drifts.size), measurements, delta=0.1, noise=0.1 / math.sqrt(measuring.step))
    beta_reward = radius(math.log(rewards.size), measurements, delta=0.1)
    loop = Loop(
        oracle=Oracle(simulated(tank, policies.apply, starts.apply, measuring, 50), tank.horizon, Budget(measurements)),
        sampler=uniform(m=4),
        schedule=on_misfit(5.0),
        learner=FiniteLearner(drifts, rewards, Optimist.of(values.mean), beta_drift, beta_reward),
    )

    for state, record in loop.run(loop.init(Key.from_seed(1))):
        if record.updated:
            print(
                f"episode {state.ledger.rollouts}: {record.updated.name} updated, pump to {levels[state.learner.policy]}"
            )
    ledger = state.ledger
    print(f"{ledger.measurements} measurements, {ledger.rollouts} rollouts, {ledger.updates} updates")
    print(f"believed leak {[0.1, 0.2, 0.4, 0.8][state.learner.drift]}, best level {levels[state.learner.reward]}")


if __name__ == "__main__":
    main()
