"""`docs/reliability.md` is what the stored results give, and says so where a criterion is missed."""

import json
import runpy
import sys
from pathlib import Path

import hostile
import pytest

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


def test_the_page_shows_every_attack_and_its_failures(benchmark, tmp_path):
    for path in RESULTS.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    kills = json.loads((RESULTS / "kills.json").read_text())
    kills["values"] |= {
        "failed": 1,
        "failures": [{"number": 7, "kind": "lqr", "case": "lqr", "failure": "differs in summary"}],
    }
    (tmp_path / "kills.json").write_text(json.dumps(kills))
    page = benchmark["page"](tmp_path)
    assert "- trial 7: `lqr`: `differs in summary`" in page
    for name in hostile.ATTACKS:
        assert f"--only {name}`" in page
