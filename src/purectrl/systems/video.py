"""Videos from frames: GIF with Pillow, MP4 with ffmpeg."""

import io
import shutil
import subprocess
import tempfile
from importlib import import_module, util
from pathlib import Path

import numpy as np
from PIL import Image

from purectrl.core.errors import InputError, PurectrlError, require
from purectrl.core.io import write_atomically


def save_video(path: str | Path, frames: np.ndarray, fps: float) -> Path:
    """Writes frames, uint8 [n, height, width, 3], as `.gif` or `.mp4` according to the suffix of `path`; returns the path.

    A GIF counts time in hundredths of a second, and viewers slow down what is faster than 50 frames per second. An MP4
    needs ffmpeg: one on the PATH, or the one that comes with `pip install -c constraints.txt '.[video]'`.
    """
    path = Path(path)
    frames = np.asarray(frames)
    encoders = {".gif": _gif, ".mp4": _mp4}
    require(path.suffix in encoders, f"path: {path.name!r} must end with .gif or .mp4")
    require(
        frames.ndim == 4 and frames.shape[-1] == 3 and frames.dtype == np.uint8 and len(frames) > 0,
        f"frames: {frames.dtype} {list(frames.shape)}, expected uint8 [n, height, width, 3] with n at least 1",
    )
    require(fps > 0, f"fps: the frames per second must be positive, not {fps}")
    write_atomically(path, encoders[path.suffix](frames, fps))
    return path


def save_film(directory: Path, stem: str, frames: np.ndarray, fps: float) -> list[Path]:
    """Writes a GIF, an MP4 if ffmpeg is installed, and a picture from the middle, which a player shows before it starts."""
    suffixes = [".gif", ".mp4"] if has_ffmpeg() else [".gif"]
    written = [save_video(directory / f"{stem}{suffix}", frames, fps) for suffix in suffixes]
    poster = io.BytesIO()
    Image.fromarray(frames[len(frames) // 2]).save(poster, "PNG")
    write_atomically(directory / f"{stem}.png", poster.getvalue())
    return [*written, directory / f"{stem}.png"]


def _gif(frames: np.ndarray, fps: float) -> bytes:
    # one palette for all frames: colours that are chosen per frame flicker
    sample = Image.fromarray(np.concatenate([frames[0], frames[len(frames) // 2], frames[-1]]))
    palette = sample.quantize(128, dither=Image.Dither.NONE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    file, duration = io.BytesIO(), max(20, 10 * round(100 / fps))
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0)
    return file.getvalue()


def _mp4(frames: np.ndarray, fps: float) -> bytes:
    _, height, width, _ = frames.shape
    command = [ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", f"{fps:g}", "-i", "-", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-crf", "18"]
    # browsers and slides play yuv420p only, which needs even sides; faststart lets a page play before all is loaded
    command += ["-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    with tempfile.TemporaryDirectory() as directory:  # ffmpeg must seek in what it writes
        path = Path(directory) / "video.mp4"
        data = np.ascontiguousarray(frames).tobytes()
        done = subprocess.run([*command, str(path)], input=data, capture_output=True)  # noqa: S603
        if done.returncode:
            raise PurectrlError(f"ffmpeg could not encode the video: {done.stderr.decode(errors='replace').strip()}")
        return path.read_bytes()


def has_ffmpeg() -> bool:
    """Whether MP4 files can be written."""
    return shutil.which("ffmpeg") is not None or util.find_spec("imageio_ffmpeg") is not None


def ffmpeg() -> str:
    """The path of ffmpeg: on the PATH, else inside the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found:
        return found
    if not has_ffmpeg():
        raise InputError(
            "path: an .mp4 needs ffmpeg, which is not installed: `pip install -c constraints.txt '.[video]'`, "
            "or save a .gif"
        )
    return import_module("imageio_ffmpeg").get_ffmpeg_exe()
