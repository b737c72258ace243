"""`purectrl report`: what it shows is what the runs say, and what it cannot show it names."""

import json
import re
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import change, data, make, records, report, stop_half_way

from purectrl.cli import main
from purectrl.experiments import segments
from purectrl.report.page import media
from purectrl.report.page.courses import course, kept_rows
from purectrl.report.page.records import Records
from purectrl.report.page.times import measured_times


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep of two algorithms with two seeds each."""
    folder = tmp_path_factory.mktemp("sweep")
    for algorithm in ("pure-base", "pure-low-switch"):
        for seed in (0, 1):
            make(folder / f"{algorithm}-seed{seed}", algorithm=algorithm, seed=seed)
    return folder


@pytest.fixture
def sweep(whole, tmp_path):
    """A copy of it to spoil."""
    shutil.copytree(whole, tmp_path / "sweep")
    return tmp_path / "sweep"


def reported(*directories, out, capsys):
    """Exit status, standard error, and what the page carries, if there is one."""
    status = main(["report", *map(str, directories), "--out", str(out)])
    return status, capsys.readouterr().err, data(out) if out.exists() else None


# what is shown


def test_a_sweep_from_the_command_line(whole, tmp_path):
    done = report(whole, out=tmp_path / "new" / "report.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"wrote \S+report\.html: 4 runs, 0\.\d MB\n", done.stdout)
    found = data(tmp_path / "new" / "report.html")
    assert [(group["label"], group["experiment"]) for group in found["groups"]] == [
        ("pure-base", "finite"),
        ("pure-low-switch", "finite"),
    ]
    assert [(run["group"], run["seed"]) for run in found["runs"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found["problems"] == found["notes"] == []
    for run in found["runs"]:
        summary = json.loads(
            (whole / f"{found['groups'][run['group']]['label']}-seed{run['seed']}/summary.json").read_text()
        )
        assert run["ledger"] == summary["ledger"]
        assert run["course"]["average_gap"][-1] == pytest.approx(summary["metrics"]["gap"], rel=1e-5)
        assert run["course"]["measurements"][-1] == 60
        assert sum(run["times"]["histogram"]) == 60


def test_the_same_runs_give_the_same_page(whole, tmp_path):
    for name in ("a", "b"):
        assert main(["report", str(whole), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_page_needs_nothing_from_elsewhere(whole, tmp_path):
    main(["report", str(whole), "--out", str(tmp_path / "page")])
    text = (tmp_path / "page").read_text()
    addresses = set(re.findall(r"https?://[^\"'\s)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert "{{" not in text


def test_a_run_named_twice_is_shown_once(whole, tmp_path, capsys):
    run = whole / "pure-base-seed0"
    status, errors, found = reported(run, whole, whole / "." / "pure-base-seed0", out=tmp_path / "page", capsys=capsys)
    assert (status, errors, len(found["runs"])) == (0, "", 4)


def test_links_are_followed_and_circles_end(sweep, tmp_path, capsys):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "run").symlink_to(sweep / "pure-base-seed0")
    (linked / "circle").symlink_to(linked)
    status, _, found = reported(linked, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (0, 1)


def test_runs_with_other_settings_have_a_mean_of_their_own(sweep, tmp_path, capsys):
    make(sweep / "long", measurements=80)
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    labels = [group["label"] for group in found["groups"]]
    assert labels == ["pure-base, measurements 60", "pure-base, measurements 80", "pure-low-switch"]


def test_a_setting_that_an_older_run_did_not_know(sweep, tmp_path, capsys):
    config = json.loads((sweep / "pure-base-seed1" / "config.json").read_text())
    settings = {name: value for name, value in config["settings"].items() if name != "factor"}
    change(sweep / "pure-base-seed1" / "config.json", settings=settings)
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    labels = {group["label"] for group in found["groups"]}
    assert labels == {"pure-base, factor 5.0", "pure-base, without factor", "pure-low-switch"}


def test_times_are_those_of_the_measurements(tmp_path, monkeypatch):
    """Also where they have moved to files of their own."""
    plain = measured_times(make(tmp_path / "plain", m=3))
    monkeypatch.setattr(segments, "FULL", 1)
    moved = measured_times(make(tmp_path / "moved", m=3))
    assert list((tmp_path / "moved" / "data").iterdir())
    assert plain.shape == (20, 3)
    assert (np.diff(plain, axis=1) >= 0).all()
    np.testing.assert_array_equal(plain, moved)


def test_an_evaluation_is_shown_apart(sweep, tmp_path, capsys):
    assert main(["evaluate", str(sweep / "pure-base-seed0"), "--episodes", "20"]) == 0
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert found["runs"][0]["evaluation"]["episodes"] == 20
    assert found["runs"][0]["ledger"]["evaluation_rollouts"] == 0
    assert found["runs"][1]["evaluation"] is None


def test_pictures_that_do_not_fit_are_named(sweep, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(media, "embed", lambda paths, embed=media.embed: embed(paths, room=150))
    for run in sweep.iterdir():
        (run / "media").mkdir()
        for name in ("film.gif", "film.mp4", ".unfinished-film.mp4", "notes.txt"):
            (run / "media" / name).write_bytes(bytes(70))
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    shown = [[medium["uri"] is not None for medium in run["media"]] for run in found["runs"]]
    assert shown == [[True], [False], [True], [False]]  # the first seed of each group before any second
    assert {medium["name"] for run in found["runs"] for medium in run["media"]} == {"film.mp4"}
    assert sum("had no room on this page" in note for note in found["notes"]) == 2


# thinning

COLUMNS = st.integers(1, 400).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(1, 9), min_size=count, max_size=count),
        st.lists(st.floats(-5, 5), min_size=count, max_size=count),
        st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 3]), min_size=count, max_size=count),
    )
)


@given(columns=COLUMNS, limit=st.integers(8, 100))
def test_thinning_keeps_ends_totals_and_peaks(columns, limit):
    episodes, values, updated = (np.array(column) for column in columns)
    table = {"episodes": episodes, "rollouts": np.cumsum(episodes), "reward": values, "excess_drift": values}
    table = {name: column.astype(float) for name, column in table.items()}
    found = course(Records(table, updated), limit)
    assert len(found["rollouts"]) <= limit
    assert found["rollouts"][-1] == episodes.sum()
    assert found["rollouts"][0] == episodes[0]
    assert max(found["excess_drift"]) == pytest.approx(values.max(), rel=1e-5, abs=1e-300)
    weights = np.diff(found["rollouts"], prepend=0)
    assert weights @ np.array(found["reward"]) == pytest.approx(episodes @ values, rel=1e-4, abs=1e-3)
    assert np.bitwise_or.reduce(found["updated"]) == np.bitwise_or.reduce(updated)


@given(count=st.integers(1, 5000), updates=st.sets(st.integers(0, 4999), max_size=40), limit=st.integers(100, 500))
def test_updates_are_kept_while_they_fit(count, updates, limit):
    important = np.isin(np.arange(count), list(updates))
    rows = kept_rows(important, limit)
    assert set(np.flatnonzero(important)) <= set(rows)
    assert {0, count - 1} <= set(rows)
    assert len(rows) <= limit


# what is not as it should be


def half_a_line(run):
    file = run / "records.jsonl"
    file.write_text(file.read_text()[:-30])


def no_line(run):
    file = run / "records.jsonl"
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines()[:-1]))


def spoil_line(run, number, text):
    file = run / "records.jsonl"
    lines = file.read_text().splitlines()
    lines[number - 1] = text
    file.write_text("\n".join(lines) + "\n")


def other_record(**values):
    def spoil(run):
        spoil_line(run, 7, json.dumps(records(run)[6] | values))

    return spoil


DAMAGE = {
    "half a line": (half_a_line, "records.jsonl ends in the middle of line 60, although the run has finished"),
    "a line less": (no_line, "ends at 59 rollouts, summary.json says 60: records are missing"),
    "no records": (lambda run: (run / "records.jsonl").unlink(), "records.jsonl does not exist, although"),
    "no JSON": (lambda run: spoil_line(run, 3, "{'a': 1}"), "records.jsonl: line 3 is not JSON"),
    "two in a line": (lambda run: spoil_line(run, 3, "{}, {}"), "records.jsonl: line 3 is not JSON"),
    "a list": (lambda run: spoil_line(run, 3, "[1]"), "line 3 is not a record: it should hold names and values"),
    "deep brackets": (lambda run: spoil_line(run, 3, "[" * 100_000), "line 3 is not JSON"),
    "bytes": (lambda run: (run / "records.jsonl").write_bytes(b"\xff\xfe\n"), "line 1 is not JSON"),
    "old columns": (lambda run: spoil_line(run, 7, '{"step": 7, "n": 7}'), "line 7 has rollouts = None"),
    "a word": (other_record(measurements="7"), "line 7 has measurements = '7', which should be a number"),
    "not a number": (other_record(seconds=float("nan")), "line 7 counts fewer seconds"),
    "falling": (other_record(rollouts=3), "line 7 counts fewer rollouts than the line before"),
    "huge": (other_record(value=10**400), "value holds a number that no computer calculates with"),
    "other updates": (other_record(updated="all"), "line 7 has updated = 'all', not one of neither, drift"),
    "no config": (lambda run: (run / "config.json").unlink(), "holds no run: it has no config.json"),
    "newer format": (lambda run: change(run / "config.json", format=2), "has format 2, this version reads format 1"),
    "foreign config": (
        lambda run: (run / "config.json").write_text("{}"),
        "is not the configuration of a purectrl run",
    ),
    "seed": (lambda run: change(run / "config.json", seed="0"), "seed should be an integer, it is '0'"),
    "settings": (lambda run: change(run / "config.json", settings=[1]), "settings should be names and values"),
    "another run's summary": (lambda run: change(run / "summary.json", seed=9), "seed is 9 and should be 1"),
    "half a summary": (lambda run: (run / "summary.json").write_text('{"exp'), "summary.json is not JSON"),
    "old summary": (lambda run: change(run / "summary.json", ledger={"rollouts": 1}), "the seconds of each phase"),
    "no versions": (lambda run: change(run / "summary.json", versions=None), "which versions it was made with"),
    "a status": (
        lambda run: change(run / "summary.json", status="failed"),
        "status is 'failed' and should be 'finished'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_named_and_the_others_are_shown(damage, sweep, tmp_path, capsys):
    spoil, words = DAMAGE[damage]
    spoil(sweep / "pure-base-seed1")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 1
    (line,) = errors.splitlines()
    assert line.startswith("left out: ")
    assert words in line
    assert "pure-base-seed1" in line
    assert [f"left out: {problem}" for problem in found["problems"]] == [line]
    assert [(run["group"], run["seed"]) for run in found["runs"]] == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("damage", ["no JSON", "newer format", "no config"])
def test_if_nothing_is_left_nothing_is_written(damage, sweep, tmp_path, capsys):
    run = sweep / "pure-base-seed1"
    DAMAGE[damage][0](run)
    status, errors, found = reported(run, out=tmp_path / "new" / "page", capsys=capsys)
    assert (status, found) == (2, None)
    assert errors.startswith("error: no run to report on: ")
    assert DAMAGE[damage][1] in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_places_without_runs(whole, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    places = [tmp_path / name for name in ("empty", "file", "absent")]
    status, errors, found = reported(*places, out=tmp_path / "page", capsys=capsys)
    assert (status, found) == (2, None)
    assert f"{tmp_path}/empty holds no run" in errors
    assert f"{tmp_path}/file is a file, not a directory" in errors
    assert f"{tmp_path}/absent does not exist" in errors
    status, errors, found = reported(whole, *places, out=tmp_path / "page", capsys=capsys)
    assert (status, len(errors.splitlines()), len(found["problems"]), len(found["runs"])) == (1, 3, 3, 4)


def test_a_run_that_goes_on_is_shown_and_noted(sweep, tmp_path, capsys):
    run = stop_half_way(sweep / "half", seed=7)
    with open(run / "records.jsonl", "a") as file:
        file.write('{"step": 31, "epis')
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    assert errors.splitlines() == [f"note: {note}" for note in found["notes"]]
    assert "half has not finished: it is shown, and no mean counts it" in errors
    assert "line 31 is half written and was left out" in errors
    (half,) = (run for run in found["runs"] if not run["finished"])
    assert (half["ledger"]["measurements"], half["metrics"], half["records"]) == (30, {}, 30)


def test_a_run_without_any_record(sweep, tmp_path, capsys):
    run = sweep / "pure-base-seed1"
    for name in ("summary.json", "records.jsonl"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoint")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    assert "pure-base-seed1 has no records yet" in errors
    assert found["runs"][1]["course"] == {}
    assert found["runs"][1]["ledger"]["measurements"] == 0


def test_a_copy_of_a_run_does_not_count_twice(sweep, tmp_path, capsys):
    shutil.copytree(sweep / "pure-base-seed0", sweep / "zcopy")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (1, 4)
    assert "zcopy has the settings and the seed of" in errors


def test_no_mean_mixes_versions(sweep, tmp_path, capsys):
    for name in ("config.json", "summary.json"):
        versions = json.loads((sweep / "pure-base-seed1" / name).read_text())["versions"]
        change(sweep / "pure-base-seed1" / name, versions=versions | {"purectrl": "0.0.7"})
    status, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    labels = [group["label"] for group in found["groups"]]
    assert labels[0].startswith("pure-base, with purectrl 0.")
    assert labels[1] == "pure-low-switch" or labels[1].startswith("pure-base, with purectrl 0.")
    assert len(labels) == 3
    assert any("made with purectrl 0.0.7 and" in note and "no mean mixes them" in note for note in found["notes"])


def test_a_damaged_checkpoint_costs_the_times_alone(sweep, tmp_path, capsys):
    for file in (sweep / "pure-base-seed1" / "checkpoint").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    (sweep / "pure-base-seed1" / "evaluation.json").write_text("[")
    status, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"]), found["runs"][1]["times"]) == (0, 4, None)
    assert any("so its times are not shown" in note for note in found["notes"])
    assert any("the evaluation is not shown" in note for note in found["notes"])


def test_where_a_report_may_go(whole, tmp_path, capsys):
    precious = tmp_path / "thesis.html"
    precious.write_text("<!doctype html>\n<p>years of work")
    for out, words in ((precious, "exists and is no report of purectrl"), (tmp_path, "is a directory; name a file")):
        assert main(["report", str(whole), "--out", str(out)]) == 2
        assert words in capsys.readouterr().err
    assert precious.read_text().endswith("years of work")
    assert main(["report"]) == 2
    assert "directories" in capsys.readouterr().err.lower()
    for _ in range(2):  # a report replaces a report
        assert main(["report", str(whole), "--out", str(tmp_path / "page")]) == 0
