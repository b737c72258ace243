"""`purectrl report` on directories from somebody else: nothing outside them is read, nothing blocks, the rest is drawn."""

import json
import os
import shutil
import zlib

import pytest
from pages import change, data, make, records, report, reported

from purectrl.report.page.media import embed, media_files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(4) + b"IEND" + zlib.crc32(b"IEND").to_bytes(4)
"""The shortest file that has the form of a PNG file."""
SECRET = b"\x89PNG\r\n\x1a\n a secret picture of the user"


def replace(name, make):
    def spoil(run):
        (run / name).unlink()
        make(run / name)

    return spoil


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET)
    return tmp_path / "secret"


BLOCKING = {
    f"{kind} {name}": (replace(name, make_it), words)
    for name in ("config.json", "records.jsonl", "summary.json")
    for kind, make_it, words in (
        ("pipe", os.mkfifo, f"{name} is a pipe; expected a regular file"),
        ("folder", os.mkdir, f"{name} is a directory; expected a regular file"),
        ("link", lambda path: path.symlink_to("../../secret"), f"{name} is a symbolic link; expected a regular file"),
    )
}


@pytest.mark.parametrize("case", BLOCKING)
def test_what_is_not_a_file_is_left_out_and_the_rest_is_drawn(case, sweep, secret, tmp_path, capsys):
    spoil, words = BLOCKING[case]
    spoil(sweep / "pure-base-seed1")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (1, 3)
    assert words in errors


def test_only_pictures_inside_the_run_are_embedded(sweep, secret, tmp_path, capsys):
    run = sweep / "pure-base-seed0"
    (run / "media").mkdir()
    (run / "media" / "link.png").symlink_to(secret)
    (run / "media" / "text.png").write_text("-----BEGIN PRIVATE KEY-----")
    (run / "media" / "page.gif").write_text("<script>alert(1)</script>")
    (run / "media" / "right.png").write_bytes(PNG)
    os.mkfifo(run / "media" / "pipe.mp4")
    _, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    shown = {medium["name"]: medium["uri"] is not None for medium in found["runs"][0]["media"]}
    assert shown == {"link.png": False, "page.gif": False, "pipe.mp4": False, "right.png": True, "text.png": False}
    assert "link.png is not a regular file" in errors
    assert "text.png is not of type image/png" in errors
    assert "page.gif is not of type image/gif" in errors


def test_a_media_folder_that_is_a_link_is_not_read(sweep, secret, tmp_path, capsys):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.png").write_bytes(PNG)
    (sweep / "pure-base-seed0" / "media").symlink_to(tmp_path / "outside")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, found["runs"][0]["media"]) == (0, [])
    assert "media is a symbolic link; expected a directory" in errors


def test_types_by_content(tmp_path):
    contents = {
        "a.mp4": b"\0\0\0\x18ftypmp42",
        "b.webm": b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\xf2\x81\x04B\xf3\x81\x08B\x82\x84webm",
        "c.gif": b"GIF89a",
        "d.png": PNG,
        "e.jpg": b"\xff\xd8\xff\xe0",
        "f.webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    }
    (tmp_path / "media").mkdir()
    for name, content in contents.items():
        (tmp_path / "media" / name).write_bytes(content)
    found = embed(media_files(tmp_path))
    assert [file.uri is not None for file in found.values()] == [True] * 6
    for name, content in zip(contents, [*list(contents.values())[1:], PNG[:4]], strict=True):
        (tmp_path / "media" / name).write_bytes(content)
    assert [file.uri for file in embed(media_files(tmp_path)).values()] == [None] * 6


def test_checkpoints_behind_links_and_pipes_only_lose_the_times(sweep, tmp_path, capsys):
    one, two = sweep / "pure-base-seed0", sweep / "pure-base-seed1"
    shutil.rmtree(one / "checkpoint")
    (one / "checkpoint").symlink_to(two / "checkpoint")
    newest = max((two / "checkpoint").iterdir())
    newest.unlink()
    os.mkfifo(newest)
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, [run["times"] for run in found["runs"][:2]]) == (0, [None, None])
    assert "checkpoint is a symbolic link" in errors
    assert "is a pipe" in errors


def test_names_that_are_not_utf8_and_lone_surrogates_are_drawn(whole, tmp_path):
    sweep = tmp_path / "sweep"
    shutil.copytree(whole, sweep)
    (sweep / "pure-base-seed0").rename(os.fsdecode(os.fsencode(sweep) + b"/\xff\xfe"))
    config = json.loads((sweep / "pure-base-seed1" / "config.json").read_text())
    config["problem"]["arguments"]["note"] = "\ud800"
    change(sweep / "pure-base-seed1" / "config.json", problem=config["problem"])
    change(sweep / "pure-low-switch-seed0" / "summary.json")
    lines = [json.dumps({**record, "a\udfff": 1.0}) for record in records(sweep / "pure-low-switch-seed0")]
    (sweep / "pure-low-switch-seed0" / "records.jsonl").write_text("\n".join(lines) + "\n")
    done = report(sweep, out=tmp_path / "page")
    assert (done.returncode, done.stderr) == (0, "")
    found = data(tmp_path / "page")
    assert len(found["runs"]) == 4
    assert "a\udfff" in found["runs"][2]["curves"] or "a\udfff" in found["runs"][3]["curves"]


def test_a_report_is_not_written_to_a_pipe(whole, tmp_path, capsys):
    os.mkfifo(tmp_path / "page")
    status = report(whole, out=tmp_path / "page")
    assert status.returncode == 2
    assert "is a pipe; expected a regular file" in status.stderr


def test_text_from_files_does_not_reach_the_terminal_raw(sweep, tmp_path, capsys):
    run = sweep / "pure-base-seed1"
    change(run / "summary.json", status="\x1b[2J\x1b]0;owned\x07" + "x" * 10**5)
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (1, 3)
    assert "\x1b" not in errors
    assert max(map(len, errors.splitlines())) <= 400


def test_a_run_of_many_columns_is_left_out(sweep, tmp_path, capsys):
    run = sweep / "pure-base-seed1"
    lines = [json.dumps({**one, **{f"{i}-{j}": 1 for j in range(100)}}) for i, one in enumerate(records(run))]
    (run / "records.jsonl").write_text("\n".join(lines) + "\n")
    status, errors, found = reported(sweep, out=tmp_path / "page", capsys=capsys)
    assert (status, len(found["runs"])) == (1, 3)
    assert "has too many columns" in errors


WRONG = [None, True, -1, 10**30, 1e308, "x", "\x1b[31m", [], [[1]], {}, {"a": []}, ["\ud800"]]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_any_value_of_any_setting_and_metric_is_drawn_or_left_out(wrong, whole, tmp_path, capsys):
    """One value after the other is replaced, in three files; the report never fails and never loses another run."""
    run = tmp_path / "sweep" / "run"
    make(run, measurements=8)
    shutil.copytree(whole / "pure-base-seed0", tmp_path / "sweep" / "other")
    (run / "evaluation.json").write_text(json.dumps({"episodes": 2, "seed": 0, "metrics": {"reward": 1.0}}))
    for name in ("config.json", "summary.json", "evaluation.json"):
        original = (run / name).read_text()
        for path in paths_of(json.loads(original)):
            (run / name).write_text(json.dumps(with_value(json.loads(original), path, wrong)))
            status, errors, found = reported(tmp_path / "sweep", out=tmp_path / "page", capsys=capsys)
            assert status in (0, 1), (name, path)
            assert "\x1b" not in errors
            assert "other" in "".join(run["directory"] for run in found["runs"]), (name, path)
        (run / name).write_text(original)


def paths_of(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from paths_of(item, (*path, name))


def with_value(value, path, new):
    if not path:
        return new
    value[path[0]] = with_value(value[path[0]], path[1:], new)
    return value
