"""What a page shows of runs on systems with states: episodes, decisions, criteria, names of problems."""

import json
import shutil

import numpy as np
import pytest
from pages import change, make_control, records, reported, say
from PIL import Image

from purectrl.report.page.curves import summarize_times
from purectrl.systems.video import save_film


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_control(tmp_path_factory.mktemp("control") / "run")


@pytest.fixture
def control(whole, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(whole, tmp_path / "runs" / "tank")


def test_episodes_of_the_newest_evaluation_are_shown(control, tmp_path, capsys):
    status, _, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    assert status == 0
    shown = data["runs"][0]["episodes"]
    assert (len(shown["episodes"]), shown["labels"], shown["controls"]) == (3, ["x[0]", "x[1]"], 1)
    assert shown["update"] == records(control)[-1]["updates"]
    returns = []
    for episode in shown["episodes"]:
        t, r = np.array(episode["t"]), np.array(episode["r"])
        assert (t[0], t[-1]) == (0.0, 1.0)
        assert (np.diff(t) > 0).all()
        assert np.allclose(r, -np.array(episode["x"][0]), atol=1e-4)  # the reward of this system
        assert np.allclose(episode["x"][1], np.exp(-t), atol=1e-4)  # its second coordinate in closed form
        returns.append(np.trapezoid(r, t))
    assert np.mean(returns) == pytest.approx(records(control)[-1]["eval_return"], abs=1e-3)


def test_a_problem_states_its_criterion_and_the_standard_error_is_shown(control, tmp_path, capsys):
    _, _, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    metrics = data["runs"][0]["metrics"]
    assert data["groups"][0]["criterion"] == "mean return of at least -0.9"
    assert metrics["criterion_met"] is (metrics["return"] >= -0.9)
    assert metrics["return_error"] > 0
    assert data["groups"][0]["result"] == "eval_return"


def test_an_unfinished_run_shows_what_is_known(control, tmp_path, capsys):
    _, _, finished = reported(control, out=tmp_path / "page.html", capsys=capsys)
    (control / "summary.json").unlink()
    status, _, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    before, now = finished["runs"][0], data["runs"][0]
    assert status == 0
    assert not now["finished"]
    for name in ("return", "return_min", "return_error", "criterion_met"):
        assert now["metrics"][name] == before["metrics"][name]
    assert now["episodes"] == before["episodes"]


def test_decisions_are_listed(control, tmp_path, capsys):
    _, _, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    assert [row["updates"] for row in data["runs"][0]["decisions"]] == [line["updates"] for line in records(control)]
    words = ["explore", "execute the first policy", "stop", "</script>" + "x" * 1000]
    say(control, decision=words, imagined_reward=[0.1, 0.2, 0.3, 0.4])
    _, _, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    rows = data["runs"][0]["decisions"]
    assert [row["decision"] for row in rows][:3] == words[:3]
    assert len(rows[3]["decision"]) <= 400
    assert [row["imagined_reward"] for row in rows] == [0.1, 0.2, 0.3, 0.4]


def test_problems_of_the_same_name_are_kept_apart(control, tmp_path, capsys):
    other = shutil.copytree(control, tmp_path / "runs" / "other")
    for place, reference in ((control, "a/tank.py:problem"), (other, "b/tank.py:problem")):
        config = json.loads((place / "config.json").read_text())
        change(place / "config.json", problem=config["problem"] | {"reference": reference, "arguments": {}})
    _, _, data = reported(tmp_path / "runs", out=tmp_path / "page.html", capsys=capsys)
    assert {group["problem"] for group in data["groups"]} == {"tank (a/tank.py:problem)", "tank (b/tank.py:problem)"}


def test_environments_of_earlier_runs_are_named(control, tmp_path, capsys):
    config = json.loads((control / "config.json").read_text())
    old = config["problem"] | {"name": "gymnasium", "reference": "gymnasium", "arguments": {"env": "Reacher-v5"}}
    change(control / "config.json", problem=old)
    change(control / "summary.json", experiment="gymnasium")
    status, error, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    assert (status, data["groups"][0]["problem"]) == (0, "Reacher-v5"), error


def test_episodes_that_cannot_be_read_are_noted_and_the_rest_is_shown(control, tmp_path, capsys):
    file = control / "episodes.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(bytes(content))
    status, error, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    assert status == 0
    assert "its evaluation episodes are not shown" in error
    assert data["runs"][0]["episodes"] is None
    assert data["runs"][0]["metrics"]["return"] < 0


def test_a_picture_of_the_same_name_is_the_poster_of_a_film(control, tmp_path, capsys):
    (control / "media").mkdir()
    frames = np.full((9, 32, 32, 3), 255, np.uint8)
    frames[4] = 0  # the middle is black, the beginning white
    files = save_film(control / "media", "film", frames, fps=10)
    assert files[-1].name == "film.png"
    with Image.open(files[-1]) as poster:
        assert np.asarray(poster).max() == 0
    _, _, data = reported(control, out=tmp_path / "page.html", capsys=capsys)
    (shown,) = data["runs"][0]["media"]
    assert shown["name"] in ("film.mp4", "film.gif")
    assert shown["name"] == "film.gif" or shown["poster"].startswith("data:image/png;base64,")


def test_times_after_the_end_of_an_episode_are_not_counted():
    times = np.array([[0.0, 1.0, 2.0], [0.5, np.nan, np.nan]])
    shown = summarize_times(times, horizon=2.0, limit=100)
    assert (sum(shown["histogram"]), shown["measured"], [len(row) for row in shown["times"]]) == (4, 4, [3, 1])


def test_a_run_whose_episodes_end_is_shown(tmp_path, capsys):
    out = make_control(tmp_path / "run", ends=True)
    status, _, data = reported(out, out=tmp_path / "page.html", capsys=capsys)
    assert status == 0
    run = data["runs"][0]
    assert run["times"]["measured"] == run["ledger"]["measurements"] < run["times"]["total"] * run["times"]["m"]
    assert all(max(episode["x"][0]) < 1.2 for episode in run["episodes"]["episodes"])
