"""Our time to a solved Pendulum beside the cost of the program that the authors of ENODE released, as a ratio.

    python benchmarks/against_enode.py [--seeds 100 101 102]

Writes docs/results/against_enode.json and prints it. The reference is written here from its settings, as batched PyTorch
operations, and not run to its end: of the steps that it makes until Pendulum is solved, a sample is timed and multiplied by
their number. What is counted is what the settings demand at least: evaluations of the networks, forwards and backwards, in
steps of an adaptive solver, and Adam. Interpolation of controls by kernels, plots, files and tests are left out.

symbol   here                          in the reference
-------  ----------------------------  ---------------------------------------------------------------------------------
f        Ensemble                      five networks (x, u) -> dx/dt with three hidden layers of 200
π, V     Reference.policy, .critic     networks with two hidden layers of 200
         Reference.match               before the first fit, 500 steps on difference quotients of all measurements
         Reference.fit                 1,250 steps per round on sequences of five measurements, three of each episode
         Reference.improve             250 steps per round on 100 rollouts of 2 s per member, each with ten steps of V

Our side is the whole process: start of Python, compiling, the run until it ends by itself with a solved problem, its files.
"""

import argparse
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from page import write_result
from torch import Tensor, nn

ROUNDS = 4
"""The reference solves Pendulum in its fourth round."""
EPISODES = (3, 4, 5, 6)
"""Episodes in its data at each round: three, and one more after each round."""
POINTS, STEP = 50, 0.1
"""Measurements per episode, and seconds between two of them."""
MEMBERS, WIDTH = 5, 200
MATCHING_STEPS, FIT_STEPS, POLICY_STEPS, CRITIC_STEPS = 500, 1250, 250, 10
SEQUENCES, LENGTH = 3, 5
"""Sequences per episode in a step of the fit, and measurements in each."""
ROLLOUTS, HORIZON, DISCOUNT = 100, 2.0, 5.0
"""Rollouts of each member in a step of the policy, their length and the time constant of the discount, in seconds."""
RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Tolerances of the solver."""
STAGES = 6
"""Evaluations in a step of Dormand and Prince's method: the seventh is the first of the next step."""
FIT_SAMPLE, POLICY_SAMPLE = 40, 8
"""Steps that are timed."""

NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
WEIGHTS = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""Dormand and Prince's method of order five; the last row is the step itself."""
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""Its difference from the embedded method of order four."""

Rate = Callable[[float, Tensor], Tensor]
"""(t, x) -> dx/dt, of any shape."""


class Solution(NamedTuple):
    """States at the times that were asked for, and what they cost."""

    states: Tensor
    """[times, ...]."""
    steps: int
    """Steps of the solver, rejected ones included."""
    evaluations: int


def evaluations(steps: int) -> int:
    """Evaluations in an integration: two to choose the first step, then six per step.

    >>> evaluations(10)
    62
    """
    return 2 + STAGES * steps


def combine(factors: Sequence[float], rates: Sequence[Tensor]) -> Tensor:
    """The weighted sum of rates."""
    first, *others = (factor * rate for factor, rate in zip(factors, rates, strict=True) if factor)
    return sum(others, first)


def integrate(rate: Rate, x: Tensor, times: Sequence[float]) -> Solution:
    """Adaptive steps from times[0] on, one for all rows; states between their ends by Hermite's cubic polynomials."""
    t, end = times[0], times[-1]
    slope = rate(t, x)
    h = _first_step(rate, t, x, slope)
    found, steps = [x], 0
    while len(found) < len(times):
        rates, new = [slope], x
        for node, weights in zip(NODES, WEIGHTS, strict=True):
            new = x + h * combine(weights, rates)
            rates.append(rate(t + node * h, new))
        steps += 1
        error = _size(h * combine(ERROR, rates), torch.maximum(x.abs(), new.abs()))
        factor = min(10.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.2))
        if error <= 1:
            while len(found) < len(times) and times[len(found)] <= t + h + 1e-9:
                found.append(_between(x, slope, new, rates[-1], h, (times[len(found)] - t) / h))
            t, x, slope = t + h, new, rates[-1]
        h = min(h * factor, max(end - t, 1e-6))
    return Solution(torch.stack(found), steps, evaluations(steps))


def _size(error: Tensor, x: Tensor) -> float:
    """The root mean square of an error in units of the tolerance."""
    return float((error / (ABSOLUTE + RELATIVE * x)).detach().square().mean().sqrt())


def _first_step(rate: Rate, t: float, x: Tensor, slope: Tensor) -> float:
    """The first step as Hairer, Nørsett and Wanner choose it."""
    first = 0.01 * _size(x, x.abs()) / max(_size(slope, x.abs()), 1e-10)
    with torch.no_grad():
        second = _size(rate(t + first, x + first * slope) - slope, x.abs()) / first
    return min(100 * first, (0.01 / max(second, _size(slope, x.abs()), 1e-10)) ** 0.2)


def _between(x: Tensor, slope: Tensor, new: Tensor, last: Tensor, h: float, s: float) -> Tensor:
    """The state a share s of the step after its beginning."""
    change = new - x
    curve = (1 - 2 * s) * change + (s - 1) * h * slope + s * h * last
    return x + s * change + s * (s - 1) * curve


class Ensemble(nn.Module):
    """Networks with ELU, one per member, as batched products."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        sizes = (inputs, WIDTH, WIDTH, WIDTH, outputs)
        make = lambda *shape: nn.Parameter(torch.randn(*shape) / shape[-2] ** 0.5)  # noqa: E731
        self.weights = nn.ParameterList(make(MEMBERS, a, b) for a, b in itertools.pairwise(sizes))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(MEMBERS, 1, size)) for size in sizes[1:])

    def forward(self, x: Tensor) -> Tensor:
        """x [members, rows, inputs] -> [members, rows, outputs]."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, nn.functional.elu(x) if i else x, weight)
        return x


def network(outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    """Two hidden layers on the three coordinates of an observation."""
    return nn.Sequential(
        nn.Linear(3, WIDTH), activation(), nn.Linear(WIDTH, WIDTH), activation(), nn.Linear(WIDTH, outputs)
    )


def pendulum(x: Tensor, u: Tensor) -> Tensor:
    """d(cos θ, sin θ, v)/dt of the reference's pendulum; θ = 0 is upright."""
    cosine, sine, v = x.unbind(-1)
    return torch.stack([-sine * v, cosine * v, 15 * sine + 3 * u[..., 0]], dim=-1)


def reward(x: Tensor, u: Tensor) -> Tensor:
    """Its reward."""
    cosine, sine, v = x.unbind(-1)
    return torch.exp(-((1 - cosine) ** 2) - sine**2 - 0.01 * v**2) - 0.01 * u[..., 0] ** 2


def random_episodes(count: int) -> tuple[Tensor, Tensor]:
    """Observations [count, points, 3] and controls [count, points, 1] under smooth random controls."""
    angle, phase, pace = (torch.rand(count) for _ in range(3))
    start = torch.stack([torch.cos(6.28 * angle), torch.sin(6.28 * angle), 6 * torch.rand(count) - 3], dim=-1)
    control = lambda t: 2 * torch.sin((1 + 4 * pace) * t + 6.28 * phase)[:, None]  # noqa: E731
    times = [STEP * i for i in range(POINTS)]
    path = integrate(lambda t, x: pendulum(x, control(t)), start, times).states
    return path.transpose(0, 1), torch.stack([control(t) for t in times], dim=1)


class Cost(NamedTuple):
    """What a sample of steps took."""

    steps: int
    seconds: float
    cpu_seconds: float
    solver_steps: int
    evaluations: int

    def of(self, steps: int) -> "Cost":
        """The same for another number of steps."""
        share = steps / self.steps
        counts = round(share * self.solver_steps), round(share * self.evaluations)
        return Cost(steps, share * self.seconds, share * self.cpu_seconds, *counts)

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        steps, seconds = self.steps + other.steps, self.seconds + other.seconds
        counts = self.solver_steps + other.solver_steps, self.evaluations + other.evaluations
        return Cost(steps, seconds, self.cpu_seconds + other.cpu_seconds, *counts)


class Reference:
    """The steps of the reference on data of a pendulum."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        with torch.no_grad():
            self.x, self.u = random_episodes(max(EPISODES))
        self.model, self.policy, self.critic = Ensemble(4, 3), network(1, nn.ReLU), network(1, nn.Tanh)
        adam = lambda module, rate: torch.optim.Adam(module.parameters(), rate)  # noqa: E731
        self.optimizers = adam(self.model, 1e-3), adam(self.policy, 1e-3), adam(self.critic, 1e-3)

    def match(self, steps: int) -> Cost:
        """Steps on difference quotients of the first episodes."""
        x, u = self.x[: EPISODES[0]], self.u[: EPISODES[0]]
        inputs = torch.cat([x[:, :-1], u[:, :-1]], dim=-1).reshape(1, -1, 4).expand(MEMBERS, -1, -1)
        quotients = (x.diff(dim=1) / STEP).reshape(-1, 3)
        optimizer = torch.optim.Adam(self.model.parameters(), 5e-3)

        def step(_: int) -> tuple[int, int]:
            _minimize(optimizer, ((self.model(inputs) - quotients) ** 2).sum())
            return 0, 1

        return _timed(step, steps)

    def fit(self, steps: int) -> Cost:
        """Steps of the fit, with as many episodes as at each of the rounds in turn."""

        def step(i: int) -> tuple[int, int]:
            episodes = torch.arange(EPISODES[i % ROUNDS]).repeat(SEQUENCES)[:, None]
            places = torch.randint(POINTS - LENGTH + 1, episodes.shape) + torch.arange(LENGTH)
            x, u = self.x[episodes, places], self.u[episodes, places]
            times = [STEP * k for k in range(LENGTH)]

            def rate(t: float, now: Tensor) -> Tensor:
                k = min(int(t / STEP), LENGTH - 2)
                control = torch.lerp(u[:, k], u[:, k + 1], t / STEP - k)
                return self.model(torch.cat([now, control.expand(MEMBERS, -1, -1)], dim=-1))

            found = integrate(rate, x[:, 0].expand(MEMBERS, -1, -1), times)
            _minimize(self.optimizers[0], ((found.states - x.transpose(0, 1)[:, None]) ** 2).sum())
            return found.steps, found.evaluations

        return _timed(step, steps)

    def improve(self, steps: int) -> Cost:
        """Steps of the policy, with those of the critic."""
        times = [STEP * k for k in range(round(HORIZON / STEP))]
        weights = torch.exp(-torch.tensor(times) / DISCOUNT)[:, None, None]

        def step(_: int) -> tuple[int, int]:
            start = self.x.reshape(-1, 3)[torch.randint(self.x[..., 0].numel(), (ROLLOUTS,))]
            target = network(1, nn.Tanh)
            target.load_state_dict(self.critic.state_dict())

            def rate(t: float, now: Tensor) -> Tensor:
                x, u = now[..., :3], 2 * torch.tanh(self.policy(now[..., :3]))
                gain = math.exp(-t / DISCOUNT) * reward(x, u)
                return torch.cat([self.model(torch.cat([x, u], dim=-1)), gain[..., None]], dim=-1)

            begin = torch.cat([start, torch.zeros(ROLLOUTS, 1)], dim=-1).expand(MEMBERS, -1, -1)
            found = integrate(rate, begin, times)
            x, earned = found.states[1:, ..., :3], found.states[1:, ..., 3]
            _minimize(self.optimizers[1], -(earned + weights[1:] * self.critic(x)[..., 0]).mean())
            with torch.no_grad():
                values = (earned + weights[1:] * target(x)[..., 0]).mean(dim=(0, 1))
            for _ in range(CRITIC_STEPS):
                _minimize(self.optimizers[2], ((self.critic(start)[:, 0] - values) ** 2).mean())
            return found.steps, found.evaluations

        return _timed(step, steps)


def _minimize(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _timed(step: Callable[[int], tuple[int, int]], steps: int) -> Cost:
    """Steps that return how many steps of the solver and evaluations of f they made."""
    step(0)  # what PyTorch prepares once is not counted
    start, cpu = time.perf_counter(), time.process_time()
    counts = [step(i) for i in range(steps)]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Cost(steps, seconds, cpu, *(sum(column) for column in zip(*counts, strict=True)))


def whole(match: Cost, fit: Cost, improve: Cost) -> Cost:
    """The reference until Pendulum is solved, from samples of its steps.

    >>> whole(Cost(500, 5.0, 5.0, 0, 500), Cost(10, 1.0, 1.0, 20, 140), Cost(1, 1.0, 1.0, 10, 62))[1:]
    (1505.0, 1505.0, 20000, 132500)
    """
    fitted, improved = fit.of(ROUNDS * FIT_STEPS), improve.of(ROUNDS * POLICY_STEPS)
    return match.of(MATCHING_STEPS).plus(fitted).plus(improved)


def solve(seed: int, folder: Path, cache: Path, algorithm: str) -> dict[str, Any]:
    """A whole run of `pendulum` in a process of its own, with the compiled programs in `cache`."""
    command = [sys.executable, "-m", "purectrl", "run", "pendulum", "--algorithm", algorithm, "--seed", str(seed)]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    subprocess.run([*command, "--quiet", "--out", str(folder)], check=True, capture_output=True, env=environment)  # noqa: S603
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    return {"seconds": seconds, "cpu_seconds": cpu, "solved": metrics["solved"]}


def compare(seeds: Sequence[int], algorithm: str) -> dict[str, Any]:
    """A sample of the reference, a run with an empty cache and one with a full one, for each seed in turn."""
    reference = Reference()
    match = reference.match(MATCHING_STEPS)
    found: dict[str, list[Any]] = {"reference": [], "cold": [], "warm": []}
    for seed in seeds:
        total = whole(match, reference.fit(FIT_SAMPLE), reference.improve(POLICY_SAMPLE))
        found["reference"].append(total._asdict())
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for kind in ("cold", "warm"):
                found[kind].append(solve(seed, folder / kind, folder / "cache", algorithm))
    ratios = {
        f"{kind}_{unit}": [
            theirs[unit] / ours[unit] for theirs, ours in zip(found["reference"], found[kind], strict=True)
        ]
        for kind in ("cold", "warm")
        for unit in ("seconds", "cpu_seconds")
    }
    sampled = {"matching": MATCHING_STEPS, "fit": FIT_SAMPLE, "policy": POLICY_SAMPLE}
    made = {"matching": MATCHING_STEPS, "fit": ROUNDS * FIT_STEPS, "policy": ROUNDS * POLICY_STEPS}
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    how = {"algorithm": algorithm, "seeds": list(seeds), "threads": torch.get_num_threads()}
    return {**how, "sampled_steps": sampled, "steps": made, "ratios": medians, "all_ratios": ratios, **found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--algorithm", default="pure-auto")
    chosen = parser.parse_args()
    write_result("against_enode", compare(chosen.seeds, chosen.algorithm))
