"""The peak memory of `digits`.

python benchmarks/diffusion_memory.py

Writes docs/results/diffusion_memory.json and prints the numbers: the peak of a whole run of PURE_SEIKO with its defaults,
and the peaks of short runs with 2 and with 8 updates, whose difference is the memory that an update does not release.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from page import write_result

RUN = [sys.executable, "-m", "purectrl", "run", "digits", "--algorithm", "pure-seiko", "--quiet"]
SHORT = {
    "--measurements": 480,
    "--problem.eval-images": 2,
    "--learner.reward-model.steps": 20,
    "--learner.finetune.iterations": 3,
    "--learner.finetune.min-backprop-steps": 12,
}
"""Small counts, but gradients pass through all twelve denoising steps: every update has the largest one."""
WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=2)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A program that runs the command in its arguments and prints the peak memory in KiB."""


def peak(flags: dict[str, int]) -> float:
    """The peak memory of `purectrl run digits` in a process of its own, in GiB."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *RUN,
            "--out",
            str(Path(folder, "run")),
            *(text for pair in flags.items() for text in map(str, pair)),
        ]
        done = subprocess.run([sys.executable, "-c", WATCH, *command], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return int(done.stdout) / 2**20


if __name__ == "__main__":
    write_result(
        "diffusion_memory",
        {
            "whole_run_gib": peak({}),
            "short_run_gib_by_updates": {str(count): peak({**SHORT, "--schedule.updates": count}) for count in (2, 8)},
        },
    )
