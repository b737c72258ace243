"""Measurements in shards: checkpoints refer to them, stay small, and detect when one has changed."""

import numpy as np
import pytest
from helpers import left_by, small, stopped_run

from purectrl.core import Dataset, Measurements, StoreError
from purectrl.runs import data_shards
from purectrl.runs.data_shards import DataShards
from purectrl.runs.runner import resume, run

SPEC = small()


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(data_shards, "SHARD_BYTES", 1000)


def block(episodes, start=0):
    t = np.full((episodes, 1), 0.5)
    x = np.arange(start, start + episodes, dtype=float).reshape(episodes, 1, 1)
    return Measurements(t, x, np.ones((episodes, 1, 1)), r=t)


def stopped(out, at=(100, 200), until=230):
    return stopped_run(SPEC, out, until, at)


def test_what_is_saved_comes_back_and_is_not_written_twice(tmp_path):
    saved, data = DataShards(tmp_path), Dataset()
    for start in range(0, 300, 50):
        data = data.append(block(50, start))
        saved.save(data)
    files = sorted((tmp_path / "data").iterdir())
    assert len(files) == len(saved.listed()) > 3
    before = {path: path.stat().st_mtime_ns for path in files}
    saved.save(data)
    assert before == {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "data").iterdir())}
    fresh = DataShards(tmp_path)
    arrays = fresh.restore(saved.listed())
    assert fresh.episodes == saved.episodes
    assert np.array_equal(arrays["x"], data.all.x[: saved.episodes])


def test_few_measurements_get_no_file(tmp_path):
    saved = DataShards(tmp_path)
    saved.save(Dataset(block(5)))
    saved.save(Dataset())
    assert saved.episodes == 0
    assert not (tmp_path / "data").exists()
    assert saved.restore([]) == {}


def test_resume_equals_uninterrupted(tmp_path):
    run(SPEC, tmp_path / "whole", quiet=True)
    out = stopped(tmp_path / "stopped")
    assert len(list((out / "data").iterdir())) == 2
    resume(out, quiet=True)
    assert left_by(out) == left_by(tmp_path / "whole")


def test_the_size_of_a_checkpoint_does_not_grow_with_the_run(tmp_path):
    out = stopped(tmp_path / "run", at=(100, 200, 300, 390), until=395)
    sizes = {path.stat().st_size for path in (out / "checkpoint").iterdir()}
    assert max(sizes) - min(sizes) < 600  # 100 episodes take 4,000 bytes


@pytest.mark.parametrize("damage", ["flipped", "gone", "other"])
def test_a_shard_that_is_not_as_it_was_spoils_the_checkpoints_that_refer_to_it(tmp_path, damage, capsys):
    run(SPEC, tmp_path / "whole", quiet=True)
    out = stopped(tmp_path / "stopped")
    first, second = sorted((out / "data").iterdir())
    if damage == "flipped":
        content = bytearray(second.read_bytes())
        content[-1] ^= 1
        second.write_bytes(content)
    elif damage == "gone":
        second.unlink()
    else:
        second.write_bytes(first.read_bytes())
    resume(out, quiet=True)  # the first checkpoint refers to the first file alone
    assert str(second) in capsys.readouterr().err
    assert left_by(out) == left_by(tmp_path / "whole")


def test_with_the_first_shard_gone_the_run_refuses(tmp_path):
    out = stopped(tmp_path / "stopped")
    min((out / "data").iterdir()).unlink()
    with pytest.raises(StoreError, match=r"no checkpoint of .* can be used"):
        resume(out, quiet=True)
