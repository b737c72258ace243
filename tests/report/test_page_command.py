"""`purectrl report`: the page contains the data of the runs, and lists what it does not contain."""

import json
import re
import shutil
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import change, data, make, report, reported

from purectrl.cli import main
from purectrl.report.page import media
from purectrl.report.page.curves import downsample, learning_curves
from purectrl.report.page.records import Records, read_measurement_times
from purectrl.runs import data_shards

# content


def test_a_sweep_from_the_command_line(whole, tmp_path):
    done = report(whole, out=tmp_path / "new" / "report.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"wrote \S+report\.html: 4 runs, 0\.\d MB\n", done.stdout)
    found = data(tmp_path / "new" / "report.html")
    assert [(group["label"], group["problem"]) for group in found["groups"]] == [
        ("pure-base", "finite"),
        ("pure-low-switch", "finite"),
    ]
    assert [(run["group"], run["seed"]) for run in found["runs"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found["excluded"] == found["notes"] == []
    for run in found["runs"]:
        summary = json.loads(
            (whole / f"{found['groups'][run['group']]['label']}-seed{run['seed']}/summary.json").read_text()
        )
        assert run["ledger"] == summary["ledger"]
        assert run["curves"]["average_gap"][-1] == pytest.approx(summary["metrics"]["gap"], rel=1e-5)
        assert run["curves"]["measurements"][-1] == 60
        assert sum(run["times"]["histogram"]) == 60


def test_the_same_runs_give_the_same_page(whole, tmp_path):
    for name in ("a", "b"):
        assert main(["report", str(whole), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_page_needs_nothing_from_elsewhere(whole, tmp_path):
    main(["report", str(whole), "--out", str(tmp_path / "page")])
    text = (tmp_path / "page").read_text()
    addresses = re.findall(r"https?://[^\"'\s)]+", text)
    assert addresses == ["https://github.com/leeoniya/uPlot"]  # in a comment of uPlot
    assert not re.search(r"\{\{\w+\}\}", text)
    assert "default-src 'none'" in text


def test_the_page_contains_uplot_and_its_license(whole, tmp_path):
    main(["report", str(whole), "--out", str(tmp_path / "page")])
    text = (tmp_path / "page").read_text()
    vendor = files("purectrl.report.page").joinpath("vendor")
    for name in ("uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE"):
        assert vendor.joinpath(name).read_text() in text
    assert "Permission is hereby granted, free of charge" in text


def test_a_run_named_twice_is_shown_once(whole, tmp_path, capsys):
    run = whole / "pure-base-seed0"
    status, errors, found = reported(run, whole, whole / "." / "pure-base-seed0", out=tmp_path / "page", capsys=capsys)
    assert (status, errors, len(found["runs"])) == (0, "", 4)


def test_links_below_a_directory_are_not_followed(sweep, tmp_path, capsys):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "run").symlink_to(sweep / "pure-base-seed0")
    (linked / "circle").symlink_to(linked)
    (linked / "root").symlink_to("/")
    shutil.copytree(sweep / "pure-base-seed1", linked / "copy")
    status, errors, found = reported(linked, out=tmp_path / "page", capsys=capsys)
    assert (status, [Path(run["directory"]).name for run in found["runs"]]) == (0, ["copy"])
    first, second = errors.splitlines()
    assert "is a link to a directory, which is searched only if you name it" in first
    assert "has 2 more links to directories" in second


def test_a_directory_that_is_a_link_is_searched_if_it_is_named(sweep, tmp_path, capsys):
    (tmp_path / "link").symlink_to(sweep)
    status, _, found = reported(tmp_path / "link", out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (0, 4)


@pytest.mark.parametrize(("name", "most"), [("MAX_DIRECTORIES", 3), ("MAX_ENTRIES", 10)])
def test_a_search_that_is_too_large_is_refused_before_a_run_is_read(sweep, tmp_path, capsys, monkeypatch, name, most):
    discover = sys.modules["purectrl.report.page.discover"]
    monkeypatch.setattr(discover, name, most)
    monkeypatch.setattr(discover, "read_run", lambda place: pytest.fail(f"{place} was read"))
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, found) == (2, None)
    assert "name the directories that contain the runs" in errors


def test_runs_with_other_settings_have_their_own_mean(sweep, tmp_path, capsys):
    make(sweep / "long", measurements=80)
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    labels = [group["label"] for group in found["groups"]]
    assert labels == ["pure-base, measurements 60", "pure-base, measurements 80", "pure-low-switch"]


def test_a_setting_that_an_older_run_lacks(sweep, tmp_path, capsys):
    config = json.loads((sweep / "pure-base-seed1" / "config.json").read_text())
    learner = {name: value for name, value in config["algorithm"]["learner"].items() if name != "delta"}
    change(sweep / "pure-base-seed1" / "config.json", algorithm=config["algorithm"] | {"learner": learner})
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    labels = {group["label"] for group in found["groups"]}
    assert labels == {"pure-base, learner.delta 0.1", "pure-base, without learner.delta", "pure-low-switch"}


def test_times_are_those_of_the_measurements(tmp_path, monkeypatch):
    """Also if they are stored in data shards."""
    plain = read_measurement_times(make(tmp_path / "plain", sampler__m=3))
    monkeypatch.setattr(data_shards, "SHARD_BYTES", 1)
    moved = read_measurement_times(make(tmp_path / "moved", sampler__m=3))
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


def test_media_that_do_not_fit_are_noted(sweep, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(media, "embed", lambda paths, embed=media.embed: embed(paths, max_bytes=150))
    for run in sweep.iterdir():
        (run / "media").mkdir()
        for name in ("film.gif", "film.mp4", ".unfinished-film.mp4", "notes.txt"):
            (run / "media" / name).write_bytes(b"\0\0\0\x18ftyp" + bytes(62))
    _, _, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    shown = [[medium["uri"] is not None for medium in run["media"]] for run in found["runs"]]
    assert shown == [[True], [False], [True], [False]]  # the first seed of each group before any second
    assert {medium["name"] for run in found["runs"] for medium in run["media"]} == {"film.mp4"}
    assert sum("exceeds the space for media on this page" in note for note in found["notes"]) == 2


# downsampling

COLUMNS = st.integers(1, 400).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(1, 9), min_size=count, max_size=count),
        st.lists(st.floats(-5, 5), min_size=count, max_size=count),
        st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 3]), min_size=count, max_size=count),
    )
)


@given(columns=COLUMNS, limit=st.integers(8, 100))
def test_downsampling_keeps_ends_totals_and_peaks(columns, limit):
    episodes, values, updated = (np.array(column) for column in columns)
    table = {"episodes": episodes, "rollouts": np.cumsum(episodes), "reward": values, "excess_drift": values}
    table = {name: column.astype(float) for name, column in table.items()}
    found = learning_curves(Records(table, updated), limit)
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
    rows = downsample(important, limit)
    assert set(np.flatnonzero(important)) <= set(rows)
    assert {0, count - 1} <= set(rows)
    assert len(rows) <= limit


# output file


def test_where_a_report_may_go(whole, tmp_path, capsys):
    precious = tmp_path / "thesis.html"
    precious.write_text("<!doctype html>\n<p>years of work")
    for out, words in ((precious, "exists and is not a report of purectrl"), (tmp_path, "is a directory; name a file")):
        assert main(["report", str(whole), "--out", str(out)]) == 2
        assert words in capsys.readouterr().err
    assert precious.read_text().endswith("years of work")
    assert main(["report"]) == 2
    assert "report needs a directory first" in capsys.readouterr().err
    for _ in range(2):  # a report replaces a report
        assert main(["report", str(whole), "--out", str(tmp_path / "page")]) == 0


def test_a_run_of_version_0_1_is_shown_and_is_refused_elsewhere(tmp_path, capsys):
    old = shutil.copytree(Path(__file__).parent / "run_0_1", tmp_path / "old")
    status, errors, found = reported(old, out=tmp_path / "page", capsys=capsys)
    assert status == 0
    assert "written by purectrl 0.1" in errors
    (group,) = found["groups"]
    assert (group["problem"], group["algorithm"], group["threshold"]) == ("finite", "pure-low-switch", 5.0)
    assert group["update_rule"] == "when the excess loss of a model reaches 5 β; renews it"
    for command in ("resume", "evaluate"):
        assert main([command, str(old)]) == 2
        assert "was written by purectrl 0.1, whose settings this version does not read" in capsys.readouterr().err
