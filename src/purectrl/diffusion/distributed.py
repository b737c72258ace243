"""Several processes that share the work of one run, as `accelerate launch` (GPUs) or `torchrun` start them.

Every rank runs the same deterministic loop. Work is sharded in jobs (trajectories of a rollout, chunks of an iteration),
each with its own random numbers, and the results are gathered, so that all ranks hold the same state and the result does
not depend on the number of processes. Only the main process queries the black-box reward and writes files; what it
computes alone is broadcast. Tensors are exchanged as safetensors bytes; nothing is pickled.

Importing this module does not import PyTorch, so that a program can read its rank cheaply.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from purectrl.core.errors import PurectrlError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Job = TypeVar("Job")
Tensors = dict[str, "Tensor"]
"""Results of a job: tensors by name."""

TIMEOUT = timedelta(days=7)
"""How long a rank waits for the others: a reward may be slow."""


def world_size() -> int:
    """The number of processes of this run, as the launcher set it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """The index of this process."""
    return int(os.environ.get("RANK", "0"))


def is_main_process() -> bool:
    """Whether this process writes files and queries rewards."""
    return rank() == 0


@dataclass(frozen=True)
class Ranks:
    """The processes of a run.

    Main arguments:
        rank, size: the index of this process, and how many there are.
        device: where this process computes.

    >>> import torch
    >>> squares = Ranks().map(lambda job: {"square": torch.tensor(job**2)}, [1, 2, 3])
    >>> [int(result["square"]) for result in squares]
    [1, 4, 9]
    """

    rank: int = 0
    size: int = 1
    device: "torch.device | str" = "cpu"

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.rank == 0

    def map(self, function: Callable[[Job], Tensors], jobs: Sequence[Job]) -> list[Tensors]:
        """`function` of each job, in order, on every rank; job i is computed by rank i mod size.

        All ranks must call it with equal jobs. A job that fails on one rank ends that process; the launcher ends the others.
        """
        if self.size == 1:
            return [function(job) for job in jobs]
        own = [function(job) for job in jobs[self.rank :: self.size]]
        packed = {f"{i}/{name}": tensor for i, result in enumerate(own) for name, tensor in result.items()}
        gathered = [_decode(part, self.device) for part in _all_gather(_encode(packed))]
        results: list[Tensors] = [{} for _ in jobs]
        for owner, part in enumerate(gathered):
            for name, tensor in part.items():
                index, _, own_name = name.partition("/")
                results[int(index) * self.size + owner][own_name] = tensor
        return results

    def imap(self, function: Callable[[Job], Tensors], jobs: Sequence[Job]) -> Iterator[Tensors]:
        """As `map`, `size` jobs at a time: for results that are too large to be held all at once."""
        for start in range(0, len(jobs), self.size):
            yield from self.map(function, jobs[start : start + self.size])

    def from_main(self, function: Callable[[], Tensors]) -> Tensors:
        """What `function` returns in the main process, on every rank; it is called there alone.

        If it raises, the main process raises that error and the other ranks raise `PurectrlError`.
        """
        if self.size == 1:
            return function()
        if not self.is_main:
            content = _broadcast(None)
            if content is None:
                raise PurectrlError("the main process failed; its error message says why")
            return _decode(content, self.device)
        try:
            result = function()
            content = _encode(result)
        except BaseException:
            _broadcast(None)
            raise
        _broadcast(content)
        return {name: tensor.detach().to(self.device) for name, tensor in result.items()}


SINGLE = Ranks()
"""One process on the CPU."""


def current_ranks(device: str = "cpu") -> Ranks:
    """The ranks that this process was started with; a single one without a launcher.

    Main arguments:
        device: "cpu", or "cuda", of which each process uses the one with its local index.
    """
    import torch

    if world_size() == 1:
        return Ranks(device=torch.device(device))
    state = _state(cpu=device == "cpu")
    return Ranks(state.process_index, state.num_processes, state.device)


def any_rank(flag: bool) -> bool:
    """Whether `flag` is set on any rank: a decision that all ranks must take alike, such as stopping after a signal."""
    if world_size() == 1:
        return flag
    import torch

    gathered = _gather(torch.tensor([int(flag)], dtype=torch.int64))
    return bool(gathered.any())


def _state(cpu: bool = False) -> Any:
    """accelerate's process state; the first call initialises torch.distributed."""
    from accelerate import PartialState
    from torch import distributed

    new = not distributed.is_initialized()
    state = PartialState(cpu=cpu, timeout=TIMEOUT)
    if (
        new and distributed.is_initialized()
    ):  # its threads must end before the interpreter does, or C++ aborts the process
        atexit.register(state.destroy_process_group)
    return state


def _gather(tensor: "Tensor") -> "Tensor":
    """Equally shaped tensors [n] of all ranks, concatenated [size·n]."""
    from accelerate.utils.operations import gather

    found: Any = gather(tensor.to(_state().device))
    return found.cpu()


def _encode(tensors: Tensors) -> bytes:
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _decode(content: bytes, device: "torch.device | str") -> Tensors:
    from safetensors.torch import load

    return {name: tensor.to(device) for name, tensor in load(content).items()}


def _all_gather(content: bytes) -> list[bytes]:
    """The bytes of all ranks: first their lengths, then the bytes, padded to the longest."""
    import torch

    lengths = _gather(torch.tensor([len(content)], dtype=torch.int64)).tolist()
    padded = torch.zeros(max(lengths), dtype=torch.uint8)
    padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    rows = _gather(padded).reshape(len(lengths), -1)
    return [row[:length].numpy().tobytes() for row, length in zip(rows, lengths, strict=True)]


def _broadcast(content: bytes | None) -> bytes | None:
    """The bytes of the main process, or None if it failed; other ranks pass None."""
    import torch
    from accelerate.utils.operations import broadcast

    state = _state()
    length = torch.tensor([-1 if content is None else len(content)], dtype=torch.int64, device=state.device)
    broadcast(length)
    if int(length) < 0:
        return None
    buffer = torch.zeros(int(length), dtype=torch.uint8, device=state.device)
    if content is not None:
        buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    broadcast(buffer)
    return buffer.cpu().numpy().tobytes()
