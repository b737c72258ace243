"""A run's state as arrays and JSON, and back.

Structure comes from code, values from the file: a state is restored into the shape of a fresh one, leaf by leaf, and every
leaf that does not fit is named. So nothing in a file can decide what is built.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import State
from purectrl.core.ledger import Ledger, Seconds
from purectrl.core.measurement import Dataset, Measurements

Arrays = dict[str, np.ndarray]
Scalars = dict[str, Any]


def pack(tree: Any, prefix: str) -> tuple[Arrays, Scalars]:
    """The leaves of `tree` by path: arrays, and numbers, strings and booleans.

    >>> pack({"a": 1, "b": np.zeros(2)}, "state")
    ({"state['b']": array([0., 0.])}, {"state['a']": 1})
    """
    arrays, scalars = {}, {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = prefix + jax.tree_util.keystr(path)
        if isinstance(leaf, np.ndarray | jax.Array):
            arrays[name] = np.asarray(leaf)
        elif isinstance(leaf, bool | int | float | str):
            scalars[name] = leaf
        else:
            raise StoreError(f"{name} is a {type(leaf).__name__}: a state holds arrays, numbers and strings only")
    return arrays, scalars


def unpack(template: Any, prefix: str, arrays: Arrays, scalars: Scalars) -> Any:
    """`template` with every leaf replaced by the one stored under its path."""

    def restore(path: Any, leaf: Any) -> Any:
        name = prefix + jax.tree_util.keystr(path)
        if isinstance(leaf, np.ndarray | jax.Array):
            found = arrays.get(name)
            if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
                have = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
                raise StoreError(f"{name} should be {leaf.dtype}{list(leaf.shape)}, the file holds {have}")
            return found if isinstance(leaf, np.ndarray) else jnp.asarray(found)
        if type(scalars.get(name)) is not type(leaf):
            raise StoreError(f"{name} should be a {type(leaf).__name__}, the file holds {scalars.get(name)!r}")
        return scalars[name]

    return jax.tree_util.tree_map_with_path(restore, template)


def pack_state(state: State) -> tuple[Arrays, Scalars]:
    """A whole `State`."""
    arrays, scalars = pack({"learner": state.learner, "output": state.output}, "")
    arrays |= {f"data.{name}": array for name, array in state.data.arrays().items()}
    scalars |= {"key": hex(state.key.bits), "steps": state.steps, "ledger": state.ledger.as_dict()}
    return arrays, scalars


def unpack_state(template: State, arrays: Arrays, scalars: Scalars) -> State:
    """The state that was packed, given a fresh one of the same run."""
    tree = unpack({"learner": template.learner, "output": template.output}, "", arrays, scalars)
    try:
        key, steps = Key(int(scalars["key"], 16)), int(scalars["steps"])
        ledger = Ledger(**{**scalars["ledger"], "seconds": Seconds(**scalars["ledger"]["seconds"])})
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the checkpoint is of another version: {error!r}") from None
    if key != template.key:
        raise StoreError("the checkpoint belongs to another seed")
    data = {name.removeprefix("data."): array for name, array in arrays.items() if name.startswith("data.")}
    dataset = Dataset(Measurements(**data)) if data else Dataset()
    return State(key, steps, ledger, dataset, tree["learner"], tree["output"])
