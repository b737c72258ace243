"""kill -9 at a random moment, then resume: the run must end as if nothing had happened."""

import random
import time

import pytest
from helpers import SHORT, left_by, purectrl, start

ARGUMENTS = ("--measurements", 1500, *SHORT, "--quiet")
RUNS = {"pure-low-switch": 0, "pure-base": 1, "pure-low-rollout": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One uninterrupted run of each algorithm, and how long the program takes with everything compiled."""
    results, seconds = {}, {}
    for algorithm, seed in RUNS.items():
        for attempt in ("compiles", "measured"):
            out = tmp_path_factory.mktemp(algorithm) / attempt
            begin = time.monotonic()
            done = purectrl("run", "finite", "--algorithm", algorithm, "--seed", seed, "--out", out, *ARGUMENTS)
            assert done.returncode == 0, done.stderr
            results[algorithm], seconds[algorithm] = left_by(out), time.monotonic() - begin
    return results, seconds


FEW = 4
"""Trials in `make test`; the others run in `make test-all`."""


@pytest.mark.parametrize(
    "trial", [pytest.param(trial, marks=[pytest.mark.slow] if trial >= FEW else []) for trial in range(30)]
)
def test_a_killed_run_resumes_bit_for_bit(whole, tmp_path, trial):
    results, seconds = whole
    algorithm = list(RUNS)[trial % len(RUNS)]
    out, moment = tmp_path / "run", random.Random(trial)
    process = start("run", "finite", "--algorithm", algorithm, "--seed", RUNS[algorithm], "--out", out, *ARGUMENTS)
    for _ in range(1 + trial % 2):  # every other run is killed once more while it resumes
        # most of the time the program builds its tables; look for the run itself half of the time
        if moment.random() < 0.5:
            while process.poll() is None and not (out / "records.jsonl").exists():
                time.sleep(0.002)
            time.sleep(moment.uniform(0.0, 0.3) * seconds[algorithm])
        else:
            time.sleep(moment.uniform(0.0, 1.0) * seconds[algorithm])
        process.kill()
        process.wait()
        if (out / "summary.json").exists() or not (out / "config.json").exists():
            break
        process = start("resume", out, "--quiet")
    process.wait()
    if not (out / "config.json").exists():  # killed before there was a run: nothing but a lock may be there
        left = [path.name for path in out.iterdir() if path.name != ".lock"] if out.exists() else []
        assert all(name.startswith(".config.json.") and name.endswith(".part") for name in left)
        done = purectrl("run", "finite", "--algorithm", algorithm, "--seed", RUNS[algorithm], "--out", out, *ARGUMENTS)
    else:
        done = purectrl("resume", out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert left_by(out) == results[algorithm]
