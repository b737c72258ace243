"""Run directories that ask people, and a browser in a few lines."""

import json
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np

from purectrl.diffusion.rewards.label_files import question_of, write_request
from purectrl.labels import LabelQueue, LabelServer

CONFIG = {"format": 2, "versions": {}, "seed": 0, "algorithm": {}, "budget": {}}


def images(count, seed=0, shape=(1, 16, 16)):
    return np.random.default_rng(seed).random((count, *shape), np.float32)


def run_directory(out, reward="people"):
    """A run directory with a configuration, as the page needs it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(CONFIG | {"problem": {"arguments": {"reward": reward}}}))
    return out


def request(out, count=3, seed=0, levels=5, conditions=None):
    """A request for `count` images; returns their identifiers."""
    found = images(count, seed)
    questions = [question_of(*one) for one in zip(found, conditions or range(count), strict=True)]
    write_request(out, questions, found, levels)
    return [question.id for question in questions]


@contextmanager
def served(out):
    """A server of this process for the run in `out`."""
    with LabelQueue(out) as queue, LabelServer(queue) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def fetch(url, body=None, headers=None, data=None):
    """(status, headers, content) of a GET, or of a POST with a JSON body or other data."""
    kind = {"Content-Type": "application/json"} if body is not None else {}
    data = json.dumps(body).encode() if body is not None else data
    asked = urllib.request.Request(url, data, {**kind, **(headers or {})})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=300) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def ask(url, place="state", body=None):
    """The JSON answer to a request that must succeed."""
    status, _, content = fetch(url + place, body)
    assert status == 200, content
    return json.loads(content)
