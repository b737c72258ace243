"""A learned policy for use outside of this package: NumPy, ONNX.

Both contain the network of the actor without exploration noise, the features of the state, and the limits of the controls.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purectrl.control import numpy_policy
from purectrl.control.policy import Actor
from purectrl.core.errors import InputError, UnsupportedError

PLAIN, COSINE, SINE = range(3)
"""What a feature is of its coordinate."""
OPSET = 17
"""The version of ONNX's operators; ONNX Runtime supports it since 1.12."""
IR_VERSION = 8
"""The version of ONNX's file format that belongs to it."""


class PolicyNetwork(NamedTuple):
    """The network of a policy in NumPy arrays of single precision."""

    layers: list[tuple[np.ndarray, np.ndarray]]
    """Weights [inputs, outputs] and biases [outputs]; ReLU after all but the last."""
    scale: np.ndarray
    """What each feature is divided by [features]."""
    columns: np.ndarray
    """The coordinate behind each feature [features]."""
    kinds: np.ndarray
    """What each feature is of its coordinate [features]: itself, its cosine or its sine."""
    low: np.ndarray
    high: np.ndarray
    """The limits of each control [k]."""
    mid: np.ndarray
    half_range: np.ndarray
    """The middle and half the range of each control [k]."""

    @property
    def state_dim(self) -> int:
        """d."""
        return int(self.columns.max()) + 1

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        found = {name: value for name, value in self._asdict().items() if name != "layers"}
        for number, (weight, bias) in enumerate(self.layers):
            found |= {f"weight{number}": weight, f"bias{number}": bias}
        return found


def policy_network(policy: Any) -> PolicyNetwork:
    """The network behind a policy; raises `UnsupportedError` for policies that are not the actor of a control learner."""
    actor = getattr(policy, "actor", policy)
    if not isinstance(actor, Actor):
        raise UnsupportedError(
            f"to: a policy of type {type(policy).__name__} is not a network; numpy and onnx export the networks "
            "that enode and its variants learn; use jax, which exports any policy"
        )
    single = lambda values: np.asarray(values, np.float32)  # noqa: E731
    spec, columns, kinds = actor.spec, [], []
    for i in range(spec.state_dim):
        angle = i in spec.angles
        columns += [i, i] if angle else [i]
        kinds += [COSINE, SINE] if angle else [PLAIN]
    layers = [(single(layer.weight), single(layer.bias)) for layer in actor.layers]
    limits = spec.control_low, spec.control_high, spec.control_mid, spec.control_half_range
    return PolicyNetwork(layers, single(actor.scale), np.array(columns), np.array(kinds), *map(single, limits))


def numpy_files(network: PolicyNetwork, name: str) -> dict[str, bytes]:
    """The files NAME.py and NAME.npz of a policy in plain NumPy, which import neither JAX nor this package."""
    source = (
        Path(numpy_policy.__file__).read_text(encoding="utf-8").replace("from policy import", f"from {name} import")
    )
    source = source.replace("policy.py and policy.npz", f"{name}.py and {name}.npz")
    weights = io.BytesIO()
    np.savez(weights, allow_pickle=False, **network.arrays())
    last = '\n\npolicy = load(Path(__file__).with_suffix(".npz"))\n'
    return {f"{name}.py": (source + last).encode(), f"{name}.npz": weights.getvalue()}


def onnx_model(network: PolicyNetwork) -> bytes:
    """An ONNX model with the input `x` [batch, d] and the output `u` [batch, k], both float32."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise InputError("to: onnx needs the package onnx: `pip install -c constraints.txt '.[onnx]'`") from None
    constants, nodes = [], []

    def constant(name: str, value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"{kind.lower()}{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    parts = []
    for number, (column, kind) in enumerate(zip(network.columns, network.kinds, strict=True)):
        part = node("Gather", "x", constant(f"column{number}", np.array([column], np.int64)), axis=1)
        function = {COSINE: "Cos", SINE: "Sin"}.get(int(kind))
        parts.append(part if function is None else node(function, part))
    h = node("Div", node("Concat", *parts, axis=1), constant("scale", network.scale))
    for number, (weight, bias) in enumerate(network.layers):
        h = node("Relu", h) if number else h
        h = node("Gemm", h, constant(f"weight{number}", weight), constant(f"bias{number}", bias))
    u = node(
        "Add", node("Mul", node("Tanh", h), constant("half_range", network.half_range)), constant("mid", network.mid)
    )
    u = node("Min", node("Max", u, constant("low", network.low)), constant("high", network.high))
    nodes.append(helper.make_node("Identity", [u], ["u"]))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", network.state_dim])],
        [helper.make_tensor_value_info("u", TensorProto.FLOAT, ["batch", len(network.mid)])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="purectrl")
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    return model.SerializeToString()
