"""Problems by name: `purectrl.problems.pendulum(horizon=20.0)` in Python, `purectrl run pendulum` on the command line.

A problem is a function that returns a `Problem`. Shipped ones are listed in `PROBLEMS` and imported when they are used. Your
own is `path/to/file.py:function` or `module:function`.
"""

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from purectrl.core.errors import InputError, PurectrlError, choose
from purectrl.core.problem import Problem, Source
from purectrl.core.references import is_reference, load_reference, normalized
from purectrl.core.settings import check_type, parameter_types, parse_text


class Entry(NamedTuple):
    """A shipped problem."""

    reference: str
    """The function."""
    about: str
    """One line for `purectrl list`."""
    offers: frozenset[str]
    """What learners can use; a learner works where all that it needs is offered."""
    code: frozenset[str] = frozenset()
    """Arguments that may be references to code."""
    weights: frozenset[str] = frozenset()
    """Arguments that are local paths of weights, or names on the hub, from which they are downloaded."""


def _entry(
    reference: str, about: str, *offers: str, code: tuple[str, ...] = (), weights: tuple[str, ...] = ()
) -> Entry:
    if "states" in offers and not any(offer.endswith("classes") for offer in offers):  # see StateProblem.holds_controls
        offers = (*offers, "held controls")
    return Entry(f"purectrl.problems.{reference}", about, frozenset(offers), frozenset(code), frozenset(weights))


PROBLEMS: dict[str, Entry] = {
    "finite": _entry("theory:finite", "a particle in a periodic potential, finite classes", "states", "finite classes"),
    "lqr": _entry(
        "theory:lqr",
        "linear drift in 1 to 4 dimensions",
        "states",
        "finite classes",
        "linear classes",
        "kernel classes",
    ),
    "ou": _entry("theory:ou", "the Ornstein-Uhlenbeck process of Proposition 2", "states", "finite classes"),
    "circle": _entry(
        "circle:circle",
        "Brownian motion on a circle, closed forms",
        "states",
        "finite classes",
        "linear classes",
        "kernel classes",
    ),
    "neural": _entry("theory:neural", "a pendulum whose drift is a network", "states", "neural classes"),
    "pendulum": _entry("mechanical_systems:pendulum", "swing up a rod with a weak torque", "states", "equations"),
    "cartpole": _entry("mechanical_systems:cartpole", "swing up a pole by pushing its cart", "states", "equations"),
    "acrobot": _entry(
        "mechanical_systems:acrobot", "swing up two links by torques at both joints", "states", "equations"
    ),
    "furuta": _entry("benchmark_systems:furuta", "swing up a pendulum by turning its arm", "states", "equations"),
    "quadrotor": _entry("benchmark_systems:quadrotor", "fly a planar quadrotor to a place", "states", "equations"),
    "elbow-acrobot": _entry(
        "benchmark_systems:elbow_acrobot", "swing up two links by one torque", "states", "equations"
    ),
    "mountain-car": _entry("benchmark_systems:mountain_car", "drive a weak car up a hill", "states", "equations"),
    "ball-beam": _entry("benchmark_systems:ball_beam", "bring a ball to the centre of a beam", "states", "equations"),
    "van-der-pol": _entry("benchmark_systems:van_der_pol", "bring an oscillator to rest", "states", "equations"),
    "two-rooms": _entry("benchmark_systems:two_rooms", "heat two rooms", "states", "equations"),
    "bicycle": _entry("benchmark_systems:bicycle", "park a car", "states", "equations"),
    "coupled-tanks": _entry("benchmark_systems:coupled_tanks", "hold the level of a tank", "states", "equations"),
    "ocorl-pendulum": _entry("controlled_costs:ocorl_pendulum", "swing up at the least cost, noisy drifts", "states"),
    "ocorl-mountain-car": _entry("controlled_costs:ocorl_mountain_car", "up a hill at the least cost", "states"),
    "ocorl-cancer": _entry("controlled_costs:ocorl_cancer", "shrink a tumour at the least cost", "states"),
    "ocorl-glucose": _entry("controlled_costs:ocorl_glucose", "lower glucose at the least cost", "states"),
    "ocorl-quadrotor": _entry("controlled_costs:ocorl_quadrotor", "fly to a place at the least cost", "states"),
    "ocorl-furuta": _entry("controlled_costs:ocorl_furuta", "swing up by an arm at the least cost", "states"),
    "ocorl-bicycle": _entry("controlled_costs:ocorl_bicycle", "drive to a pose at the least cost", "states"),
    "chemo-radiotherapy": _entry(
        "controlled_costs:chemo_radiotherapy", "shrink a tumour, a scan has a price", "states"
    ),
    "bioreactor": _entry("controlled_costs:bioreactor", "grow a product, an assay has a price", "states"),
    "lettuce": _entry("greenhouse:lettuce", "grow a crop in a greenhouse, weighing it has a price", "states"),
    "gymnasium": _entry(
        "gymnasium_environments:gymnasium", "any Gymnasium environment, --env", "states", code=("env",)
    ),
    "digits": _entry(
        "digit_images:digits",
        "fine-tune a diffusion model of digits",
        "images",
        code=("reward", "eval_reward", "view"),
    ),
    "taste": _entry("taste_images:taste", "fine-tune the digits to a hidden preference with noisy labels", "images"),
    "stable-diffusion": _entry(
        "stable_diffusion_images:stable_diffusion",
        "fine-tune Stable Diffusion, --problem.model",
        "images",
        code=("reward", "eval_reward", "view"),
        weights=("model", "aesthetic_clip", "aesthetic_head", "view_model"),
    ),
}
"""A new problem is a file in this directory and a line here."""


def function(reference: str) -> Callable[..., Problem]:
    """The function behind a shipped name or a reference to a user's own."""
    if is_reference(reference):
        found = load_reference(reference)
        if not inspect.isfunction(found):
            raise InputError(f"problem: {reference} is not a function that returns a Problem")
        return found
    return load_reference(PROBLEMS[choose("problem", reference, PROBLEMS)].reference)


def build(source: Source) -> Problem:
    """The problem that `source` describes, which it remembers."""
    made = function(source.reference)
    parameters = inspect.signature(made).parameters
    for name in source.arguments:
        if name not in parameters:
            choose(f"argument of the problem {source.reference}", name, parameters)
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in source.arguments]
    if missing:
        raise InputError(f"problem.{missing[0]}: the problem {source.reference} needs a value for it")
    if not is_reference(source.reference):  # a file can name them; a user's own function checks its arguments itself
        for name, annotation in parameter_types(made).items():
            if name in source.arguments:
                check_type(f"problem.{name}", source.arguments[name], annotation)
    try:
        problem = made(**source.arguments)
    except PurectrlError:
        raise
    except (Exception, SystemExit) as error:
        if not is_reference(source.reference):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"problem: calling {source.reference} failed: {reason}") from error
    if not isinstance(problem, Problem):
        raise InputError(f"problem: {source.reference} returned a {type(problem).__name__}, expected a Problem")
    return _with_source(problem, source)


def parse_argument(reference: str, name: str, texts: list[str]) -> Any:
    """The value of a problem's argument that was typed as `texts`."""
    made = function(reference)
    choose(f"argument of the problem {reference}", name, inspect.signature(made).parameters)
    value = parse_text(f"problem.{name}", texts, parameter_types(made).get(name, str))
    is_file = reference in PROBLEMS and name in PROBLEMS[reference].code and ".py:" in str(value)
    return normalized(value) if is_file else value  # valid from every directory


def code_references(source: Source) -> list[str]:
    """The references to code that building the problem would import."""
    if not is_reference(source.reference):
        arguments = PROBLEMS[source.reference].code if source.reference in PROBLEMS else frozenset[str]()
        values = [source.arguments[name] for name in sorted(arguments) if name in source.arguments]
        return [value for value in values if isinstance(value, str) and is_reference(value)]
    # a user's own function may import what its arguments refer to
    values = [value for value in source.arguments.values() if isinstance(value, str)]
    return [source.reference, *(value for value in values if re.fullmatch(r"[^\s:]+:[A-Za-z_]\w*", value))]


def downloads(source: Source) -> list[str]:
    """The names on the hub from which building the problem would download weights."""
    arguments = PROBLEMS[source.reference].weights if source.reference in PROBLEMS else frozenset[str]()
    values = [source.arguments[name] for name in sorted(arguments) if name in source.arguments]
    return [value for value in values if isinstance(value, str) and not os.path.exists(os.path.expanduser(value))]  # noqa: PTH110, PTH111 (a null byte or an unknown user is no error here)


def _with_source(problem: Problem, source: Source) -> Problem:
    object.__setattr__(problem, "source", source)  # problems are immutable values; this completes the construction
    return problem


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


_PYTHON_ONLY: Mapping[str, str] = {
    "mechanical": "purectrl.problems.mechanical_systems:mechanical",
    "continuous": "purectrl.problems.continuous_systems:continuous",
    "environment": "purectrl.problems.gymnasium_export:environment",
    "Episode": "purectrl.problems.driven_systems:Episode",
    "EpisodeEnd": "purectrl.problems.driven_systems:EpisodeEnd",
    "History": "purectrl.systems.device:History",
}
"""Functions that take functions or problems as arguments, and what a function that drives hardware needs."""


def __getattr__(name: str) -> Callable[..., Problem]:
    """The problem function called `name`; its problems remember how they were made."""
    if name in _PYTHON_ONLY:
        return load_reference(_PYTHON_ONLY[name])
    shipped = name.replace("_", "-")
    if shipped not in PROBLEMS:
        raise AttributeError(f"module 'purectrl.problems' has no attribute {name!r}")
    made = function(shipped)

    @functools.wraps(made)
    def remembered(*positional: Any, **arguments: Any) -> Problem:
        problem = made(*positional, **arguments)
        given = inspect.signature(made).bind(*positional, **arguments).arguments
        return _with_source(problem, Source(shipped, given)) if all(map(_is_plain, given.values())) else problem

    return remembered
