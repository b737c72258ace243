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
COMMANDS = re.findall(r"\| `(purectrl .*?)` \|", README)


def shell(command, folder):
    """Runs a command as a user of the virtual environment would."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        shlex.split(command), capture_output=True, text=True, cwd=folder, env={**os.environ, "PATH": path}
    )


def test_every_command_of_the_table(tmp_path):
    """In order, since later ones use what earlier ones leave; with smaller budgets: it is the words that are tested."""
    assert len(COMMANDS) == 16
    for command in COMMANDS:
        small = " --measurements 200 --paths 8" if " run " in command or " sweep " in command else ""
        if " pendulum " in command:
            small = " --measurements 1000 --batches 1 --match-iterations 2 --first-iterations 2 --later-iterations 2"
            small += " --plan-iterations 5 --plan-horizon 0.2 --width 8 --members 3"
        if " digits " in command:
            small = " --measurements 16 --denoising-steps 2 --fit-steps 2 --tune-iterations 1 --tune-batch 2"
            small += " --updates 1 --test-images 2"
        if " neural " in command:
            small = " --measurements 10 --paths 16 --iterations 5 --starts 2 --update-steps 5"
        done = shell(command + ("" if "--help" in command else small), tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_python_example(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "updates, gap" in capsys.readouterr().out


def test_the_loop_is_as_long_as_the_readme_says():
    (lines,) = re.findall(r"\[(\d+) lines\]\(src/purectrl/core/loop.py\)", README)
    assert len((ROOT / "src/purectrl/core/loop.py").read_text().splitlines()) == int(lines) <= 80


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_make_and_ci_agree_with_the_readme():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("run:", "test:", "test-all:"):
        assert f"\n{target}" in makefile
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_your_own_system_takes_forty_lines_and_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/your-own-system.md").read_text(), re.S)
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 40
    run = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    *_, last = run.stdout.splitlines()
    measurements, rollouts, updates, leak = last.split()
    assert (measurements, rollouts) == ("2000", "500")
    assert 1 <= int(updates) <= 10
    assert float(leak) == pytest.approx(0.4)
