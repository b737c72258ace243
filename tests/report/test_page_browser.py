"""The report page in a real Chromium: it opens from a file, draws, filters, plays, and complains about nothing."""

import json
from importlib import import_module

import numpy as np
import pytest
from browser import Browser, executable
from pages import change, make, records, stop_half_way
from PIL import Image

from purectrl.cli import main
from purectrl.systems.film import save_film

pytestmark = pytest.mark.skipif(
    executable() is None, reason="needs Chromium on the path, or CHROMIUM=/path/to/chromium"
)

SEEDS = (0, 1, 2)
HOSTILE = "</script><img src=x onerror=console.error('run')>"
PIXELS = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven runs: two algorithms on `finite`, one on `ou`, one that has not finished, one with a film and odd names."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in SEEDS:
        make(folder / f"base-{seed}", seed=seed)
    for seed in SEEDS[:2]:
        make(folder / f"switch-{seed}", algorithm="pure-low-switch", seed=seed)
    stop_half_way(folder / "half", seed=7)
    make(folder / "ou", "ou", "pure-low-rollout", paths=8)
    settings = json.loads((folder / "ou" / "config.json").read_text())["settings"]
    change(folder / "ou" / "config.json", settings=settings | {"comment": HOSTILE})
    (folder / "base-0" / "media").mkdir()
    frames = np.random.default_rng(0).integers(0, 255, (10, 64, 64, 3), np.uint8)
    save_film(folder / "base-0" / "media" / "film.mp4", frames, fps=10)
    save_film(folder / "base-1" / "film.gif", frames, fps=10).parent.joinpath("media").mkdir()
    (folder / "base-1" / "film.gif").rename(folder / "base-1" / "media" / "film.gif")
    return folder


@pytest.fixture(scope="module")
def page(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def opened(chromium, page):
    chromium.open(page)
    yield chromium
    assert chromium.complaints() == []


def count(browser, selector):
    return browser.do(f"document.querySelectorAll({json.dumps(selector)}).length")


def texts(browser, selector):
    return browser.do(f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.textContent)")


def panel_data(browser, section, number=0):
    """The table behind a chart, opened as a reader would."""
    chart = f"document.querySelectorAll('#{section} .chart')[{number}]"
    browser.do(f"{chart}.querySelector('details.data summary').click()")
    browser.settle()
    return browser.do(
        f"[...{chart}.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


def test_it_opens_from_a_file_and_asks_for_nothing_else(opened, page):
    assert opened.requests() == [page.absolute().as_uri()]
    assert (
        opened.do("document.title")
        == "finite and ou: pure-base, pure-low-switch and pure-low-rollout · purectrl report"
    )
    assert opened.do("document.getElementById('count').textContent") == "7 of 7 runs shown"


def test_every_section_is_drawn(opened):
    sections = opened.do("[...document.querySelectorAll('main > section')].map((node) => node.id)")
    expected = ["glance", "currencies", "measured", "updated", "coverage", "media", "ledger", "evaluation", "settings"]
    assert sections == expected
    assert count(opened, "#currencies .chart") == 2  # one for each experiment
    assert count(opened, "#currencies path.mean") == 3  # two means, and the only run of ou
    assert count(opened, "#currencies path.run") == 6
    assert count(opened, "#currencies path.band") == 2
    assert count(opened, "#measured path.dots") == 1
    assert count(opened, "#measured rect") == 50
    assert count(opened, "#updated path.ticks") == 7
    drawings = opened.do("[...document.querySelectorAll('main svg')].map((node) => node.outerHTML).join()")
    assert "NaN" not in drawings
    assert "undefined" not in drawings + opened.do("document.querySelector('main').textContent")


def test_means_are_those_of_the_finished_runs(opened, folder):
    rows = [row for row in panel_data(opened, "currencies") if row[0] == "pure-base"]
    gaps = np.array([[record["gap"] for record in records(folder / f"base-{seed}")] for seed in SEEDS])
    average = np.cumsum(gaps, axis=1) / np.arange(1, 61)
    assert [float(row[1]) for row in rows] == list(range(1, 61))
    np.testing.assert_allclose([float(row[2]) for row in rows], average.mean(axis=0), rtol=1e-3)
    spread = average.std(axis=0, ddof=1)
    told = [float(row[3]) for row in rows]
    np.testing.assert_allclose(told, spread, rtol=1e-3, atol=1e-5)


def test_the_numbers_at_a_glance(opened, folder):
    rows = opened.do(
        "[...document.querySelectorAll('#glance tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [row[:2] for row in rows] == [["pure-base", "3 of 4"], ["pure-low-switch", "2"], ["pure-low-rollout", "1"]]
    head = texts(opened, "#glance thead tr:first-child th")
    gaps = [json.loads((folder / f"base-{seed}" / "summary.json").read_text())["metrics"]["gap"] for seed in SEEDS]
    mean, _, spread = rows[0][head.index("average gap")].partition(" ± ")
    assert float(mean) == pytest.approx(np.mean(gaps), abs=0.5 * 10 ** -len(mean.partition(".")[2]))
    assert float(spread) == pytest.approx(np.std(gaps, ddof=1), rel=0.1)
    assert rows[0][head.index("measurements")] == "60"


def test_filters(opened):
    opened.do("document.querySelector('[data-filter=seed] input[data-value=\"2\"]').click()")
    opened.settle()
    assert opened.do("document.getElementById('count').textContent") == "6 of 7 runs shown"
    assert not any("seed 2" in text for text in texts(opened, "#ledger td:first-child"))
    assert "seed: 0, 1, 7" in texts(opened, ".filter summary")
    opened.do("document.querySelector('[data-filter=experiment] input[data-value=ou]').click()")
    opened.settle()
    assert (count(opened, "#ledger tbody tr"), count(opened, "#updated .chart path.ticks")) == (5, 5)
    opened.do("document.querySelector('[data-filter=algorithm] input[data-value=pure-base]').click()")
    opened.settle()
    assert {text.split(",")[1].strip() for text in texts(opened, "#ledger td:first-child")} == {"pure-low-switch"}
    opened.click("[data-filter=algorithm] button", "none")
    assert opened.do("document.querySelector('main').textContent") == "No run passes the filters."
    for name in ("algorithm", "experiment", "seed"):
        opened.click(f"[data-filter={name}] button", "all")
    assert opened.do("document.getElementById('count').textContent") == "7 of 7 runs shown"


def test_a_mean_follows_the_filter(opened, folder):
    opened.do("document.querySelector('[data-filter=seed] input[data-value=\"2\"]').click()")
    opened.settle()
    last = [row for row in panel_data(opened, "currencies") if row[0] == "pure-base"][-1]
    gaps = [json.loads((folder / f"base-{seed}" / "summary.json").read_text())["metrics"]["gap"] for seed in (0, 1)]
    assert float(last[2]) == pytest.approx(np.mean(gaps), rel=1e-3)


def test_legend_axes_and_columns(opened):
    opened.click("#currencies .legend button", "pure-base")
    assert (count(opened, "#currencies path.run"), count(opened, "#ledger tbody tr")) == (2, 3)
    opened.click("#currencies .legend button", "pure-base")
    for text in ("rollouts", "updates", "seconds"):
        opened.click("#currencies .controls button", text)
        assert all(title.endswith(f"against {text}") for title in texts(opened, "#currencies figcaption"))
    opened.click("#currencies .controls button", "all four")
    assert count(opened, "#currencies .chart") == 8
    opened.click("#currencies .controls button", "single runs")
    assert count(opened, "#currencies path.run") == 0
    for _ in range(2):
        opened.click("#currencies .controls button", "log y")
        opened.click("#currencies .controls button", "log x")
    columns = opened.do("[...document.querySelectorAll('#currencies select option')].map((option) => option.value)")
    assert {"result", "reward", "gap", "covered", "excess_drift", "drifts"} <= set(columns)
    for column in columns:
        choose = f"node.value = {json.dumps(column)}; node.dispatchEvent(new Event('change'))"
        opened.do(f"(() => {{ const node = document.querySelector('#currencies select'); {choose} }})()")
        opened.settle()
        assert "NaN" not in opened.do("document.querySelector('#currencies').innerHTML"), column


def test_why_it_updated(opened):
    title = opened.do("[...document.querySelectorAll('#updated figcaption')].at(-1).textContent")
    assert title.startswith("Why: excess loss against the threshold, finite, pure-low-switch, seed 0")
    assert "update at 5 β" in texts(opened, "#updated text.mark")
    assert count(opened, "#updated .rule") == 1


def test_charts_have_words_and_numbers(opened):
    words = opened.do("[...document.querySelectorAll('.plot')].map((node) => node.getAttribute('aria-label'))")
    assert len(words) == count(opened, ".chart svg") >= 8
    assert all(len(text) > 40 for text in words)
    assert any("pure-base (mean of 3 runs): from" in text for text in words)
    opened.do("document.querySelectorAll('details.data summary').forEach((node) => node.click())")
    opened.settle()
    assert opened.do(
        "[...document.querySelectorAll('details.data')].every((node) => node.querySelectorAll('td').length)"
    )
    assert opened.do("[...document.images].every((image) => image.alt)")


def test_the_keyboard_moves_the_cursor(opened):
    opened.do("document.querySelector('#currencies .plot').focus()")
    opened.keyboard("ArrowRight")
    assert opened.do("document.querySelector('#currencies .tip').textContent").startswith("1 measurementspure-base ")
    opened.keyboard("ArrowRight")
    assert opened.do("document.querySelector('#currencies .tip').textContent").startswith("2 measurements")


def test_films_play(opened):
    opened.do("document.querySelector('video').play()")
    opened.do(
        "new Promise((done) => document.querySelector('video').addEventListener('timeupdate', done, {once: true}))"
    )
    assert opened.do("document.querySelector('video').currentTime") > 0
    assert opened.do("document.querySelector('video').videoWidth") == 64
    opened.do("document.images[0].loading = 'eager'")
    opened.do("document.images[0].decode()")
    assert opened.do("document.images[0].naturalWidth") == 64


def test_what_a_run_wrote_is_text(opened):
    assert HOSTILE in opened.do("document.querySelector('#settings').textContent")
    assert count(opened, "img[src=x]") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_it_fits_every_screen(chromium, page, tmp_path, width, scheme):
    chromium.open(page, width=width, scheme=scheme)
    assert chromium.do(PIXELS) <= width
    chromium.screenshot(tmp_path / f"{width}-{scheme}.png")  # for people; pytest keeps it for a while
    with Image.open(tmp_path / f"{width}-{scheme}.png") as picture:
        assert picture.size == (width, 900)
    chromium.do("document.querySelectorAll('details').forEach((node) => { node.open = true })")
    chromium.settle()
    assert chromium.do(PIXELS) <= width
    paper, ink = (
        chromium.do(f"getComputedStyle(document.body).{name}.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
        for name in ("backgroundColor", "color")
    )
    assert (paper > ink) == (scheme == "light")
    assert abs(paper - ink) > 400
    assert chromium.complaints() == []


def test_coverage_that_a_run_did_not_record_is_noted(chromium, tmp_path):
    """Its group has no mean then: one of the others would pass for one of all."""
    for seed in SEEDS:
        make(tmp_path / "runs" / f"base-{seed}", seed=seed)
    file = tmp_path / "runs" / "base-2" / "records.jsonl"
    lines = [{name: value for name, value in line.items() if name != "covered"} for line in records(file.parent)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    chromium.open(tmp_path / "page.html")
    (caption,) = texts(chromium, "#coverage figcaption")
    assert caption.endswith("1 run did not record it")
    assert {row[0] for row in panel_data(chromium, "coverage")} == {"pure-base, seed 0", "pure-base, seed 1"}
    assert chromium.complaints() == []


def test_updates_that_are_thinned_are_noted(opened, chromium, folder, tmp_path, monkeypatch):
    assert not any("may stand for several" in text for text in texts(opened, "#updated figcaption"))
    monkeypatch.setattr(import_module("purectrl.report.page.document"), "MOST_ROWS", 20)
    assert main(["report", str(folder / "base-0"), str(folder / "ou"), "--out", str(tmp_path / "page.html")]) == 0
    chromium.open(tmp_path / "page.html")
    (base, *_) = texts(chromium, "#updated figcaption")
    assert base.endswith("1 run with more updates than fit here: a tick may stand for several")
    ticks = panel_data(chromium, "updated")
    assert 0 < len(ticks) < json.loads((folder / "base-0" / "summary.json").read_text())["ledger"]["updates"]


@pytest.mark.slow
def test_twenty_runs(chromium, tmp_path):
    """Long ones, thinned: the page stays small, and every run is on it."""
    for seed in range(10):
        for algorithm in ("pure-base", "pure-low-switch"):
            make(tmp_path / "runs" / f"{algorithm}-{seed}", algorithm=algorithm, seed=seed, measurements=2048)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size < 10e6
    chromium.open(tmp_path / "page.html")
    assert (count(chromium, "#ledger tbody tr"), count(chromium, "#updated path.ticks")) == (20, 20)
    assert count(chromium, "#currencies path.mean") == 8  # one experiment: all four currencies
    assert chromium.complaints() == []
