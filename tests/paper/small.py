"""Small variants of the paper's items, made by the same functions as the real ones, and invented runs of them.

As a program: `python small.py NAME DIR` makes one as `purectrl paper` would.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from purectrl.cli.output import follow
from purectrl.core.keys import Key
from purectrl.core.ledger import Ledger
from purectrl.paper import (
    ITEMS,
    diffusion_crossing,
    diffusion_regimes,
    diffusion_taste,
    load_item,
    make_item,
    neural_systems,
    prop2_independency,
    thm1_coverage,
    thm1_minimax,
    thm1_quotient,
    thm1_rate,
    thm2_dimension,
    thm2_repair,
    thm2_switches,
    thm3_rollouts,
)
from purectrl.runs.sweep import local


def fast(item):
    """The same item with cheap runs."""
    groups = [
        replace(group, arguments={**group.arguments, "steps": 8}, overrides={**group.overrides, "learner.paths": 8})
        for group in item.groups
    ]
    return replace(item, groups=tuple(groups))


def fewer(name, seeds, most=None):
    """The item called `name` with fewer seeds; `most` replaces the largest number of seeds of its groups."""
    item = load_item(name)
    groups = [
        replace(group, most_seeds=(most or {}).get(group.algorithm, group.most_seeds) if group.most_seeds else None)
        for group in item.groups
    ]
    return replace(item, groups=tuple(groups), seeds=seeds, quick=min(2, seeds))


SMALL = {
    "thm1-coverage": fast(
        thm1_coverage.item(8, 2, 40, {"linear": 32, "kernel": 16}, (16, 32), seeds=20, most=20, quick=3)
    ),
    "thm1-rate": fast(thm1_rate.item((4096, 1024, 256), (1024, 256), seeds=5, base_seeds=5, quick=3)),
    "thm1-minimax": thm1_minimax.item(
        (1024, 256),
        (4096, 1024),
        {"dimension": (2,), "horizon": (0.5, 2.0), "reward_std": (2.0,)},
        at=4096,
        seeds=5,
        quick=3,
    ),
    "thm1-quotient": thm1_quotient.item({"lists": 32, "linear": 32}, 16, runs=2),
    "thm2-switches": fast(thm2_switches.item((32, 16, 8), (1.0, 10.0), seeds=3, quick=2)),
    "thm2-repair": fast(thm2_repair.item(16, seeds=5, quick=3)),
    "thm2-dimension": thm2_dimension.item((1, 2), 64, seeds=5, quick=3),
    "thm3-rollouts": thm3_rollouts.item(64, (1, 2, 4), (1.0, 0.1), (0.1, 0.0), seeds=5, quick=3),
    "prop2-independency": prop2_independency.item(most=16, counts=(4, 16), N=64, seeds=5, quick=3),
    "neural-pendulum": fewer("neural-pendulum", seeds=2),
    "neural-systems": neural_systems.item(("swing-up",), measurements=400, seeds=5, quick=2),
    "control-main": fewer("control-main", seeds=4, most={"pure-enode": 3, "enode": 2}),
    "control-updates": fewer("control-updates", seeds=2),
    "control-frequency": fewer("control-frequency", seeds=2),
    "battery": fewer("battery", seeds=2, most={"known-model": 1}),
    "environments": fewer("environments", seeds=2, most={"sac": 1}),
    "locomotion": fewer("locomotion", seeds=1),
    "diffusion-main": fewer("diffusion-main", seeds=3),
    "diffusion-labels": fewer("diffusion-labels", seeds=2, most={"pure-seiko": 1}),
    "diffusion-updates": fewer("diffusion-updates", seeds=2, most={"pure-seiko": 1}),
    "diffusion-frequency": fewer("diffusion-frequency", seeds=2, most={"pure-seiko": 1}),
    "diffusion-regimes": diffusion_regimes.item((("linear", 8, 0.5), ("saturating", 8, 0.0)), preferences=2),
    "diffusion-crossing": diffusion_crossing.item((2, 8), (0, 1, 2), images=4, nats=0.3),
    "diffusion-taste": diffusion_taste.item((2, 8), (0, 1), images=2, denoising_steps=2, iterations=1),
    "diffusion-fine-tuners": fewer("diffusion-fine-tuners", seeds=3),
    "diffusion-curves": fewer("diffusion-curves", seeds=3),
    "diffusion-samples": load_item("diffusion-samples"),
}
assert set(SMALL) == set(ITEMS)


def make(name, out, quick=False, quiet=False, workers=1):
    """Exit status of the item called `name`, made into `out`."""
    return make_item(SMALL[name], Path(out), quick, local(workers), quiet, follow)


def noise(group, seed):
    """A number of mean zero per run, the same for all groups with a seed."""
    return Key.from_seed(seed).child("noise").uniform_scalar() - 0.5


def pretend(item, folder, metrics, ledger=lambda group, seed: {}):
    """Leaves runs of `item` below DIR/ITEM with the results that `metrics` and `ledger` (group, seed) -> values invent."""
    for group in item.groups:
        for job in item.jobs(folder, group, range(item.seeds)):
            job.out.mkdir(parents=True)
            spec, seed, config = job.spec, job.spec.seed, job.spec.as_dict()
            N = spec.budget.measurements
            counts = {"rollouts": N // spec.algorithm.sampler.m, "measurements": N, "updates": 1}
            seconds = {"total": 4.0, "rollout": 1.5, "fit": 0.5, "plan": 0.5, "compile": 0.1}
            invented = ledger(group, seed)
            spent = Ledger().as_dict() | counts | invented | {"seconds": seconds | invented.get("seconds", {})}
            summary = {"experiment": spec.name, "algorithm": spec.algorithm.name, "seed": seed, "status": "finished"}
            summary |= {"ledger": spent, "metrics": metrics(group, seed), "versions": config["versions"]}
            (job.out / "config.json").write_text(json.dumps(config))
            (job.out / "summary.json").write_text(json.dumps(summary))
            evaluation = {"reward": 0.5, "episodes": 1, "eval_reward": 0.9, "eval_return": 0.9}
            evaluation |= {"eval_solved": True, "reward_error": 0.2, "queries": 10, "eval_reward_held_out": 0.6}
            evaluation |= {"eval_classifier_accuracy": 0.97, "eval_diversity": 0.15, "eval_kl_pretrained": 3.0}
            counted = [
                {"step": n, "rollouts": n, "updates": n, "updated": "both", "rewards": 6 - n} for n in range(1, 6)
            ]
            steps = [{"measurements": 10 * n, "gap": 1.0 / n, "seconds": 30.0 * n, **evaluation} for n in range(1, 6)]
            records = [count | record for count, record in zip(counted, steps, strict=True)]
            (job.out / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
            if group.problem == "digits":
                leave_samples(job.out)


def leave_samples(out):
    """The other files of diffusion runs: ten queries of 0.1 s, and samples that are black before and white after."""
    (out / "queries.jsonl").write_text('{"condition": 3, "score": 0.5, "seconds": 0.1, "picture": "a"}\n' * 10)
    (out / "media").mkdir()
    images, classes = np.zeros((20, 1, 16, 16), np.uint8), np.repeat(np.arange(10), 2)
    scores = np.linspace(0.0, 0.5, 20)
    kept = {"before": images, "after": images + 255, "before_scores": scores, "after_scores": scores + 0.25}
    save_file(kept | {"classes": classes}, out / "media" / "samples.safetensors")


if __name__ == "__main__":
    sys.exit(make(sys.argv[1], sys.argv[2]))
