"""The families of mechanical models: what they share, what each is by its definition, and the noise that any may learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_cart import DAMPING, SPRING, cart, measured, rows

from purectrl.control.ensembles import BatchEnsemble, Ensemble, Factors, Implicit, Nodes, learned_noise, noise_info
from purectrl.control.fit import fit_ensemble
from purectrl.control.integrate import midpoint
from purectrl.control.networks import Layer, mlp
from purectrl.control.trajectories import (
    Pairs,
    TrajectoryLoss,
    evidence_loss,
    noise_loss,
    scales,
    sequences,
    trajectory_loss,
)
from purectrl.core import Measurements
from purectrl.systems.acrobot import acrobot
from purectrl.systems.pendulum import pendulum

SMALL = (16, 16)
FAMILIES = [Ensemble, BatchEnsemble, Implicit]
every_family = pytest.mark.parametrize("family", FAMILIES)


def untrained(family, system, members=3, seed=0):
    """Random biases, too, so that they are seen to be used."""
    generator = np.random.default_rng(seed)
    model = family.random(generator, system, members, SMALL)
    biases = [jnp.asarray(generator.normal(size=layer.bias.shape), jnp.float32) for layer in model.layers]
    return eqx.tree_at(lambda m: [layer.bias for layer in m.layers], model, biases)


def equal(one, other):
    return all(np.array_equal(*pair) for pair in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@every_family
@pytest.mark.parametrize("members", [1, 4])
def test_every_member_is_a_function_of_its_own_rows(family, members):
    arm = acrobot()
    model = untrained(family, arm, members)
    x, u = rows(arm, members, 5)
    found = model.drift(x, u)
    assert model.members == members
    assert found.shape == (members, 5, 4)
    assert np.array_equal(found[..., :2], x[..., 2:])
    moved = model.drift(x.copy() + (np.arange(members) == 0)[:, None, None], u)
    assert np.array_equal(np.any(moved != found, axis=(1, 2)), np.arange(members) == 0)


@every_family
def test_members_differ_and_can_be_selected(family):
    arm = acrobot()
    model = untrained(family, arm)
    x, u = (np.broadcast_to(array[:1], array.shape) for array in rows(arm, 3, 5))
    whole = model.drift(x, u)
    assert not np.allclose(whole[0], whole[1])
    selected = model.select_members(jnp.array([2, 0]))
    assert selected.members == 2
    assert np.allclose(selected.drift(x[:2], u[:2]), whole[jnp.array([2, 0])], atol=1e-5)


@every_family
def test_rescaling_keeps_the_function(family):
    arm, generator = acrobot(), np.random.default_rng(2)
    model = untrained(family, arm)
    x, u = rows(arm, 3, 5)
    new = [jnp.asarray(generator.uniform(0.3, 30, size), jnp.float32) for size in (arm.feature_dim, arm.nq)]
    other = model.rescale(*new)
    assert equal((other.feature_scale, other.acceleration_scale), new)
    assert np.allclose(other.drift(x, u), model.drift(x, u), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("members", [1, 3])
def test_a_batch_ensemble_is_the_ensemble_of_its_products(members):
    arm = acrobot()
    model = untrained(BatchEnsemble, arm, members)
    layers = tuple(
        Layer(layer.weight * jnp.swapaxes(factor.before, 1, 2) * factor.after, layer.bias)
        for layer, factor in zip(model.layers, model.factors, strict=True)
    )
    x, u = rows(arm, members, 5)
    ensemble = Ensemble(layers, model.feature_scale, model.acceleration_scale, arm)
    assert np.allclose(model.drift(x, u), ensemble.drift(x, u), rtol=1e-4, atol=1e-4)


def test_a_batch_ensemble_with_factors_of_one_is_one_network():
    arm = acrobot()
    model = BatchEnsemble.random(np.random.default_rng(0), arm, 3, SMALL)
    ones = tuple(Factors(*map(jnp.ones_like, factor)) for factor in model.factors)
    model = eqx.tree_at(lambda m: m.factors, model, ones)
    inputs = np.random.default_rng(1).normal(size=(3, 5, arm.feature_dim + arm.control_dim)).astype(np.float32)
    shared = [Layer(layer.weight, layer.bias[0]) for layer in model.layers]
    assert np.allclose(model.network(inputs), mlp(shared, inputs, jax.nn.elu), atol=1e-5)


def silent(model):
    """Without noise: z = 1."""
    still = [Nodes(jnp.ones_like(n.mean), jnp.full_like(n.log_std, -jnp.inf), n.noise) for n in model.nodes]
    return eqx.tree_at(lambda m: m.nodes, model, tuple(still))


@pytest.mark.parametrize("members", [1, 3])
def test_an_implicit_network_without_noise_is_one_network(members):
    arm = acrobot()
    model = silent(untrained(Implicit, arm, members))
    inputs = np.random.default_rng(1).normal(size=(members, 5, arm.feature_dim + arm.control_dim)).astype(np.float32)
    expected = mlp(model.layers, inputs, jax.nn.elu)
    assert np.allclose(model.network(inputs), expected, atol=1e-5)
    assert np.array_equal(model.resample_latents(jax.random.key(3)).network(inputs), model.network(inputs))


def test_latent_noise_has_its_distribution_and_comes_from_the_key_alone():
    nodes = Nodes(jnp.full((2, 1, 20_000), 1.5), jnp.full((2, 1, 20_000), np.log(0.3)), jnp.zeros((2, 1, 20_000)))
    model = eqx.tree_at(lambda m: m.nodes, untrained(Implicit, cart(), 2), (nodes,))
    one, same, other = (model.resample_latents(jax.random.key(seed)).nodes[0].factors for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert abs(np.corrcoef(np.ravel(one), np.ravel(other))[0, 1]) < 0.03
    assert abs(np.corrcoef(one[0, 0], one[1, 0])[0, 1]) < 0.03
    assert one.mean() == pytest.approx(1.5, abs=0.01)
    assert one.std() == pytest.approx(0.3, rel=0.02)


@pytest.mark.parametrize(("mean", "std", "prior_std"), [(1.3, 0.2, 1.0), (0.1, 2.0, 0.7), (1.0, 0.5, 0.5)])
def test_the_kl_divergence_is_the_integral_that_defines_it(mean, std, prior_std):
    z = np.linspace(mean - 12 * std, mean + 12 * std, 20_001)
    log = lambda m, s: -((z - m) ** 2) / (2 * s**2) - np.log(s)  # noqa: E731
    q = np.exp(log(mean, std)) / np.sqrt(2 * np.pi)
    expected = np.trapezoid(q * (log(mean, std) - log(1.0, prior_std)), z)
    nodes = Nodes(*(jnp.full((2, 1, 3), value) for value in (mean, np.log(std), 0.0)))
    assert nodes.kl(prior_std) == pytest.approx(6 * expected, rel=1e-4, abs=1e-5)


def batch(system, members, length=4):
    seen = measured(system, episodes=8, m=length, generator=np.random.default_rng(1))
    gaps = np.diff(seen.t, axis=1, append=0.0).astype(np.float32)[..., None]
    lead = lambda array: jnp.broadcast_to(  # noqa: E731
        np.moveaxis(array, 1, 0)[:, None], (length, members, 8, array.shape[-1])
    )
    return lead(seen.x), lead(seen.u), lead(gaps)


@every_family
def test_the_prior_counts_once_for_all_measured_numbers(family):
    objective, arrays = TrajectoryLoss(midpoint, 4, 8, 0.1), batch(cart(), 3)
    model = untrained(family, cart())
    prior = float(model.kl())
    assert prior > 100 if family is Implicit else prior == 0
    plain = float(trajectory_loss(objective, model, *arrays))
    loss = float(evidence_loss(objective, model, *arrays, numbers=500))
    assert loss - plain == pytest.approx(2 * 0.1**2 * prior / 500, rel=1e-3, abs=0)
    noisy = learned_noise(lambda *_: model)(np.random.default_rng(0), cart(), 3, SMALL)
    plain = float(noise_loss(objective, noisy, noisy.log_noise, *arrays))
    loss = float(evidence_loss(objective, noisy, *arrays, numbers=500))
    assert loss - plain == pytest.approx(prior / 500, rel=1e-3, abs=0)


def test_what_is_not_to_be_trained_has_no_gradient():
    model = untrained(Implicit, cart())
    objective = TrajectoryLoss(midpoint, 4, 8, 0.1)
    slope = jax.grad(lambda m: evidence_loss(objective, m, *batch(cart(), 3), numbers=500))(model)
    for nodes in slope.nodes:
        assert not nodes.noise.any()
        assert nodes.mean.all()
        assert nodes.log_std.all()
    assert not slope.feature_scale.any()


@pytest.fixture(scope="module")
def swings():
    """Two independent sets of short trajectories of the pendulum."""
    return [measured(pendulum(), 24, 12, np.random.default_rng(seed), substeps=5) for seed in (0, 1)]


@every_family
def test_a_fit_explains_trajectories_that_it_has_not_seen(family, swings):
    seen, unseen = swings
    model = family.random(np.random.default_rng(0), pendulum(), 2, (32, 32))
    model = model.rescale(*map(jnp.asarray, scales(pendulum(), seen, Pairs(0.15))))
    objective = TrajectoryLoss(midpoint, sequence_length=4, batch_size=32, step=0.1)

    def held_out(model):
        data = sequences(unseen, 4, Pairs(0.15), 320)
        at = data.starts[: data.size] + np.arange(4)[:, None]
        arrays = (np.broadcast_to(a[at][:, None], (4, 2, at.shape[1], a.shape[-1])) for a in data[:3])
        return trajectory_loss(objective, model, *arrays) / 2

    fitted, _ = fit_ensemble(objective, model, jax.random.key(0), sequences(seen, 4, Pairs(0.15), 320), 400, 5e-3, 1e-4)
    assert held_out(fitted) < held_out(model) / 20


def test_the_likelihood_is_largest_where_the_noise_is_the_root_mean_square_of_the_errors():
    arrays, model = batch(cart(), 3), untrained(Ensemble, cart())
    still = eqx.tree_at(lambda m: m.acceleration_scale, model, jnp.zeros(1))
    errors = jnp.ones((3, 3, 8, 2)) * jnp.array([0.5, 2.0]) * jnp.where(jnp.arange(8) % 2, 1.0, 1.5)[:, None]
    start = arrays[0][:1].at[..., 1].set(0.0)
    x = jnp.concatenate([start, start + errors])
    slope = jax.grad(
        lambda log_noise: noise_loss(TrajectoryLoss(midpoint, 4, 8, 0.1), still, log_noise, x, *arrays[1:])
    )
    rms = jnp.sqrt((errors**2).mean(axis=(0, 1, 2)))
    assert np.allclose(slope(jnp.log(rms)), 0.0, atol=1e-5)
    assert (slope(jnp.log(1.1 * rms)) > 0.1).all()
    assert (slope(jnp.log(0.9 * rms)) < -0.1).all()


def test_the_noise_of_measurements_is_learned():
    """Of a linear system, the error of a prediction over the gap h has the covariance S + A S Aᵀ with A = e^(Fh): the state
    that it starts from is measured, too."""
    std = np.array([0.01, 0.04])
    seen = measured(cart(), episodes=40, m=25, generator=np.random.default_rng(0))
    error = std * np.random.default_rng(1).normal(size=seen.x.shape)
    noisy = Measurements(seen.t, (seen.x + error).astype(np.float32), seen.u)
    model = learned_noise(Ensemble.random)(np.random.default_rng(0), cart(), 2, (16,))
    model = model.rescale(*map(jnp.asarray, scales(cart(), noisy, Pairs(0.15))))
    data = sequences(noisy, length=2, pairs=Pairs(0.15), capacity=1000)
    fitted, _ = fit_ensemble(TrajectoryLoss(midpoint, 2, 128, 0.1), model, jax.random.key(0), data, 600, 5e-3, 1e-4)
    flow = jax.vmap(jax.scipy.linalg.expm)(np.diff(seen.t).reshape(-1, 1, 1) * np.array([[0, 1], [SPRING, DAMPING]]))
    expected = np.sqrt(std**2 + (flow**2 @ std**2).mean(axis=0))
    assert noise_info(fitted)["noise"] == pytest.approx(expected, rel=0.06)
    assert noise_info(untrained(Ensemble, cart())) == {}
