"""Several processes share a run: the order of results, and that no number depends on how many processes there are."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT = 120
PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
torch.set_num_threads(1)
from purectrl.diffusion.distributed import *
from purectrl.diffusion.distributed import any_rank, current_ranks, rank, world_size
ranks = current_ranks()
"""


def launch(code, size):
    """Runs `code` in `size` processes that gloo connects, and returns the output and exit status of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            env=os.environ | network | {"OMP_NUM_THREADS": "1", "RANK": str(i), "LOCAL_RANK": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(size)
    ]
    return [(*one.communicate(timeout=TIMEOUT), one.returncode) for one in started]


RUN = """
import hashlib, json
from tiny import CLASSES, brightness, learner
from purectrl.core import Budget, Key, Loop, Oracle
from purectrl.core.output_rules import LastPolicy
from purectrl.core.samplers import Geometric
from purectrl.core.schedules import Batches
from purectrl.diffusion.models import tensors
from purectrl.diffusion.rollout import DenoisingRollout, final_images

queries = []
def reward(images, conditions):
    queries.append(len(images))
    return brightness(images, conditions)

jobs = {"sample": 0, "work": 0}
mapped = type(ranks).map
def counting(self, function, some):
    def counted(job):
        jobs[function.__name__] += 1
        return function(job)
    return mapped(self, counted, some)
type(ranks).map = counting

who = learner({"uncertainty": "bootstrap", "num_heads": 2}, ranks, chunk_size=2, iterations=2, batch_size=5)
rollout = DenoisingRollout(who.diffusion, range(CLASSES), reward, batch_size=3, ranks=ranks)
oracle = Oracle(rollout, rollout.diffusion.process.steps, Budget(40))
loop = Loop(oracle, Geometric(m=4, lam=6.0), Batches((3, 7)), who, LastPolicy())
state, digest, infos = loop.init(Key.from_seed(0)), hashlib.sha256(), []
for state, record in loop.run(state):
    for array in (record.block.x, record.block.r):
        digest.update(array.tobytes())
    infos.append(dict(sorted(record.info.items())))
kept = state.learner.reward
for tensor in (*tensors(state.learner.params), *(kept.weights[name] for name in sorted(kept.weights)), *kept[1:]):
    digest.update(tensor.contiguous().numpy().tobytes())
for images in final_images(who.diffusion, state.output.plan, [0, 1, 2, 0], Key(1), 2, ranks):
    digest.update(images.numpy().tobytes())
print(json.dumps({"digest": digest.hexdigest(), "infos": infos, "queries": sum(queries), "jobs": jobs}))
"""


def run(size):
    finished = launch(RUN, size)
    assert [status for *_, status in finished] == [0] * size, finished[-1][1]
    return [json.loads(output) for output, *_ in finished]


def test_no_number_of_a_run_depends_on_the_number_of_processes():
    """Rollout batches and chunks of an update are shared; every rank ends with the state of a single process."""
    (alone,) = run(1)
    pair = run(2)
    for one in pair:
        assert (one["digest"], one["infos"]) == (alone["digest"], alone["infos"])
    assert [one["queries"] for one in pair] == [alone["queries"], 0], "only the main process queries the reward"
    assert alone["jobs"] == {"sample": 1 + 3 + 2, "work": 2 * 2 * 3}
    # one round per two batches of trajectories: 1; 2 and 1; 2 final ones. Chunks: two of three on the first rank.
    assert [one["jobs"] for one in pair] == [{"sample": 1 + 2 + 1, "work": 8}, {"sample": 0 + 1 + 1, "work": 4}]


@pytest.mark.slow
def test_three_processes_make_the_run_of_one():
    (alone,) = run(1)
    assert {one["digest"] for one in run(3)} == {alone["digest"]}


COLLECTIVES = """
from purectrl.core.errors import PurectrlError
squares = ranks.map(lambda job: {"square": torch.tensor(job**2), "rank": torch.tensor(rank())}, [1, 2, 3, 4, 5])
print([(int(one["square"]), int(one["rank"])) for one in squares])
print(sorted(ranks.from_main(lambda: {"a": torch.tensor([rank()], dtype=torch.float64), "b": torch.ones(2)}).items()))
print(any_rank(rank() == 1), any_rank(False))
print([one for one in ranks.imap(lambda job: {} if job == 2 else {"x": torch.tensor(job)}, [1, 2, 3])])
try:
    ranks.from_main(lambda: 1 / 0)
except (ZeroDivisionError, PurectrlError) as error:
    print(type(error).__name__)
"""


def test_results_are_in_order_on_every_rank_and_a_failure_of_the_main_process_ends_all():
    (main, _, _), (other, errors, status) = launch(COLLECTIVES, 2)
    assert status == 0, errors
    assert main.splitlines()[:-1] == other.splitlines()[:-1]
    squares, broadcast, flags, partial = main.splitlines()[:-1]
    assert squares == "[(1, 0), (4, 1), (9, 0), (16, 1), (25, 0)]"
    assert broadcast == "[('a', tensor([0.], dtype=torch.float64)), ('b', tensor([1., 1.]))]"
    assert flags == "True False"
    assert partial == "[{'x': tensor(1)}, {}, {'x': tensor(3)}]"
    assert (main.splitlines()[-1], other.splitlines()[-1]) == ("ZeroDivisionError", "PurectrlError")


def test_the_rank_is_read_without_importing_torch():
    code = "from purectrl.diffusion.distributed import *; import sys; from purectrl.diffusion import distributed as d; "
    code += "print(d.rank(), d.world_size(), d.is_main_process(), 'torch' in sys.modules, 'jax' in sys.modules)"
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | place, check=True, capture_output=True, text=True
        ).stdout
        for place in ({}, {"RANK": "2", "WORLD_SIZE": "4"})
    ]
    assert found == ["0 1 True False False\n", "2 4 False False False\n"]
