"""Frames show the given state; videos contain the given frames."""

import shutil
import subprocess
from importlib import util
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from purectrl.core import InputError, PurectrlError
from purectrl.systems import video
from purectrl.systems.acrobot import acrobot
from purectrl.systems.cartpole import cartpole
from purectrl.systems.pendulum import pendulum
from purectrl.systems.rendering import TIP, render_frame, render_frames, smooth, trace
from purectrl.systems.video import ffmpeg, save_video

ORANGE = np.array([int(TIP[i : i + 2], 16) for i in (1, 3, 5)])
needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None and util.find_spec("imageio_ffmpeg") is None, reason="no ffmpeg: purectrl[video]"
)


def swing(one, n=12):
    """Moves every position through a radian: times, states and controls."""
    t = np.linspace(0.0, 1.0, n)
    x = np.array(one.init_mean) + np.outer(t, [1.0] * one.nq + [0.0] * one.nq)
    return t, x, np.outer(np.cos(6 * t), np.full(one.control_dim, one.u_max))


def tip_pixel(image):
    """Middle (column, row) of what has exactly the tip's colour, above the curves."""
    rows, columns = np.nonzero((image[: int(0.75 * len(image))] == ORANGE).all(-1))
    return np.array([columns.mean(), rows.mean()])


@pytest.mark.parametrize("make", [acrobot, cartpole, pendulum])
def test_one_frame_per_time_of_the_requested_size(make):
    one = make("paper")
    images = render_frames(one, trace(one, *swing(one)), size=(200, 240))
    assert images.shape == (12, 240, 200, 3)
    assert images.dtype == np.uint8
    assert all((a != b).any() for a, b in pairwise(images))


@pytest.mark.parametrize("make", [acrobot, cartpole, pendulum])
def test_the_tip_is_drawn_where_it_is(make):
    """Pixels are an affine map of metres, the same number across and up."""
    one = make("paper")
    draws = np.random.default_rng(0)
    states = np.concatenate([draws.uniform(-0.8, 0.8, (4, one.nq)), np.zeros((4, one.nq))], axis=1)
    metres, pixels = [], []
    for x in states:
        seen = trace(one, np.zeros(1), x[None], np.zeros((1, one.control_dim)))
        metres.append(seen.joints[0, -1])
        pixels.append(tip_pixel(render_frame(one, seen, (0.0, 1.0), (300, 300))))
    metres, pixels = np.array(metres), np.array(pixels)
    columns, rows = (np.polyfit(metres[:, i], pixels[:, i], 1, full=True) for i in (0, 1))
    assert np.sqrt(columns[1][0]) < 2.0
    assert np.sqrt(rows[1][0]) < 2.0
    assert columns[0][0] == pytest.approx(-rows[0][0], rel=0.05)
    assert columns[0][1] == pytest.approx(150, abs=2)


def test_the_camera_follows_a_cart_that_runs_away():
    one = cartpole("paper")
    far = trace(one, np.zeros(1), np.array([[50.0, np.pi, 0.0, 0.0]]), np.zeros((1, 1)))
    column, _ = tip_pixel(render_frame(one, far, (0.0, 1.0), (300, 300)))
    assert 0 < column < 300


def test_a_smooth_curve_follows_a_circle():
    angle = np.linspace(0.0, 3.0, 12)
    curve = smooth(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    assert len(curve) == 11 * 6 + 1
    assert np.allclose(np.linalg.norm(curve[12:-12], axis=1), 1.0, atol=1e-3)  # the chords are 9e-3 away


@pytest.fixture(scope="module")
def images():
    one = pendulum("paper")
    return render_frames(one, trace(one, *swing(one)), size=(200, 200))


def test_a_gif_opens_again(tmp_path, images):
    path = save_video(tmp_path / "swing.gif", images, fps=25)
    with Image.open(path) as again:
        assert again.size == (200, 200)
        assert again.n_frames == 12
        assert again.info["duration"] == 40
        for i in (0, 11):
            again.seek(i)
            error = np.abs(np.asarray(again.convert("RGB"), int) - images[i])
            assert error.mean() < 4.0  # levels of 255, from the palette
    assert [entry.name for entry in tmp_path.iterdir()] == ["swing.gif"]


@needs_ffmpeg
def test_an_mp4_opens_again(tmp_path, images):
    path = save_video(tmp_path / "swing.mp4", images[:, :-1], fps=25)  # 199 rows: padded to an even number
    command = [ffmpeg(), "-loglevel", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    again = np.frombuffer(raw, np.uint8).reshape(-1, 200, 200, 3)
    assert len(again) == 12
    assert np.abs(again[:, :-1].astype(int) - images[:, :-1]).mean() < 4.0
    assert (again[0] != again[-1]).any()


@needs_ffmpeg
def test_an_error_of_ffmpeg_is_passed_on(tmp_path, images, monkeypatch):
    monkeypatch.setattr(video, "ffmpeg", lambda: shutil.which("false"))
    with pytest.raises(PurectrlError, match="ffmpeg could not encode the video"):
        save_video(tmp_path / "swing.mp4", images, fps=25)
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_the_error_says_what_to_install(tmp_path, images, monkeypatch):
    monkeypatch.setattr(video.shutil, "which", lambda name: None)
    monkeypatch.setattr(video.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install -c constraints.txt '.\[video\]'`, or save a .gif"):
        save_video(tmp_path / "swing.mp4", images, fps=25)
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_named(tmp_path, images):
    one = pendulum("paper")
    with pytest.raises(InputError, match=r"path: 'swing.avi' must end with .gif or .mp4"):
        save_video(tmp_path / "swing.avi", images, fps=25)
    with pytest.raises(InputError, match=r"frames: float64 \[12, 200, 200, 3\], expected uint8"):
        save_video(tmp_path / "swing.gif", images / 255, fps=25)
    with pytest.raises(InputError, match="fps: the frames per second must be positive, not 0"):
        save_video(tmp_path / "swing.gif", images, fps=0)
    with pytest.raises(InputError, match=r"u: has shape \(3, 2\), expected \(3, 1\)"):
        trace(one, np.arange(3.0), np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"size: \(100, 300\) is too small"):
        render_frames(one, trace(one, *swing(one)), size=(100, 300))
