"""The Ornstein-Uhlenbeck experiment: its table against simulation, and runs that learn."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import left_by, stop_and_resume

from purectrl.core import InputError
from purectrl.experiments import Spec, run
from purectrl.experiments.config import OuConfig
from purectrl.experiments.ou import GOALS, MULTIPLIERS, rates, table
from purectrl.experiments.store import read_records
from purectrl.systems import ou as ou_system
from purectrl.systems.solvers import diffrax_solver

BOLD = {"measurements": 600, "radius_scale": 0.05}


def test_every_entry_of_the_table_agrees_with_simulation():
    """Own paths for every (u, κ) by a method of weak order 2: differences in standard errors are of size one."""
    config, paths = OuConfig(), 150
    places, weights = np.polynomial.legendre.leggauss(40)
    times = jnp.asarray(np.append(0.0, (places + 1) * config.horizon / 2), jnp.float32)
    solver = diffrax_solver(diffrax.ShARK(), substeps=5)

    def episode(key, rate, multiplier):
        drift = lambda x, u: ou_system.drift(multiplier, x, u)  # noqa: E731
        diffusion, act = (lambda x, u: jnp.float32(config.diffusion)), (lambda x: rate[None])
        path = solver(key, drift, diffusion, act, jnp.zeros(1), times)[1:]
        seen = jax.vmap(lambda x: jax.vmap(ou_system.reward, (0, None, None))(jnp.float32(GOALS), x, rate[None]))(path)
        return jnp.float32(weights * config.horizon / 2) @ seen

    def entry(member):
        values = jax.vmap(episode, (0, None, None))(*member)
        return values.mean(axis=0), values.std(axis=0) / np.sqrt(paths)

    members = [axis.ravel() for axis in np.meshgrid(np.float32(rates(config)), np.float32(MULTIPLIERS), indexing="ij")]
    keys = jax.random.split(jax.random.key(0), (81, paths))
    found = jax.jit(lambda members: jax.lax.map(entry, members))((keys, *members))
    mean, error = (np.asarray(array).reshape(9, 9, 9) for array in found)
    off = (mean - table(config)[:, 0]) / error
    assert np.abs(off).max() < 5
    assert np.sqrt(np.mean(off**2)) < 1.3


def test_the_quadrature_is_exact_to_rounding():
    decay = np.geomspace(0.01, 100.0, 30)[:, None]
    coarse, fine = (ou_system.value(decay, GOALS, 1.0, 4.0, nodes) for nodes in (64, 200))
    assert np.abs(coarse - fine).max() < 1e-6
    assert np.abs(coarse - fine)[decay.ravel() < 16].max() < 1e-12


def test_in_a_long_episode_the_value_is_that_of_the_stationary_law():
    """x is then N(0, 1/u), and E exp(−2 (x − goal)²) = exp(−2 goal² / a) / sqrt(a) with a = 1 + 4/u."""
    spread = 1 + 4 / 2.0
    stationary = np.exp(-2 * GOALS**2 / spread) / np.sqrt(spread)
    assert np.allclose(ou_system.value(2.0, GOALS, np.sqrt(2.0), 500.0, 200) / 500.0, stationary, rtol=0.01)


@pytest.mark.parametrize("algorithm", ["pure-base", "pure-low-switch", "pure-low-rollout"])
def test_a_run_learns(algorithm, tmp_path):
    summary = run(Spec.of("ou", algorithm, **BOLD), tmp_path / "run", quiet=True)
    records, metrics = read_records(tmp_path / "run"), summary["metrics"]
    gaps = np.repeat([record["gap"] for record in records], [record["episodes"] for record in records])
    assert metrics["optimum"] == table(OuConfig())[:, 0, 4, 5].max()
    assert gaps[0] > 0.3
    assert np.mean(gaps[-20:]) < 0.1


def test_a_run_resumes_bit_for_bit(tmp_path):
    spec = Spec.of("ou", "pure-low-switch", **BOLD)
    run(spec, tmp_path / "whole", quiet=True)
    stop_and_resume(spec, tmp_path / "part")
    assert left_by(tmp_path / "part") == left_by(tmp_path / "whole")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"u_min": 0.0}, "u_min: 0 < u_min < u_max must hold, not 0 and 4"),
        ({"u_min": 5.0}, "u_min: 0 < u_min < u_max must hold, not 5 and 4"),
        ({"steps": 7}, "steps: Euler-Maruyama is unstable with fewer than u_max · T / 2 = 8 steps"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        OuConfig(**settings).check()
