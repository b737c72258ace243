"""The cost of ENODE's released program: its solver, the counts of evaluations, and the multiplication of samples."""

import math
import runpy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def program():
    sys.path.insert(0, str(BENCHMARKS))
    yield runpy.run_path(str(BENCHMARKS / "against_enode.py"))
    sys.path.remove(str(BENCHMARKS))


def test_the_solver_is_as_accurate_as_asked_and_counts_its_evaluations(program):
    """x″ = −x, whose solution is (cos t, −sin t)."""
    calls = []

    def rate(t, x):
        calls.append(t)
        return torch.stack([x[..., 1], -x[..., 0]], dim=-1)

    times = [0.0, 0.5, 1.0, 2.0]
    found = program["integrate"](rate, torch.tensor([[1.0, 0.0]]), times)
    exact = torch.tensor([[math.cos(t), -math.sin(t)] for t in times])
    assert torch.allclose(found.states[:, 0], exact, atol=4e-3)
    assert len(calls) == found.evaluations == program["evaluations"](found.steps)


def test_gradients_flow_through_the_solver(program):
    """d/da exp(a) = exp(a)."""
    a = torch.tensor(0.3, requires_grad=True)
    end = program["integrate"](lambda t, x: a * x, torch.ones(1), [0.0, 1.0]).states[-1, 0]
    (slope,) = torch.autograd.grad(end, a)
    assert float(slope) == pytest.approx(math.exp(0.3), rel=3e-3)


def test_stiff_rates_cost_more_steps(program):
    steps = [program["integrate"](lambda t, x, k=k: -k * x, torch.ones(1), [0.0, 2.0]).steps for k in (1.0, 30.0)]
    assert steps[1] > 2 * steps[0]


def test_samples_are_multiplied_by_the_number_of_steps(program):
    """500 steps of matching, then in 4 rounds 1,250 steps of the fit and 250 of the policy."""
    cost = program["Cost"]
    match, fit, improve = cost(500, 5.0, 4.0, 0, 500), cost(40, 2.0, 1.0, 80, 560), cost(8, 4.0, 3.0, 80, 496)
    found = program["whole"](match, fit, improve)
    assert found == cost(500 + 5000 + 1000, 5 + 250 + 500, 4 + 125 + 375, 10_000 + 10_000, 500 + 70_000 + 62_000)


def test_a_sample_counts_what_it_evaluates(program):
    """Every step of the fit integrates once; the ensemble is evaluated for each stage."""
    reference = program["Reference"]()
    calls = []
    reference.model.register_forward_hook(lambda *_: calls.append(1))
    found = reference.fit(2)
    warm_up = len(calls) - found.evaluations
    assert found.steps == 2
    assert found.evaluations == 2 * 2 + 6 * found.solver_steps
    assert warm_up >= 2 + 6  # one step that is not counted
