"""The page over HTTP: labels, undo, resume; and nobody but the page on this machine."""

import json
import re
import socket
import threading

import pytest
from asked import ask, fetch, images, request, run_directory, served

from purectrl.core import InputError
from purectrl.core.errors import StoreError
from purectrl.labels import LabelQueue, LabelServer
from purectrl.labels.server import Finished


@pytest.fixture
def out(tmp_path):
    return run_directory(tmp_path / "run")


@pytest.fixture
def server(out):
    with served(out) as server:
        yield server


def test_labels_undo_and_submission(out, server):
    ids, url = request(out, conditions=["a cat", "a dog", "<b>"]), server.url
    state = ask(url)
    assert [one["id"] for one in state["images"]] == ids
    assert [one["condition"] for one in state["images"]] == ["a cat", "a dog", "<b>"]
    assert (state["levels"], state["submitted"], state["finished"]) == (5, 0, False)
    ask(url, "answer", {"id": ids[0], "level": 1})
    ask(url, "answer", {"id": ids[2], "level": 5})
    assert ask(url, "undo", {})["undone"] == ids[2]
    assert [one["level"] for one in ask(url)["images"]] == [1, None, None]
    for identifier in ids[1:]:
        ask(url, "answer", {"id": identifier, "level": 2})
    ask(url, "answer", {"id": ids[0], "level": 4})  # changed: it is now the last one
    assert ask(url, "undo", {})["undone"] == ids[0]
    ask(url, "answer", {"id": ids[0], "level": 4})
    state = ask(url, "submit", {})
    assert (state["images"], state["submitted"]) == ([], 3)
    assert ask(url, "undo", {})["undone"] is None, "what is submitted stays"


def test_what_does_not_fit_is_refused_and_nothing_is_written(out, server):
    ids, url = request(out), server.url
    for body in (
        {"id": ids[0], "level": 6},
        {"id": ids[0], "level": 0},
        {"id": ids[0], "level": True},
        {"id": ids[0], "level": "3"},
        {"id": "0" * 32, "level": 3},
        {"id": None, "level": 3},
        {},
    ):
        assert fetch(f"{url}answer", body)[0] == 409
    status, _, content = fetch(f"{url}submit", {})
    assert (status, json.loads(content)["error"]) == (409, "3 images have no label yet")
    assert (out / "labels" / "answers.jsonl").read_text() == ""


def test_a_new_server_continues_where_the_old_one_ended(out):
    ids = request(out)
    with served(out) as server:
        ask(server.url, "answer", {"id": ids[0], "level": 3})
        ask(server.url, "answer", {"id": ids[1], "level": 4})
        first = server.url
    with served(out) as server:
        assert server.token not in first
        assert [one["level"] for one in ask(server.url)["images"]] == [3, 4, None]
        assert ask(server.url, "undo", {})["undone"] == ids[1]


def test_the_page_needs_no_network_and_allows_none(out, server):
    status, headers, content = fetch(server.url)
    page = content.decode()
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*", policy)
    assert not re.search(r"(?:src|href)=\"(?!data:,)", page), "nothing is loaded"
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    (first, *_) = request(out)
    status, headers, content = fetch(f"{server.url}image/{first}")
    assert (status, headers["Content-Type"], content[:4]) == (200, "image/png", b"\x89PNG")


def test_nothing_is_there_without_the_token(out, server):
    (first, *_) = request(out)
    root = f"http://127.0.0.1:{server.server_port}"
    wrong = "A" * len(server.token)
    places = ("", "/", "/state", f"/{wrong}/", f"/{wrong}/state", f"/{server.token}", f"/x/{server.token}/")
    for place in (*places, f"/image/{first}"):
        assert fetch(root + place)[0] == 404, place
    assert fetch(f"{root}/{wrong}/answer", {"id": first, "level": 1})[0] == 404
    assert (out / "labels" / "answers.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "place",
    [
        "image/../../../config.json",
        "image/..%2f..%2f..%2fconfig.json",
        "../config.json",
        "image/" + "0" * 32,
        "image/" + "0" * 32 + "/../../request.json",
        "labels/answers.jsonl",
        "state/",
        "page.js",
    ],
)
def test_files_cannot_be_reached(out, server, place):
    request(out)
    status, _, content = fetch(server.url + place)
    assert status in (404, 409)
    assert b"versions" not in content
    assert b"levels" not in content


def test_only_images_that_are_asked_about_are_served(out, server):
    (first, *_) = request(out)
    request(out, seed=1)
    assert fetch(f"{server.url}image/{first}")[0] == 409


def test_other_hosts_and_other_pages_are_refused(out, server):
    (first, *_) = request(out)
    port, body = server.server_port, {"id": first, "level": 1}
    assert fetch(server.url, headers={"Host": f"evil.example:{port}"})[0] == 403
    assert fetch(f"{server.url}answer", body, {"Host": f"evil.example:{port}"})[0] == 403
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{port + 1}"):
        assert fetch(f"{server.url}answer", body, {"Origin": origin})[0] == 403
    assert fetch(f"{server.url}answer", data=b"id=1", headers={"Content-Type": "text/plain"})[0] == 400
    assert fetch(f"{server.url}answer", data=b"[1]", headers={"Content-Type": "application/json"})[0] == 400
    assert fetch(f"{server.url}answer", data=b"{", headers={"Content-Type": "application/json"})[0] == 400
    large = json.dumps(body | {"more": "x" * 2000}).encode()
    assert fetch(f"{server.url}answer", data=large, headers={"Content-Type": "application/json"})[0] == 413
    assert (out / "labels" / "answers.jsonl").read_text() == ""
    assert fetch(f"{server.url}answer", body, {"Origin": f"http://localhost:{port}"})[0] == 200


def test_it_is_bound_to_this_machine(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_broken_request_does_not_stop_it(out, server):
    with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
        raw.sendall(b"\x00\xff nonsense\r\n\r\n")
        raw.recv(100)
    with socket.create_connection(("127.0.0.1", server.server_port)) as raw:
        raw.sendall(b"GET /" + server.token.encode() + b"/ HT")
    assert ask(server.url)["images"] == []


def test_a_damaged_image_or_request_is_said(out, server):
    (first, *_) = request(out)
    (out / "labels" / "images" / f"{first}.png").unlink()
    assert fetch(f"{server.url}image/{first}")[0] == 500
    (out / "labels" / "request.json").write_text("{}")
    status, _, content = fetch(f"{server.url}state")
    assert status == 500
    assert "is not a request" in json.loads(content)["error"]


def test_simultaneous_answers_are_all_kept(out, server):
    ids = request(out, count=40)
    jobs = [
        threading.Thread(target=ask, args=(server.url, "answer", {"id": one, "level": 1 + i % 5}))
        for i, one in enumerate(ids)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(300)
    assert [one["level"] for one in ask(server.url)["images"]] == [1 + i % 5 for i in range(40)]


def test_it_ends_after_the_run(out, tmp_path):
    summary = {"seed": 0, "experiment": "digits", "algorithm": "seiko", "status": "finished", "metrics": {}}
    seconds = dict.fromkeys(("total", "rollout", "fit", "plan", "compile"), 0.0)
    counts = dict.fromkeys(("rollouts", "measurements", "updates", "evaluation_rollouts"), 0)
    (out / "summary.json").write_text(json.dumps(summary | {"ledger": counts | {"seconds": seconds}}))
    ended = []
    with LabelQueue(out) as queue, LabelServer(queue) as server:

        def work():
            with pytest.raises(Finished):
                server.serve_forever(poll_interval=0.01)
            ended.append(True)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert ask(server.url)["finished"]
        thread.join(300)
    assert ended == [True]


def test_wrong_ports_and_settings(out):
    with LabelQueue(out) as queue:
        with pytest.raises(InputError, match="port: must be between"):
            LabelServer(queue, port=70_000)
        with LabelServer(queue) as first, pytest.raises(InputError, match="cannot be used"):
            LabelServer(queue, port=first.server_port)


def test_text_of_the_question_is_text(out):
    with LabelQueue(out) as queue, LabelServer(queue, question="</script><b>?") as server:
        assert b"</script><b>" not in server.page
        assert b"\\u003c/script>" in server.page


def test_the_answers_of_a_foreign_run_cannot_be_links(out, tmp_path):
    images(1)
    (out / "labels").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="symbolic link"):
        LabelQueue(out)
