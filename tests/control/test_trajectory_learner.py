"""The learner of OCoRL: plans that the true system follows, its uncertainty, every choice, and the command line."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.cli import main
from purectrl.control.ilqr import Task, ilqr, rollout
from purectrl.control.tracking import TrackingPolicy
from purectrl.control.trajectory_settings import PredictorSettings, Trajectory, TrajectoryPlanSettings
from purectrl.core import Budget, InputError, Key, Targets
from purectrl.core.measurement import Dataset
from purectrl.core.samplers import Equidistant, MaxDeterminant, MaxKernelDistance, Receding, VarianceThreshold
from purectrl.core.schedules import Every
from purectrl.problems import controlled_costs
from purectrl.systems import controlled_costs as systems

SYSTEMS = {
    made.name: made
    for made in (
        systems.PENDULUM, systems.MOUNTAIN_CAR, systems.CANCER, systems.GLUCOSE, systems.QUADROTOR, systems.FURUTA,
        systems.BICYCLE, systems.CHEMO_RADIOTHERAPY, systems.BIOREACTOR,
    )
}  # fmt: skip


def learner(**plan):
    settings = TrajectoryPlanSettings(**({"nodes": 50, "restarts": 2} | plan))
    return Trajectory(PredictorSettings(ensemble_size=4, width=16), Trajectory().fit, settings)


@pytest.fixture(scope="module")
def swing_up():
    """A run on the pendulum with three episodes of eleven measurements."""
    loop = pc.Algorithm(MaxDeterminant(11, from_start=True), Every(), learner()).build(
        controlled_costs.ocorl_pendulum(), Budget(33)
    )
    states = [loop.init(Key.from_seed(0))]
    records = []
    for state, record in loop.run(states[0]):
        states.append(state)
        records.append(record)
    return loop, states, records


def test_twenty_two_measurements_swing_the_pendulum_up_almost_as_well_as_knowing_it(swing_up):
    loop, states, _ = swing_up
    problem = controlled_costs.ocorl_pendulum()
    costs = [problem.evaluate(loop.learner.policy(state.learner), Key(0), 1)["cost"] for state in states]
    assert costs[0] > 100.0
    assert costs[3] < 20.4  # 20.16 is the best that there is


def test_the_optimistic_plan_promises_more_than_its_tracking_on_the_mean_model(swing_up):
    for record in swing_up[2]:
        assert record.info["planned_return"] >= record.info["predicted_return"] - 1e-6
        assert record.info["plan_iterations"] >= 1
    found = [record.info["planned_return"] - record.info["predicted_return"] for record in swing_up[2]]
    assert found[-1] < found[0]  # what is known needs no optimism


def test_the_uncertainty_is_the_posterior_covariance_along_the_plan(swing_up):
    loop, states, _ = swing_up
    state, times = states[2].learner, np.linspace(0.0, 10.0, 21)
    found = loop.learner.uncertainty(state, times, Key(0))
    with jax.enable_x64(True):
        x, u = jax.vmap(state.policy.state)(jnp.asarray(times)), jax.vmap(state.policy.planned)(jnp.asarray(times))
        std = np.asarray(state.model.mean_and_std(x, u)[1])
    assert np.allclose(found.std, std, atol=1e-6)
    assert np.allclose(found.noise, state.model.noise)
    assert found.reward.shape == (21, 21)
    assert np.linalg.eigvalsh(found.reward).min() > -1e-9


def test_measuring_where_the_sampler_says_lowers_the_uncertainty_more_than_elsewhere(swing_up):
    loop, states, _ = swing_up
    state, times = states[1].learner, np.linspace(0.0, 10.0, 201)
    known = loop.learner.uncertainty(state, times, Key(0))
    from purectrl.core.uncertainty import Conditioning

    def left(chosen):
        conditioning = Conditioning(known.covariance, known.noise)
        for i in chosen:
            conditioning.add(int(i))
        return np.log(conditioning.variance + conditioning.noise[:, None]).sum()

    context = pc.Context(10.0, pc.Ledger(updates=1), uncertainty=lambda times, key: known)
    chosen = MaxDeterminant(6, candidates=201)(Key(0), 1, context)[0]
    assert left(np.rint(chosen * 20)) < left(np.arange(1, 7) * 200 // 7)


def test_a_run_restored_in_the_middle_continues_bit_for_bit(swing_up):
    from purectrl.runs.serialization import pack_state, unpack_state

    loop, states, _ = swing_up
    restored = unpack_state(loop.init(Key.from_seed(0)), *pack_state(states[2]))
    again, _ = loop.step(restored)
    for one, other in zip(jax.tree.leaves(again.learner), jax.tree.leaves(states[3].learner), strict=True):
        assert np.array_equal(one, other)


def test_a_fit_that_diverges_leaves_model_and_plan(swing_up, monkeypatch):
    loop, states, _ = swing_up
    monkeypatch.setattr(type(loop.learner.dynamics), "check_fit", lambda *_: "the fit of the gp diverged")
    found = loop.learner.update(states[2].learner, Dataset(states[2].data.all), Targets.BOTH, Key(1))
    assert found.state is states[2].learner
    assert found.diverged == "the fit of the gp diverged: model and plan stay as they were"


def cart():
    """A cart that is to be brought to the origin; learned in seconds."""
    return pc.problems.continuous(
        name="cart", horizon=2.0, drift=lambda x, u: jnp.stack([x[1], u[0]]),
        reward=lambda x, u: -(x**2).sum() - 0.1 * (u**2).sum(), initial=lambda key: jnp.array([1.0, 0.0]),
        control_low=[-3.0], control_high=[3.0], eval_episodes=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "exploration", "solver", "sampler"),
    [
        ("gp", "bonus", "ilqr", MaxKernelDistance(6)),
        pytest.param("gp", "mean", "cem", Receding(6), marks=pytest.mark.slow),
        ("ensemble", "hallucinated", "ilqr", VarianceThreshold(6)),
        pytest.param("ensemble", "bonus", "mppi", MaxDeterminant(6), marks=pytest.mark.slow),
        pytest.param("ensemble", "mean", "cem-ilqr", Equidistant(6), marks=pytest.mark.slow),
    ],
)
def test_every_model_goes_with_every_exploration_solver_and_sampler(kind, exploration, solver, sampler):
    plan = TrajectoryPlanSettings(
        exploration, 0.5, solver, nodes=10, iterations=5, restarts=2, search_iterations=2, samples=8
    )
    made = Trajectory(PredictorSettings(kind, ensemble_size=3, width=8), plan=plan)
    result = pc.run(cart(), pc.Algorithm(sampler, Every(), made), measurements=12)
    assert result.ledger.updates == 2
    assert np.isfinite(result.metrics["return"])


def test_the_tracking_policy_is_the_plan_with_feedback_within_limits():
    spec = cart().spec
    x, u, gains = np.arange(6.0).reshape(3, 2), np.array([[1.0], [2.0]]), np.full((2, 1, 2), -0.5)
    policy = TrackingPolicy(x, u, gains, 0.0, 0.5, spec)
    assert policy(jnp.array([0.0, 1.0]), 0.0)[0] == 1.0
    assert policy(jnp.array([1.0, 2.0]), 0.25)[0] == 1.0  # in the middle of the first step
    assert policy(jnp.array([2.0, 3.0]), 0.5)[0] == 1.5
    assert policy(jnp.array([3.0, 3.0]), 0.5)[0] == 1.0
    assert policy(jnp.array([-90.0, 0.0]), 0.5)[0] == 3.0
    first = TrackingPolicy(0 * x, 0 * u, 0 * gains, 0.5, 0.5, spec)
    assert first(jnp.zeros(2), 0.1)[0] == pytest.approx(0.5 * 3.0 * np.sin(1.0))


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_knowing_the_equations_costs_less_than_doing_nothing(name):
    made = SYSTEMS[name]
    n = 200
    h, zero = made.horizon / n, jnp.zeros(())
    step = lambda x, u, i: x + h * made.drift(x + h / 2 * made.drift(x, u), u)  # noqa: E731
    task = Task(step, lambda x, u, i: h * made.cost(x, u), made.terminal or (lambda x: zero))
    low, high = map(np.array, (made.control_low, made.control_high))
    solve = jax.jit(lambda x, u: ilqr(task, x, u, low, high))
    with jax.enable_x64(True):
        start, rest = np.array(made.start), np.tile((low + high) / 2, (n, 1))
        nothing = float(rollout(task, jnp.asarray(start), jnp.asarray(rest))[1])
        found = solve(start, rest)
    assert np.isfinite(float(found.cost))
    if name == "bioreactor":  # its cost is the negative product, and zero without light
        assert float(found.cost) < nothing - 10.0
        return
    # glucose falls by itself during its short episode: insulin saves 0.04 % of the cost
    assert float(found.cost) < (nothing if name == "ocorl-glucose" else 0.9 * nothing)


def test_the_measured_drift_is_the_drift_with_the_noise_of_the_system():
    problem = controlled_costs.ocorl_pendulum()
    loop = pc.Algorithm(Equidistant(500), Every(), learner()).build(problem, Budget(500))
    seen = problem.rollout(Key(0), loop.learner.policy(loop.learner.init(Key(0))), np.linspace(0.0, 10.0, 500)[None])
    error = seen.y[0] - np.stack([seen.x[0, :, 1], 9.81 / 5 * np.sin(seen.x[0, :, 0]) + seen.u[0, :, 0]], axis=1)
    assert np.allclose(error.std(axis=0), [0.01, 0.005], rtol=0.15)
    assert np.array_equal(seen.x[0, 0], np.float32([np.pi, 0.0]))


def test_doing_nothing_has_the_cost_of_hanging():
    problem = controlled_costs.ocorl_pendulum()
    loop = pc.Algorithm(Equidistant(5), Every(), learner(first_amplitude=0.0)).build(problem, Budget(5))
    metrics = problem.evaluate(loop.learner.policy(loop.learner.init(Key(0))), Key(0), 1)
    assert metrics["cost"] == pytest.approx(11 * np.pi**2, rel=1e-4)  # ten seconds and the end
    assert metrics["return"] == -metrics["cost"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrajectoryPlanSettings(nodes=0), "nodes: must be between 1 and 100,000, not 0"),
        (lambda: TrajectoryPlanSettings(strength=-1.0), "strength: must not be negative, got -1.0"),
        (lambda: PredictorSettings(noise=0.0), "noise: must be positive, not 0.0"),
        (lambda: controlled_costs.ocorl_cancer(-1.0), "noise_scale: must not be negative, got -1.0"),
        (lambda: controlled_costs.bioreactor(rollout_price=-2.0), "rollout_price: must not be negative, got -2.0"),
    ],
)
def test_wrong_settings_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_ocorl_from_the_command_line(tmp_path, capsys):
    words = ["run", "ocorl-pendulum", "--algorithm", "ocorl", "--sampler", "max-determinant", "--rollouts", "2"]
    words += ["--learner.plan.nodes", "30", "--learner.plan.restarts", "1", "--quiet", "--out", str(tmp_path / "run")]
    words += ["--problem.measurement-price", "0.5", "--problem.update-price", "2"]
    assert main(words) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["ledger"]["measurements"] == 22
    assert summary["metrics"]["cost"] == -summary["metrics"]["return"]
    assert summary["metrics"]["utility"] == pytest.approx(summary["metrics"]["return"] - 0.5 * 22 - 2 * 2)
    policy = pc.load_policy(tmp_path / "run")
    assert policy([np.pi, 0.0], 0.0).shape == (1,)
