"""Problems in one short file outside of the package, from the command line: what may be known, sizes, scales."""

import json
import re

import pytest

from purectrl import problems
from purectrl.cli import main
from purectrl.core import InputError
from purectrl.core.problem import Source

HEAD = """
import jax
import jax.numpy as jnp
import purectrl as pc

def problem():
    return pc.problems.continuous(name="own", horizon=2.0, measurements=100, eval_episodes=2, **arguments)
"""
FIRST = "drift=lambda x, u: u - 0.5 * x, initial=lambda key: jax.random.uniform(key, (1,)), "
FIRST += "control_low=[0.0], control_high=[2.0]"
SECOND = "drift=lambda x, u: jnp.stack([x[1], u[0] + 5 * jnp.sin(x[0])]), "
SECOND += "initial=lambda key: 0.1 * jax.random.normal(key, (2,))"
FILES = {
    "first order, a reward of a million": f"{FIRST}, reward=lambda x, u: -1e6 * (x[0] - 1.0) ** 2",
    "a tiny reward": f"{FIRST}, reward=lambda x, u: 1e-6 * x[0]",
    "a reward that is not known": f"{FIRST}, reward=lambda x, u: -(x[0] - 1.0) ** 2, reward_known=False",
    "second order, an angle and its velocity": (
        f"{SECOND}, reward=lambda x, u: jnp.cos(x[0]), angles=(0,), velocities=((0, 1),)"
    ),
    "a reward by its logarithm": f"{SECOND}, log_reward=lambda x, u: -100 * x[0] ** 2 - x[1] ** 2, angles=(0,)",
    "an approximate model": (
        f"{SECOND}, reward=lambda x, u: jnp.cos(x[0]), approximate_drift=lambda x, u: jnp.stack([x[1], u[0]])"
    ),
    "three states and two inputs": (
        "drift=lambda x, u: jnp.stack([u[0], u[1], x[0] - x[2]]), reward=lambda x, u: -(x**2).sum(), "
        "initial=lambda key: jnp.ones(3), control_low=[-1.0, 0.0], control_high=[0.5, 1e3]"
    ),
    "process noise": f"{FIRST}, reward=lambda x, u: x[0], diffusion=0.1",
    "a slow controller, noise, delays": (
        f"{SECOND}, reward=lambda x, u: jnp.cos(x[0]), control_period=0.1, observation_std=[0.01, 0.1], sensor_delay=0.1, "
        "actuator_delay=0.05, angles=(0,)"
    ),
    "positions only": f"{SECOND}, reward=lambda x, u: jnp.cos(x[0]), observed=(0,), angles=(0,), control_period=0.04",
    "limits": f"{SECOND}, reward=lambda x, u: 1.0, limits={{0: (-0.3, 0.3)}}",
}
SHORT = "--learner.fit.steps 60 --learner.fit.finetune-steps 60 --learner.plan.steps 5 --learner.plan.horizon 0.2"
SHORT += " --learner.model.width 8 --learner.model.ensemble-size 3"
SHORT += " --schedule batches --schedule.initial 1 --schedule.sizes 1"
SLOW = ("process noise", "a reward that is not known", "a reward by its logarithm", "three states and two inputs")


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(text, id=name, marks=[pytest.mark.slow] if name in SLOW else []) for name, text in FILES.items()],
)
def test_a_file_outside_of_the_package_runs_from_the_command_line(arguments, tmp_path, capsys):
    (tmp_path / "own.py").write_text(f"{HEAD}\n\narguments = dict({arguments})\n")
    out = tmp_path / "run"
    words = ["run", f"{tmp_path / 'own.py'}:problem", "--algorithm", "pure-enode", "--out", str(out), "--quiet"]
    slow = "control_period=0.1" in arguments
    budget = ["--measurements", "40" if slow else "100"]
    assert main([*words, *budget, *SHORT.split()]) == 0, capsys.readouterr().err
    summary = json.loads((out / "summary.json").read_text())
    metrics = summary["metrics"]
    assert metrics["return_min"] <= metrics["return"]
    assert "rolled_back" not in metrics
    assert summary["ledger"]["updates"] == 1
    assert main(["evaluate", str(out), "--episodes", "1", "--trust"]) == 0
    assert main(["export", str(out), "--to", "numpy", "--trust"]) == 0
    text = capsys.readouterr().out
    assert "1 new episodes (seed 0): return " in text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def problem():\n    raise KeyError('x')\n", "failed: KeyError: 'x'"),
        ("def problem():\n    raise SystemExit(3)\n", "failed: SystemExit: 3"),
        ("import sys\nsys.exit(3)\n", "importing it failed: SystemExit: 3"),
    ],
)
def test_a_file_that_fails_is_refused_with_its_reason(code, words, tmp_path):
    (tmp_path / "own.py").write_text(code)
    with pytest.raises(InputError, match=re.escape(words)):
        problems.build(Source(f"{tmp_path}/own.py:problem", {}))
