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
from purectrl.experiments.items import item_called
from purectrl.experiments.settings import parse

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text() for path in sorted(DOCS.glob("*.md"))}
MAP = PAGES["paper-to-code"]
FITTING = "--first-iterations 2 --later-iterations 2 --plan-iterations 5 --plan-horizon 0.2 --width 8"
TUNING = "--fit-steps 2 --tune-iterations 1 --tune-batch 2"
SMALL = {
    "finite": "--measurements 200 --paths 8 --steps 8",
    "gymnasium": f"--tests 1 {FITTING}",
    "digits": f"--measurements 16 --updates 1 --denoising-steps 2 --test-images 2 {TUNING}",
}
"""Settings that make the commands of the pages short: it is the words that are tested."""


def programs(page):
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def files(page):
    """The files that the page tells its reader to write, by name."""
    return dict(re.findall(r'```python title="(.*?)"\n(.*?)```', page, re.DOTALL))


def commands(page):
    """The lines of the page that call `purectrl` in a shell, those that go on joined."""
    shells = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    return [line for line in joined(shells).splitlines() if line.startswith("purectrl ")]


def joined(text):
    """Lines of a shell that go on, on one line."""
    return re.sub(r"\\\n *", "", text)


def shell(words, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "WANDB_MODE": "offline"}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)


RUNNABLE = [name for name, page in PAGES.items() if programs(page) or commands(page)]
RUNNABLE.remove("your-own-system")  # test_readme.py runs it and looks at its numbers


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_examples_of_a_page_run(name, tmp_path, monkeypatch, capsys):
    """Its files, its commands in order and with small settings, then its programs as one and word for word."""
    monkeypatch.chdir(tmp_path)
    for file, text in files(PAGES[name]).items():
        Path(file).write_text(text)
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
    pages = {"index", "idea", "diffusion", "your-own-sampler", "your-own-reward", "gymnasium", "cluster", "live-view"}
    assert pages | {"reading-a-report"} <= set(RUNNABLE)


def not_run(page):
    """The commands inside the text, and those set off by four spaces: they need what a test does not have."""
    inline, indented = re.findall(r"`(purectrl [^`]*)`", page), re.findall(r"^ {4}(purectrl .*)", joined(page), re.M)
    return [command for command in (*inline, *indented) if "…" not in command]


NOT_RUN = sorted({command for page in PAGES.values() for command in not_run(page)})


ARGUMENTS = {"resume": cli.ResumeArguments, "evaluate": cli.EvaluateArguments, "report": cli.ReportArguments}


@pytest.mark.parametrize("command", NOT_RUN)
def test_every_other_command_is_understood(command):
    words = [word for word in shlex.split(command)[1:] if word != "--help"]
    if words[0] in ("run", "sweep") and len(words) > 1:
        chosen = experiment(words[1])
        if words[0] == "run" and "--out" in words:
            parsed = cli._parse(cli.RunArguments, chosen, cli._peek(words, "--algorithm"), "run", words[2:])
            Spec(chosen.name, parsed.algorithm, 0, parsed.settings)
        elif "--out" in words:
            cli._parse(cli.SweepArguments, chosen, None, "sweep", words[2:])
    elif words[0] == "paper" and len(words) > 1 and words[1] != "ITEM":
        item_called(words[1])
        if "--out" in words:
            parse(cli.PaperArguments, words[2:], "purectrl paper")
    elif words[0] in ARGUMENTS and len(words) > 1:
        parse(ARGUMENTS[words[0]], words[1:], f"purectrl {words[0]}")
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


RESULTS = {path.stem: path for path in (DOCS / "results").glob("*.json")}
RESULTS_PAGE = runpy.run_path(str(ROOT / "benchmarks/page.py"))


def test_every_missed_mark_has_a_note_and_every_note_a_result():
    missed = {name for name, path in RESULTS.items() if "**missed**" in RESULTS_PAGE["section"](path).lower()}
    notes = {path.name.removesuffix(".note.md") for path in (DOCS / "results").glob("*.md")}
    assert missed <= notes <= set(RESULTS)


@pytest.mark.parametrize(("name", "after"), [("thm1-rate", "\n!["), ("theory_speed", "\nCommand: ")])
def test_a_note_is_shown_below_the_marks(name, after, tmp_path):
    path = tmp_path / f"{name}.json"
    path.write_text(RESULTS[name].read_text())
    without = RESULTS_PAGE["section"](path)
    (tmp_path / f"{name}.note.md").write_text("Why so.\n")
    marks, rest = without.split(after, 1)
    assert RESULTS_PAGE["section"](path) == f"{marks}\nWhy so.\n{after}{rest}"
    assert not re.search(r"^- Met|\| met \|", rest, re.M)


def test_the_site_needs_no_network():
    """`make docs` builds it; here: nothing that a browser would fetch from elsewhere is asked for."""
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "http" not in settings
    assert "strict: true" in settings


NOT_IN_THE_REFERENCE = {
    "the command line, which has `--help`": ["__main__", "cli"],
    "packages that are a table of contents": [
        "", "control", "core", "diffusion", "experiments", "report", "systems", "theory",
    ],
    "experiments, whose settings are in the reference": [
        "experiments.continuous", "experiments.control", "experiments.diffusion", "experiments.gymnasium",
        "experiments.ou", "experiments.stable_diffusion", "experiments.theory",
    ],
    "the inside of a run": [
        "experiments.codec", "experiments.progress", "experiments.segments", "experiments.settings",
    ],
    "what made the weights that come along": ["diffusion.digits.pretrain", "diffusion.digits.training"],
    "figures of `purectrl paper`": [
        "report.control", "report.control_ablations", "report.coverage", "report.diffusion", "report.groups",
        "report.independency", "report.neural", "report.rate", "report.rollouts", "report.samples", "report.switches",
    ],
    "the inside of `purectrl report`": [
        "report.page.courses", "report.page.document", "report.page.finding", "report.page.media",
        "report.page.records", "report.page.run", "report.page.times",
    ],
}  # fmt: skip
"""Public modules that no page of the reference has, by the reason."""


def module_at(path):
    """The name of the module in a file below src: `src/purectrl/core/loop.py` has `purectrl.core.loop`."""
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_public_module_is_in_the_reference_or_excepted():
    found = {module_at(path) for path in (ROOT / "src/purectrl").rglob("*.py")}
    public = {name for name in found if not re.search(r"\._[^_]", name)}
    shown = [name for page in (DOCS / "api").glob("*.md") for name in re.findall(r"^::: (.*)", page.read_text(), re.M)]
    assert len(shown) == len(set(shown))
    excepted = {f"purectrl.{name}".rstrip(".") for names in NOT_IN_THE_REFERENCE.values() for name in names}
    assert not excepted & set(shown)
    assert excepted | set(shown) == public
