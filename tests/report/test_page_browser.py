"""The report page in a real Chromium: it opens from a file, draws, filters, plays videos, and logs no errors."""

import json
from importlib import import_module

import numpy as np
import pytest
from browser import Browser, executable
from pages import change, make, make_control, records, say, stop_half_way
from PIL import Image

from purectrl.cli import main
from purectrl.systems.video import save_video

pytestmark = pytest.mark.skipif(
    executable() is None, reason="needs Chromium on the path, or CHROMIUM=/path/to/chromium"
)

SEEDS = (0, 1, 2)
HOSTILE = "</script><img src=x onerror=console.error('run')>"
PIXELS = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven runs: two algorithms on `finite`, one of them unfinished, one on `ou` with a hostile setting; two have media."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in SEEDS:
        make(folder / f"base-{seed}", seed=seed)
    for seed in SEEDS[:2]:
        make(folder / f"switch-{seed}", algorithm="pure-low-switch", seed=seed)
    stop_half_way(folder / "half", seed=7)
    make(folder / "ou", "ou", "pure-low-rollout")
    problem = json.loads((folder / "ou" / "config.json").read_text())["problem"]
    arguments = problem["arguments"] | {"comment": HOSTILE}
    change(folder / "ou" / "config.json", problem=problem | {"arguments": arguments})
    (folder / "base-0" / "media").mkdir()
    frames = np.random.default_rng(0).integers(0, 255, (10, 64, 64, 3), np.uint8)
    save_video(folder / "base-0" / "media" / "film.mp4", frames, fps=10)
    save_video(folder / "base-1" / "film.gif", frames, fps=10).parent.joinpath("media").mkdir()
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


def check(browser, name, value):
    """Clicks the checkbox of one value of a filter."""
    browser.do(f"document.querySelector('[data-filter={name}] input[value=\"{value}\"]').click()")
    browser.settle()


def table_data(browser, section, number=0):
    """The table next to a chart, opened by a click."""
    chart = f"document.querySelectorAll('#{section} .chart')[{number}]"
    browser.do(f"{chart}.querySelector('details.data summary').click()")
    browser.settle()
    return browser.do(
        f"[...{chart}.querySelectorAll('details.data tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


def charts(browser, section):
    """What uPlot draws in each chart of a section: series, number of bands, and the number of points of each series."""
    return browser.do(
        f"[...document.querySelectorAll('#{section} .plot')].map(({{ uplot }}) => ({{"
        "  bands: uplot.bands.length,"
        "  series: uplot.series.slice(1).map(({ label, width, alpha }, n) => ({ label, width, alpha,"
        "    points: uplot.data[n + 1].filter((value) => value !== undefined).length })),"
        "}))"
    )


def lines(browser, section):
    """The numbers of thick lines, thin lines and bands in all charts of a section."""
    found = charts(browser, section)
    widths = [series["width"] for chart in found for series in chart["series"]]
    return widths.count(2.2), widths.count(1), sum(chart["bands"] for chart in found)


def pixels(browser, section, variable, number=0):
    """How many pixels of a chart have the color of a CSS variable, up to antialiasing."""
    return browser.do(
        "(() => {"
        f"  const {{ ctx }} = document.querySelectorAll('#{section} .plot')[{number}].uplot;"
        "  const { width, height } = ctx.canvas;"
        "  const copy = new OffscreenCanvas(width, height).getContext('2d');"
        "  copy.drawImage(ctx.canvas, 0, 0);"
        f"  const color = getComputedStyle(document.documentElement).getPropertyValue('{variable}').trim();"
        "  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));"
        "  const { data } = copy.getImageData(0, 0, width, height);"
        "  let found = 0;"
        "  for (let n = 0; n < data.length; n += 4)"
        "    if ([r, g, b, 255].every((value, channel) => Math.abs(data[n + channel] - value) < 20)) found++;"
        "  return found;"
        "})()"
    )


def test_it_opens_from_a_file_and_requests_nothing_else(opened, page):
    assert opened.requests() == [page.absolute().as_uri()]
    assert (
        opened.do("document.title")
        == "finite and ou: pure-base, pure-low-switch and pure-low-rollout · purectrl report"
    )
    assert opened.do("document.getElementById('count').textContent") == "7 of 7 runs shown"
    assert "7 runs · 4 seeds · 1 not finished" in texts(opened, "header p")


def test_every_section_is_drawn(opened):
    sections = opened.do("[...document.querySelectorAll('main > section')].map((node) => node.id)")
    assert sections == [
        "overview",
        "curves",
        "updates",
        "times",
        "coverage",
        "media",
        "ledger",
        "evaluation",
        "settings",
    ]
    assert count(opened, "#curves .chart") == 2  # one for each problem
    assert lines(opened, "curves") == (3, 6, 2)  # two means and the only run of ou; single runs; a band for each mean
    scatter, histogram = charts(opened, "times")
    assert [series["points"] for series in scatter["series"]] == [60]
    assert [series["points"] for series in histogram["series"]] == [50]
    assert [len(chart["series"]) for chart in charts(opened, "updates")][:2] == [6, 1]  # a row for each run
    assert lines(opened, "coverage") == (3, 0, 0)
    assert opened.do(
        "[...document.querySelectorAll('.plot')].every(({ uplot }) => uplot.data.every((column) =>"
        "  column.every((value) => value === undefined || Number.isFinite(value))))"
    )
    words = opened.do("document.querySelector('main').textContent") + "".join(
        opened.do("[...document.querySelectorAll('.plot')].map((node) => node.getAttribute('aria-label'))")
    )
    assert "NaN" not in words
    assert "undefined" not in words


def test_series_have_their_colors_on_the_canvas(opened):
    expected = [
        ("curves", 0, ("--c0", "--c1")),
        ("curves", 1, ("--c2",)),
        ("times", 0, ("--c0",)),
        ("times", 1, ("--c0",)),
    ]
    expected += [("updates", 0, ("--c0",)), ("updates", 1, ("--c2",)), ("coverage", 1, ("--c2",))]
    for section, number, colors in expected:
        for color in ("--c0", "--c1", "--c2", "--c3"):
            assert (pixels(opened, section, color, number) > 20) == (color in colors), (section, number, color)


def test_charts_follow_the_color_scheme(opened):
    light = opened.do("getComputedStyle(document.documentElement).getPropertyValue('--c0')")
    opened.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    opened.settle()
    assert opened.do("getComputedStyle(document.documentElement).getPropertyValue('--c0')") != light
    assert pixels(opened, "times", "--c0", 1) > 1000
    opened.ask("Emulation.setEmulatedMedia", media="print")
    opened.settle()
    assert opened.do("getComputedStyle(document.documentElement).getPropertyValue('--c0')") == light
    assert pixels(opened, "times", "--c0", 1) > 1000
    opened.ask("Emulation.setEmulatedMedia", media="")


def test_means_are_those_of_the_finished_runs(opened, folder):
    rows = [row for row in table_data(opened, "curves") if row[0] == "pure-base"]
    gaps = np.array([[record["gap"] for record in records(folder / f"base-{seed}")] for seed in SEEDS])
    average = np.cumsum(gaps, axis=1) / np.arange(1, 61)
    assert [float(row[1]) for row in rows] == list(range(1, 61))
    np.testing.assert_allclose([float(row[2]) for row in rows], average.mean(axis=0), rtol=1e-3)
    deviation = average.std(axis=0, ddof=1)
    np.testing.assert_allclose([float(row[3]) for row in rows], deviation, rtol=1e-3, atol=1e-5)
    mean, upper, lower = opened.do(
        "(({ series, data }) => { const n = series.findIndex(({ label, width }) => label === 'pure-base' && width);"
        "  return data.slice(n, n + 3); })(document.querySelector('#curves .plot').uplot)"
    )
    np.testing.assert_allclose(mean, average.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(upper, average.mean(axis=0) + deviation, rtol=1e-4)
    np.testing.assert_allclose(lower, average.mean(axis=0) - deviation, rtol=1e-4)


def test_the_overview(opened, folder):
    rows = opened.do(
        "[...document.querySelectorAll('#overview tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [row[:2] for row in rows] == [["pure-base", "3 of 4"], ["pure-low-switch", "2"], ["pure-low-rollout", "1"]]
    head = texts(opened, "#overview thead tr:first-child th")
    gaps = [json.loads((folder / f"base-{seed}" / "summary.json").read_text())["metrics"]["gap"] for seed in SEEDS]
    mean, _, deviation = rows[0][head.index("suboptimality, average")].partition(" ± ")
    assert float(mean) == pytest.approx(np.mean(gaps), abs=0.5 * 10 ** -len(mean.partition(".")[2]))
    assert float(deviation) == pytest.approx(np.std(gaps, ddof=1), rel=0.1)
    assert rows[0][head.index("measurements")] == "60"


def test_filters(opened):
    check(opened, "seed", 2)
    assert opened.do("document.getElementById('count').textContent") == "6 of 7 runs shown"
    assert not any("seed 2" in text for text in texts(opened, "#ledger td:first-child"))
    assert texts(opened, ".filter summary") == ["problem: 2 of 2", "algorithm: 3 of 3", "seed: 3 of 4"]
    check(opened, "problem", "ou")
    assert count(opened, "#ledger tbody tr") == 5
    assert len(charts(opened, "updates")[0]["series"]) == 5
    check(opened, "algorithm", "pure-base")
    assert {text.split(",")[1].strip() for text in texts(opened, "#ledger td:first-child")} == {"pure-low-switch"}
    opened.click("[data-filter=algorithm] button", "none")
    assert opened.do("document.querySelector('main').textContent") == "No run passes the filters."
    for name in ("algorithm", "problem", "seed"):
        opened.click(f"[data-filter={name}] button", "all")
    assert opened.do("document.getElementById('count').textContent") == "7 of 7 runs shown"


def test_a_mean_follows_the_filter(opened, folder):
    check(opened, "seed", 2)
    last = [row for row in table_data(opened, "curves") if row[0] == "pure-base"][-1]
    gaps = [json.loads((folder / f"base-{seed}" / "summary.json").read_text())["metrics"]["gap"] for seed in (0, 1)]
    assert float(last[2]) == pytest.approx(np.mean(gaps), rel=1e-3)


def test_legend_axes_and_columns(opened):
    opened.click("#curves .legend button", "pure-base")
    assert (lines(opened, "curves"), count(opened, "#ledger tbody tr")) == ((2, 2, 1), 3)
    assert pixels(opened, "curves", "--c0") == 0
    opened.click("#curves .legend button", "pure-base")
    assert pixels(opened, "curves", "--c0") > 20
    for text in ("rollouts", "updates", "seconds"):
        opened.click("#curves .controls button", text)
        assert all(title.endswith(f"against {text}") for title in texts(opened, "#curves figcaption"))
    opened.click("#curves .controls button", "all four")
    assert count(opened, "#curves .chart canvas") == 8
    opened.click("#curves .controls button", "single runs")
    assert lines(opened, "curves") == (12, 0, 7)  # without updates, a log axis has no band
    for log in (False, True):
        opened.click("#curves .controls button", "log y")
        opened.click("#curves .controls button", "log x")
        kinds = opened.do("[...document.querySelectorAll('#curves .plot')].map((node) => node.uplot.scales.x.distr)")
        assert set(kinds) == {3 if log else 1}
    columns = opened.do("[...document.querySelectorAll('#curves select option')].map((option) => option.value)")
    assert {"result", "reward", "gap", "covered", "excess_drift", "drifts"} <= set(columns)
    for column in columns:
        choose = f"node.value = {json.dumps(column)}; node.dispatchEvent(new Event('change'))"
        opened.do(f"(() => {{ const node = document.querySelector('#curves select'); {choose} }})()")
        opened.settle()
        assert "NaN" not in opened.do("document.querySelector('#curves').innerHTML"), column


def test_a_control_keeps_the_focus(opened):
    control = "[...document.querySelectorAll('#curves button')].find((node) => node.textContent === 'log x')"
    opened.do(f"{control}.focus()")
    opened.do("document.activeElement.click()")
    opened.settle()
    assert opened.do("document.activeElement.textContent") == "log x"
    assert opened.do(f"{control}.getAttribute('aria-pressed')") == "false"


def test_excess_loss_and_threshold(opened):
    title = opened.do("[...document.querySelectorAll('#updates figcaption')].at(-1).textContent")
    assert title.startswith("Excess loss and the update threshold: finite, pure-low-switch, seed 0")
    assert texts(opened, "#updates .legend > span") == ["drift", "reward", "update at 5 β"]
    rule = opened.do(
        "document.querySelectorAll('#updates .plot')[2].uplot.data.at(-1).filter((value) => value !== undefined)"
    )
    assert rule == [5, 5]
    assert pixels(opened, "updates", "--ink", 2) > 100


def test_charts_have_descriptions_and_tables(opened):
    words = opened.do("[...document.querySelectorAll('.plot')].map((node) => node.getAttribute('aria-label'))")
    assert len(words) == count(opened, ".chart canvas") >= 8
    assert all(len(text) > 40 for text in words)
    assert any("pure-base: mean of 3 runs, from" in text for text in words)
    opened.do("document.querySelectorAll('details.data summary').forEach((node) => node.click())")
    opened.settle()
    assert opened.do(
        "[...document.querySelectorAll('details.data')].every((node) => node.querySelectorAll('td').length)"
    )
    assert opened.do("[...document.images].every((image) => image.alt)")


def values(browser):
    """The visible rows of the box with the values at the cursor, in the first chart; None if the box is hidden."""
    return browser.do(
        "(() => { const box = document.querySelector('#curves .values'); return box.hidden ? null :"
        "  [...box.querySelectorAll('tr')].filter((row) => row.offsetHeight).map((row) =>"
        "    [...row.cells].map((cell) => cell.textContent)); })()"
    )


def test_the_arrow_keys_move_the_cursor(opened, folder):
    opened.do("document.querySelector('#curves .plot').focus()")
    assert values(opened) is None
    opened.keyboard("ArrowRight")
    assert values(opened)[0] == ["measurements", "1"]
    opened.keyboard("ArrowRight")
    found = values(opened)
    assert [row[0] for row in found] == ["measurements", "pure-base", "pure-low-switch"]
    assert found[0] == ["measurements", "2"]
    gaps = [np.mean([record["gap"] for record in records(folder / f"base-{seed}")[:2]]) for seed in SEEDS]
    assert float(found[1][1].partition(" ")[0]) == pytest.approx(np.mean(gaps), rel=1e-2)
    opened.keyboard("ArrowLeft")
    assert values(opened)[0] == ["measurements", "1"]
    opened.do("document.activeElement.blur()")
    assert values(opened) is None


def test_a_finger_moves_the_cursor(opened):
    opened.do(
        "(() => { const over = document.querySelector('#curves .u-over'); const box = over.getBoundingClientRect();"
        "  over.dispatchEvent(new PointerEvent('pointermove', { pointerType: 'touch', clientX: box.right })); })()"
    )
    assert values(opened)[0] == ["measurements", "60"]


def test_dragging_zooms_and_a_double_click_resets(opened):
    opened.do("document.querySelector('#curves .plot').scrollIntoView({ block: 'center' })")
    opened.settle()
    left, right, y = opened.do(
        "(() => { const box = document.querySelector('#curves .u-over').getBoundingClientRect();"
        "  return [box.left + box.width / 2, box.right - 5, box.top + 50]; })()"
    )
    scale = "(({ min, max }) => [min, max])(document.querySelector('#curves .plot').uplot.scales.x)"
    whole = opened.do(scale)
    events = [("mouseMoved", left, 0), ("mousePressed", left, 1), ("mouseMoved", right, 1), ("mouseReleased", right, 1)]
    for kind, x, clicks in events:
        opened.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=clicks, clickCount=clicks)
    opened.settle()
    low, high = opened.do(scale)
    assert whole[0] < low < high < whole[1]
    for clicks in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            opened.ask("Input.dispatchMouseEvent", type=kind, x=right, y=y, button="left", clickCount=clicks)
    opened.settle()
    assert opened.do(scale) == whole


def test_videos_play(opened):
    opened.do("document.querySelector('video').play()")
    opened.do(
        "new Promise((done) => document.querySelector('video').addEventListener('timeupdate', done, {once: true}))"
    )
    assert opened.do("document.querySelector('video').currentTime") > 0
    assert opened.do("document.querySelector('video').videoWidth") == 64
    opened.do("document.images[0].loading = 'eager'")
    opened.do("document.images[0].decode()")
    assert opened.do("document.images[0].naturalWidth") == 64


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """A page about a run on a system with states, with decisions and two films, one of them with a poster."""
    folder = tmp_path_factory.mktemp("control")
    out = make_control(folder / "runs" / "tank")
    say(out, decision=["explore", "wait", HOSTILE, "stop"], imagined_reward=[-1.0, -0.9, -0.8, -0.7])
    (out / "media").mkdir()
    frames = np.full((10, 32, 32, 3), 255, np.uint8)
    frames[4:6] = 0  # white but for the middle
    for name in ("plain", "poster"):
        save_video(out / "media" / f"{name}.mp4", frames, fps=10)
    Image.fromarray(frames[5]).save(out / "media" / "poster.png")
    assert main(["report", str(folder / "runs"), "--out", str(folder / "page.html")]) == 0
    return folder / "page.html"


def test_episodes_imagination_and_decisions_are_drawn(chromium, control):
    chromium.open(control)
    titles = texts(chromium, "#episodes figcaption")
    assert [title.partition(":")[0] for title in titles] == [
        "x[1] against x[0]",
        "control u[0]",
        "reward",
        "x[0]",
        "x[1]",
    ]
    phase, *_ = charts(chromium, "episodes")
    assert [series["points"] > 50 for series in phase["series"]] == [
        True,
        False,
    ] * 3  # a path and its start per episode
    (imagined,) = charts(chromium, "imagination")
    assert len(imagined["series"]) == 2
    rows = texts(chromium, "#updates table.decisions tbody tr td:last-child")
    assert rows == ["explore", "wait", HOSTILE, "stop"]
    assert "mean return of at least -0.9" in texts(chromium, "#overview th")
    assert "solved" not in texts(chromium, "#overview th")
    assert pixels(chromium, "episodes", "--c2") > 150  # the path of the last episode, which is above the others
    assert chromium.complaints() == []


def test_a_film_does_not_begin_with_an_empty_picture(chromium, control):
    chromium.open(control)
    plain, poster = (f"document.querySelectorAll('video')[{n}]" for n in (0, 1))
    assert chromium.do(f"{poster}.poster").startswith("data:image/png")
    chromium.do(
        f"new Promise((done) => {{ const v = {plain}; v.seeking || v.currentTime ? done() : v.onseeked = done; }})"
    )
    assert chromium.do(f"{plain}.currentTime") == pytest.approx(0.5, abs=0.06)
    chromium.do(f"{plain}.play()")
    assert chromium.do(f"{plain}.currentTime") < 0.45
    chromium.do(f"{plain}.pause()")


def test_content_of_a_run_is_never_markup(opened):
    assert HOSTILE in opened.do("document.querySelector('#settings').textContent")
    assert count(opened, "img[src=x]") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_it_fits_the_screen(chromium, page, tmp_path, width, scheme):
    chromium.open(page, width=width, scheme=scheme)
    assert chromium.do(PIXELS) <= width
    assert chromium.do("[...document.querySelectorAll('.plot')].every((node) => node.uplot.width === node.clientWidth)")
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
    """Its group has no mean, which would silently be one of the other runs."""
    for seed in SEEDS:
        make(tmp_path / "runs" / f"base-{seed}", seed=seed)
    file = tmp_path / "runs" / "base-2" / "records.jsonl"
    lines = [{name: value for name, value in line.items() if name != "covered"} for line in records(file.parent)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    chromium.open(tmp_path / "page.html")
    (caption,) = texts(chromium, "#coverage figcaption")
    assert caption.endswith("1 run did not record it")
    assert {row[0] for row in table_data(chromium, "coverage")} == {"pure-base, seed 0", "pure-base, seed 1"}
    assert chromium.complaints() == []


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e-20, 1.0, 1e20, 1e300, -1e300])
def test_extreme_values_are_drawn(chromium, tmp_path, value):
    run = make(tmp_path / "run")
    content = [record | {"gap": record["gap"] if n % 2 else value} for n, record in enumerate(records(run))]
    (run / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in content))
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    chromium.open(tmp_path / "page.html")
    for _ in range(2):
        chromium.click("#curves .controls button", "log y")
        for column in ("gap", "result"):
            choose = f"node.value = '{column}'; node.dispatchEvent(new Event('change'))"
            chromium.do(f"(() => {{ const node = document.querySelector('#curves select'); {choose} }})()")
            chromium.settle()
            assert count(chromium, "#curves .chart canvas") == 4
    assert chromium.complaints() == []


def test_downsampled_updates_are_noted(opened, chromium, folder, tmp_path, monkeypatch):
    assert not any("may represent several" in text for text in texts(opened, "#updates figcaption"))
    monkeypatch.setattr(import_module("purectrl.report.page.document"), "MAX_ROWS", 20)
    assert main(["report", str(folder / "base-0"), str(folder / "ou"), "--out", str(tmp_path / "page.html")]) == 0
    chromium.open(tmp_path / "page.html")
    (base, *_) = texts(chromium, "#updates figcaption")
    assert base.endswith("1 run downsampled: one dot may represent several updates")
    rows = table_data(chromium, "updates")
    assert 0 < len(rows) < json.loads((folder / "base-0" / "summary.json").read_text())["ledger"]["updates"]


@pytest.mark.slow
def test_twenty_runs(chromium, tmp_path):
    """Long runs are downsampled: the page stays small, and every run is on it."""
    for seed in range(10):
        for algorithm in ("pure-base", "pure-low-switch"):
            make(tmp_path / "runs" / f"{algorithm}-{seed}", algorithm=algorithm, seed=seed, measurements=2048)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size < 10e6
    chromium.open(tmp_path / "page.html")
    assert (count(chromium, "#ledger tbody tr"), len(charts(chromium, "updates")[0]["series"])) == (20, 20)
    assert lines(chromium, "curves") == (8, 80, 8)  # one problem: all four costs
    assert chromium.complaints() == []
