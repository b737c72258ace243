"""A run's state as arrays and JSON, and back.

The structure comes from code and the values from the file: a state is restored into the structure of a new one, leaf by
leaf, and every leaf that does not fit is reported. The content of a file never decides what is constructed.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from purectrl.core.errors import MeasurementError, StoreError
from purectrl.core.learner import RestorationCheck, State
from purectrl.core.ledger import LARGEST_COUNT, Ledger
from purectrl.core.loop import Loop
from purectrl.core.measurement import NAMES, Dataset, Measurements
from purectrl.core.problem import Problem

LARGEST_SUM = 1e150
"""Sums of rewards are squared, which must not overflow."""
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
            data = jnp.asarray(stored(name, jax.random.key_data(leaf)))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
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
        return _scalar(name, scalars.get(name), leaf)

    return jax.tree_util.tree_map_with_path(restore, template)


def _scalar(name: str, found: Any, like: Any) -> Any:
    """A number or string of the type of `like`; a count, which starts at zero or above, must not be negative."""
    if type(found) is not type(like):
        raise StoreError(f"{name} should be a {type(like).__name__}, the file holds {found!r:.60}")
    if type(like) is int and not (0 if like >= 0 else -LARGEST_COUNT) <= found < LARGEST_COUNT:
        raise StoreError(f"{name} is {found!r:.60}, which is not a count")
    return found


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_torch(leaf: Any) -> bool:
    torch = sys.modules.get("torch")  # a tensor exists only if torch has been imported
    return torch is not None and isinstance(leaf, torch.Tensor)


def _from_torch(tensor: Any) -> np.ndarray:
    """The values of a tensor; NumPy has bfloat16 only through ml_dtypes."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        return tensor.view(sys.modules["torch"].uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _to_torch(array: np.ndarray, like: Any) -> Any:
    """A new tensor with these values, of the type and on the device of `like`."""
    bits = array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array
    tensor = sys.modules["torch"].from_numpy(bits.copy())
    return (tensor.view(like.dtype) if bits is not array else tensor).to(like.device)


def pack_state(state: State, stored: int = 0) -> tuple[Arrays, Scalars]:
    """A whole `State`, without the first `stored` episodes of its data, which are in data shards."""
    arrays, scalars = pack({"learner": state.learner, "output": state.output}, "")
    arrays |= {f"data.{name}": array[stored:] for name, array in state.data.arrays().items()}
    scalars |= {"key": hex(state.key.bits), "steps": state.steps, "ledger": state.ledger.as_dict()}
    return arrays, scalars


def unpack_state(template: State, arrays: Arrays, scalars: Scalars) -> State:
    """The state that was packed, given a new one of the same run."""
    data = {name.removeprefix("data."): array for name, array in arrays.items() if name.startswith("data.")}
    own = {"key", "steps", "ledger"}
    tree = unpack(
        {"learner": template.learner, "output": template.output},
        "",
        {name: array for name, array in arrays.items() if not name.startswith("data.")},
        {name: value for name, value in scalars.items() if name not in own},
    )
    if scalars.get("key") != hex(template.key.bits):
        raise StoreError("the checkpoint belongs to another seed")
    ledger = scalars.get("ledger")
    if not isinstance(ledger, dict):
        raise StoreError("the checkpoint has no ledger")
    state = State(
        template.key,
        _scalar("steps", scalars.get("steps"), 0),
        Ledger.from_dict(ledger),
        _dataset(data),
        tree["learner"],
        tree["output"],
    )
    _check_counts(state, template.data)
    return state


def _dataset(arrays: Arrays) -> Dataset:
    """The data set with these arrays; raises unless they are finite numbers whose shapes agree."""
    if not arrays:
        return Dataset()
    if not {"t", "x", "u"} <= arrays.keys() <= set(NAMES):
        raise StoreError(
            f"its measurements have the fields {', '.join(sorted(arrays))!s:.60}, expected t, x, u, y, r, count, final"
        )
    for name, array in arrays.items():
        if array.dtype.kind != ("i" if name == "count" else "f"):
            expected = "integers" if name == "count" else "floating-point numbers"
            raise StoreError(f"its measurements {name} are {array.dtype}, expected {expected}")
    try:
        block = Measurements(**arrays)
        block.check()
    except MeasurementError as error:
        raise StoreError(f"its measurements are damaged: {error}") from None
    if not arrays["t"].size:
        raise StoreError("its measurements are empty")
    return Dataset(block)


def _measured(data: Dataset, logs: Dataset) -> tuple[int, int]:
    """How many episodes and measurements a run has added to the logs with which its data begin."""
    counts = [(one.episodes, one.all.total) if one.episodes else (0, 0) for one in (data, logs)]
    return counts[0][0] - counts[1][0], counts[0][1] - counts[1][1]


def _check_counts(state: State, logs: Dataset) -> None:
    """Raises unless the ledger and the number of steps agree with the data, which begin with `logs`."""
    ledger, measured = state.ledger, _measured(state.data, logs)
    if (ledger.rollouts, ledger.measurements) != measured:
        raise StoreError(
            f"its ledger counts {ledger.measurements} measurements in {ledger.rollouts} rollouts, its data have "
            f"{measured[1]} in {measured[0]}"
        )
    if not ledger.updates <= state.steps <= ledger.rollouts:
        raise StoreError(
            f"it counts {ledger.updates} updates in {state.steps} steps with {ledger.rollouts} rollouts: at most one update "
            "follows each step, and each step has at least one rollout"
        )


def check_restored(problem: Problem, loop: Loop, state: State) -> None:
    """Raises `StoreError` unless a state from a file is within the budget and can be one of this problem and learner."""
    budget, ledger, m = loop.oracle.budget, state.ledger, loop.sampler.m
    _, taken = _measured(state.data, Dataset(loop.first))
    if budget.episodes_left(ledger, m) < 0 or ledger.measurements != taken or taken > ledger.rollouts * m:
        raise StoreError(
            f"its ledger counts {ledger.measurements} measurements in {ledger.rollouts} rollouts, which is impossible with "
            f"m = {m} and a budget of {budget.measurements}"
        )
    sums = (state.output.total, state.output.all_total, state.output.all_squares)
    if not all(abs(total) < LARGEST_SUM for total in sums) or not state.output.best_score < LARGEST_SUM:
        raise StoreError(f"its sums of rewards are {sums}, expected finite numbers")
    if state.data.episodes:
        problem.check_data(state.data.all)
    if isinstance(loop.learner, RestorationCheck):
        loop.learner.check_state(state.learner, state.data)
        for plan in (state.output.plan, state.output.best):
            loop.learner.check_plan(plan)
