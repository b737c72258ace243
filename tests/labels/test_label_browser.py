"""The page in a real Chromium: keyboard, undo, later, review, submission, and what it says when the server is gone."""

import json
import time

import pytest
from asked import request, run_directory, served
from browser import Browser, executable

pytestmark = pytest.mark.skipif(
    executable() is None, reason="needs Chromium on the path, or CHROMIUM=/path/to/chromium"
)

HOSTILE = "<img src=x onerror=console.error('run')>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def out(tmp_path):
    return run_directory(tmp_path / "run")


def until(browser, expression, seconds=300):
    """Waits until a JavaScript expression is true."""
    deadline = time.monotonic() + seconds
    while not browser.do(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        time.sleep(0.02)


def says(element, text):
    return f"document.getElementById({json.dumps(element)}).textContent.includes({json.dumps(text)})"


def visible(element):
    return f"!document.getElementById({json.dumps(element)}).hidden"


def levels(out):
    """The newest level of each image, in the order of the answers."""
    found = {}
    for line in map(json.loads, (out / "labels" / "answers.jsonl").read_text().splitlines()):
        if "id" in line:
            found.pop(line["id"], None)
            if line["score"] is not None:
                found[line["id"]] = round(1 + 4 * line["score"])
    return list(found.values())


def press(browser, key, then):
    """Presses a key and waits for what it causes."""
    browser.keyboard(key)
    until(browser, then)


def test_labelling_with_the_keyboard(chromium, out):
    first, second, third = request(out, conditions=["a cat", "a dog", HOSTILE])
    shown = lambda one: f"document.getElementById('image').dataset.id === '{one}'"  # noqa: E731
    with served(out) as server:
        chromium.open(server.url)
        until(chromium, f"{shown(first)} && {says('condition', 'a cat')} && {says('count', '0 of 3')}")
        until(chromium, "document.getElementById('image').naturalWidth === 16")
        press(chromium, "2", f"{shown(second)} && {says('count', '1 of 3')}")
        assert levels(out) == [2], "it is on disk before the next image is shown"
        press(chromium, "s", f"{shown(third)} && {says('condition', HOSTILE)}")  # the second one later
        press(chromium, "5", shown(second))
        press(chromium, "u", f"{shown(third)} && {says('count', '1 of 3')}")  # undo asks about it again
        assert levels(out) == [2]
        press(chromium, "4", shown(second))
        chromium.keyboard("9")  # there are five levels
        press(chromium, "1", visible("review"))
        assert levels(out) == [2, 4, 1]
        assert chromium.do("document.querySelectorAll('#grid button').length") == 3
        chromium.click("#grid button:first-child")
        until(chromium, f"{shown(first)} && document.querySelector('[aria-pressed=true]').textContent === '2'")
        press(chromium, "3", visible("review"))
        press(chromium, "Enter", f"{visible('idle')} && {says('count', '3 labels sent')}")
        assert levels(out) == [4, 1, 3]

        request(out, count=2, seed=1)  # the run asks again, and the page notices
        until(chromium, f"{visible('asking')} && {says('count', '0 of 2')}")
        chromium.open(server.url)  # a reload loses nothing
        until(chromium, says("count", "0 of 2"))
        assert chromium.complaints() == []
        assert all(url.startswith(server.url) for url in chromium.requests())


def test_a_run_that_has_moved_on_is_noticed(chromium, out):
    """Another page has sent the labels, or the run was resumed with another request: nothing is labelled by mistake."""
    request(out)
    with served(out) as server:
        chromium.open(server.url)
        until(chromium, says("count", "0 of 3"))
        request(out, count=2, seed=1)
        press(chromium, "1", f"{visible('notice')} && {says('count', '0 of 2')}")
        assert levels(out) == []
        press(chromium, "1", f"!{visible('notice')} && {says('count', '1 of 2')}")


def test_a_server_that_is_gone_is_said_and_no_label_is_pretended(chromium, out):
    request(out)
    with served(out) as server:
        chromium.open(server.url)
        until(chromium, says("count", "0 of 3"))
    chromium.keyboard("1")
    until(chromium, f"{visible('notice')} && {says('notice', 'start it again')}")
    assert chromium.do(says("count", "0 of 3"))
    assert levels(out) == []


@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (1280, "dark")])
def test_it_fits_a_phone_and_a_desk(chromium, out, width, scheme):
    request(out, conditions=["a very long prompt " * 20, "b", "c"])
    with served(out) as server:
        chromium.open(server.url, width=width, height=800, scheme=scheme)
        until(chromium, says("count", "0 of 3"))
        assert chromium.do("document.documentElement.scrollWidth") <= width
        until(chromium, "document.querySelectorAll('#levels button').length === 5")
