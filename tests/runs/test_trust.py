"""Code and weights that a configuration names are used with --trust only, and are named before."""

import copy
import json
import sys

import pytest
from helpers import small

import purectrl as pc
from purectrl.cli import main
from purectrl.runs.spec import RunSpec
from purectrl.runs.sweep import difference

CONFIG = small(measurements=20).as_dict()
RUN = ["finite", "--algorithm", "pure-base", "--out", "new"]


def changed(**parts):
    """A configuration with other parts; `problem__arguments={...}` replaces a nested one."""
    config = copy.deepcopy(CONFIG)
    for path, value in parts.items():
        holder, *names = config, *path.split("__")
        for name in names[:-1]:
            holder = holder[name]
        holder[names[-1]] = value
    return config


def problem(reference, **arguments):
    return changed(problem={"name": reference, "reference": reference, "horizon": 1.0, "arguments": arguments})


NAMED = {
    "problem": (problem("evil:problem"), "evil:problem"),
    "file": (problem("./evil.py:problem"), "./evil.py:problem"),
    "argument of an own problem": (problem("evil:problem", reward="other:f"), "other:f"),
    "sampler": (changed(algorithm__sampler={"name": "evil:Sampler"}), "evil:Sampler"),
    "schedule": (changed(algorithm__schedule={"name": "evil:Schedule"}), "evil:Schedule"),
    "learner": (changed(algorithm__learner={"name": "evil.py:Learner"}), "evil.py:Learner"),
    "output": (changed(algorithm__output={"name": "evil:Output"}), "evil:Output"),
    "reward": (problem("digits", reward="evil:f"), "evil:f"),
    "reward of stable diffusion": (problem("stable-diffusion", model=".", reward="evil:f"), "evil:f"),
    "environment": (problem("gymnasium", env="evil:Name-v0"), "evil:Name-v0"),
    "module of the package": (problem("purectrl.problems.theory:finite"), "purectrl.problems.theory:finite"),
    "model": (problem("stable-diffusion", model="someone/model", reward="jpeg"), "someone/model"),
    "clip": (problem("stable-diffusion", model=".", aesthetic_clip="someone/clip"), "someone/clip"),
    "head": (problem("stable-diffusion", model=".", aesthetic_head="someone/head"), "someone/head"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with a run directory and a module that leaves a file when it is imported."""
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    (tmp_path / "run").mkdir()
    summary = {"experiment": "x", "algorithm": "x", "seed": 0, "status": "finished", "metrics": {}, "versions": {}}
    summary["ledger"] = pc.core.Ledger().as_dict()
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if "evil" in name]:
        del sys.modules[name]


def write(place, config):
    (place / "run" / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_the_commands_refuse_and_name_it(place, capsys, command, case):
    config, name = NAMED[case]
    write(place, config)
    assert main([command, "run"]) == 2
    errors = capsys.readouterr().err
    assert name in errors
    assert "--trust" in errors
    assert not (place / "imported").exists()


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("function", [pc.resume, pc.evaluate, pc.load_policy])
def test_the_functions_refuse_and_name_it(place, function, case):
    config, name = NAMED[case]
    write(place, config)
    with pytest.raises(pc.StoreError, match="trust=True") as refusal:
        function("run")
    assert name in str(refusal.value)
    assert not (place / "imported").exists()


@pytest.mark.parametrize("command", [["run", *RUN], ["sweep", "finite", "--algorithms", "pure-base", "--out", "new"]])
@pytest.mark.parametrize("part", ["sampler", "schedule", "learner", "output"])
def test_config_files_refuse_and_name_it(place, capsys, command, part):
    config, name = NAMED[part]
    write(place, config)
    assert main([*command, "--config", "run/config.json"]) == 2
    errors = capsys.readouterr().err
    assert name in errors
    assert "--trust" in errors
    assert not (place / "imported").exists()
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    ("case", "name", "flag"),
    [("reward", "digits", "--reward"), ("environment", "gymnasium", "--env"), ("model", "stable-diffusion", "--model")],
)
def test_arguments_in_config_files_refuse_unless_the_user_types_others(place, capsys, case, name, flag):
    config, named = NAMED[case]
    write(place, config)
    command = ["run", name, "--algorithm", "pure-base", "--out", "new", "--config", "run/config.json"]
    assert main(command) == 2
    assert named in capsys.readouterr().err
    assert main([*command, flag, "typed"]) == 2  # refused for another reason: there is no such thing
    assert "--trust" not in capsys.readouterr().err
    assert not (place / "imported").exists()


def test_with_trust_it_is_imported_and_named(place, capsys):
    """The cases above could import it: nothing but the missing permission stopped them."""
    write(place, NAMED["sampler"][0])
    assert main(["evaluate", "run", "--trust"]) == 2  # the module has no such class
    errors = capsys.readouterr().err
    assert "run/config.json is trusted: it may import code outside the package (evil:Sampler)" in errors
    assert (place / "imported").exists()


def test_with_trust_a_config_file_is_used(place, capsys):
    write(place, NAMED["sampler"][0])
    assert main(["run", *RUN, "--config", "run/config.json", "--trust"]) == 2
    assert (place / "imported").exists()


def test_a_report_never_imports(place):
    for config, _ in NAMED.values():
        write(place, config)
        main(["report", "run", "--out", "page"])
    assert not (place / "imported").exists()


def test_local_paths_need_no_permission(place, capsys):
    write(place, problem("stable-diffusion", model=str(place), reward="jpeg"))
    assert main(["evaluate", "run"]) == 2
    errors = capsys.readouterr().err
    assert "--trust" not in errors
    assert "is not a pipeline of diffusers" in errors


def test_a_pipeline_cannot_name_other_libraries(place, capsys):
    """diffusers would import the module that a part of a pipeline names."""
    parts = {"_class_name": "StableDiffusionPipeline", "unet": ["evil", "Unet"], "vae": [None, None]}
    (place / "model_index.json").write_text(json.dumps(parts))
    write(place, problem("stable-diffusion", model=str(place), reward="jpeg"))
    assert main(["evaluate", "run"]) == 2
    assert "takes its unet from 'evil'" in capsys.readouterr().err
    assert not (place / "imported").exists()


def test_a_sweep_does_not_resume_a_directory_that_hides_another_reference(place):
    """A key with a dot in its name is not the nested one."""
    spec = small(measurements=20)
    hidden = changed(problem__reference="evil:problem") | {"problem.reference": "finite"}
    assert difference(hidden, spec.as_dict()) is not None
    empty = changed(problem__arguments={}) | {"problem.arguments.steps": 8}
    assert difference(empty, spec.as_dict()) is not None


def test_arguments_that_are_lists_compare_equal_after_json():
    arguments = {"prompts": ("cat", "dog")}
    one = CONFIG | {"problem": CONFIG["problem"] | {"arguments": arguments}}
    assert difference(json.loads(json.dumps(one)), one) is None


def test_a_recorded_limit_of_rollouts_is_kept(tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    base = ["run", "finite", "--algorithm", "pure-base", "--quiet", "--problem.steps", "8", "--learner.paths", "8"]
    assert main([*base, "--measurements", "20", "--rollouts", "3", "--out", str(first)]) == 0
    assert main([*base, "--config", str(first / "config.json"), "--out", str(again)]) == 0
    assert json.loads((again / "summary.json").read_text())["ledger"]["rollouts"] == 3
    assert RunSpec.read(again).budget == pc.core.Budget(20, 3)


def test_code_and_weights_are_both_named(place, capsys):
    names = {"model": "someone/model", "aesthetic_clip": "someone/clip", "aesthetic_head": "someone/head"}
    config = problem("stable-diffusion", reward="evil:" + "f" * 200, **names)
    config["algorithm"]["sampler"] = {"name": "evil:Sampler"}
    write(place, config)
    assert main(["evaluate", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= 400
    assert all(name in line for name in (*names.values(), "evil:ff", "evil:Sampler", "--trust"))


def test_a_long_list_of_names_fits_on_a_line(place, capsys):
    config = problem("evil:" + "a" * 300, **{f"x{i}": f"evil{i}:{'b' * 200}" for i in range(20)})
    for part in ("sampler", "schedule", "learner", "output"):
        config["algorithm"][part] = {"name": "evil:\x1b[2J" + part}
    write(place, config)
    assert main(["resume", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= 400
    assert "and 22 more" in line
    assert "\x1b" not in line
