"""What a new user types first: incomplete calls, the default algorithm, the example of one page."""

import json
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purectrl as pc
from purectrl.cli import main, specs
from purectrl.cli.options import SHORT, RunOptions
from purectrl.core import InputError, TimeLimit
from purectrl.runs import flags

FURUTA = Path(__file__).parents[1] / "examples" / "furuta.py"
OWN = """
import jax
import purectrl as pc

def problem(leak: float = 0.5):
    return pc.problems.continuous(
        name="tank", horizon=2.0, drift=lambda x, u: u - leak * x, reward=lambda x, u: -(x[0] - 1.0) ** 2,
        initial=lambda key: jax.random.uniform(key, (1,)), control_low=[0.0], control_high=[1.0], eval_episodes=2,
        measurements=40, target_return=-0.1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tank.py").write_text(OWN)
    return tmp_path


def spec(*words):
    """What `purectrl run` would run."""
    arguments = flags.split(words)
    specs.require_algorithms(arguments, "algorithm", arguments.positional)
    options = flags.parse(RunOptions, arguments, SHORT, "run", nested=True)
    return specs.spec_of(arguments.positional[0], options.algorithm, options, arguments, options.seed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "tank.py"], "tank.py is a file; name the function in it that returns the problem: tank.py:problem"),
        (["run", "tank"], "tank.py is a file; name the function in it that returns the problem: tank.py:problem"),
        (["run", "tank.py:problem"], "--out is missing: Directory of the run, new or empty."),
        (["run"], "stable-diffusion, or your own: path/to/file.py:function"),
        (
            ["run", "tank.py:problem", "--algorithm", "pure-enode", "--measurements", "100", "--out", "OUT"],
            "5 episodes of exploration leave nothing of a budget of 2 episodes of m = 50 measurements; use a budget of at "
            "least 300 measurements, or fewer initial episodes",
        ),
    ],
)
def test_incomplete_calls_say_what_is_missing(words, message, folder, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not Path("OUT").exists()


def test_pure_auto_is_the_default_on_systems_with_states_and_of_nothing_else(folder):
    assert spec("tank.py:problem", "--out", "OUT").algorithm.name == "pure-auto"
    assert spec("pendulum", "--out", "OUT").algorithm.name == "pure-auto"
    with pytest.raises(InputError, match="--algorithm is missing: name one of those that work on finite: pure-base"):
        spec("finite", "--out", "OUT")
    with pytest.raises(InputError, match="algorithm: finite has no default algorithm"):
        pc.run(pc.problems.finite())


def test_a_run_of_a_file_says_how_it_is_evaluated_and_resumed(folder, capsys):
    run = ["run", "tank.py:problem", "--algorithm", "random"]
    assert main([*run, "--out", "runs/tank"]) == 0
    shown = capsys.readouterr().out
    assert "next: purectrl evaluate runs/tank --trust" in shown
    summary = json.loads(Path("runs/tank/summary.json").read_text())
    metrics, config = summary["metrics"], json.loads(Path("runs/tank/config.json").read_text())
    assert config["problem"]["criterion"] == {
        "metric": "return",
        "least": -0.1,
        "about": "mean return of at least -0.1",
    }
    assert metrics["criterion_met"] is (metrics["return"] >= -0.1)
    assert main(["evaluate", "runs/tank", "--trust", "--video"]) == 2  # it is not said how a tank is drawn
    assert "give pc.problems.continuous a function picture" in capsys.readouterr().err
    written = json.loads(Path("runs/tank/evaluation.json").read_text())  # the numbers are not lost
    assert written["episodes"] == 100
    assert main([*run, "--out", "runs/short", "--max-seconds", "0.001"]) == 1
    assert "continue with `purectrl resume runs/short --trust`" in capsys.readouterr().err
    with pytest.raises(TimeLimit, match="nothing was saved"):
        pc.run("tank.py:problem", "random", max_seconds=0.001)


def test_a_picture_of_a_state_makes_a_video(tmp_path):
    def picture(x, t):
        return np.full((16, 16, 3), int(255 * min(max(x[0], 0.0), 1.0)), np.uint8)

    problem = pc.problems.continuous(
        name="tank",
        horizon=0.5,
        drift=lambda x, u: 0 * x,
        reward=lambda x, u: x[0],
        initial=lambda key: jnp.ones(1),
        picture=picture,
        measurements=10,
        eval_episodes=1,
    )
    pc.run(problem, "random", out=tmp_path / "run")
    found = pc.evaluate(tmp_path / "run", episodes=1, video=True, problem=problem)
    assert {Path(name).suffix for name in found["media"]} >= {".gif", ".png"}


def test_a_furuta_pendulum_takes_fewer_than_fifty_lines_and_its_power_balance_is_exact():
    assert len(FURUTA.read_text().splitlines()) < 50
    example = runpy.run_path(str(FURUTA))
    names = ("ARM", "LENGTH", "MASS", "GRAVITY", "ARM_INERTIA", "INERTIA", "drift")
    arm, length, mass, gravity, arm_inertia, inertia, drift = (example[name] for name in names)

    def energy(x):
        """From the Lagrangian, which the example does not contain."""
        _, theta, turn, fall = x
        whole = arm_inertia + mass * arm**2 + inertia * jnp.sin(theta) ** 2
        kinetic = whole * turn**2 / 2 + inertia * fall**2 / 2 + mass * arm * length / 2 * jnp.cos(theta) * turn * fall
        return kinetic + mass * gravity * length / 2 * jnp.cos(theta)

    for number in range(5):
        x = 2 * jax.random.normal(jax.random.key(number), (4,))
        u = jnp.array([0.1])
        power = u[0] * x[2] - 2e-3 * x[2] ** 2 - 1e-4 * x[3] ** 2  # of the motor, less friction
        assert jax.grad(energy)(x) @ drift(x, u) == pytest.approx(float(power), abs=2e-5)


def test_the_furuta_example_starts(tmp_path):
    words = [
        "run",
        f"{FURUTA}:problem",
        "--algorithm",
        "random",
        "--measurements",
        "20",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*words, "--quiet"]) == 0
    assert spec(f"{FURUTA}:problem", "--out", "OUT").algorithm.name == "pure-auto"
