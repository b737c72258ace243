"""What the documentation says, typed: its commands, its programs, its map of the paper, and how it is built."""

import ast
import dataclasses
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from purectrl import cli
from purectrl.experiments import EXPERIMENTS, Spec, experiment
from purectrl.experiments.paper import item_called
from purectrl.experiments.settings import parse

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text() for path in sorted(DOCS.glob("*.md"))}
MAP = PAGES["paper-to-code"]
FITTING = "--first-iterations 2 --later-iterations 2 --plan-iterations 5 --plan-horizon 0.2 --width 8"
SMALL = {
    "finite": "--measurements 200 --paths 8 --steps 8",
    "gymnasium": f"--tests 1 {FITTING}",
}
"""Settings that make the commands of the pages short: it is the words that are tested."""


def programs(page):
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def commands(page):
    """The lines of the page that call `purectrl` in a shell, those that go on joined."""
    shells = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).replace("\\\n", " ")
    return [line for line in shells.splitlines() if line.startswith("purectrl ")]


def shell(words, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "WANDB_MODE": "offline"}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)


RUNNABLE = [name for name, page in PAGES.items() if programs(page) or commands(page)]
RUNNABLE.remove("your-own-system")  # test_readme.py runs it and looks at its numbers


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_examples_of_a_page_run(name, tmp_path, monkeypatch, capsys):
    """First its commands, in order and with small settings, then its programs, as one and word for word."""
    monkeypatch.chdir(tmp_path)
    for command in commands(PAGES[name]):
        words = shlex.split(command)
        if words[1] == "sweep":  # in a process of its own, as its workers are
            done = shell([*words, *SMALL[words[2]].split(), "--seeds", "0:1"], tmp_path)
            assert done.returncode == 0, f"{command}: {done.stderr}"
        else:
            small = SMALL[words[2]].split() if words[1] == "run" else []
            assert cli.main([*words[1:], *small]) == 0, f"{command}: {capsys.readouterr().err}"
    if program := "\n".join(programs(PAGES[name])):
        (tmp_path / "page.py").write_text(program)
        done = shell([sys.executable, "page.py"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr.lower()


def test_the_pages_that_should_have_examples_have_them():
    pages = {"index", "idea", "your-own-sampler", "your-own-reward", "gymnasium", "cluster", "live-view"}
    assert pages <= set(RUNNABLE)


INLINE = sorted(
    {command for page in PAGES.values() for command in re.findall(r"`(purectrl [^`]*)`", page) if "…" not in command}
)


@pytest.mark.parametrize("command", INLINE)
def test_every_command_in_the_text_is_understood(command):
    words = [word for word in shlex.split(command)[1:] if word != "--help"]
    if words[0] in ("run", "sweep") and len(words) > 1:
        chosen = experiment(words[1])
        if words[0] == "run" and "--out" in words:
            parsed = cli._parse(cli.RunArguments, chosen, cli._peek(words, "--algorithm"), "run", words[2:])
            Spec(chosen.name, parsed.algorithm, 0, parsed.settings)
    elif words[0] == "paper" and len(words) > 1 and words[1] != "ITEM":
        item_called(words[1])
        if "--out" in words:
            parse(cli.PaperArguments, words[2:], "purectrl paper")
    elif words[0] in ("resume", "evaluate"):
        kind = {"resume": cli.ResumeArguments, "evaluate": cli.EvaluateArguments}[words[0]]
        parse(kind, words[1:], f"purectrl {words[0]}")
    else:
        assert words[0] in cli.COMMANDS


def test_every_flag_in_the_map_exists():
    kinds = [type(found.defaults) for found in EXPERIMENTS.values()]
    kinds += [cli.RunArguments, cli.SweepArguments, cli.EvaluateArguments]
    known = {"--" + field.name.replace("_", "-") for kind in kinds for field in dataclasses.fields(kind)}
    assert set(re.findall(r"`(--[\w-]+)", MAP)) <= known


def defined_in(path):
    """The names that a module defines, imports apart."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_everything_in_the_map_is_where_it_says():
    files = re.findall(r"`((?:\w+/)+\w+\.py)`(?:: ((?:`\w+`(?:, )?)+))?", MAP)
    assert len(files) > 60
    for file, names in files:
        path = ROOT / "src/purectrl" / file
        assert path.exists(), file
        assert set(re.findall(r"`(\w+)`", names)) <= set(defined_in(path)), file


@pytest.mark.parametrize("what", ["Algorithm 1", "Algorithm 2", "Algorithm 3", "Algorithm 4", "Algorithm 5"])
def test_the_map_has_every_algorithm_with_a_command(what):
    assert re.search(rf"^\| {what}, .*`purectrl run .*\|$", MAP, re.MULTILINE)


@pytest.mark.parametrize("what", ["Theorem 1", "Theorem 2", "Theorem 3", "Proposition 2"])
def test_the_map_has_every_theorem_with_a_figure(what):
    assert re.search(rf"^\| {what}.*`purectrl paper .*\|$", MAP, re.MULTILINE)


def test_the_idea_says_how_long_the_loop_is():
    (lines,) = re.findall(r"\[(\d+) lines\]", PAGES["idea"])
    assert len((ROOT / "src/purectrl/core/loop.py").read_text().splitlines()) == int(lines)


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    as_markdown = runpy.run_path(str(DOCS / "docstrings.py"))["as_markdown"]
    docstring = """What it is.

Main arguments:
    a, b: numbers,
        small ones.
    c: another.

sign  meaning
----  --------
|x|   a length

It adds:
>>> 1 + 1
2"""
    assert (
        as_markdown(docstring)
        == """What it is.

**Main arguments**

- `a, b`: numbers,
    small ones.
- `c`: another.

| sign | meaning |
| ---- | -------- |
| \\|x\\| | a length |

It adds:

```pycon
>>> 1 + 1
2
```"""
    )


def test_the_site_needs_no_network():
    """`make docs` builds it; here: nothing that a browser would fetch from elsewhere is asked for."""
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "http" not in settings
    assert "strict: true" in settings
