"""How much memory `digits` takes.

python benchmarks/diffusion_memory.py

Writes docs/results/diffusion_memory.json and prints the numbers: the peak of a whole run of PURE_SEIKO with its defaults,
and the peaks of short runs with 2 and with 8 updates, whose difference is what an update leaves behind.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from page import write_result

SHORT = [
    "--measurements",
    "480",
    "--fit-steps",
    "20",
    "--tune-iterations",
    "3",
    "--test-images",
    "2",
    "--shortest",
    "12",
]
"""Few of everything, but all twelve denoising steps in every backpropagation: the largest is met in every update."""


def peak(flags: list[str]) -> float:
    """GiB that `purectrl run digits` takes at most, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = [
            "-m",
            "purectrl",
            "run",
            "digits",
            "--algorithm",
            "pure-seiko",
            "--quiet",
            "--out",
            str(Path(folder, "run")),
        ]
        watch = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=2); "
        watch += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        told = subprocess.run(  # noqa: S603
            [sys.executable, "-c", watch, sys.executable, *run, *flags], check=True, stdout=subprocess.PIPE, text=True
        )
    return int(told.stdout) / 2**20


if __name__ == "__main__":
    write_result(
        "diffusion_memory",
        {
            "whole_run_gib": peak([]),
            "short_run_gib_by_updates": {str(count): peak([*SHORT, "--updates", str(count)]) for count in (2, 8)},
        },
    )
