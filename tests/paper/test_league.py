"""The league: scores between floor and ceiling, what is spent until the share is reached, ranks, utilities."""

import json

import numpy as np
import pytest

from purectrl.cli import main
from purectrl.core.errors import InputError, StoreError
from purectrl.core.ledger import Ledger
from purectrl.core.prices import Prices
from purectrl.paper import league
from purectrl.paper.item import Group
from purectrl.paper.load import Runs


def runs(folder, problem, algorithm, curves):
    """Runs of one group with these returns after each update; every update takes ten measurements and one rollout."""
    group = Group(f"{problem}-{algorithm}", problem, problem, algorithm)
    paths, summaries = [], []
    for seed, returns in enumerate(curves):
        path = folder / group.name / f"seed{seed}"
        path.mkdir(parents=True)
        paths.append(path)
        counts = [{"rollouts": n, "measurements": 10 * n, "updates": n} for n in range(1, len(returns) + 1)]
        lines = [
            {"step": n, "episodes": 1, **count, "updated": "both", "seconds": float(n), "eval_return": value}
            for n, (count, value) in enumerate(zip(counts, returns, strict=True), 1)
        ]
        (path / "records.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        ledger = Ledger(**counts[-1]).as_dict()
        summaries.append({"seed": seed, "ledger": ledger, "metrics": {"return": returns[-1]}})
    return Runs(group, tuple(paths), tuple(summaries))


@pytest.fixture
def found(tmp_path):
    """Floor 10, ceiling 110: a return of 105 is a score of 0.95."""
    curves = {
        "random": [[10.0], [10.0]],
        "known-model": [[110.0]],
        "fast": [[60.0, 105.0, 104.0], [106.0, 90.0, 110.0], [20.0, 106.0, 110.0]],
        "slow": [[20.0, 30.0, 105.0], [10.0, 20.0, 105.0], [20.0, 10.0, 30.0]],
        "never": [[60.0], [60.0], [60.0]],
    }
    return {name: runs(tmp_path, "tank", name, values) for name, values in curves.items()}


def rows(analysis):
    return {row["algorithm"]: row for row in analysis.numbers["rows"]}


def test_scores_lie_between_floor_and_ceiling_and_costs_end_where_the_share_is_reached(found):
    table = rows(league.analyze(found, ("fast", "slow", "never"), 0.95))
    assert table["fast"]["score"] == pytest.approx(np.mean([0.94, 1.0, 1.0]))
    assert (table["fast"]["reached"], table["slow"]["reached"], table["never"]["reached"]) == (
        "3 of 3",
        "2 of 3",
        "0 of 3",
    )
    assert [table["fast"][name] for name in league.SPENT] == [20.0, 2.0, 2.0, 2.0]  # medians of 2, 1 and 2 updates
    assert [table["slow"][name] for name in league.SPENT] == [30.0, 3.0, 3.0, 3.0]  # of 3, 3 and never
    assert table["never"]["measurements"] is None
    assert [table[name]["rank"] for name in ("fast", "slow", "never")] == [1, 2, 3]


def test_equal_results_share_a_rank_and_ranks_are_averaged(found, tmp_path):
    found["copy"] = runs(tmp_path, "tank", "copy", [[60.0], [60.0], [60.0]])
    analysis = league.analyze(found, ("fast", "never", "copy"), 0.95)
    assert analysis.numbers["mean_ranks"] == {"fast": 1.0, "never": 2.0, "copy": 2.0}


def test_utility_is_the_return_less_what_the_ledger_spent(found):
    table = rows(league.analyze(found, ("fast", "never"), 0.95, Prices(measurement=0.1, rollout=2.0, update=1.0)))
    assert table["never"]["utility"] == pytest.approx(60.0 - 1.0 - 2.0 - 1.0)
    assert table["fast"]["utility"] == pytest.approx(np.mean([104.0, 110.0, 110.0]) - 3 * (1.0 + 2.0 + 1.0))


def test_without_equations_the_best_mean_is_the_ceiling(found):
    del found["known-model"]
    table = rows(league.analyze(found, ("fast", "never"), 0.95))
    assert table["fast"]["score"] == pytest.approx(1.0)
    assert table["never"]["score"] == pytest.approx(50.0 / (np.mean([104.0, 110.0, 110.0]) - 10.0))


def test_a_ceiling_that_is_not_above_the_floor_is_refused(found):
    with pytest.raises(StoreError, match="tank: the ceiling, a return of 10, is not above the floor, 10"):
        league.analyze({"random": found["random"]}, ("random",), 0.95)


def test_the_figure_has_a_mark_per_algorithm_and_a_line_for_the_share(found):
    figure = league.draw(league.analyze(found, ("fast", "slow", "never"), 0.95).numbers)
    left, right = figure.axes
    labels = left.get_legend_handles_labels()[1]
    assert labels == [
        "fast (mean rank 1.0)",
        "slow (mean rank 2.0)",
        "never (mean rank 3.0)",
        "share that counts as reached",
    ]
    assert sorted(len(line.get_xdata()) for line in right.lines) == [0, 2, 3]


def test_floor_and_ceiling_are_added_once_and_with_few_seeds():
    item = league.item({"pendulum": True, "ocorl-cancer": False}, ("ocorl", "random"), seeds=5)
    assert [(group.problem, group.algorithm, group.most_seeds) for group in item.groups] == [
        ("pendulum", "ocorl", None),
        ("pendulum", "random", None),
        ("pendulum", "known-model", 3),
        ("ocorl-cancer", "ocorl", None),
        ("ocorl-cancer", "random", None),
    ]
    assert item.count(range(5)) == 5 * 4 + 3
    with pytest.raises(InputError, match="share: must be above 0 and at most 1, not 2"):
        league.item({"pendulum": True}, ("ocorl",), 1, share=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pendulum", "--out", "x"], "--algorithms is missing"),
        (["pendulm", "--algorithms", "random", "--out", "x"], "pendulum"),
        (["digits", "--algorithms", "ocorl", "--out", "x"], "images|diffusion"),
        (["pendulum", "--algorithms", "random", "--out", "x", "--rollout-price", "-1"], "rollout_price: must not be"),
        (["pendulum", "--algorithms", "random", "--out", "x", "--share", "0"], "share: must be above 0"),
    ],
)
def test_wrong_calls_are_refused_before_anything_runs(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["league", *words]) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) <= 2
    assert any(part in errors for part in message.split("|")), errors
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_league_from_the_command_line(tmp_path, capsys):
    words = ["league", "ocorl-cancer", "--algorithms", "ocorl", "--seeds", "3:5", "--measurements", "33"]
    assert main([*words, "--out", str(tmp_path), "--workers", "2"]) == 0
    printed = capsys.readouterr().out
    assert "| ocorl-cancer | ocorl | 1 |" in printed
    assert {path.name for path in (tmp_path / "league").iterdir()} == {
        "figure.pdf",
        "figure.png",
        "numbers.json",
        "report.html",
        "runs",
        "table.csv",
        "table.md",
    }
    numbers = json.loads((tmp_path / "league" / "numbers.json").read_text())
    assert numbers["command"].startswith("purectrl league ocorl-cancer --algorithms ocorl --seeds 3:5")
    assert numbers["seeds"] == [3, 4]
