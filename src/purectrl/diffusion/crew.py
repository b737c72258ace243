"""Several processes that share the work of one run, on one GPU each, as `accelerate launch` starts them.

The first process leads: it runs the loop, asks for rewards, keeps the accounts and the run's directory. It alone knows the
algorithm. The others follow: they do the jobs that it hands out, trajectories of a rollout and parts of an update. A job has
its own random numbers, so that what comes out does not depend on who does it. With one process nothing is sent. Between
several, torch.distributed pickles what passes and reads it again in memory: they trust each other, and no file is involved.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from purectrl.core.errors import require

Work = Callable[[Any, Any], Any]
"""(what all jobs share, a job) -> what comes out."""

PATIENCE = timedelta(days=7)
"""How long a follower waits for the next jobs: a reward may take its time."""


class Crew:
    """The processes of a run.

    Main arguments:
        rank, size: which of them this one is, and how many there are.
        device: where this one computes.

    >>> crew = Crew()
    >>> crew.learn("add", lambda shared, job: shared + job)
    >>> crew.map("add", 10, [1, 2, 3])
    [11, 12, 13]
    """

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, torch.device(device)
        self._works: dict[str, Work] = {}
        self._waiting = False
        """Whether followers wait to hand over what came out."""

    def learn(self, name: str, work: Work) -> None:
        """From now on, jobs called `name` are done by `work`. All processes must learn the same."""
        self._works[name] = work

    def map(self, name: str, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        """What comes out of each job, in order; jobs go round. Only the leader asks."""
        if self.size == 1:
            return [self._works[name](shared, job) for job in jobs]
        self._broadcast((name, shared, list(jobs)))
        self._waiting = True
        parts = self._gather([self._works[name](shared, job) for job in jobs[:: self.size]])
        self._waiting = False
        return [carried(parts[i % self.size][i // self.size], self.device) for i in range(len(jobs))]

    def rounds(self, name: str, shared: Any, jobs: Sequence[Any]) -> Iterator[Any]:
        """The same one after the other: no more jobs are under way than there are processes, for results that are large."""
        for start in range(0, len(jobs), self.size):
            yield from self.map(name, shared, jobs[start : start + self.size])

    def serve(self) -> None:
        """Does what the leader hands out until it dismisses us."""
        while (order := self._broadcast(None)) is not None:
            name, shared, jobs = carried(order, self.device)
            self._gather([self._works[name](shared, job) for job in jobs[self.rank :: self.size]])
        distributed.destroy_process_group()

    def dismiss(self) -> None:
        """Sends the followers home. After a failure in the middle of a job nobody listens; the launcher ends them."""
        if not self._waiting:
            self._broadcast(None)
            distributed.destroy_process_group()

    def _broadcast(self, order: Any) -> Any:
        box = [carried(order, torch.device("cpu"))]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def _gather(self, own: list[Any]) -> list[list[Any]]:
        parts: list[Any] | None = [None] * self.size if self.rank == 0 else None
        distributed.gather_object(carried(own, torch.device("cpu")), parts, dst=0)
        return parts or []


def join(device: str) -> Crew:
    """The crew that this process was started in; without one, a crew of its own.

    Main arguments:
        device: "cpu", or "cuda", of which each process takes its own.
    """
    size, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    place = torch.device(device, int(os.environ.get("LOCAL_RANK", "0"))) if device == "cuda" else torch.device(device)
    crew = Crew(rank, size, place)
    if size > 1:
        require(not distributed.is_initialized(), "one run at a time can be shared by several processes")
        # what is sent is small beside what is computed: numbers of adapters, and images
        distributed.init_process_group("gloo", timeout=PATIENCE)
        if rank == 0:
            atexit.register(crew.dismiss)
    return crew


def carried(tree: Any, device: torch.device) -> Any:
    """The same tuples, lists and dictionaries, with every tensor on `device`, as a constant."""
    if isinstance(tree, Tensor):
        return tree.detach().to(device)
    if isinstance(tree, dict):
        return {name: carried(item, device) for name, item in tree.items()}
    if isinstance(tree, list):
        return [carried(item, device) for item in tree]
    if isinstance(tree, tuple):
        items = [carried(item, device) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    return tree
