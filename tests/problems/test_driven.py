"""Systems that a function drives: clocks, lost messages, ends, limits, histories; and the example behind a socket."""

import runpy
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.core import Budget, Key, MeasurementError, Oracle, Plan
from purectrl.core.samplers import Context

EXAMPLE = Path(__file__).parents[2] / "examples" / "hardware.py"


class Constant:
    """u = 0.5."""

    def __call__(self, x, t=0.0):
        return jnp.full(1, 0.5)


PLAN = Plan(Constant(), None)
TIMES = np.tile(np.arange(5) * 0.1, (2, 1))


@pytest.fixture(autouse=True)
def _registered():
    import jax

    if not getattr(Constant, "registered", False):
        jax.tree_util.register_pytree_node(Constant, lambda _: ((), None), lambda *_: Constant())
        Constant.registered = True


def driven(rollout, **settings):
    arguments = {"name": "device", "horizon": 0.5, "state_dim": 1, "reward": lambda x, u: x[0] * u[0]}
    return pc.problems.continuous(**(arguments | {"rollout": rollout} | settings))


def ramp(control, times):
    """dx/dt = u from zero, by the clock of the computer."""
    x, seen, t = 0.0, [], 0.0
    while t <= times[-1] + 1e-9:
        u = control([x], t)
        if np.isclose(t, times[min(len(seen), len(times) - 1)]):
            seen.append((x, float(u[0])))
        x, t = x + 0.05 * float(u[0]), t + 0.05
    x, u = np.array(seen).T
    return x[:, None], u[:, None]


def test_as_many_measurements_as_were_taken_are_charged():
    def interrupted(control, times):
        x, u = ramp(control, times)
        return x[:3], u[:3]

    oracle = Oracle(driven(interrupted).rollout, horizon=0.5, budget=Budget(10))
    seen, ledger = oracle(Key.from_seed(0), TIMES, Context(0.5, plan=PLAN))
    assert (seen.count.tolist(), ledger.measurements, ledger.rollouts) == ([3, 3], 6, 2)
    assert not seen.terminated.any()  # an interruption is no terminal state
    assert seen.r[seen.valid] == pytest.approx(np.tile([0.0, 0.025, 0.05], 2))


def test_times_are_those_of_the_device_and_lost_measurements_are_left_out():
    def clocked(control, times):
        x, u = ramp(control, times)
        x[1] = np.nan
        return pc.problems.Episode(x, u, t=times + 0.013, terminated=True)

    seen = driven(clocked).rollout(Key.from_seed(0), PLAN, TIMES)
    assert seen.count.tolist() == [4, 4]
    assert seen.t[0, :4] == pytest.approx([0.013, 0.213, 0.313, 0.413])
    assert seen.terminated.all()
    assert seen.final[:, 0] == pytest.approx([0.2, 0.2])


def test_control_ends_the_episode_at_the_limits_and_repeats_itself_without_a_state():
    stopped = []

    def careless(control, times):
        try:
            assert control([np.nan], 0.0) == pytest.approx(0.0)  # at rest: there was no state yet
            ramp(control, times)
        finally:
            stopped.append(True)

    seen = driven(careless, limits={0: (-1.0, 0.12)}, abort_reward=0.0).rollout(Key.from_seed(0), PLAN, TIMES)
    assert stopped == [True, True]
    assert seen.terminated.all()
    assert seen.t[0, : seen.count[0]] == pytest.approx([0.0, 0.1, 0.2, 0.25])  # 0.125 is the first state beyond
    assert seen.final[:, 0] == pytest.approx([0.125, 0.125])
    assert seen.r[0, :4] == pytest.approx([0.0, 0.025, 0.05, 0.0625], abs=1e-6)


def test_a_history_is_built_from_the_calls_of_control():
    problem = driven(ramp, control_period=0.05, history=3)
    seen = problem.rollout(Key.from_seed(0), PLAN, TIMES)
    assert seen.x.shape == (2, 5, 3 + 2)
    assert seen.x[0, 2] == pytest.approx([0.1, 0.075, 0.05, 0.5, 0.5])
    assert seen.x[0, 0] == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.0])


def test_what_cannot_be_used_is_named():
    for rollout, message in (
        (lambda control, times: (np.zeros((6, 1)), np.zeros((6, 1))), "with n at most 5"),
        (lambda control, times: control([0.0, 0.0], 0.0), r"control: x has shape \(2,\), expected \[1\]"),
    ):
        with pytest.raises(MeasurementError, match=message):
            driven(rollout).rollout(Key.from_seed(0), PLAN, TIMES)
    with pytest.raises(pc.InputError, match="sensor_delay: simulates a trait, and a driven system has its own"):
        driven(ramp, sensor_delay=0.1)


def test_a_device_behind_a_socket_is_measured():
    """Its clock, its lost replies and its limits, without learning."""
    example = runpy.run_path(str(EXAMPLE))
    servo = example["Servo"](lost=0.2)
    servo.start()
    problem = example["problem"](*servo.address)
    times = np.tile(np.arange(40) * 0.05, (2, 1))
    seen = problem.rollout(Key.from_seed(0), PLAN, times)
    assert (seen.count < 40).all()  # replies were lost
    assert (seen.count > 15).all()
    gaps = np.diff(seen.t[0, : seen.count[0]])
    assert gaps.min() > 0.04
    assert gaps.std() > 1e-3  # the clock does not tick evenly
    # dω/dt = 40·0.5 − 8 ω: the speed tends to 2.5
    assert seen.x[0, seen.count[0] - 1, 1] == pytest.approx(2.5, abs=0.1)
    assert threading.active_count() < 50


@pytest.mark.slow
def test_the_example_learns_to_turn_the_motor():
    result = runpy.run_path(str(EXAMPLE))["learn"]()
    assert result.ledger.measurements < 400
    assert result.metrics["return"] > -0.6  # doing nothing has −2 · 1² = −2
    assert result.policy([0.0, 0.0])[0] > 0.3


def test_an_aborted_episode_of_a_device_earns_the_worst_reward_until_the_horizon():
    """x rises at 0.5 per second from zero and b = x − 1; the limit x = 0.1 is passed after 0.25 s, where b = −0.9."""
    problem = driven(ramp, reward=lambda x, u: x[0] - 1, limits={0: (-1.0, 0.1)}, control_period=0.05)
    assert problem.abort_reward == pytest.approx(-2.0)  # at x = −1
    found = problem.evaluate(PLAN, Key.from_seed(0), 1)
    assert found["seconds"] == pytest.approx(0.25, abs=0.06)
    rest = 0.5 - found["seconds"]
    assert found["return"] == pytest.approx(-0.94 * found["seconds"] - 2.0 * rest, abs=0.02)
    measured = driven(lambda *call: (*ramp(*call), np.full(5, -3.0)), abort_reward=-4.0, reward_known=False)
    assert (measured.rollout(Key(0), PLAN, TIMES).r == 1.0).all()
