"""What a run will cost, before it starts: evaluations of the network, FLOP, memory, hours on this device.

The FLOP of one evaluation of each network, forward and backward, are counted by PyTorch on tensors without data. How often
each network is evaluated follows from budget, sampler, schedule and settings; where steps or truncations are drawn at
random, it is the expectation. One timed evaluation of the denoiser gives the speed of the device.

    phase         what is evaluated
    ------------  -----------------------------------------------------------------------------------
    rollouts      S steps per trajectory; one decoded and embedded image per distinct measurement
    updates       what the learner says: see `UpdateWork`
    evaluation    images after every update, more at the end of the run, of the pretrained model as well
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.core.samplers import Context
from purectrl.core.schedules import update_points
from purectrl.diffusion.models import GuidedDiffusion, Weights, each_tensor, timestep
from purectrl.diffusion.process import AffineSteps
from purectrl.diffusion.rollout import step_of
from purectrl.diffusion.settings import FinetuneSettings

if TYPE_CHECKING:
    from purectrl.core.loop import Loop
    from purectrl.diffusion.problem import DiffusionProblem

TRIAL = {"cpu": 2e11, "cuda": 2e13}
"""FLOP of the timed evaluation, by type of device: seconds at most."""


class CallCost(NamedTuple):
    """One network and one input."""

    forward: float
    """FLOP of its evaluation."""
    backward: float = 0.0
    """FLOP of the gradient with respect to the input and the trained weights."""
    backward_input: float = 0.0
    """FLOP of the gradient with respect to the input alone."""
    saved: float = 0.0
    """Bytes that are kept for the gradient."""


class NetworkCosts(NamedTuple):
    """The networks of a problem."""

    denoise: CallCost
    """One state and one condition; guidance needs two of them per step."""
    decode: CallCost
    """Decoding a state and embedding its image for the reward model."""
    reward: CallCost
    """The reward model on one embedded image; backward is with respect to its weights."""


class UpdateWork(NamedTuple):
    """How often networks are evaluated in one update."""

    forward: float = 0.0
    """Evaluations of the denoiser, recomputed ones left out: the column `network_evaluations` counts these."""
    recomputed: float = 0.0
    """Further evaluations, by which checkpointing replaces stored activations."""
    backward: float = 0.0
    """Gradients of the denoiser with respect to weights and state."""
    backward_input: float = 0.0
    """Gradients with respect to the state alone, through a reference."""
    judged: float = 0.0
    """Images that are decoded and judged by the reward model, with gradients."""
    fitted: float = 0.0
    """Measurements in the training of the reward model, each as often as it is used."""
    stored: float = 0.0
    """Evaluations of the denoiser whose activations are in memory at once."""
    stored_images: float = 0.0
    """Decoded images whose activations are in memory at once."""


@runtime_checkable
class CountedWork(Protocol):
    """Optional capability of a learner: what an update costs."""

    def update_work(self, update: int, episodes: int) -> UpdateWork:
        """The work of the update with this number, from 1, after so many new episodes."""
        ...


class Estimate(NamedTuple):
    """What a run will cost."""

    evaluations: dict[str, float]
    """Evaluations of the denoiser by phase."""
    flop: dict[str, float]
    """FLOP by phase."""
    memory: float
    """Bytes of all weights and of the activations of an update."""
    rate: float = 1.0
    """FLOP per second."""
    device: str = "this device"

    @property
    def hours(self) -> float:
        """Hours at `rate`, without the time of the reward itself."""
        return sum(self.flop.values()) / self.rate / 3600

    def text(self) -> str:
        """One line for people.

        >>> Estimate({"rollouts": 750.0, "updates": 250.0}, {"rollouts": 3e12, "updates": 4e12}, 2.5e9, 1e9).text()[:86]
        'estimate: 1,000 network evaluations (rollouts 43 % of the arithmetic, updates 57 %), 7'
        """
        total = sum(self.flop.values())
        shares = [f"{name} {100 * part / total:.0f} %" for name, part in self.flop.items()]
        shares[0] += " of the arithmetic"
        hours = f"{self.hours:.1f} h" if self.hours >= 1 else f"{60 * self.hours:.1f} min"
        return (
            f"estimate: {sum(self.evaluations.values()):,.0f} network evaluations ({', '.join(shares)}), "
            f"{_scaled(total)}FLOP, {self.memory / 1e9:.1f} GB, about {hours} on {self.device} at "
            f"{_scaled(self.rate)}FLOP/s, without the time of the reward"
        )


def _scaled(value: float) -> str:
    """A number with a metric prefix.

    >>> _scaled(4.2e17), _scaled(2e13)
    ('420.0 P', '20.0 T')
    """
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9)):
        if value >= size:
            return f"{value / size:.1f} {prefix}"
    return f"{value / 1e6:.1f} M"


def count_networks(problem: "DiffusionProblem") -> NetworkCosts:
    """The cost of each network of `problem`, counted on tensors without data."""
    model, inputs = problem.diffusion.model, problem.reward_input
    encoded = model.encode(problem.conditions[:1])
    device = model.device

    def states() -> Tensor:
        return torch.zeros(1, *model.shape, device=device, requires_grad=True)

    with _without_data(device):
        condition, steps = (
            each_tensor(encoded, torch.empty_like),
            timestep(problem.diffusion.process.timesteps[0], 1, device),
        )
        weights = {name: torch.empty_like(t) for name, t in model.pretrained().weights.items()}
        denoise = _count(lambda trained: model.denoise(trained, states(), steps, condition), weights)
        decode = _count(lambda _: inputs.embed(model.decode(states())))
        embedded = inputs.embed(model.decode(states())).detach()
        trunk = {name: torch.empty_like(t, device=device) for name, t in inputs.trunk.named_parameters()}
        index, time = torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, device=device)

        def judge(trained: Weights, image: Tensor) -> Tensor:
            return torch.func.functional_call(inputs.trunk, trained, (image, time, index))

        fit = _count(lambda trained: judge(trained, embedded), trunk)
        through = _count(lambda trained: judge(trained, embedded.clone().requires_grad_()), trunk)
    return NetworkCosts(denoise, decode, fit._replace(backward_input=through.backward_input))


@contextmanager
def _without_data(device: torch.device) -> Iterator[None]:
    """Tensors have shapes and types but no data; networks on the device "meta" have none in any case."""
    if device.type == "meta":
        yield
    else:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield


def _count(call: Callable[[Weights], Tensor], weights: Weights | None = None) -> CallCost:
    """The cost of `call` with weights that require gradients, and of its gradient if they do not."""
    weights = weights or {}
    frozen = _count_once(lambda: call({name: tensor.detach() for name, tensor in weights.items()}), ())
    trained = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
    whole = _count_once(lambda: call(trained), tuple(trained.values()))
    return whole._replace(backward_input=frozen.backward)


def _count_once(call: Callable[[], Tensor], weights: tuple[Tensor, ...]) -> CallCost:
    """FLOP forward and backward, and bytes that are saved between; those of a recomputation count as saved, too."""
    seen, saved = {tensor.untyped_storage()._cdata for tensor in weights}, [0]

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not isinstance(tensor, torch.nn.Parameter) and storage._cdata not in seen:
            seen.add(storage._cdata)
            saved[0] += storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
        result = call()
        forward = counter.get_total_flops()
        if result.requires_grad:
            result.sum().backward()
    return CallCost(forward, counter.get_total_flops() - forward, saved=saved[0])


def backpropagation_work(
    settings: FinetuneSettings, process: AffineSteps, evaluations_per_step: int, references: int
) -> UpdateWork:
    """The expected work of `finetune`: one path per trajectory, `references` more evaluations at the steps drawn for the
    divergence, gradients from the drawn truncation on."""
    steps = process.steps
    longest = min(settings.max_backprop_steps or steps, steps)
    lengths = np.arange(min(settings.min_backprop_steps, longest), longest + 1)
    # whether step k is backpropagated through, whether to its state, and whether its divergence is evaluated
    through = np.array([(lengths >= steps - k).mean() for k in range(steps)])
    to_state = np.array([((lengths > steps - k) | (lengths == steps)).mean() for k in range(steps)])
    p = np.array(process.weight) / sum(process.weight)
    drawn = np.ones(steps) if settings.kl_samples is None else 1 - (1 - p) ** settings.kl_samples
    drawn = drawn if references else np.zeros(steps)
    with_gradient, of_reference = through + (1 - through) * drawn, references * drawn * to_state
    calls = settings.iterations * settings.batch_size * evaluations_per_step
    chunk = min(settings.chunk_size or settings.batch_size, settings.batch_size)
    points = min(settings.reward_points, steps)
    stored = 1.0 if settings.checkpointing else longest + references * min(settings.kl_samples or steps, steps)
    return UpdateWork(
        forward=calls * (steps + references * drawn.sum()),
        recomputed=calls * (with_gradient.sum() + of_reference.sum()) * settings.checkpointing,
        backward=calls * with_gradient.sum(),
        backward_input=calls * of_reference.sum(),
        judged=settings.iterations * settings.batch_size * points,
        stored=chunk * evaluations_per_step * stored,
        stored_images=chunk * points,
    )


def flop_of(work: UpdateWork, costs: NetworkCosts) -> float:
    """FLOP of an update."""
    denoise, decode, reward = costs
    return (
        (work.forward + work.recomputed) * denoise.forward
        + work.backward * denoise.backward
        + work.backward_input * denoise.backward_input
        + work.judged * (decode.forward + decode.backward + reward.forward + reward.backward_input)
        + work.fitted * (reward.forward + reward.backward)
    )


class RunPlan(NamedTuple):
    """How many trajectories and images a run makes."""

    steps: int
    """Evaluations of the denoiser per trajectory."""
    episodes: int
    images: float
    """Distinct measured images per trajectory."""
    updates: tuple[UpdateWork, ...]
    evaluated: int = 0
    """Images of all evaluations."""


def total(plan: RunPlan, costs: NetworkCosts, weights: float = 0.0, rate: float = 1.0, device: str = "") -> Estimate:
    """The estimate for a plan.

    Main arguments:
        weights: bytes of all weights.
        rate: FLOP per second.
    """
    work = plan.updates
    evaluations = {
        "rollouts": float(plan.episodes * plan.steps),
        "updates": sum(one.forward for one in work),
        "evaluation": float(plan.evaluated * plan.steps),
    }
    flop = {
        "rollouts": evaluations["rollouts"] * costs.denoise.forward
        + plan.episodes * plan.images * costs.decode.forward,
        "updates": sum(flop_of(one, costs) for one in work),
        "evaluation": evaluations["evaluation"] * costs.denoise.forward + plan.evaluated * costs.decode.forward,
    }
    activations = [one.stored * costs.denoise.saved + one.stored_images * costs.decode.saved for one in work]
    return Estimate(evaluations, flop, weights + max(activations, default=0.0), rate, device)


def estimate(problem: "DiffusionProblem", loop: "Loop", rate: float | None = None) -> Estimate | None:
    """What a run of `loop` on `problem` will cost; None if the number of updates depends on the measurements, or if the
    learner does not count its work.

    Main arguments:
        rate: FLOP per second; by default that of one timed evaluation of the denoiser.
    """
    if loop.schedule.needs_excess_loss or not isinstance(loop.learner, CountedWork):
        return None
    diffusion, state = problem.diffusion, loop.init(Key.from_seed(0))
    episodes = loop.oracle.budget.episodes_left(Ledger(), loop.sampler.m)
    context = Context(loop.oracle.horizon, state.ledger, state.learner, loop.learner.policy(state.learner), state.data)
    times = step_of(loop.sampler(Key.from_seed(0), min(episodes, 256), context))
    distinct = 1 + (times[:, 1:] != times[:, :-1]).sum() / len(times)
    points = update_points(loop.schedule, episodes, loop.sampler.m)
    batches = [end - start for start, end in pairwise([0, *points])]
    plan = RunPlan(
        diffusion.process.steps * diffusion.evaluations_per_step,
        loop.sampler.rollouts(episodes, context),
        float(distinct),
        tuple(loop.learner.update_work(number, batch) for number, batch in enumerate(batches, 1)),
        problem.evaluated_images(len(batches)),
    )
    costs = count_networks(problem)
    device = diffusion.model.device
    if rate is None:
        rate = measured_rate(diffusion, problem.conditions[0], costs.denoise.forward, problem.rollout_batch_size)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return total(plan, costs, diffusion.model.weight_bytes, rate, name)


@torch.no_grad()
def measured_rate(diffusion: GuidedDiffusion, condition: int | str, flop: float, batch_size: int) -> float:
    """FLOP per second of the denoiser, which needs `flop` per state, on its device: the second of two evaluations."""
    model = diffusion.model
    most = TRIAL["cuda" if model.device.type == "cuda" else "cpu"]
    n = max(1, min(batch_size, int(most / flop)))
    x = torch.zeros(n, *model.shape, device=model.device)
    steps = timestep(diffusion.process.timesteps[0], n, model.device)
    encoded, weights = model.encode([condition] * n), model.pretrained().weights
    seconds = 0.0
    for _ in range(2):
        begin = time.perf_counter()
        float(model.denoise(weights, x, steps, encoded).sum())  # waits for a GPU
        seconds = time.perf_counter() - begin
    return n * flop / seconds
