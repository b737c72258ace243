"""From the words of a call to what is run: a problem, an algorithm, a budget and a seed."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl.algorithms import ALGORITHMS, compatible
from purectrl.cli.options import SHORT, RunOptions
from purectrl.core.errors import InputError, choose
from purectrl.problems import PROBLEMS
from purectrl.runs import flags
from purectrl.runs.flags import Arguments

if TYPE_CHECKING:  # what these modules import is not needed to refuse a mistyped name
    from purectrl.core.algorithm import Algorithm
    from purectrl.core.problem import Source
    from purectrl.runs.spec import RunSpec


DEFAULTED = frozenset({"states", "equations", "held controls"})
"""Problems that offer no more than this have a default algorithm."""


def shipped_name(name: str) -> str:
    """The name of a shipped problem; says how a file is named if that was meant."""
    file = name if name.endswith(".py") else f"{name}.py"
    if name not in PROBLEMS and os.path.isfile(file):  # noqa: PTH113 (a name that is too long is no error here)
        raise InputError(f"problem: {file} is a file; name the function in it that returns the problem: {file}:problem")
    return choose("problem", name, PROBLEMS)


def require_algorithms(arguments: Arguments, flag: str, references: Sequence[str]) -> None:
    """Raises unless problems have known names and an algorithm is named or has a default; says which ones would work."""
    shipped = [shipped_name(name) for name in references if ":" not in name]
    default = flag == "algorithm" and flag not in arguments.flags  # of a user's own problem it is found out later
    if default and all(PROBLEMS[name].offers <= DEFAULTED for name in shipped):
        return
    if not arguments.repeated.get(flag):
        works = [name for name in ALGORITHMS if all(compatible(name, PROBLEMS[one].offers) for one in shipped)]
        where = f" that work on {' and '.join(shipped)}" if shipped else ""
        raise InputError(f"--{flag} is missing: name one of those{where}: {', '.join(works or ALGORITHMS)}")


def offers_equations(reference: str) -> bool:
    """Whether a problem offers its equations, so that `known-model` works on it."""
    from purectrl import problems
    from purectrl.core.problem import Source
    from purectrl.core.references import is_reference, normalized

    if not is_reference(reference):
        return "equations" in PROBLEMS[choose("problem", reference, PROBLEMS)].offers
    return getattr(problems.build(Source(normalized(reference), {})), "equations", None) is not None


def source_of(reference: str, arguments: Arguments, config_arguments: Mapping[str, Any]) -> "Source":
    """The problem with the arguments given as --problem.NAME; those of a --config file are replaced by typed ones."""
    from purectrl import problems
    from purectrl.core.problem import Source
    from purectrl.core.references import is_reference, normalized

    reference = normalized(reference) if is_reference(reference) else shipped_name(reference)
    typed = {}
    for flag, words in arguments.flags.items():
        path = SHORT.get(flag, flag)
        if path.startswith("problem."):
            name = path.removeprefix("problem.").replace("-", "_")
            typed[name] = problems.parse_argument(reference, name, words)
    return Source(reference, {**config_arguments, **typed})


def spec_of(reference: str, algorithm: str | None, options: Any, arguments: Arguments, seed: int) -> "RunSpec":
    """What to run: the named algorithm on the problem, or its default, then a --config file, then flags."""
    from purectrl.core.ledger import Budget
    from purectrl.core.problem import Source
    from purectrl.runs.spec import RunSpec, check_trust, problem_arguments

    config = _read_config(options.config)
    source = source_of(reference, arguments, problem_arguments(config))
    if options.config is not None:
        flagged = {SHORT.get(flag, flag).removeprefix("problem.").replace("-", "_") for flag in arguments.flags}
        kept = {name: value for name, value in problem_arguments(config).items() if name not in flagged}
        recorded = Source(source.reference, kept)
        check_trust(config, recorded, options.config, options.trust, typed=source.reference)
    spec = RunSpec(source, algorithm_of(algorithm, source, arguments, config, options.preset), Budget(1), seed)
    budget = config.get("budget", {})
    given = [options.measurements, budget.get("measurements"), spec.load_problem().measurements]
    measurements = next(number for number in given if number is not None)
    rollouts = budget.get("rollouts") if options.rollouts is None else options.rollouts
    return RunSpec(source, spec.algorithm, Budget(measurements, rollouts), seed)


def algorithm_of(
    name: str | None, source: "Source", arguments: Arguments, config: Mapping[str, Any], preset: str | None
) -> "Algorithm":
    """The named algorithm with its settings for the problem, of a preset or of a --config file; flags override them."""
    from purectrl import problems
    from purectrl.algorithms import named
    from purectrl.runs.spec import PARTS, Draft, algorithm_from_plain

    if name is not None:
        choose("algorithm", name, ALGORITHMS)
    problem = problems.build(source)
    if name is None:
        name = config["algorithm"].get("name") if config else problem.default_algorithm
    if name is None:
        raise InputError(
            f"--algorithm is missing: {problem.name} has no default; name one of those: {', '.join(ALGORITHMS)}"
        )
    if config and preset is not None:
        raise InputError("--preset and --config both give all settings; use one of them")
    base = algorithm_from_plain(config["algorithm"]) if config else named(name, problem, preset)
    if base.name != name:
        raise InputError(f"--config is of a run with {base.name!r}, not with {name!r}; use the same algorithm")
    draft = Draft(base)
    for part in PARTS:
        if (chosen := arguments.one(part)) is not None:
            draft.choose(part, chosen)
    typed = [path for path in (SHORT.get(flag, flag) for flag in arguments.flags) if "." in path]
    for flag, words in arguments.flags.items():
        path = SHORT.get(flag, flag)
        if path in typed and not path.startswith("problem."):
            draft.set_text(path, words)
    built = draft.build()
    for path, reason in built.learner.unused(problem, built.sampler).items():
        if f"learner.{path}" in [one.replace("-", "_") for one in typed]:
            raise InputError(f"--learner.{path.replace('_', '-')} has no effect: {reason}")
    return built


def _read_config(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    from purectrl.core.io import read_json

    config = read_json(file, follow=True)
    objects = ("problem", "algorithm", "budget")
    if not isinstance(config, dict) or not all(isinstance(config.get(name), dict) for name in objects):
        raise InputError(f"--config {file}: expected the config.json of a run")
    return config


def describe_run(reference: str, arguments: Arguments) -> str:
    """Every setting of a problem and, if one is named, of an algorithm on it."""
    from purectrl import problems
    from purectrl.runs.spec import PARTS, component_name

    lines = [
        f"usage: purectrl run {reference} --algorithm A --out DIR [options]",
        "",
        flags.describe_command(RunOptions),
    ]
    lines += ["", "problem", flags.describe_function("problem", problems.function(reference))]
    name = arguments.one("algorithm")
    if name is None:
        return "\n".join([*lines, "", "Name an algorithm to see its settings: --algorithm A --help"])
    source = source_of(reference, arguments, {})
    algorithm = algorithm_of(name, source, arguments, {}, arguments.one("preset"))
    for part in PARTS:
        value = getattr(algorithm, part)
        choices = ", ".join(PARTS[part].names)
        lines += ["", f"{part}: {component_name(part, type(value))} (--{part} NAME: {choices}, or file.py:Class)"]
        lines += [flags.describe_settings(part, value)]
    return "\n".join(lines)
