"""Images of a mechanical system: its links, the path of its tip, the goal, the reward and the control over time.

Pillow draws at three times the size and reduces, which smooths the edges and takes about ten milliseconds per frame.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from PIL import Image, ImageDraw, ImageFont

from purectrl.core.errors import InputError, require
from purectrl.systems.mechanical import MechanicalSystem

PAPER, INK, GREY, LIGHT = "#fbfaf7", "#22303c", "#98a2aa", "#e7e4dc"
LINKS, TIP, GOAL, CONTROLS = ("#2f4858", "#33658a"), "#f26419", "#2a9d8f", ("#33658a", "#e0a030")
FINE = 3
TRAIL = 0.8
"""Seconds of the tip's path that are shown."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Trace:
    """What a frame shows: a rollout up to now. The last row is the present.

    Main arguments:
        t: times [n].
        joints: (x, y) of the joints [n, p, 2], see `MechanicalSystem.links`.
        u: controls [n, k].
        r: rewards [n].
    """

    t: np.ndarray
    joints: np.ndarray
    u: np.ndarray
    r: np.ndarray

    def until(self, n: int) -> "Trace":
        """The first n rows."""
        return Trace(self.t[:n], self.joints[:n], self.u[:n], self.r[:n])


def trace(system: MechanicalSystem, t: np.ndarray, x: np.ndarray, u: np.ndarray) -> Trace:
    """The trace of a rollout: times [n], states [n, 2·nq], controls [n, k]."""
    t, x, u = np.asarray(t), np.asarray(x), np.asarray(u)
    require(t.ndim == 1 and t.size > 0, f"t: has shape {t.shape}, expected [n] with at least one time")
    for name, array, width in (("x", x, system.state_dim), ("u", u, system.control_dim)):
        require(array.shape == (t.size, width), f"{name}: has shape {array.shape}, expected {(t.size, width)}")
    links = require_links(system)
    joints, r = jax.jit(lambda x, u: (jax.vmap(links)(x[:, : system.nq]), system.reward(x, u)))(x, u)
    return Trace(t, np.asarray(joints), u, np.asarray(r))


def render_frames(system: MechanicalSystem, seen: Trace, size: tuple[int, int] = (480, 480)) -> np.ndarray:
    """One image per time: uint8 [n, height, width, 3]; `size` is (width, height)."""
    span = (float(seen.t[0]), float(seen.t[-1]))
    return np.stack([render_frame(system, seen.until(n + 1), span, size) for n in range(len(seen.t))])


def render_frame(system: MechanicalSystem, seen: Trace, span: tuple[float, float], size: tuple[int, int]) -> np.ndarray:
    """The image of the last row of a trace, uint8 [height, width, 3].

    Main arguments:
        seen: the rollout so far.
        span: first and last time on the axes of reward and control.
        size: (width, height) in pixels, at least 160 each.
    """
    width, height = size
    require(min(size) >= 160, f"size: {size} is too small, at least (160, 160)")
    canvas = Image.new("RGB", (width * FINE, height * FINE), PAPER)
    draw = ImageDraw.Draw(canvas)
    margin, strip = 0.035 * height, 0.22 * height
    _scene(draw, system, seen, (0.0, 0.0, float(width), height - strip))
    top, bottom, middle = height - strip + 1.4 * margin, height - margin, width / 2
    boxes = ((margin, top, middle - margin / 2, bottom), (middle + margin / 2, top, width - margin, bottom))
    limit = system.u_max
    _curves(draw, boxes[0], seen.t, seen.r[:, None], span, (0.0, 1.0), (GOAL,), filled=True)
    _curves(draw, boxes[1], seen.t, seen.u, span, (-limit, limit), CONTROLS, filled=False)
    image = canvas.reduce(FINE)
    _words(ImageDraw.Draw(image), system, seen, boxes, margin)
    return np.asarray(image)


def _scene(draw: ImageDraw.ImageDraw, system: MechanicalSystem, seen: Trace, box: tuple[float, ...]) -> None:
    """The system, its goal and the path of its tip inside `box` (left, top, right, bottom)."""
    reach = float(np.linalg.norm(np.diff(seen.joints[-1], axis=0), axis=1).sum())
    left, top, right, bottom = box
    unit = min(right - left, bottom - top) / (2 * 1.22 * reach)  # pixels per metre
    on_rail = not system.angles[0]
    half = (right - left) / 2 / unit
    place = float(seen.joints[-1, 0, 0])
    free = max(half - 1.1 * reach, 0.1 * half)  # how far the cart may go before the camera follows
    camera = place - float(np.clip(place, -free, free)) if on_rail else 0.0

    def pixel(point: Sequence[float] | np.ndarray) -> Point:
        return (left + right) / 2 + unit * (point[0] - camera), (top + bottom) / 2 - unit * point[1]

    size = unit * reach
    if on_rail:
        _rail(draw, camera, half, pixel, size)
    if system.goal is not None:
        _ring(draw, pixel(_goal(system)[-1]), 0.085 * size, GOAL, 0.018 * size)
    _trail(draw, [pixel(p) for p in smooth(seen.joints[seen.t > seen.t[-1] - TRAIL, -1])], 0.03 * size)
    joints = [pixel(p) for p in seen.joints[-1]]
    if on_rail:
        x, y = joints[0]
        _capsule(draw, (x - 0.11 * size, y), (x + 0.11 * size, y), 0.16 * size, INK)
    else:
        _disc(draw, joints[0], 0.075 * size, LIGHT)
    for i, (a, b) in enumerate(pairwise(joints)):
        _capsule(draw, a, b, 0.075 * size, LINKS[i % len(LINKS)])
    for joint in joints[:-1]:
        _disc(draw, joint, 0.02 * size, PAPER)
    _disc(draw, joints[-1], 0.055 * size, TIP)


@functools.cache
def _goal(system: MechanicalSystem) -> np.ndarray:
    """The joints in the goal state [p, 2]."""
    return np.asarray(require_links(system)(jnp.asarray(system.goal, jnp.float32)[: system.nq]))


def require_links(system: MechanicalSystem) -> Callable[[Array], Array]:
    """The function that places the joints; raises `InputError` if the system has none."""
    if system.links is None:
        raise InputError(f"links: {system.name!r} cannot be rendered without them; give the system a function `links`")
    return system.links


def _rail(
    draw: ImageDraw.ImageDraw, camera: float, half: float, pixel: Callable[[Sequence[float]], Point], size: float
) -> None:
    """The rail with a mark at each metre; the mark at zero is taller."""
    _line(draw, [pixel((camera - half, 0.0)), pixel((camera + half, 0.0))], 0.014 * size, GREY)
    for metre in range(math.ceil(camera - half), math.floor(camera + half) + 1):
        x, y = pixel((metre, 0.0))
        tall = (0.15 if metre == 0 else 0.05) * size
        _line(draw, [(x, y), (x, y + tall)], 0.012 * size, GOAL if metre == 0 else GREY)


def _trail(draw: ImageDraw.ImageDraw, points: Sequence[Point], width: float) -> None:
    """A path that fades into the background towards the past."""
    for i, (a, b) in enumerate(pairwise(points)):
        age = 1 - (i + 1) / len(points)
        _line(draw, [a, b], width * (1 - 0.6 * age), _mix(TIP, PAPER, 0.35 + 0.65 * age))


def smooth(points: np.ndarray, pieces: int = 6) -> np.ndarray:
    """A curve through points [n, 2], with cubics between them: [(n − 1)·pieces + 1, 2].

    >>> smooth(np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]), pieces=2).tolist()
    [[0.0, 0.0], [0.5, 1.0], [1.0, 2.0], [1.5, 3.0], [2.0, 4.0]]
    """
    if len(points) < 2:
        return points
    slopes = np.gradient(points, axis=0)
    s = (np.arange(pieces) / pieces)[None, :, None]
    a, b, da, db = (rows[:, None] for rows in (points[:-1], points[1:], slopes[:-1], slopes[1:]))
    curve = a + s**2 * (3 - 2 * s) * (b - a) + s * (1 - s) ** 2 * da - s**2 * (1 - s) * db
    return np.concatenate([curve.reshape(-1, points.shape[1]), points[-1:]])


def _curves(
    draw: ImageDraw.ImageDraw,
    box: tuple[float, ...],
    t: np.ndarray,
    values: np.ndarray,
    span: tuple[float, float],
    limits: tuple[float, float],
    colours: Sequence[str],
    filled: bool,
) -> None:
    """Curves of values [n, k] over time inside `box`, each with a dot at the end; the area to zero is filled on request."""
    left, top, right, bottom = box
    seconds, (low, high) = max(span[1] - span[0], 1e-9), limits
    across = left + (right - left) * (t - span[0]) / seconds
    level = lambda value: bottom - (bottom - top) * (np.clip(value, low, high) - low) / (high - low)  # noqa: E731
    for value in {low, 0.0, high}:
        _line(draw, [(left, level(value)), (right, level(value))], 1.0, LIGHT)
    for i, column in enumerate(values.T):
        colour = colours[i % len(colours)]
        points = list(zip(across.tolist(), level(column).tolist(), strict=True))
        if filled and len(points) > 1:
            area = [(points[0][0], level(0.0)), *points, (points[-1][0], level(0.0))]
            draw.polygon([(FINE * x, FINE * y) for x, y in area], fill=_mix(colour, PAPER, 0.75))
        _line(draw, points, 1.6, colour)
        _disc(draw, points[-1], 3.2, colour)


def _words(draw: ImageDraw.ImageDraw, system: MechanicalSystem, seen: Trace, boxes: Sequence, margin: float) -> None:
    """Name and time at the top, names and current values of the curves below."""
    large, small = ImageFont.load_default(margin * 1.05), ImageFont.load_default(margin * 0.8)
    right = boxes[1][2]
    draw.text((margin, margin * 0.8), system.name, fill=INK, font=large)
    draw.text((right, margin * 0.8), f"{seen.t[-1]:.1f} s", fill=INK, font=large, anchor="ra")
    control = "  ".join(f"{value:+.1f}" for value in seen.u[-1])
    for (left, top, end, _), name, value in zip(
        boxes, ("reward", "control"), (f"{seen.r[-1]:.2f}", control), strict=True
    ):
        draw.text((left, top - margin * 0.45), name, fill=GREY, font=small, anchor="ls")
        draw.text((end, top - margin * 0.45), value, fill=INK, font=small, anchor="rs")


def _line(draw: ImageDraw.ImageDraw, points: Sequence[Point], width: float, colour: str) -> None:
    draw.line([(FINE * x, FINE * y) for x, y in points], fill=colour, width=max(1, round(FINE * width)), joint="curve")


def _disc(draw: ImageDraw.ImageDraw, centre: Point, radius: float, colour: str) -> None:
    draw.circle((FINE * centre[0], FINE * centre[1]), FINE * radius, fill=colour)


def _ring(draw: ImageDraw.ImageDraw, centre: Point, radius: float, colour: str, width: float) -> None:
    middle = (FINE * centre[0], FINE * centre[1])
    draw.circle(middle, FINE * radius, outline=colour, width=max(1, round(FINE * width)))


def _capsule(draw: ImageDraw.ImageDraw, a: Point, b: Point, width: float, colour: str) -> None:
    """A thick line with round ends."""
    _line(draw, [a, b], width, colour)
    _disc(draw, a, width / 2, colour)
    _disc(draw, b, width / 2, colour)


def _mix(colour: str, other: str, share: float) -> str:
    """`colour` with a share of `other` in it.

    >>> _mix("#000000", "#ff0000", 0.5)
    '#800000'
    """
    a, b = (np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)]) for name in (colour, other))
    return "#" + "".join(f"{round(value):02x}" for value in (1 - share) * a + share * b)
