"""Every option and setting of the command line with values that are wrong for it, read from the declarations.

What is wrong is stated here and not asked of the package: a type that does not fit, a number that is not finite, absurdly
large or small, or outside of the range in which the quantity means something.
"""

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from purectrl import problems
from purectrl.core.settings import Settings, field_types, parameter_types
from purectrl.runs.spec import component_class

SIGNED = {"goal", "terminal_reward", "u_min", "u_max", "a", "c", "guidance"}
"""Quantities that may be negative."""
POSITIVE = {
    "m", "k", "count", "length", "size", "first", "updates", "mean_gap", "lam", "grid", "sizes", "paths", "num_restarts",
    "iterations", "width", "ensemble_size", "batch_size", "sequence_length", "learning_rate", "plan_learning_rate",
    "num_heads", "check_every", "chunk_size", "horizon", "scales", "dimension", "denoising_steps", "rollout_batch_size",
    "eval_images", "measurements", "rollouts", "episodes", "workers", "step", "delta", "torque", "force", "dt",
    "critic_batch_size", "actor_learning_rate", "critic_learning_rate", "reward_timeout", "min_backprop_steps",
}  # fmt: skip
"""Quantities that must be greater than zero."""
BELOW_ONE = {"delta", "held_out", "initial_share", "rewarded_share", "rollout_end_share"}
"""Quantities that must be less than one, or at most one."""
WORDS = (
    "abc",
    "0x10",
    "1e",
    "--",
    "1;2",
    "None!",
    "１２",
    "٣",
    "1_0",
    "one",
    "1 2",
    "\x1b[31m7",
    "½",
    "1e5x",
    "💥",
    "\udcff",
)
NUMBERS = ("nan", "inf", "-inf", "1e400", "1e13", "-1e13", "1e-13", "9" * 400)
"""No quantity of the package has one of these values."""
LONG = ("x" * 5_000, "é" * 100_000, "-" * 20_000, "7" * 50_000, "a/" * 4_000)


def plain_type(annotation: Any) -> Any:
    """The type of the value that is typed: that of the first alternative of a union."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(one for one in get_args(annotation) if one is not types.NoneType)
    return annotation


def wrong_values(name: str, annotation: Any) -> list[tuple[str, ...]]:
    """Words after a flag that are wrong for a parameter of this name and type."""
    name = name.rpartition(".")[2].replace("-", "_")
    optional = annotation is not plain_type(annotation)
    annotation = plain_type(annotation)
    if get_origin(annotation) is tuple:
        if name == "track":
            return [("nothing",), ("tensorboard", "x"), ("wandb=",), *((word,) for word in WORDS)]
        return wrong_values(name, get_args(annotation)[0]) if get_args(annotation)[0] is not str else []
    if get_origin(annotation) is Literal:
        known = get_args(annotation)
        return [
            (),
            (known[0], known[0]),
            (known[0].upper() + "x",),
            (known[0][:-1],),
            *((word,) for word in WORDS + LONG),
        ]
    if annotation is bool:
        return [("maybe",), ("1",), ("0",), ("yes",), ("true", "false"), *((word,) for word in WORDS[:8] + LONG[:2])]
    if annotation in (int, float):
        found = [(word,) for word in WORDS + NUMBERS + LONG] + [(), ("1", "2"), ("2", "x")]
        found += [("1.5",), ("1e3",), ("2.0",), ("true",)] if annotation is int else [("true",), ("1,5",), ("1d3",)]
        found += [] if name in SIGNED else [("-1",), ("-7",)]
        found += [("0",), ("-0",)] if name in POSITIVE else []
        found += [("1.5",), ("2",)] if name in BELOW_ONE and annotation is float else []
        return found if optional else [*found, ("none",)]
    return []


def parameters(kind: type[Settings], path: str) -> list[tuple[str, Any]]:
    """The parameters of a settings class as (flag, type), nested ones included."""
    found = []
    for name, annotation in field_types(kind).items():
        flag = f"{path}{name.replace('_', '-')}"
        if isinstance(annotation, type) and issubclass(annotation, Settings):
            found += parameters(annotation, f"{flag}.")
        elif annotation is not Path:
            found.append((f"--{flag}", annotation))
    return found


def component_parameters(part: str, name: str) -> list[tuple[str, Any]]:
    """The parameters of a shipped sampler, schedule, learner or output rule."""
    return parameters(component_class(part, name), f"{part}.")


def problem_parameters(name: str) -> list[tuple[str, Any]]:
    """The arguments of a shipped problem."""
    types_of = parameter_types(problems.function(name))
    return [(f"--problem.{one.replace('_', '-')}", annotation) for one, annotation in types_of.items()]
