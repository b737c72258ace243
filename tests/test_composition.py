"""Any problem with any algorithm: the matrix, and your own parts from files outside the package."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import purectrl as pc
from purectrl import problems
from purectrl.algorithms import ALGORITHMS, LEARNERS, compatible, learner_class, named
from purectrl.cli import main
from purectrl.core.problem import Source
from purectrl.core.samplers import Windows
from purectrl.runs.runner import evaluate, load_policy, resume
from purectrl.runs.spec import RunSpec, algorithm_from_plain, algorithm_to_plain

SMALL = {
    "learner.paths": 8,
    "learner.iterations": 2,
    "learner.num_restarts": 1,
    "learner.update_steps": 2,
    "learner.model.ensemble_size": 3,
    "learner.model.width": 8,
    "learner.fit.gradient_matching_steps": 2,
    "learner.fit.steps": 2,
    "learner.fit.finetune_steps": 2,
    "learner.plan.steps": 5,
    "learner.plan.nodes": 8,
    "learner.plan.iterations": 2,
    "learner.plan.restarts": 1,
    "learner.plan.rounds": 1,
    "learner.plan.population": 4,
    "learner.plan.elites": 2,
    "learner.plan.test_steps": 10,
    "learner.model.gradient_matching_steps": 2,
    "learner.model.steps": 2,
    "learner.model.finetune_steps": 2,
    "learner.gradient_steps": 0.004,
    "learner.reward_model.steps": 2,
    "learner.finetune.iterations": 1,
    "learner.finetune.batch_size": 2,
    "schedule.initial": 1,
    "schedule.first": 1,
    "schedule.size": 1,
    "schedule.updates": 1,
}
"""Overrides that make any algorithm cheap; those that an algorithm does not have are left out."""
ARGUMENTS = {
    **{name: {"steps": 8} for name in ("finite", "lqr", "ou", "neural")},
    "digits": {"denoising_steps": 3, "eval_images": 2},
    "taste": {"denoising_steps": 3, "eval_images": 2},
}
EPISODES = 3


def cheap(problem, algorithm, episodes=EPISODES):
    """A short run of a pair."""
    base = named(algorithm, problems.build(Source(problem, ARGUMENTS.get(problem, {}))))
    plain = algorithm_to_plain(base)
    overrides = {path: value for path, value in SMALL.items() if _has(plain, path)}
    spec = RunSpec.of(problem, algorithm, 0, measurements=1, arguments=ARGUMENTS.get(problem), overrides=overrides)
    return RunSpec(spec.problem, spec.algorithm, pc.Budget(episodes * spec.algorithm.sampler.m), 0)


def _has(plain, path):
    for name in path.split("."):
        if not isinstance(plain, dict) or name not in plain:
            return False
        plain = plain[name]
    return True


PAIRS = [(problem, algorithm) for problem in problems.PROBLEMS for algorithm in ALGORITHMS]
SOUND = [(p, a) for p, a in PAIRS if compatible(a, problems.PROBLEMS[p].offers)]
NEEDS_WEIGHTS = "stable-diffusion"
REPRESENTATIVES = ("pendulum", "digits")
"""Problems on which every algorithm runs in `make test`."""
COMMON = ("pure-base", "pure-low-both", "pure-enode", "pure-seiko")
"""Algorithms that run on the other problems, too; the rest of the matrix runs in `make test-all`."""
ALIKE = [name for name, entry in problems.PROBLEMS.items() if "benchmark_systems" in entry.reference]
ALIKE += [name for name, entry in problems.PROBLEMS.items() if "controlled_costs" in entry.reference][1:]
"""Problems that differ from others in their equations alone."""


def _selected(problem, algorithm):
    return problem in REPRESENTATIVES or (algorithm in COMMON and problem not in (*ALIKE, "cartpole", "acrobot"))


RUNS = [
    pytest.param(*pair, marks=[] if _selected(*pair) else [pytest.mark.slow])
    for pair in SOUND
    if pair[0] != NEEDS_WEIGHTS
]


@pytest.mark.filterwarnings("ignore::purectrl.core.errors.DivergenceWarning")  # after two steps of a fit
@pytest.mark.filterwarnings("ignore::purectrl.core.errors.PlanningWarning")  # after five steps of planning
@pytest.mark.filterwarnings("ignore::purectrl.theory.confidence.MisspecificationWarning")
@pytest.mark.parametrize(("problem", "algorithm"), RUNS)
def test_every_sound_pair_runs_a_few_steps(problem, algorithm):
    result = pc.run(*_parts(cheap(problem, algorithm)), measurements=cheap(problem, algorithm).budget.measurements)
    ends_itself = algorithm in ("pure-auto", "known-model")
    assert result.ledger.rollouts == EPISODES or (ends_itself and result.ledger.rollouts < EPISODES)
    assert result.ledger.updates >= (0 if "switch" in algorithm or "both" in algorithm else 1)
    assert result.metrics


def _parts(spec):
    return spec.load_problem(), spec.algorithm


@pytest.mark.parametrize(("problem", "algorithm"), [p for p in PAIRS if p not in SOUND and p[0] != NEEDS_WEIGHTS])
def test_every_unsound_pair_is_refused_before_a_rollout_with_the_reason(problem, algorithm, monkeypatch):
    built = problems.build(Source(problem, ARGUMENTS.get(problem, {})))
    monkeypatch.setattr(type(built), "rollout", lambda *_: pytest.fail("a rollout was made"))
    learner = learner_class(ALGORITHMS[algorithm].learners[0])()
    base = named(algorithm, None)
    with pytest.raises(pc.UnsupportedError, match=rf"needs .*{re.escape(built.name)}.*use"):
        pc.Algorithm(base.sampler, base.schedule, learner, base.output).build(built, pc.Budget(10_000))


def test_the_list_shows_the_matrix(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for number, line in enumerate(lines):
        name = line.split()[0] if line.split() else ""
        if name in problems.PROBLEMS:
            found = [word.strip() for word in lines[number + 1].split(",")]
            assert [(name, algorithm) for algorithm in found] == [pair for pair in SOUND if pair[0] == name]


@pytest.mark.parametrize(("problem", "algorithm"), [pair for pair in SOUND if pair[0] != NEEDS_WEIGHTS])
def test_an_algorithm_survives_the_round_trip_through_json(problem, algorithm):
    value = named(algorithm, problems.build(Source(problem, {})))
    assert algorithm_from_plain(json.loads(json.dumps(algorithm_to_plain(value)))) == value


def test_every_learner_declares_its_parameters_with_documentation():
    from purectrl.core.settings import Settings, field_docs, field_types

    def undocumented(kind):
        for name, annotation in field_types(kind).items():
            if isinstance(annotation, type) and issubclass(annotation, Settings):
                yield from undocumented(annotation)
            elif not field_docs(kind).get(name):
                yield f"{kind.__name__}.{name}"

    assert [name for learner in LEARNERS for name in undocumented(learner_class(learner))] == []


SYSTEM = '''
import jax.numpy as jnp
import purectrl as pc
from purectrl.systems.mechanical import MechanicalSystem

def problem(mass: float = 1.0):
    """A cart on a rail.

    Main arguments:
        mass: of the cart.
    """
    cart = MechanicalSystem(
        name="cart",
        angles=(False,),
        control_dim=1,
        u_max=1.0,
        acceleration=lambda q, v, u: u / mass,
        log_reward=lambda x, u: -(x**2).sum(axis=-1),
        init_mean=(1.0, 0.0),
        init_half_width=(0.1, 0.1),
    )
    return pc.problems.mechanical(cart, horizon=5.0)
'''
SAMPLER = '''
from dataclasses import dataclass, field
import numpy as np
from purectrl.core.samplers import Sampler

@dataclass(frozen=True)
class Halves(Sampler):
    """One random time in each half of the episode."""

    m: int = field(default=2, init=False)
    """Measurements per episode."""
    shift: float = 0.0
    """Added to every time."""

    def draw(self, key, episodes, context):
        return (key.uniform(episodes, 2) + np.arange(2)) / 2 * (context.horizon - self.shift) + self.shift
'''
SCHEDULE = '''
from dataclasses import dataclass
from purectrl.core.schedules import Schedule, Targets

@dataclass(frozen=True)
class Squares(Schedule):
    """Updates after 1, 4, 9, ... episodes."""

    def episodes(self, ledger, m):
        return (int(ledger.rollouts**0.5) + 1) ** 2 - ledger.rollouts

    def due(self, ledger, excess_loss):
        return Targets.BOTH if int(ledger.rollouts**0.5) ** 2 == ledger.rollouts else Targets.NEITHER
'''
LEARNER = '''
from dataclasses import dataclass
import jax
import numpy as np
from purectrl.core import LearnerSettings, Plan, UnsupportedError, Update
from jax.tree_util import register_dataclass

@register_dataclass
@dataclass(frozen=True)
class Constant:
    """A constant control."""
    u: np.ndarray

    def __call__(self, x, t=0.0):
        return jax.numpy.asarray(self.u)

class BestConstant:
    """Keeps the constant control with the highest measured reward."""

    def __init__(self, spec):
        self.low, self.high = np.float32(spec.control_low), np.float32(spec.control_high)

    def init(self, key):
        return {"u": (self.low + self.high) / 2, "best": (self.low + self.high) / 2, "score": -np.inf}

    def update(self, state, data, which, key):
        score = float(data.all.r[-1].mean())
        best = (state["u"], score) if score > state["score"] else (state["best"], state["score"])
        u = np.clip(best[0] + 0.1 * key.generator().standard_normal(len(self.low)), self.low, self.high)
        state = {"u": u.astype(np.float32), "best": best[0], "score": best[1]}
        return Update(state, {"score": best[1]}, {})

    def policy(self, state):
        return Plan(Constant(state["u"]), None)

@dataclass(frozen=True)
class Settings(LearnerSettings):
    """Random search over constant controls."""

    def build(self, problem, budget, sampler):
        if problem.kind != "states":
            raise UnsupportedError(f"constants need states; {problem.name} has none; use seiko")
        return BestConstant(problem.spec)
'''
REWARD = '''
import numpy as np

def brightness(images, conditions):
    """The mean of each image."""
    return np.asarray(images).mean(axis=(1, 2, 3))
'''


@pytest.fixture
def own(tmp_path):
    """Files outside the package."""
    files = {"system": SYSTEM, "sampler": SAMPLER, "schedule": SCHEDULE, "learner": LEARNER, "reward": REWARD}
    for name, text in files.items():
        (tmp_path / f"own_{name}.py").write_text(text)
    return tmp_path


def command(*words):
    done = subprocess.run([sys.executable, "-m", "purectrl", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


CHEAP = ["--learner.paths", "8", "--problem.steps", "8", "--quiet"]
ENODE = ["--learner.model.width", "8", "--learner.fit.steps", "2", "--learner.fit.gradient-matching-steps", "2"]
ENODE += ["--learner.plan.steps", "5", "--learner.fit.finetune-steps", "2", "--quiet"]


def test_your_own_sampler_and_schedule_from_the_command_line(own):
    sampler, schedule = f"{own}/own_sampler.py:Halves", f"{own}/own_schedule.py:Squares"
    run = ["run", "finite", "--algorithm", "pure-base", "--sampler", sampler, "--schedule", schedule, *CHEAP]
    command(*run, "--sampler.shift", "0.5", "--measurements", "40", "--out", own / "run")
    summary = json.loads((own / "run" / "summary.json").read_text())
    assert summary["ledger"]["rollouts"] == 20
    assert summary["ledger"]["updates"] == 4
    config = json.loads((own / "run" / "config.json").read_text())
    assert config["algorithm"]["sampler"] == {"name": sampler, "shift": 0.5}
    assert set(config["code"]) == {sampler, schedule}


def test_your_own_sampler_and_schedule_from_python(own):
    from purectrl.core.references import load_reference

    halves, squares = load_reference(f"{own}/own_sampler.py:Halves"), load_reference(f"{own}/own_schedule.py:Squares")
    base = pc.pure_base()
    algorithm = pc.Algorithm(halves(), squares(), base.learner)
    result = pc.run(pc.problems.finite(steps=8), algorithm, measurements=40)
    assert result.ledger.updates == 4


def test_your_own_system_with_pure_enode(own, monkeypatch):
    out, reference = own / "run", f"{own}/own_system.py:problem"
    command("run", reference, "--algorithm", "pure-enode", "--problem.mass", "2", "--measurements", "400", *ENODE,
            "--schedule.initial", "2", "--out", out)  # fmt: skip
    config = json.loads((out / "config.json").read_text())
    assert config["problem"]["reference"] == reference
    assert config["problem"]["arguments"] == {"mass": 2.0}
    assert len(config["code"][reference]) == 32
    with pytest.raises(pc.StoreError, match=r"would import code outside the package \(.*own_system.py:problem"):
        load_policy(out)
    policy = load_policy(out, trust=True)
    assert policy([1.0, 0.0], 0.0).shape == (1,)
    assert abs(policy(np.zeros((5, 2)), 0.0)).max() <= 1.0
    assert "reward" in evaluate(out, trust=True)["metrics"]
    assert resume(out, trust=True)["experiment"] == "cart"


def test_a_system_file_that_has_changed_is_reported(own, capsys):
    from helpers import stopped_run

    reference = f"{own}/own_sampler.py:Halves"
    spec = RunSpec.of("finite", "pure-base", measurements=40, arguments={"steps": 8}, overrides={"learner.paths": 8})
    spec = RunSpec(spec.problem, _with_sampler(spec.algorithm, reference), spec.budget, 0)
    out = stopped_run(spec, own / "run", until=5, at=(5,))
    file = own / "own_sampler.py"
    file.write_text(file.read_text() + "\n# another version\n")
    resume(out, quiet=True, trust=True)
    assert f"{reference} has changed since {out}/config.json was written" in capsys.readouterr().err


def _with_sampler(algorithm, reference):
    plain = algorithm_to_plain(algorithm)
    plain["sampler"] = {"name": reference}
    return algorithm_from_plain(plain)


def test_your_own_learner(own):
    reference = f"{own}/own_learner.py:Settings"
    run = ["run", "finite", "--algorithm", "pure-base", "--learner", reference, "--quiet", "--problem.steps", "8"]
    command(*run, "--measurements", "30", "--out", own / "run")
    metrics = json.loads((own / "run" / "summary.json").read_text())["metrics"]
    assert metrics["gap"] > 0
    from purectrl.core.references import load_reference

    algorithm = pc.Algorithm(pc.samplers.Uniform(), pc.schedules.Every(), load_reference(reference)())
    assert pc.run(pc.problems.finite(steps=8), algorithm, measurements=30).metrics["gap"] == metrics["gap"]
    refused = main(["run", "digits", "--algorithm", "seiko", "--learner", reference, "--out", str(own / "digits")])
    assert refused == 2


@pytest.mark.slow
def test_your_own_diffusion_reward(own):
    reference = f"{own}/own_reward.py:brightness"
    arguments = ["--problem.denoising-steps", "3", "--problem.eval-images", "2", "--quiet"]
    settings = ["--learner.reward-model.steps", "2", "--learner.finetune.iterations", "1", "--schedule.updates", "1"]
    settings += ["--learner.finetune.batch-size", "2"]
    command("run", "digits", "--algorithm", "pure-seiko", "--reward", reference, *arguments, *settings,
            "--measurements", "16", "--out", own / "run")  # fmt: skip
    assert 0 < json.loads((own / "run" / "summary.json").read_text())["metrics"]["reward"] < 1
    with pytest.raises(pc.StoreError, match=r"would import code outside the package \(.*own_reward.py:brightness"):
        evaluate(own / "run")


@pytest.mark.slow
def test_a_sweep_over_your_own_system_and_a_shipped_one(own):
    reference = f"{own}/own_system.py:problem"
    command("sweep", reference, "pendulum", "--algorithms", "pure-enode", "--seeds", "0:1", *ENODE,
            "--schedule.initial", "2", "--measurements", "750", "--out", own / "sweep")  # fmt: skip
    found = sorted(str(path.parent.relative_to(own / "sweep")) for path in (own / "sweep").rglob("summary.json"))
    assert found == ["cart/pure-enode-seed0", "pendulum/pure-enode-seed0"]
    command("report", own / "sweep", "--out", own / "report.html")
    assert "cart" in (own / "report.html").read_text()


def test_a_problem_built_in_python_can_be_resumed_with_the_problem(own):
    from helpers import stopped_run

    from purectrl.core.references import load_reference

    problem = load_reference(f"{own}/own_system.py:problem")()
    assert problem.source is None
    base = cheap("pendulum", "pure-enode").algorithm
    spec = RunSpec(problem, base, pc.Budget(3 * base.sampler.m), 0)
    whole = pc.run(problem, _fitting(base), measurements=150, out=own / "whole")
    spec = RunSpec(problem, _fitting(base), pc.Budget(150), 0)
    out = stopped_run(spec, own / "stopped", until=1, at=(1,))
    with pytest.raises(pc.StoreError, match="built in Python and has no reference"):
        resume(out)
    assert pc.resume(out, problem=problem)["metrics"] == whole.metrics


def _fitting(algorithm):
    """The same algorithm with windows that fit into episodes of 5 s."""
    return pc.Algorithm(pc.samplers.Windows(1, 5.0, 0.1, from_start=True), algorithm.schedule, algorithm.learner)


def test_runs_in_one_process_do_not_share_files(tmp_path):
    """Defect B8: a problem is immutable; each run opens its own files."""
    spec = cheap("digits", "pure-seiko")
    for name in ("a", "b"):
        pc.run(spec.load_problem(), spec.algorithm, measurements=spec.budget.measurements, out=tmp_path / name)
    one, other = ((tmp_path / name / "queries.jsonl").read_text().splitlines() for name in ("a", "b"))
    assert len(one) == len(other) > 0


def test_a_run_without_a_directory_equals_one_with(tmp_path):
    problem, algorithm = _parts(cheap("finite", "pure-base"))
    with_files = pc.run(problem, algorithm, measurements=30, out=tmp_path / "run")
    without = pc.run(problem, algorithm, measurements=30)
    assert with_files.metrics == without.metrics
    assert [_bare(line) for line in with_files.records] == [_bare(line) for line in without.records]


def _bare(line):
    return {name: value for name, value in line.items() if name != "seconds"}


def test_a_function_that_names_an_algorithm_equals_its_name(tmp_path):
    problem = pc.problems.finite(steps=8)
    one, other = (pc.run(problem, given, measurements=30) for given in (pc.pure_base, "pure-base"))
    assert one.metrics == other.metrics


def test_a_named_algorithm_takes_the_settings_for_the_problem_unless_it_was_changed(tmp_path):
    """`pc.sac()` without a problem measures 500 times per episode, which this environment does not have."""
    problem = pc.problems.gymnasium("Pendulum-v1")

    def sampler(name, algorithm):
        with pytest.raises(pc.TimeLimit):
            pc.run(problem, algorithm, out=tmp_path / name, max_seconds=1e-3)
        return json.loads((tmp_path / name / "config.json").read_text())["algorithm"]["sampler"]

    assert sampler("called", pc.sac()) == sampler("function", pc.sac)
    changed = replace(pc.sac(), sampler=Windows(count=1, length=2.0, step=0.1))
    assert sampler("changed", changed)["step"] == 0.1


def test_baseline_and_pure_variant_differ_in_sampler_and_schedule_only():
    for baseline, pure in (("enode", "pure-enode"), ("seiko", "pure-seiko"), ("pure-base", "pure-low-both")):
        one, other = named(baseline), named(pure)
        assert one.learner == other.learner
        assert one.output == other.output
        assert (one.sampler, one.schedule) != (other.sampler, other.schedule)


def test_a_sampler_is_named_in_one_place(own, monkeypatch):
    """Defect B5: a new sampler is a line in SAMPLERS, and every problem knows it."""
    from purectrl.core.references import load_reference
    from purectrl.core.samplers import SAMPLERS

    monkeypatch.setitem(SAMPLERS, "halves", load_reference(f"{own}/own_sampler.py:Halves"))
    for problem, algorithm in (("finite", "pure-base"), ("pendulum", "pure-enode"), ("digits", "pure-seiko")):
        spec = RunSpec.of(problem, algorithm, overrides={"sampler": "halves"}, arguments=ARGUMENTS.get(problem))
        assert algorithm_to_plain(spec.algorithm)["sampler"]["name"] == "halves"


def test_the_package_docstring_names_every_package():
    """Defect B7."""
    from pathlib import Path

    for path in Path(pc.__file__).parent.iterdir():
        if (path / "__init__.py").exists():
            assert f"purectrl.{path.name} " in pc.__doc__, path
