"""Policies as files that can be used without this package."""

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from purectrl.core.errors import InputError, UnsupportedError, require
from purectrl.core.io import write_atomically
from purectrl.core.plan import Plan
from purectrl.core.problem import Problem
from purectrl.runs.runner import learned

ExportFormat = Literal["numpy", "onnx", "jax"]
SUFFIXES = {"numpy": ".py", "onnx": ".onnx", "jax": ".jax"}
"""How the file of each format ends."""
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""The platforms that an exported JAX function runs on."""


def export_policy(
    out: Path,
    to: ExportFormat,
    update: int | None = None,
    file: Path | None = None,
    trust: bool = False,
    problem: Problem | None = None,
) -> list[Path]:
    """Writes a policy of the run in `out`; see `purectrl.export`."""
    require(to in get_args(ExportFormat), f"to: must be one of {', '.join(SUFFIXES)}, not {to!r:.60}")
    if file is None:
        file = out / "policy" / f"policy{SUFFIXES[to]}"
    require(file.suffix == SUFFIXES[to], f"out: {file.name!r} must end with {SUFFIXES[to]}")
    require(
        to != "numpy" or file.stem.isidentifier(), f"out: {file.stem!r} cannot be imported; use letters, digits and _"
    )
    found, plan = learned(out, trust, problem, update)
    if found.kind != "states":
        raise UnsupportedError(f"export: {found.name} has no states, so its policy is not a function of a state")
    contents = _contents(to, found, plan, file.stem)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out: {file.parent} cannot be used: {error.strerror}") from None
    for name, content in contents.items():
        write_atomically(file.parent / name, content)
    return [file.parent / name for name in contents]


def _contents(to: ExportFormat, problem: Problem, plan: Plan, name: str) -> dict[str, bytes]:
    """The files by name."""
    if to == "jax":
        return {f"{name}.jax": jax_function(problem, plan)}
    from purectrl.control.export import numpy_files, onnx_model, policy_network

    network = policy_network(plan.policy)
    return numpy_files(network, name) if to == "numpy" else {f"{name}.onnx": onnx_model(network)}


def jax_function(problem: Any, plan: Plan) -> bytes:
    """A serialized function (x float32 [batch, d], t float32 []) -> u float32 [batch, k] for `jax.export.deserialize`."""
    import jax
    import jax.export
    import jax.numpy as jnp

    spec = problem.spec
    low, high = np.asarray((spec.control_low, spec.control_high), np.float32)
    one = lambda x, t: jnp.clip(plan.policy(x, t), low, high)  # noqa: E731
    (batch,) = jax.export.symbolic_shape("batch")
    x, t = jax.ShapeDtypeStruct((batch, spec.state_dim), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)
    exported = jax.export.export(jax.jit(jax.vmap(one, (0, None))), platforms=PLATFORMS)(x, t)
    return bytes(exported.serialize())
