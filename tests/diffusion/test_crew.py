"""Several processes on one run: the order of results, and that nothing depends on how many there are."""

import os
import pickle
import queue
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from tiny import CLASSES, brightness, learner, process

from purectrl.core import Budget, Key, Loop, Oracle, outputs, samplers, schedules
from purectrl.diffusion import crew as crews
from purectrl.diffusion.crew import Crew, carried
from purectrl.diffusion.models import Iterate, same_numbers
from purectrl.diffusion.process import Gaussian
from purectrl.diffusion.rollout import denoising

PATIENCE = 60


class Wires:
    """What `torch.distributed` does between two processes, between two threads: all that passes is copied."""

    def __init__(self):
        self.down, self.up, self.sent = queue.Queue(), queue.Queue(), 0

    def broadcast_object_list(self, box, src):
        if threading.current_thread() is threading.main_thread():
            self.sent += 1
            self.down.put(pickle.dumps(box))
        else:
            box[:] = pickle.loads(self.down.get(timeout=PATIENCE))

    def gather_object(self, own, parts, dst):
        if parts is None:
            self.up.put(pickle.dumps(own))
        else:
            parts[:] = [own, pickle.loads(self.up.get(timeout=PATIENCE))]

    def destroy_process_group(self):
        pass


@pytest.fixture
def wires(monkeypatch):
    monkeypatch.setattr(crews, "distributed", made := Wires())
    return made


def loop_of(crew):
    """PURE_SEIKO on the tiny model, shared by a crew; its own networks, as a process of its own would have."""
    made = learner(chunk=2, iterations=2, batch=5)
    shared = type(made)(made.model, made.process, made.conditions, made.reward, made.tuning, crew=crew)
    rollout = denoising(made.model, process(), range(CLASSES), brightness, chunk=3, crew=crew)
    oracle = Oracle(rollout, process().steps, Budget(40))
    return Loop(oracle, samplers.geometric(m=4, lam=6.0), schedules.batches([3, 7]), shared, outputs.last)


def steps_of(loop):
    state, records = loop.init(Key.from_seed(0)), []
    while not loop.finished(state):
        state, record = loop.step(state)
        records.append(record)
    return state, records


def test_a_run_that_two_share_is_the_run_of_one_bit_for_bit(wires):
    alone, records = steps_of(loop_of(Crew()))
    leader, follower = Crew(0, 2), Crew(1, 2)
    done = []
    loop_of(follower)
    for name, work in dict(follower._works).items():
        follower.learn(name, lambda shared, job, name=name, work=work: done.append(name) or work(shared, job))
    thread = threading.Thread(target=follower.serve, daemon=True)
    thread.start()
    together, shared_records = steps_of(loop_of(leader))
    leader.dismiss()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert done.count("rollout") == 1, "of 1 + 3 parts of three trajectories, two at a time"
    assert done.count("update") == 2 * 2, "one of three parts in each of two iterations of two updates"
    assert same_numbers(alone.learner.iterate, together.learner.iterate)
    for one, other in zip(records, shared_records, strict=True):
        assert np.array_equal(one.block.x, other.block.x)
        assert one.info == other.info


def test_with_one_process_nothing_is_sent(wires):
    steps_of(loop_of(Crew()))
    assert wires.sent == 0


def test_a_leader_that_fails_in_a_job_does_not_wait_for_those_who_wait_for_it(wires):
    leader = Crew(0, 2)
    leader.learn("fail", lambda shared, job: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        leader.map("fail", None, [1, 2])
    sent = wires.sent
    leader.dismiss()
    assert wires.sent == sent


def test_what_is_carried_keeps_its_shape_and_loses_its_graph():
    leaf = torch.ones(2, requires_grad=True)
    tree = {"a": [Iterate({"w": 2 * leaf}, Gaussian(leaf, leaf)), (1, "two", None)]}
    found = carried(tree, torch.device("cpu"))
    assert isinstance(found["a"][0], Iterate)
    assert found["a"][1] == (1, "two", None)
    assert not found["a"][0].weights["w"].requires_grad
    assert torch.equal(found["a"][0].weights["w"], torch.tensor([2.0, 2.0]))


SQUARES = """
from purectrl.diffusion.crew import join
crew = join("cpu")
crew.learn("square", lambda shared, job: (shared * job**2, crew.rank))
if crew.rank:
    crew.serve()
else:
    print(crew.map("square", 10, [1, 2, 3, 4, 5]))
"""


def test_two_processes_find_each_other_and_jobs_go_round():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SQUARES],
            env=os.environ | place | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    (said, _), (silence, _) = (one.communicate(timeout=PATIENCE) for one in started)
    assert [one.returncode for one in started] == [0, 0]
    assert said == "[(10, 0), (40, 1), (90, 0), (160, 1), (250, 0)]\n"
    assert silence == ""
