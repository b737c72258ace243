"""A reward of your own by its name: `--reward module:function`."""

import importlib
import sys
from pathlib import Path

from purectrl.core.errors import InputError, require
from purectrl.diffusion.rewards.reward import Scorer


def own_scorer(name: str) -> Scorer:
    """The function that `module:function` names; the module is looked for in the working directory first.

    >>> own_scorer("purectrl.diffusion.rewards.jpeg:compressibility").__name__
    'compressibility'
    """
    module, _, function = name.partition(":")
    require(bool(module and function), f"reward: {name!r} should be module:function, such as my_rewards:sharpness")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise InputError(
            f"reward: {name!r}: there is no module {error.name!r} here or among what is installed"
        ) from None
    except Exception as error:  # any: it is the user's module
        raise InputError(f"reward: {module!r} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    require(callable(found), f"reward: {module!r} has no function {function!r}")
    return found
