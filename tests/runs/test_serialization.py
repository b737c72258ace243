"""Every kind of leaf that a learner's state may hold comes back as it was, or is refused at once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from purectrl.core import StoreError
from purectrl.core.io import read_checksummed, write_checksummed
from purectrl.runs.serialization import pack, unpack


def network(seed):
    return eqx.nn.MLP(2, 1, 8, 2, activation=jax.nn.elu, key=jax.random.key(seed))


def state(seed):
    model = network(seed)
    return {
        "model": model,
        "optimiser": optax.adam(1e-3).init(eqx.filter(model, eqx.is_array)),
        "key": jax.random.key(seed),
        "half": jnp.full(3, seed, jnp.bfloat16),
        "scalar": np.float64(seed + 0.1),
        "number": seed + 0.1,
        "count": seed,
        "flag": bool(seed % 2),
        "name": f"run {seed}",
        "nothing": None,
        "loss": np.array([seed, np.inf]),
    }


def test_a_learner_with_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path):
    saved, template = state(7), state(2)
    arrays, scalars = pack(saved, "")
    write_checksummed(tmp_path / "x", arrays, scalars)
    restored = unpack(template, "", *read_checksummed(tmp_path / "x"))
    bits = lambda tree: [  # noqa: E731
        np.asarray(jax.random.key_data(leaf) if "key<" in str(getattr(leaf, "dtype", "")) else leaf)
        for leaf in jax.tree.leaves(tree)
        if not callable(leaf)
    ]
    for one, other in zip(bits(saved), bits(restored), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert jax.tree.structure(saved) == jax.tree.structure(restored)
    assert type(restored["scalar"]) is np.float64
    x = jnp.ones(2)
    assert np.array_equal(restored["model"](x), saved["model"](x))
    assert jax.random.uniform(restored["key"]) == jax.random.uniform(saved["key"])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"a": np.zeros(3)}, r"\['a'\] should be float64\[3\], the file holds float64\[2\]"),
        ({"a": np.zeros(2, np.float32)}, r"should be float32\[2\], the file holds float64\[2\]"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, r"\['b'\] should be float64\[2\], the file holds nothing"),
        ({}, r"the file holds \['a'\], which this version does not know"),
        ({"a": 1.0}, r"\['a'\] should be a float, the file holds None"),
    ],
)
def test_a_leaf_that_does_not_fit_is_named(template, message):
    with pytest.raises(StoreError, match=message):
        unpack(template, "", *pack({"a": np.zeros(2)}, ""))


def test_a_leaf_that_cannot_be_saved_is_named():
    with pytest.raises(StoreError, match=r"\['a'\] is a object: a state holds arrays, numbers and strings only"):
        pack({"a": object()}, "")


def test_torch_tensors_come_back_bit_for_bit_and_do_not_share_memory(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `diffusion` is not installed")
    kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool)
    make = lambda seed: {  # noqa: E731
        "weights": {f"layer.{kind}": (seed * torch.arange(-3, 4) / 7).to(kind) for kind in kinds},
        "scalar": torch.tensor(seed / 3),
        "strided": (seed * torch.arange(6.0)).reshape(2, 3).T,
        "array": np.full(2, seed),
    }
    saved, template = make(5), make(2)
    arrays, scalars = pack(saved, "")
    write_checksummed(tmp_path / "x", arrays, scalars)
    restored = unpack(template, "", *read_checksummed(tmp_path / "x"))
    assert jax.tree.structure(saved) == jax.tree.structure(restored)
    for one, other in zip(jax.tree.leaves(saved), jax.tree.leaves(restored), strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert (one == other).all()
    restored["scalar"].add_(1)
    assert template["scalar"].item() == pytest.approx(2 / 3)


def test_a_tensor_that_does_not_fit_is_named():
    torch = pytest.importorskip("torch", reason="the extra `diffusion` is not installed")
    with pytest.raises(StoreError, match=r"\['a'\] should be float32\[3\], the file holds float64\[2\]"):
        unpack({"a": torch.zeros(3)}, "", *pack({"a": np.zeros(2)}, ""))
