"""Films from frames: GIF with Pillow, MP4 with ffmpeg."""

import shutil
import subprocess
from importlib import import_module, util
from pathlib import Path

import numpy as np
from PIL import Image

from purectrl.core.errors import InputError, PurectrlError, require


def save_film(path: str | Path, frames: np.ndarray, fps: float) -> Path:
    """Writes frames, uint8 [n, height, width, 3], as `.gif` or `.mp4`, whichever `path` ends with; returns the path.

    A GIF counts time in hundredths of a second and viewers slow down what is faster than 50 frames a second. An MP4 needs
    ffmpeg: one on the PATH, or the one that comes with `pip install -c constraints.txt '.[video]'`.
    """
    path = Path(path)
    frames = np.asarray(frames)
    writers = {".gif": _gif, ".mp4": _mp4}
    require(path.suffix in writers, f"path: {path.name!r} must end with .gif or .mp4")
    require(
        frames.ndim == 4 and frames.shape[-1] == 3 and frames.dtype == np.uint8 and len(frames) > 0,
        f"frames: {frames.dtype} {list(frames.shape)}, expected uint8 [n, height, width, 3] with n at least 1",
    )
    require(fps > 0, f"fps: the frames a second must be positive, not {fps}")
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        writers[path.suffix](unfinished, frames, fps)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _gif(path: Path, frames: np.ndarray, fps: float) -> None:
    # one palette for all frames: colours that are chosen anew each time flicker
    sample = Image.fromarray(np.concatenate([frames[0], frames[len(frames) // 2], frames[-1]]))
    palette = sample.quantize(128, dither=Image.Dither.NONE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=max(20, 10 * round(100 / fps)), loop=0)


def _mp4(path: Path, frames: np.ndarray, fps: float) -> None:
    _, height, width, _ = frames.shape
    command = [ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", f"{fps:g}", "-i", "-", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-crf", "18"]
    # browsers and slides play yuv420p only, which needs even sides; faststart lets a page play before all is loaded
    command += ["-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    done = subprocess.run(command, input=np.ascontiguousarray(frames).tobytes(), capture_output=True)  # noqa: S603
    if done.returncode:
        raise PurectrlError(f"ffmpeg could not write {path.name}: {done.stderr.decode(errors='replace').strip()}")


def ffmpeg() -> str:
    """Where ffmpeg is: on the PATH, else inside the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found:
        return found
    if util.find_spec("imageio_ffmpeg") is None:
        raise InputError(
            "path: an .mp4 needs ffmpeg, which is not here: `pip install -c constraints.txt '.[video]'`, or save a .gif"
        )
    return import_module("imageio_ffmpeg").get_ffmpeg_exe()
