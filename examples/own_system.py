"""A system of your own in one page: a water tank with an unknown leak.

    python examples/own_system.py
    purectrl run examples/own_system.py:problem --algorithm pure-enode --problem.leak 0.6 --out runs/tank

The level x falls with the leak and rises with the pump's power u in [0, 1]; level 1 is best:

    dx = (u − leak · x) dt,      reward = −(x − 1)²

The learner knows the reward and the limits of the pump, and learns the equation from measurements.
"""

from dataclasses import replace

import jax

import purectrl as pc
from purectrl.control import FitSettings, PlanSettings


def problem(leak: float = 0.5):
    """A water tank that leaks.

    Main arguments:
        leak: the share of the level that is lost per second.
    """
    return pc.problems.continuous(
        name="tank",
        horizon=10.0,
        drift=lambda x, u: u - leak * x,
        reward=lambda x, u: -((x[0] - 1.0) ** 2),
        initial=lambda key: jax.random.uniform(key, (1,)),
        control_low=[0.0],
        control_high=[1.0],
        measurements=1000,
    )


def main() -> None:
    tank = problem()
    algorithm = pc.pure_enode(tank)
    # fewer steps than the defaults, which suffice for one dimension
    learner = replace(algorithm.learner, fit=FitSettings(steps=1000, finetune_steps=500), plan=PlanSettings(steps=200))
    result = pc.run(tank, replace(algorithm, learner=learner), seed=0)
    ledger = result.ledger
    print(f"{ledger.measurements} measurements, {ledger.rollouts} rollouts, {ledger.updates} updates")
    print(f"return {result.metrics['return']:.3f} per episode of 10 s")
    for level in (0.2, 1.0, 1.5):
        print(f"pump at level {level}: {result.policy([level], 0.0)[0]:.2f}")


if __name__ == "__main__":
    main()
