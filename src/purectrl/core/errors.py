"""Errors and warnings that a user can act on: each names the argument, says why it is wrong and what would be right."""

import difflib
import warnings
from collections.abc import Iterable


class PurectrlError(Exception):
    """Base class of the errors that `purectrl` raises; the command line turns it into exit status 2."""


class InputError(PurectrlError, ValueError):
    """An argument is wrong."""


class BudgetError(PurectrlError):
    """More was requested than the budget holds."""


class MeasurementError(PurectrlError, ValueError):
    """The system returned something that is not a measurement."""


class StoreError(PurectrlError):
    """A run directory cannot be used as requested."""


class TimeLimit(Exception):  # noqa: N818 (not an error: the run is saved and can be resumed)
    """A run was stopped since its seconds are over."""


class UnsupportedError(InputError):
    """A problem and an algorithm that do not go together."""


class DivergenceWarning(UserWarning):
    """Part of an update diverged and was rolled back."""


def warn_of_divergence(what: str, updates: int, rollouts: int) -> str:
    """Warns that part of an update was rolled back, and returns the message, which is also a column of the record.

    The run continues: ending it would discard measurements, and the next update has more of them.
    """
    message = f"update {updates}, after {rollouts} episodes: {what}"
    warnings.warn(message, DivergenceWarning, stacklevel=3)
    return message


class PlanningWarning(UserWarning):
    """The planner, and not the data, limits what is learned."""


def require(condition: bool, message: str) -> None:
    """Raises `InputError(message)` unless `condition` holds.

    >>> require(-1 >= 0, "seed: must be a non-negative integer, not -1")
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: seed: must be a non-negative integer, not -1
    """
    if not condition:
        raise InputError(message)


def choose(kind: str, name: str, choices: Iterable[str]) -> str:
    """Returns `name` if it is one of `choices`; otherwise raises with the nearest one.

    >>> choose("sampler", "unifrom", ["uniform", "final"])
    Traceback (most recent call last):
    ...
    purectrl.core.errors.InputError: unknown sampler 'unifrom': did you mean 'uniform'? (one of: final, uniform)
    """
    choices = sorted(choices)
    if name in choices:
        return name
    near = difflib.get_close_matches(str(name)[:100], choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"unknown {kind} {name!r:.60}: {hint}(one of: {', '.join(choices)})")
