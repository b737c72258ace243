"""Costs at sizes that no test has: a run of a million measurements at m = 1, and a report over 1,000 runs.

`python benchmarks/reliability.py --only million report` runs them; the results are on the page docs/reliability.md.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from purectrl.core.io import with_checksum, write_json
from purectrl.runs.directory import checksums
from purectrl.runs.runner import run
from purectrl.runs.spec import RunSpec

MEASUREMENTS = 1_000_000
RUNS, RECORDS = 1_000, 128
ORIGINALS = 8
"""Runs that are made; the others are copies of them under other seeds."""
CLOCK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def million(results: Path) -> None:
    """A run of `finite` with PURE_base, one measurement and one update per step, watched from outside."""
    words = ["run", "finite", "--algorithm", "pure-base", "--measurements", str(MEASUREMENTS), "--learner.paths", "32"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        command = [sys.executable, "-m", "purectrl", *words, "--out", str(out), "--quiet"]
        child = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)  # noqa: S603
        samples = [sample for sample in iter(lambda: _sample(child, out), None) if sample[0] > 0]
        if child.wait() != 0:
            sys.exit(f"error: {' '.join(command)} ended with {child.returncode}")
        disk = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    steps, cpu, memory = map(np.array, zip(*samples, strict=True))
    early, late = _cost(steps, cpu, 1_000), _cost(steps, cpu, MEASUREMENTS)
    grown = np.polyfit(steps[steps > 10_000], memory[steps > 10_000], 1)[0]
    values = {
        "measurements": MEASUREMENTS,
        "milliseconds_per_step_at_1000": early * 1e3,
        "milliseconds_per_step_at_the_end": late * 1e3,
        "ratio": late / early,
        "bytes_of_memory_per_measurement": float(grown),
        "megabytes_of_memory": float(memory.max() / 1e6),
        "megabytes_on_disk": disk / 1e6,
        "cpu_seconds": float(cpu[-1]),
        "samples": [[int(n), round(float(c), 2), int(b)] for n, c, b in samples[:: max(1, len(samples) // 100)]],
    }
    _draw(steps, cpu, memory, results / "million.png")
    _write(results / "million.json", values)


def _sample(child: "subprocess.Popen[bytes]", out: Path) -> tuple[float, float, float] | None:
    """(measurements, seconds of computing, bytes of memory) of a run; None once it has ended."""
    time.sleep(0.5)
    if child.poll() is not None:
        return None
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    memory = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * PAGE
    records = out / "records.jsonl"
    return _last_count(records), (int(fields[11]) + int(fields[12])) / CLOCK, memory


def _last_count(records: Path) -> float:
    if not records.exists() or (size := records.stat().st_size) < 2:
        return 0
    with records.open("rb") as file:
        file.seek(max(0, size - 4096))
        lines = file.read().split(b"\n")
    return json.loads(lines[-2])["measurements"] if len(lines) > 1 and lines[-2].startswith(b"{") else 0


def _cost(steps: np.ndarray, cpu: np.ndarray, at: int) -> float:
    """Seconds of computing per step around `at`: the median over ten windows of samples near it."""
    middle = int(np.argmin(np.abs(steps - at)))
    first, last = max(0, middle - 10), min(len(steps) - 1, middle + 10)
    rates = [(cpu[k + 1] - cpu[k]) / (steps[k + 1] - steps[k]) for k in range(first, last) if steps[k + 1] > steps[k]]
    return statistics.median(rates)


def _draw(steps: np.ndarray, cpu: np.ndarray, memory: np.ndarray, file: Path) -> None:
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    edges = np.geomspace(1_000, MEASUREMENTS, 40)
    known = np.interp(edges, steps, cpu)
    left.loglog(edges[1:], np.diff(known) / np.diff(edges) * 1e3, ".-")
    left.set(xlabel="measurements", ylabel="milliseconds per step", title="cost of a step")
    right.plot(steps, memory / 1e6)
    right.set(xlabel="measurements", ylabel="megabytes", title="memory", ylim=(0, None))
    figure.savefig(file, dpi=90)
    plt.close(figure)


def report(results: Path) -> None:
    """`purectrl report` over many small runs."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for seed in range(ORIGINALS):
            overrides = {"learner.paths": 8}
            spec = RunSpec.of(
                "finite", "pure-base", seed, measurements=RECORDS, arguments={"steps": 8}, overrides=overrides
            )
            run(spec, base / "originals" / f"seed{seed}", quiet=True)
        for seed in range(RUNS):
            _copy(base / "originals" / f"seed{seed % ORIGINALS}", base / "runs" / f"seed{seed}", seed)
        command = [sys.executable, "-m", "purectrl", "report", str(base / "runs"), "--out", str(base / "page.html")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = subprocess.Popen(command, env=ENVIRONMENT)  # noqa: S603
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"error: {' '.join(command)} ended with {child.returncode}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        values = {
            "runs": RUNS,
            "records": RUNS * RECORDS,
            "cpu_seconds": (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime),
            "gigabytes_of_memory": usage.ru_maxrss * 1024 / 1e9,
            "megabytes": (base / "page.html").stat().st_size / 1e6,
        }
    _write(results / "report.json", values)


def _copy(source: Path, target: Path, seed: int) -> None:
    """A copy of a finished run under another seed, with checksums that match."""
    shutil.copytree(source, target)
    for name in ("config.json", "summary.json"):
        content = json.loads((target / name).read_text()) | {"seed": seed}
        if name == "summary.json":
            del content["checksum"]
            content = with_checksum(content | {"checksums": checksums(target)})
        write_json(target / name, content)


def _write(file: Path, values: dict[str, Any]) -> None:
    import platform

    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"values": values, "measured_on": machine}, indent=2)
    file.write_text(text + "\n")
    print(text)


MEASURED: dict[str, Callable[[Path], None]] = {"million": million, "report": report}
"""What is measured, by name."""


def section(found: dict[str, Any]) -> str:
    """The section of the page about a result."""
    values = found["values"]
    if "ratio" in values:
        return "\n".join(
            [
                "## A million measurements at m = 1",
                "",
                "`finite` with PURE_base: one measurement, one record and one policy update per step.",
                "",
                "| | measured | criterion | |",
                "|---|---|---|---|",
                _line("a step at 1,000,000 measurements over one at 1,000", values["ratio"], 1.2),
                "",
                f"A step costs {values['milliseconds_per_step_at_1000']:.2f} ms of computing at 1,000 measurements and "
                f"{values['milliseconds_per_step_at_the_end']:.2f} ms at the end; the run took "
                f"{values['cpu_seconds'] / 60:.0f} minutes of computing, {values['megabytes_of_memory']:.0f} MB of memory, "
                f"{values['bytes_of_memory_per_measurement']:.0f} bytes more per measurement, and "
                f"{values['megabytes_on_disk']:.0f} MB on disk.",
                "",
                "![Cost of a step and memory](results/reliability/million.png)",
                "",
                "Command: `python benchmarks/reliability.py --only million`",
                "",
            ]
        )
    return "\n".join(
        [
            "## A report over 1,000 runs",
            "",
            f"`purectrl report` over {values['runs']:,} runs with {values['records']:,} records, copies of {ORIGINALS} runs "
            f"under other seeds; the page has {values['megabytes']:.1f} MB.",
            "",
            "| | measured | criterion | |",
            "|---|---|---|---|",
            _line("seconds of computing", values["cpu_seconds"], 20.0),
            _line("gigabytes of memory", values["gigabytes_of_memory"], 1.0),
            "",
            "Command: `python benchmarks/reliability.py --only report`",
            "",
        ]
    )


def _line(what: str, found: float, limit: float) -> str:
    return f"| {what} | {found:.3g} | at most {limit:g} | {'met' if found <= limit else '**missed**'} |"
