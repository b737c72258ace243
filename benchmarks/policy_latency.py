"""How long one call of a learned policy takes: `load_policy`, and the files that `purectrl export` writes.

    python benchmarks/policy_latency.py

Writes docs/results/policy_latency.json and prints it: microseconds per call with one state (median and 99th percentile, of
the fastest of several batches of calls), and seconds from the start of Python to the first control. The policies are those
of cartpole (mechanical, two hidden layers of 200) and of Pendulum-v1 (black-box, 128) with random weights, which cost
as much as learned ones.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
from page import write_result

from purectrl import problems
from purectrl.control.exploration import SmoothNoise
from purectrl.control.export import numpy_files, onnx_model, policy_network
from purectrl.control.policy import Actor, BehaviorPolicy
from purectrl.core import Plan
from purectrl.runs.export import jax_function
from purectrl.systems.spec import policy_function

BATCHES, CALLS = 15, 1000
"""Batches of calls; on a shared machine the fastest one shows the cost, and the others show the load."""
STARTS = 5
"""Starts of Python, of which the fastest counts."""
FIRST = {
    "numpy": "from policy import policy; u = policy(x)",
    "onnx": "import onnxruntime; s = onnxruntime.InferenceSession('policy.onnx'); u = s.run(None, {'x': [x]})[0]",
    "jax": "import jax.export, numpy; f = jax.export.deserialize(bytearray(open('policy.jax', 'rb').read())); "
    "u = numpy.asarray(jax.jit(f.call)(numpy.asarray([x], numpy.float32), numpy.float32(0.0)))",
}
"""The first control from each file, for a state x."""


def latency(policy: Callable[[np.ndarray], Any], states: np.ndarray) -> dict[str, float]:
    """Microseconds of a call."""
    policy(states[0])
    found = []
    for _ in range(BATCHES):
        seconds = []
        for x in states:
            start = time.perf_counter()
            policy(x)
            seconds.append(time.perf_counter() - start)
        found.append((1e6 * statistics.median(seconds), 1e6 * float(np.quantile(seconds, 0.99))))
    median, percentile = min(found)
    return {"median": median, "p99": percentile}


def first_control(to: str, folder: Path, x: np.ndarray) -> float:
    """Seconds from the start of Python to the first control."""
    code = f"x = {json.dumps(x.tolist())}; {FIRST[to]}"
    seconds = []
    for _ in range(STARTS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)  # noqa: S603
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(problem: Any, width: int) -> dict[str, Any]:
    """Latencies and starts of a policy of `problem` in every form."""
    generator = np.random.default_rng(0)
    actor = Actor.random(generator, problem.spec, (width, width))
    plan = Plan(BehaviorPolicy(actor, 1.0, np.ones(1, np.float32), SmoothNoise(problem.horizon)), None)
    network = policy_network(plan.policy)
    states = generator.normal(size=(CALLS, problem.spec.state_dim)).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        files = {**numpy_files(network, "policy"), "policy.onnx": onnx_model(network)}
        for name, content in (files | {"policy.jax": jax_function(problem, plan)}).items():
            (folder / name).write_bytes(content)
        sys.path.insert(0, directory)
        sys.modules.pop("policy", None)
        from policy import policy  # pyright: ignore[reportMissingImports] (just written)

        sys.path.remove(directory)
        session = onnxruntime.InferenceSession(folder / "policy.onnx")
        exported = jax.export.deserialize(bytearray((folder / "policy.jax").read_bytes()))
        call, zero = jax.jit(exported.call), np.float32(0.0)
        calls = {
            "numpy": policy,
            "onnx": lambda x: session.run(None, {"x": x[None]})[0][0],
            "jax": lambda x: np.asarray(call(x[None], zero))[0],
            "load_policy": policy_function(problem, plan),
        }
        found = {name: latency(function, states) for name, function in calls.items()}
        for name in FIRST:
            found[name]["first_control_seconds"] = first_control(name, folder, states[0])
    return found


if __name__ == "__main__":
    sizes = {"cartpole": (problems.cartpole(), 200), "Pendulum-v1": (problems.gymnasium("Pendulum-v1"), 128)}
    write_result("policy_latency", {name: measure(*size) for name, size in sizes.items()})
