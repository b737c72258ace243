"""The cost of a report over 20 runs.

    python benchmarks/report_speed.py                     makes the runs first
    python benchmarks/report_speed.py DIR...              uses existing runs, and writes no result
    python benchmarks/report_speed.py --picture DIR...    writes docs/media/report.png from a report over existing runs

Writes docs/results/report_speed.json and prints the numbers: seconds to build the page, start of Python included; its size;
seconds until Chromium has loaded it from the file and drawn every chart. The runs are ten of `finite` with PURE_base, which
records and updates after each of 4,096 episodes, and ten with PURE_LowSwitch, each with a video.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from page import write_result

from purectrl.runs.runner import run
from purectrl.runs.spec import RunSpec

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "report"))  # the tests use the same browser
from browser import Browser, executable  # noqa: E402

EPISODES = 4096
"""Measurements of each run, and records of those with PURE_base."""
REPEATS = 5
"""Repetitions of each timing, of which the fastest counts: other programs on the machine can only add time."""
PICTURE = 1100, 1180
"""Width and height of the screenshot in the documentation, in pixels."""


def make_runs(folder: Path) -> None:
    """Twenty runs with videos."""
    for seed in range(10):
        for algorithm in ("pure-base", "pure-low-switch"):
            out = folder / f"{algorithm}-seed{seed}"
            spec = RunSpec.of("finite", algorithm, seed, measurements=EPISODES, overrides={"learner.paths": 32})
            run(spec, out, quiet=True)
            (out / "media").mkdir()
            shutil.copyfile(ROOT / "docs" / "media" / "pendulum.gif", out / "media" / "video.gif")


def build(directories: list[str], out: Path) -> float:
    """Seconds of `purectrl report`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "purectrl", "report", *directories, "--out", str(out)], check=True)  # noqa: S603
    return time.perf_counter() - start


def load(page: Path, folder: Path) -> float | None:
    """Seconds until Chromium has drawn `page`; None without Chromium."""
    if executable() is None:
        return None
    with Browser(folder) as browser:
        found = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            browser.open(page)
            found.append(time.perf_counter() - start)
            assert browser.do("document.querySelectorAll('.chart canvas').length") > 0
    return min(found)


def measure(directories: list[str], folder: Path) -> dict[str, Any]:
    """Seconds and megabytes of a report over all runs in `directories`."""
    page = folder / "report.html"
    seconds = min(build(directories, page) for _ in range(REPEATS))
    text = page.read_text()
    carried = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    return {
        "runs": len(carried["runs"]),
        "records": sum(run["records"] for run in carried["runs"]),
        "build_seconds": seconds,
        "megabytes": page.stat().st_size / 1e6,
        "load_seconds": load(page, folder),
    }


def picture(directories: list[str], folder: Path, out: Path) -> None:
    """A screenshot of the top of a report over all runs in `directories`, for the documentation."""
    if executable() is None:
        raise SystemExit("a screenshot needs Chromium on the search path, or its path in the variable CHROMIUM")
    page = folder / "report.html"
    build(directories, page)
    with Browser(folder) as browser:
        browser.open(page, *PICTURE)
        browser.screenshot(out)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        if sys.argv[1:2] == ["--picture"]:
            picture(sys.argv[2:], Path(name), ROOT / "docs" / "media" / "report.png")
        elif len(sys.argv) > 1:
            print(json.dumps(measure(sys.argv[1:], Path(name)), indent=2))
        else:
            make_runs(Path(name, "runs"))
            write_result("report_speed", measure([f"{name}/runs"], Path(name)))
