"""What the documentation says, typed: its commands, its programs, its map of the paper, and how it is built."""

import ast
import inspect
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from purectrl import cli, problems
from purectrl.algorithms import LEARNERS, named
from purectrl.cli import options, specs
from purectrl.core.output_rules import OUTPUT_RULES
from purectrl.core.samplers import SAMPLERS
from purectrl.core.schedules import SCHEDULES
from purectrl.core.settings import Settings, field_types
from purectrl.paper import ITEMS
from purectrl.runs import flags
from purectrl.runs.directory import read_summary
from purectrl.runs.spec import PARTS, Draft, component_class

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text() for path in sorted(DOCS.glob("*.md"))}
MAP = PAGES["paper-to-code"]
AUTO = (
    "--learner.model.steps 50 --learner.model.finetune-steps 50 --learner.plan.steps 8 --learner.plan.rounds 1 "
    "--learner.plan.batch-size 16"
)
FITTING = "--learner.fit.steps 2 --learner.fit.finetune-steps 2 --learner.plan.steps 5 --learner.plan.horizon 0.2"
FITTING += " --learner.model.width 8"
TUNING = "--learner.reward-model.steps 2 --learner.finetune.iterations 1 --learner.finetune.batch-size 2"
SMALL = {
    "finite": "--measurements 200 --problem.steps 8",
    "gymnasium": f"--problem.eval-episodes 1 --measurements 700 {AUTO}",
    "gymnasium, pure-enode": f"--problem.eval-episodes 1 {FITTING} --learner.fit.steps 200 --learner.fit.finetune-steps 200",
    "digits": f"--measurements 16 --schedule.updates 1 --problem.denoising-steps 2 --problem.eval-images 2 {TUNING}",
    "pendulum": f"{FITTING} --learner.fit.gradient-matching-steps 2",
    "taste": f"--measurements 16 --schedule.updates 1 --problem.denoising-steps 4 --problem.eval-images 2 {TUNING}",
    "tank.py:problem": AUTO,
    "leak.py:problem": "",
}
"""Settings that make the commands of the pages short: only the words are tested."""


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


LONG = {"cluster", "confidence-sets", "deployment", "diffusion", "gymnasium", "your-own-reward"}
"""Pages whose examples take a minute or more."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in RUNNABLE]
)
@pytest.mark.filterwarnings(
    "ignore::purectrl.core.errors.PlanningWarning"
)  # a few steps of planning find no good policy
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
            enode = SMALL.get(f"{words[2]}, pure-enode") if "pure-enode" in words else None
            small = (enode or SMALL[words[2]]).split() if words[1] == "run" else []
            assert cli.main([*words[1:], *small]) == 0, f"{command}: {capsys.readouterr().err}"
    if program := "\n".join(programs(PAGES[name])):
        (tmp_path / "page.py").write_text(program)
        done = shell([sys.executable, "page.py"], tmp_path)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr.lower()
    RESULTS_OF.get(name, lambda: None)()


def check_own_system():
    """The run with own function classes: an exact budget, few updates, the optimal policy at the end."""
    summary = read_summary(Path("runs/leak"))
    ledger, metrics = summary["ledger"], summary["metrics"]
    assert (ledger["measurements"], ledger["rollouts"]) == (2000, 500)
    assert 1 <= ledger["updates"] <= 10
    assert metrics["gap_last"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["covered"]


RESULTS_OF = {"your-own-system": check_own_system}
"""What the runs of a page must show."""


def test_your_own_system_takes_forty_lines():
    found = files(PAGES["your-own-system"])
    assert set(found) == {"tank.py", "encoder.py", "mass.py", "leak.py"}
    assert all(sum(bool(line.strip()) for line in text.splitlines()) <= 40 for text in found.values())


def test_the_pages_that_should_have_examples_have_them():
    pages = {"index", "idea", "diffusion", "your-own-sampler", "your-own-reward", "gymnasium", "cluster", "live-view"}
    assert pages | {"reading-a-report", "your-own-system"} <= set(RUNNABLE)


def not_run(page):
    """The commands inside the text, and those set off by four spaces: they need what a test does not have."""
    inline, indented = re.findall(r"`(purectrl [^`]*)`", page), re.findall(r"^ {4}(purectrl .*)", joined(page), re.M)
    return [command for command in (*inline, *indented) if "…" not in command]


NOT_RUN = sorted({(name, command) for name, page in PAGES.items() for command in not_run(page)})


OPTIONS = {
    "resume": options.ResumeOptions,
    "evaluate": options.EvaluateOptions,
    "export": options.ExportOptions,
    "label": options.LabelOptions,
    "report": options.ReportOptions,
}
NEEDS_DOWNLOADS = ("stable-diffusion",)
"""Problems that cannot be built here; their flags are checked one by one."""


@pytest.mark.parametrize(("page", "command"), NOT_RUN)
def test_every_other_command_is_understood(page, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file, text in files(PAGES[page]).items():
        Path(file).write_text(text)
    name, *words = shlex.split(command)[1:]
    if name == "run" and words:
        understand_run(words)
    elif name == "sweep" and "--out" in words:
        flags.parse(options.SweepOptions, flags.split(words), options.SHORT, "sweep", nested=True)
    elif name == "paper" and words and words[0] != "ITEM":
        assert words[0] in ITEMS
        if "--out" in words:
            flags.parse(options.PaperOptions, flags.split(words[1:]), command="paper")
    elif name in OPTIONS and words:
        assert flags.split(words).positional
        flags.parse(OPTIONS[name], flags.split(words), command=name)
    else:
        assert name in cli.COMMANDS


def understand_run(words):
    """Builds what the command would run; of problems that need downloads, every setting alone."""
    arguments = flags.split(words)
    (reference,) = arguments.positional
    if arguments.help:
        assert cli.main(["run", *words]) == 0
        return
    parsed = flags.parse(options.RunOptions, arguments, options.SHORT, "run", nested=True)
    if reference not in NEEDS_DOWNLOADS:
        specs.spec_of(reference, parsed.algorithm, parsed, arguments, parsed.seed)
        return
    specs.source_of(reference, arguments, {})
    draft = Draft(named(parsed.algorithm))
    for path, texts in arguments.flags.items():
        if path in PARTS:
            draft.choose(path, *texts)
        elif "." in path and not path.startswith("problem."):
            draft.set_text(path, texts)
    draft.build()


def flags_of(path, kind):
    """The nested flags of a settings class."""
    for name, annotation in field_types(kind).items():
        flag = f"{path}.{name.replace('_', '-')}"
        if isinstance(annotation, type) and issubclass(annotation, Settings):
            yield from flags_of(flag, annotation)
        else:
            yield flag


def known_flags():
    """Every flag of every command, component and shipped problem."""
    kinds = (
        options.RunOptions,
        options.SweepOptions,
        options.EvaluateOptions,
        options.ExportOptions,
        options.LabelOptions,
        options.LeagueOptions,
        options.ResumeOptions,
        options.PaperOptions,
    )
    for kind in kinds:
        yield from (f"--{name.replace('_', '-')}" for name in field_types(kind))
    yield from (f"--{name}" for name in options.SHORT)
    registries = {"sampler": SAMPLERS, "schedule": SCHEDULES, "learner": LEARNERS, "output": OUTPUT_RULES}
    for part, names in registries.items():
        for name in names:
            yield from flags_of(f"--{part}", component_class(part, name))
    for name in problems.PROBLEMS:
        yield from (
            f"--problem.{one.replace('_', '-')}" for one in inspect.signature(problems.function(name)).parameters
        )


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_flag_of_a_page_exists(page):
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", own_words(PAGES[page])))
    assert mentioned <= set(known_flags()) | OTHER_FLAGS


def own_words(page):
    """The page without the lines that call other programs."""
    others = ("pip ", "hf ", "ray ", "accelerate ", "tensorboard ", "wandb ")
    lines = joined(page).splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith(others))


OTHER_FLAGS = {
    "--only",
    "--help",
    "--version",
    "--local-dir",
    "--include",
    "--exclude",
    "--head",
    "--address",
    "--multi_gpu",
    "--num_processes",
}
OTHER_FLAGS |= {"--logdir", "--sampler.power", "--problem.leak", "--problem.delay"}
"""Flags of other programs, and those of the classes and problems that the pages define."""


def defined_in(path):
    """The names that a module defines, imports apart."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_everything_in_the_map_is_where_it_says():
    files = re.findall(r"`((?:\w+/)*\w+\.py)`(?:: ((?:`\w+`(?:, )?)+))?", MAP)
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
    "the command line, which has `--help`": [
        "__main__", "cli", "cli.commands", "cli.options", "cli.output", "cli.specs", "runs.flags", "signals",
    ],
    "packages that are a table of contents": [
        "", "control", "core", "diffusion", "diffusion.digits", "report", "runs", "systems", "theory",
    ],
    "the inside of a run": [
        "runs.data_shards", "runs.memory", "runs.process", "runs.progress", "runs.serialization",
    ],
    "figures of `purectrl paper`": [
        "paper.battery", "paper.control_frequency", "paper.coverage", "paper.control_main", "paper.control_updates",
        "paper.diffusion_frequency", "paper.environments", "paper.locomotion",
        "paper.diffusion_labels", "paper.diffusion_main", "paper.diffusion_regimes", "paper.diffusion_samples",
        "paper.diffusion_taste", "paper.diffusion_updates", "paper.diffusion_crossing", "paper.diffusion_curves",
        "paper.diffusion_fine_tuners", "paper.fine_tuning",
        "paper.groups", "paper.league", "paper.neural_pendulum", "paper.neural_systems", "paper.output",
        "paper.prop2_independency", "paper.thm1_coverage", "paper.thm1_minimax", "paper.thm1_quotient", "paper.thm1_rate",
        "paper.thm2_dimension", "paper.thm2_repair", "paper.thm2_switches", "paper.thm3_rollouts",
    ],
    "the page of `purectrl label`": ["labels", "labels.queue", "labels.server"],
    "the inside of `purectrl report`": [
        "report.page.curves", "report.page.discover", "report.page.document", "report.page.episodes", "report.page.media",
        "report.page.records", "report.page.run",
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
