"""Small variants of the paper's items, made by the same functions as the real ones, and runs made up for them.

As a program: `python small.py NAME DIR` makes one as `purectrl paper` would.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from purectrl.cli import PaperArguments, make_item
from purectrl.core.keys import Key
from purectrl.experiments import items as paper
from purectrl.experiments.registry import experiment
from purectrl.experiments.runner import versions


def coefficient(settings, **effort):
    """Stands for the simulation of C_{T,m}: m for spread measurements, 1000 m for clustered ones."""
    clustered = settings["sampler"] == "windows"
    m = round(settings["window_length"] / settings["window_step"]) if clustered else settings["m"]
    value = m * (1000.0 if clustered else 1.0)
    return {"m": m, "value": value, "error": 0.1 * value, "drift": value / 2, "drift_error": 0.05 * value}


FAST = {"paths": 8, "steps": 8}
SMALL = {
    "thm1-coverage": paper.thm1_coverage(finite=40, linear=6, seeds=20, quick=3, **FAST),
    "thm1-rate": paper.thm1_rate((4096, 1024, 256), (1024, 256), seeds=5, quick=3, **FAST),
    "thm2-switches": paper.thm2_switches((32, 16, 8), (1.0, 10.0), seeds=3, quick=2, **FAST),
    "thm3-rollouts": paper.thm3_rollouts(64, (1, 2, 4), seeds=5, quick=3, coefficient=coefficient, **FAST),
    "prop2-independency": paper.prop2_independency(most=16),
    "neural-pendulum": paper.neural_pendulum(seeds=2),
    "control-main": paper.control_main(seeds=4, quick=2, hard=3, enode=2),
    "control-updates": paper.control_updates(seeds=2),
    "control-frequency": paper.control_frequency(seeds=2),
    "diffusion-main": paper.diffusion_main(seeds=3, quick=2),
    "diffusion-labels": paper.diffusion_labels(seeds=2, others=1),
    "diffusion-updates": paper.diffusion_updates(seeds=2, others=1),
    "diffusion-frequency": paper.diffusion_frequency(seeds=2, others=1),
    "diffusion-samples": paper.diffusion_samples(),
}


def make(name, out, **options):
    """Exit status of the item called `name`, made into `out`."""
    return make_item(SMALL[name], PaperArguments(out=Path(out), **options))


def noise(group, seed):
    """A number of mean zero for each run, the same for all groups with a seed."""
    return Key.from_seed(seed).child("noise").fraction() - 0.5


def pretend(item, folder, metrics, ledger=lambda group, seed: {}):
    """Leaves runs of `item` below DIR/ITEM that say what `metrics` and `ledger` (group, seed) -> values make up."""
    for group in item.groups:
        for job in item.jobs(folder, group, range(item.seeds)):
            job.out.mkdir(parents=True)
            spec, seed = job.spec, job.spec.seed
            m = group.settings.get("m", 1)
            spent = {"rollouts": spec.settings.measurements // m, "measurements": spec.settings.measurements}
            spent |= {
                "updates": 1,
                "seconds": {"total": 4.0, "rollout": 1.5, "fit": 0.5, "plan": 0.5, "compile": 0.1},
            } | ledger(group, seed)
            summary = {"experiment": spec.experiment, "algorithm": spec.algorithm, "seed": seed, "status": "finished"}
            summary |= {"ledger": spent, "metrics": metrics(group, seed)}
            summary["versions"] = versions(experiment(spec.experiment).packages)
            (job.out / "config.json").write_text(json.dumps({"format": 1, **spec.as_dict()}))
            (job.out / "summary.json").write_text(json.dumps(summary))
            tests = {"reward": 0.5, "episodes": 1, "test_reward": 0.9, "test_solved": True, "reward_error": 0.2}
            course = [{"measurements": 10 * n, "gap": 1.0 / n, "seconds": 30.0 * n, **tests} for n in range(1, 6)]
            (job.out / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in course))
            if spec.experiment == "digits":
                leave_samples(job.out)


def leave_samples(out):
    """What runs of diffusion leave besides: ten queries of 0.1 s, and samples that are black before and white after."""
    (out / "queries.jsonl").write_text('{"condition": 3, "score": 0.5, "seconds": 0.1, "picture": "a"}\n' * 10)
    (out / "media").mkdir()
    images, classes = np.zeros((20, 1, 16, 16), np.uint8), np.repeat(np.arange(10), 2)
    scores = np.linspace(0.0, 0.5, 20)
    kept = {"before": images, "after": images + 255, "before_scores": scores, "after_scores": scores + 0.25}
    save_file(kept | {"classes": classes}, out / "media" / "samples.safetensors")


if __name__ == "__main__":
    sys.exit(make(sys.argv[1], sys.argv[2], workers=1))
