"""`docs/reliability.md` is what the stored results give, and says so where a criterion is missed."""

import json
import runpy
import sys
from pathlib import Path

import hostile
import pytest
from hostile.campaign import Tally

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "reliability"


@pytest.fixture(scope="module")
def benchmark():
    before = list(sys.path)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield runpy.run_path(str(ROOT / "benchmarks" / "reliability.py"))
    sys.path[:] = before


def test_the_page_is_what_the_results_give(benchmark):
    assert (ROOT / "docs" / "reliability.md").read_text() == benchmark["page"]()


def test_the_page_shows_failures_and_names_every_attack_that_is_not_complete(benchmark, tmp_path):
    tally = Tally("kills")
    for number in range(3):
        failure = "differs in summary" if number == 1 else None
        counts = {"kills": 2, "kills between a checkpoint and the end": 1, "kills of a resume": 1, "kills of lqr": 2}
        verdict = {
            "number": number,
            "kind": "lqr",
            "case": "lqr, seed 0",
            "failure": failure,
            "counts": counts,
            "cpu": 2.0,
        }
        tally.add(verdict)
    machine = {"machine": "x86_64", "cores": 2, "python": "3.11"}
    (tmp_path / "kills.json").write_text(json.dumps({"values": tally.values, "measured_on": machine}))
    page = benchmark["page"](tmp_path)
    assert "| 6 kills | 150 | 1 | 0 | `python benchmarks/reliability.py --only kills` |" in page
    assert "- trial 1: `lqr, seed 0`: `differs in summary`" in page
    assert "50.0% fell between a checkpoint and the end (criterion: above a half, **missed**)" in page
    assert "By what was killed: 0 of finite, 6 of lqr, 0 of neural, 0 of pendulum, 0 of digits, 0 of sweep." in page
    (line,) = (line for line in page.splitlines() if line.startswith("**Not complete**"))
    assert "kills (6 of 150)" in line
    assert all(f"{name} (0 of " in line for name in hostile.ATTACKS if name != "kills")
    assert "On 2 x86_64 cores, Python 3.11." in page
