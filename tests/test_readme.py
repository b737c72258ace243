"""What the README says, typed."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\| [^|]+ \| `(purectrl [^`]*)`", README, re.MULTILINE)
AUTO = (
    "--learner.model.steps 50 --learner.model.finetune-steps 50 --learner.plan.steps 8 --learner.plan.rounds 1 "
    "--learner.plan.batch-size 16"
)
FITTING = "--learner.fit.steps 2 --learner.fit.finetune-steps 2 --learner.plan.steps 5 --learner.plan.horizon 0.2"
FITTING += " --learner.model.width 8 --learner.model.ensemble-size 3"
SMALL = {
    "finite": "--measurements 200 --learner.paths 8",
    "lqr": "--measurements 200 --learner.paths 8",
    "neural": "--measurements 10 --learner.paths 16 --learner.iterations 5 --learner.num-restarts 2"
    " --learner.update-steps 5",
    "pendulum": f"--measurements 1000 --learner.fit.gradient-matching-steps 2 {FITTING}",
    "examples/own_system.py:problem": AUTO,
    "gymnasium": f"--problem.eval-episodes 1 --measurements 800 {AUTO}",
    "digits": "--measurements 16 --problem.denoising-steps 2 --problem.eval-images 2 --schedule.updates 1"
    " --learner.reward-model.steps 2 --learner.finetune.iterations 1 --learner.finetune.batch-size 2",
}
"""Settings that make the commands short: only the words are tested."""


def shell(command, folder):
    """Runs a command as a user of the virtual environment would."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        shlex.split(command), capture_output=True, text=True, cwd=folder, env={**os.environ, "PATH": path}
    )


def test_every_command_of_the_table(tmp_path):
    """In order, since later ones use what earlier ones leave."""
    assert len(COMMANDS) == 19
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command in COMMANDS:
        _, name, *words = shlex.split(command)
        small = SMALL[words[0]] if name in ("run", "sweep") and "--help" not in words else ""
        done = shell(f"{command} {small}", tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_python_example(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "updates, gap" in shown
    assert "control [" in shown


def test_the_loop_is_as_long_as_the_readme_says():
    (lines,) = re.findall(r"\[(\d+) lines\]\(src/purectrl/core/loop.py\)", README)
    assert len((ROOT / "src/purectrl/core/loop.py").read_text().splitlines()) == int(lines) <= 110


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


PROGRAMS = [path for path in sorted((ROOT / "examples").glob("*.py")) if "__main__" in path.read_text()]


LONG = {"hardware", "own_system"}
"""`make test` runs them with small settings: in `tests/problems/test_driven.py`, and as a command of the table."""


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in LONG else []) for path in PROGRAMS],
    ids=lambda path: path.stem,
)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_make_and_ci_agree_with_the_readme():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("run:", "test:", "test-all:"):
        assert f"\n{target}" in makefile
    assert "make test" in (ROOT / ".ci/run").read_text()
