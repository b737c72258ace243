"""What a run is: problem, algorithm, budget and seed, as one value that is also `config.json`."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from purectrl import algorithms, problems
from purectrl.core.algorithm import Algorithm
from purectrl.core.errors import InputError, StoreError, choose, require
from purectrl.core.ledger import Budget
from purectrl.core.loop import Loop
from purectrl.core.output_rules import OUTPUT_RULES
from purectrl.core.problem import Problem, Source
from purectrl.core.references import digest, is_reference, load_reference, normalized, reference_of
from purectrl.core.samplers import SAMPLERS
from purectrl.core.schedules import SCHEDULES
from purectrl.core.settings import Settings, field_types, from_plain, parse_text, prefixed, to_plain
from purectrl.core.text import printable
from purectrl.runs.directory import FORMAT, read_config
from purectrl.runs.process import versions
from purectrl.runs.progress import log

MOST_NAMES = 3
"""How many names of code, and of weights, a message lists."""


class Part(NamedTuple):
    """One of the choices that make up an algorithm."""

    names: Mapping[str, Any]
    """Shipped names."""
    reference: Callable[[str], str]
    """(shipped name) -> reference of its class, which is imported when it is used."""


PARTS: dict[str, Part] = {
    "sampler": Part(SAMPLERS, lambda name: reference_of(SAMPLERS[name])),
    "schedule": Part(SCHEDULES, lambda name: reference_of(SCHEDULES[name])),
    "learner": Part(algorithms.LEARNERS, lambda name: algorithms.LEARNERS[name].reference),
    "output": Part(OUTPUT_RULES, lambda name: reference_of(OUTPUT_RULES[name])),
}


def component_class(part: str, name: str) -> type[Settings]:
    """The class of a sampler, schedule, learner or output rule, by its name or by a reference to a user's own."""
    reference = name if is_reference(name) else PARTS[part].reference(choose(part, name, PARTS[part].names))
    found = load_reference(reference)
    if not (isinstance(found, type) and issubclass(found, Settings)):
        raise InputError(f"{part}: {name} is not a settings class; a {part} is a frozen dataclass, see CONTRIBUTING.md")
    return found


def component_name(part: str, kind: type[Settings]) -> str:
    """The shipped name of a class, or the reference to it."""
    reference = reference_of(kind)
    return next((name for name in PARTS[part].names if PARTS[part].reference(name) == reference), reference)


class Draft:
    """An algorithm that is being edited: parts can be replaced by name, parameters set by path.

    >>> draft = Draft(algorithms.pure_base())
    >>> draft.choose("sampler", "equidistant")
    >>> draft.set("sampler.m", 4)
    >>> draft.build().sampler
    Equidistant(m=4)
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.name = algorithm.name
        values = {part: getattr(algorithm, part) for part in PARTS}
        self.classes: dict[str, type[Settings]] = {part: type(value) for part, value in values.items()}
        self.values: dict[str, dict[str, Any]] = {part: to_plain(value) for part, value in values.items()}

    def choose(self, part: str, name: str) -> None:
        """Replaces a part by another class; parameters of the same name that were set keep their values."""
        kind = component_class(part, name)
        if kind is not self.classes[part]:
            defaults = {field.name: to_plain(field.default) for field in fields(self.classes[part])}
            changed = {field: value for field, value in self.values[part].items() if value != defaults[field]}
            kept = {field: value for field, value in changed.items() if field in field_types(kind)}
            self.classes[part], self.values[part] = kind, kept

    def set(self, path: str, value: Any) -> None:
        """Sets a parameter, such as `learner.fit.steps`, to a plain value."""
        holder, name, _ = self._find(path)
        holder[name] = list(value) if isinstance(value, tuple) else value

    def set_text(self, path: str, texts: Sequence[str]) -> None:
        """Sets a parameter to the value typed as `texts`."""
        holder, name, annotation = self._find(path)
        holder[name] = to_plain(parse_text(path, texts, annotation))

    def _find(self, path: str) -> tuple[dict[str, Any], str, Any]:
        part, *names = path.replace("-", "_").split(".")
        choose("component", part, PARTS)
        holder, kind = self.values[part], self.classes[part]
        for number, name in enumerate(names):
            where = ".".join((part, *names[:number]))
            annotations = field_types(kind)
            if name not in annotations:
                with prefixed(where):
                    choose(f"setting of {component_name(part, self.classes[part])}", name, annotations)
            if number == len(names) - 1:
                require(not _is_settings(annotations[name]), f"{path}: is a group of settings; set one of them")
                return holder, name, annotations[name]
            require(_is_settings(annotations[name]), f"{path}: {where}.{name} has no settings of its own")
            kind = annotations[name]
            holder = holder.setdefault(name, {})
        raise InputError(f"{path}: expected {part}.NAME")

    def build(self) -> Algorithm:
        """The algorithm."""
        parts = {part: from_plain(self.classes[part], self.values[part], part) for part in PARTS}
        return Algorithm(**parts, name=self.name)  # pyright: ignore[reportArgumentType] (checked by Algorithm itself)


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def algorithm_to_plain(algorithm: Algorithm) -> dict[str, Any]:
    """An algorithm as `config.json` has it."""
    plain: dict[str, Any] = {"name": algorithm.name}
    for part in PARTS:
        value = getattr(algorithm, part)
        plain[part] = {"name": component_name(part, type(value)), **to_plain(value)}
    return plain


def algorithm_from_plain(plain: Mapping[str, Any]) -> Algorithm:
    """The algorithm that `algorithm_to_plain` described. This imports the code that it names; see `check_trust`."""
    names, parts = _part_names(plain), {}
    require(isinstance(plain.get("name", ""), str), f"algorithm.name: must be a string, not {plain.get('name')!r:.60}")
    for part, name in names.items():
        values = {field: value for field, value in plain[part].items() if field != "name"}
        parts[part] = from_plain(component_class(part, name), values, part)
    return Algorithm(**parts, name=plain.get("name", "custom"))


def _part_names(plain: Mapping[str, Any]) -> dict[str, str]:
    """The name of each part of an algorithm in a configuration: a shipped name or a reference to code."""
    for part in PARTS:
        values = plain.get(part)
        if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
            raise InputError(f"algorithm.{part}: must be an object with a name")
    return {part: plain[part]["name"] for part in PARTS}


@dataclass(frozen=True, eq=False)
class RunSpec:
    """What to run.

    Main arguments:
        problem: where the problem comes from, or the problem itself if it was built in Python.
        algorithm, budget, seed: as in `purectrl.run`.
    """

    problem: Source | Problem
    algorithm: Algorithm
    budget: Budget
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            type(self.seed) is int and self.seed >= 0, f"seed: must be a non-negative integer, not {self.seed!r:.60}"
        )

    @classmethod
    def of(
        cls,
        problem: str,
        algorithm: str,
        seed: int = 0,
        *,
        measurements: int | None = None,
        rollouts: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        preset: str | None = None,
    ) -> "RunSpec":
        """A shipped problem with a named algorithm, some settings changed: the same paths as on the command line.

        >>> spec = RunSpec.of("finite", "pure-base", measurements=512, overrides={"sampler.m": 2})
        >>> spec.algorithm.sampler, spec.budget.measurements
        (Uniform(m=2), 512)
        """
        source = Source(normalized(problem) if is_reference(problem) else problem, dict(arguments or {}))
        built = problems.build(source)
        draft = Draft(algorithms.named(algorithm, built, preset))
        for path, value in (overrides or {}).items():
            draft.set(path, value) if "." in path else draft.choose(path, value)
        return cls(
            source, draft.build(), Budget(built.measurements if measurements is None else measurements, rollouts), seed
        )

    @classmethod
    def read(cls, directory: Path, trust: bool = False, problem: Problem | None = None) -> "RunSpec":
        """From the `config.json` of a run directory; refuses to import code that it names unless `trust`.

        `problem` replaces the one that the configuration names, for runs whose problem was built in Python.
        """
        found = read_config(directory)
        place = directory / "config.json"
        try:
            source = None if problem is not None else _source(found)
            check_trust(found, source, place, trust)
            if problem is not None:
                return cls(problem, algorithm_from_plain(found["algorithm"]), _budget(found), found["seed"])
            return cls._from_plain(found, found["seed"])
        except InputError as error:
            raise StoreError(f"{place}: {error}") from None

    @classmethod
    def _from_plain(cls, plain: Mapping[str, Any], seed: int) -> "RunSpec":
        if (source := _source(plain)) is None:
            raise InputError(
                "the problem was built in Python and has no reference; pass it: resume(directory, problem=...)"
            )
        return cls(source, algorithm_from_plain(plain["algorithm"]), _budget(plain), seed)

    @property
    def name(self) -> str:
        """The problem's name."""
        return self.load_problem().name

    def with_seed(self, seed: int) -> "RunSpec":
        """The same run with another seed."""
        return replace(self, seed=seed)

    def load_problem(self) -> Problem:
        """The problem; shipped ones are built once per process."""
        if isinstance(self.problem, Problem):
            return self.problem
        if is_reference(self.problem.reference):
            return problems.build(self.problem)
        return _shared_problem(self.problem.reference, json.dumps(self.problem.arguments, sort_keys=True))

    def compose(self, directory: Path | None = None) -> tuple[Problem, Loop]:
        """The problem with the files of a run in `directory`, and the loop."""
        problem = self.load_problem()
        opened = problem.open(directory)
        if opened is problem and not isinstance(self.problem, Problem) and not self.code():
            return problem, _shared_loop(self.identity())
        return opened, self.algorithm.build(opened, self.budget)

    def code(self) -> list[str]:
        """The references to code outside the package that this run imports."""
        own = [] if isinstance(self.problem, Problem) else problems.code_references(self.problem)
        names = [component_name(part, type(getattr(self.algorithm, part))) for part in PARTS]
        return own + [name for name in names if is_reference(name)]

    def as_dict(self) -> dict[str, Any]:
        """The content of `config.json`."""
        return {
            "format": FORMAT,
            **self._plain(),
            "seed": self.seed,
            "code": {reference: _digest_or_none(reference) for reference in self.code()},
            "versions": versions(self.load_problem().packages),
        }

    def identity(self) -> str:
        """Everything but the seed, as text: equal for the runs of one setting."""
        return json.dumps(self._plain(), sort_keys=True)

    def _plain(self) -> dict[str, Any]:
        found = self.load_problem()
        problem: dict[str, Any] = {"name": found.name, "reference": None, "horizon": found.horizon}
        problem["result"] = found.result_metric
        if found.abort_reward:
            problem["abort_reward"] = found.abort_reward
        if found.criterion is not None:
            problem["criterion"] = found.criterion._asdict()
        if isinstance(self.problem, Source):
            problem |= {"reference": self.problem.reference, "arguments": dict(self.problem.arguments)}
        budget = {"measurements": self.budget.measurements, "rollouts": self.budget.rollouts}
        return {"problem": problem, "algorithm": algorithm_to_plain(self.algorithm), "budget": budget}


def _source(config: Mapping[str, Any]) -> Source | None:
    """Where the problem of a configuration comes from; None if it was built in Python."""
    reference = config["problem"].get("reference")
    if reference is None:
        return None
    require(isinstance(reference, str), f"problem.reference: must be a string, not {reference!r:.60}")
    return Source(reference, problem_arguments(config))


def problem_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the problem in a configuration."""
    problem = config.get("problem", {})
    arguments = problem.get("arguments", {}) if isinstance(problem, Mapping) else None
    if not isinstance(arguments, Mapping):
        raise InputError(f"problem.arguments: must be an object, not {arguments!r:.60}")
    return {name: _immutable(value) for name, value in arguments.items()}


def _budget(config: Mapping[str, Any]) -> Budget:
    budget = config["budget"]
    if "measurements" not in budget or not budget.keys() <= {"measurements", "rollouts"}:
        raise InputError("budget: must have measurements, may have rollouts, and nothing else")
    return Budget(**budget)


@functools.lru_cache(maxsize=8)
def _shared_problem(reference: str, arguments: str) -> Problem:
    """A problem is immutable, so the seeds of a sweep share it."""
    return problems.build(Source(reference, {name: _immutable(value) for name, value in json.loads(arguments).items()}))


@functools.lru_cache(maxsize=8)
def _shared_loop(text: str) -> Loop:
    """A loop is immutable, so runs that differ in their seeds alone share it and its compiled functions."""
    spec = RunSpec._from_plain(json.loads(text), seed=0)
    return spec.algorithm.build(spec.load_problem(), spec.budget)


def _immutable(value: Any) -> Any:
    return tuple(map(_immutable, value)) if isinstance(value, list | tuple) else value


def _digest_or_none(reference: str) -> str | None:
    """A class that was defined in a script has no file that can be imported again."""
    try:
        return digest(reference)
    except InputError:
        return None


def check_trust(
    config: Mapping[str, Any], source: Source | None, place: Path, trust: bool, typed: str | None = None
) -> None:
    """Raises unless what a configuration imports and downloads is trusted; names it, and warns if code has changed.

    Main arguments:
        config: the content of a `config.json`; nothing of it has been imported yet.
        source: the problem and its arguments; None if the problem does not come from the configuration.
        place: the file, for the message.

    Other arguments:
        typed: a reference that the user has typed and that needs no further permission.
    """
    code = [name for name in _part_names(config["algorithm"]).values() if is_reference(name)]
    code = ([] if source is None else problems.code_references(source)) + code
    code = [name for name in code if name != typed]
    hub = [] if source is None else problems.downloads(source)
    room = 150 // max(
        1, min(len(code), MOST_NAMES) + min(len(hub), MOST_NAMES)
    )  # for each name, on one line with the advice
    actions = [f"import code outside the package ({_listed(code, room)})"] if code else []
    actions += [f"download weights from the Hugging Face hub ({_listed(hub, room)})"] if hub else []
    if not actions:
        return
    if not trust:
        raise StoreError(
            f"{printable(place, 80)} would {' and '.join(actions)}; "
            "check that first, then repeat the command with --trust (in Python: trust=True)"
        )
    log(f"{place} is trusted: it may {' and '.join(actions)}")
    recorded = config.get("code")
    for reference in code:
        if isinstance(recorded, Mapping) and recorded.get(reference) != _digest_or_none(reference):
            log(f"warning: {reference} has changed since {place} was written")


def _listed(names: Sequence[str], room: int) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(printable(name, room) for name in names[:MOST_NAMES]) + more
