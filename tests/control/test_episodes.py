"""What episodes of an environment execute."""

import numpy as np
import pytest

from purectrl.control.episodes import begin_evaluation
from purectrl.control.exploring_policy import ExploringActor
from purectrl.control.policy import Actor
from purectrl.control.sac import SacPolicy
from purectrl.core.plan import Plan
from purectrl.systems.spec import StateSpec

SPEC = StateSpec(3, 2, (-1.0, 0.0), (1.0, 4.0), angles=(1,))


def actor(seed):
    return Actor.random(np.random.default_rng(seed), SPEC, (16, 16))


@pytest.mark.parametrize(
    "policy",
    [ExploringActor(actor(0), 1.0, 0.3, 1.0, 0.1, 0.2), SacPolicy(actor(1), actor(2), 1.0, 0.1)],
    ids=["pure-auto", "sac"],
)
def test_an_evaluation_executes_the_policy_without_noise(policy):
    control = begin_evaluation(Plan(policy, None))
    for x in np.random.default_rng(3).normal(size=(20, 3)):
        assert np.allclose(control(x, 0.0), policy(x.astype(np.float32)), atol=1e-6)
