"""A run whose updates would not fit into the memory of the machine is refused before it starts, unless `force`."""

import pytest

from purectrl.core import InputError
from purectrl.runs import memory
from purectrl.runs.spec import RunSpec

BATCH = "learner.finetune.batch_size"


def composed(batch):
    return RunSpec.of(
        "digits", "pure-seiko", 0, overrides={BATCH: batch, "learner.finetune.min_backprop_steps": 12}
    ).compose()


def test_the_memory_of_an_update_grows_with_its_batch_and_is_refused():
    problem, loop = composed(128)
    small = problem.update_bytes(loop)
    large = problem.update_bytes(composed(12_800)[1])
    weights = problem.diffusion.model.weight_bytes
    assert (large - weights) / (small - weights) == pytest.approx(100, rel=1e-6)
    memory.require_update_memory(problem, loop)  # that of the documentation fits everywhere
    huge = composed(1_000_000)[1]
    with pytest.raises(InputError, match=r"an update needs about [\d,]+ GB of memory, .* are available"):
        memory.require_update_memory(problem, huge)
    memory.require_update_memory(problem, huge, force=True)
