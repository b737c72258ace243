"""A run's state as arrays and JSON, and back.

Structure comes from code, values from the file: a state is restored into the shape of a fresh one, leaf by leaf, and every
leaf that does not fit is named. So nothing in a file can decide what is built.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from purectrl.core.errors import StoreError
from purectrl.core.keys import Key
from purectrl.core.learner import State
from purectrl.core.ledger import Ledger, Seconds
from purectrl.core.measurement import Dataset, Measurements

Arrays = dict[str, np.ndarray]
Scalars = dict[str, Any]


def pack(tree: Any, prefix: str) -> tuple[Arrays, Scalars]:
    """The leaves of `tree` by path: arrays (JAX keys and torch tensors among them), and numbers, strings and booleans.

    Functions, such as a network's activation, belong to the code and are not stored.

    >>> pack({"a": 1, "b": np.zeros(2)}, "state")
    ({"state['b']": array([0., 0.])}, {"state['a']": 1})
    """
    arrays, scalars = {}, {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = prefix + jax.tree_util.keystr(path)
        if _is_key(leaf):
            arrays[name] = np.asarray(jax.random.key_data(leaf))
        elif isinstance(leaf, np.ndarray | np.generic | jax.Array):
            arrays[name] = np.asarray(leaf)
        elif _is_torch(leaf):
            arrays[name] = _from_torch(leaf)
        elif isinstance(leaf, bool | int | float | str):
            scalars[name] = leaf
        elif not callable(leaf):
            raise StoreError(f"{name} is a {type(leaf).__name__}: a state holds arrays, numbers and strings only")
    return arrays, scalars


def unpack(template: Any, prefix: str, arrays: Arrays, scalars: Scalars) -> Any:
    """`template` with every leaf replaced by the one stored under its path; nothing stored may be left over."""
    expected = set().union(*pack(template, prefix))
    if extra := (arrays.keys() | scalars.keys()) - expected:
        raise StoreError(f"the file holds {min(extra)}, which this version does not know")

    def stored(name: str, like: Any) -> np.ndarray:
        found = arrays.get(name)
        if found is None or found.shape != like.shape or found.dtype != like.dtype:
            have = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise StoreError(f"{name} should be {like.dtype}{list(like.shape)}, the file holds {have}")
        return found

    def restore(path: Any, leaf: Any) -> Any:
        name = prefix + jax.tree_util.keystr(path)
        if _is_key(leaf):
            return jax.random.wrap_key_data(stored(name, jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        if isinstance(leaf, np.generic):
            return stored(name, leaf)[()]
        if isinstance(leaf, np.ndarray):
            return stored(name, leaf)
        if isinstance(leaf, jax.Array):
            return jnp.asarray(stored(name, leaf))
        if _is_torch(leaf):
            return _to_torch(stored(name, _from_torch(leaf)), leaf)
        if callable(leaf):
            return leaf
        if type(scalars.get(name)) is not type(leaf):
            raise StoreError(f"{name} should be a {type(leaf).__name__}, the file holds {scalars.get(name)!r}")
        return scalars[name]

    return jax.tree_util.tree_map_with_path(restore, template)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_torch(leaf: Any) -> bool:
    torch = sys.modules.get("torch")  # whoever holds a tensor has imported torch; nobody else has to
    return torch is not None and isinstance(leaf, torch.Tensor)


def _from_torch(tensor: Any) -> np.ndarray:
    """The numbers of a tensor; NumPy knows bfloat16 under another roof."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        return tensor.view(sys.modules["torch"].uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _to_torch(array: np.ndarray, like: Any) -> Any:
    """A tensor of its own with these numbers, of the type and on the device of `like`."""
    bits = array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array
    tensor = sys.modules["torch"].from_numpy(bits.copy())
    return (tensor.view(like.dtype) if bits is not array else tensor).to(like.device)


def pack_state(state: State, stored: int = 0) -> tuple[Arrays, Scalars]:
    """A whole `State`, without the first `stored` episodes of its data."""
    arrays, scalars = pack({"learner": state.learner, "output": state.output}, "")
    arrays |= {f"data.{name}": array[stored:] for name, array in state.data.arrays().items()}
    scalars |= {"key": hex(state.key.bits), "steps": state.steps, "ledger": state.ledger.as_dict()}
    return arrays, scalars


def unpack_state(template: State, arrays: Arrays, scalars: Scalars) -> State:
    """The state that was packed, given a fresh one of the same run."""
    data = {name.removeprefix("data."): array for name, array in arrays.items() if name.startswith("data.")}
    own = {"key", "steps", "ledger"}
    tree = unpack(
        {"learner": template.learner, "output": template.output},
        "",
        {name: array for name, array in arrays.items() if not name.startswith("data.")},
        {name: value for name, value in scalars.items() if name not in own},
    )
    try:
        key, steps = Key(int(scalars["key"], 16)), int(scalars["steps"])
        ledger = Ledger(**{**scalars["ledger"], "seconds": Seconds(**scalars["ledger"]["seconds"])})
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the checkpoint is of another version: {error!r}") from None
    if key != template.key:
        raise StoreError("the checkpoint belongs to another seed")
    dataset = Dataset(Measurements(**data)) if data else Dataset()
    return State(key, steps, ledger, dataset, tree["learner"], tree["output"])
