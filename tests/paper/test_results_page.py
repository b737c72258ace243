"""The results page is generated from files, and names the criteria that are missed."""

import json
import runpy
import shutil
from pathlib import Path

import pytest
from small import SMALL, make, pretend

ROOT = Path(__file__).parents[2]
PAGE = runpy.run_path(str(ROOT / "benchmarks" / "page.py"))


@pytest.fixture
def results(tmp_path):
    """A copy of docs/results with one more item, one of whose criteria is missed."""
    item = SMALL["thm1-coverage"]

    def covered(group, seed):
        return {"covered": group.name != "lqr-theorem" or seed > 3, "radius_needed": 0.5}

    pretend(item, tmp_path / "runs" / item.name, covered)
    assert make(item.name, tmp_path / "runs", quiet=True) == 0
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "results")
    return tmp_path / "results"


def test_the_page_in_the_repository_is_what_its_files_say():
    assert (ROOT / "docs" / "results.md").read_text() == PAGE["page"]()
    deployment = (ROOT / "docs" / "deployment.md").read_text()
    assert deployment == PAGE["with_latency_table"](deployment)


def test_an_item_is_copied(results):
    assert PAGE["take"](results.parent / "runs", results) == ["thm1-coverage"]
    text = PAGE["page"](results)
    assert "## thm1-coverage" in text
    assert "1 of 8 criteria missed" in text
    assert "- **Missed**: linear, PURE LowRollout, N = 8, theorem: share of covered runs" in text
    assert "- Met: lists, PURE base, N = 40, theorem" in text
    assert "![thm1-coverage](results/thm1-coverage.png)" in text
    assert (results / "thm1-coverage.png").exists()
    assert "`purectrl paper thm1-coverage --out DIR` (80 runs, seeds 0 to 19" in text
    table = (results.parent / "runs" / "thm1-coverage" / "table.md").read_text()
    assert table in text
    glance = next(line for line in text.split("\n") if line.startswith("| [thm1-coverage](#thm1-coverage) |"))
    assert "| 7 of 8 | 80 |" in glance


def test_what_is_too_large_or_unfinished_is_refused(results):
    item = results.parent / "runs" / "thm1-coverage"
    (results / "thm1-coverage.json").unlink(missing_ok=True)  # the real one, if the repository has it
    with pytest.raises(SystemExit, match="holds no item"):
        PAGE["take"](results, results)
    content = json.loads((item / "numbers.json").read_text())
    (item / "numbers.json").write_text(json.dumps(content | {"more": "x" * 60_000}))
    with pytest.raises(SystemExit, match="more than 60,000 bytes; nothing was copied"):
        PAGE["take"](results.parent / "runs", results)
    (item / "numbers.json").write_text(json.dumps(content))
    (item / "figure.png").unlink()
    with pytest.raises(SystemExit, match=r"figure\.png is missing"):
        PAGE["take"](item, results)
    assert not (results / "thm1-coverage.json").exists()


def test_a_file_that_nobody_knows_is_not_left_out(results):
    (results / "surprise.json").write_text('{"values": 1}')
    with pytest.raises(SystemExit, match=r"surprise\.json is neither a benchmark"):
        PAGE["page"](results)
