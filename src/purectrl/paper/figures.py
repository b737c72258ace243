"""One style for all figures: size, type, colours that colour-blind readers can distinguish, criteria as dashed lines.

Figures are objects; matplotlib's global state is not changed. Matplotlib is imported when a figure is drawn.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purectrl.core.io import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # listing the items must not import matplotlib
    Axes = Figure = Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of Okabe and Ito."""
MARKERS = ("o", "s", "^", "D", "v", "P")
WIDTHS = {1: 6.4, 2: 9.2, 3: 11.6}
"""Inches by number of panels: three panels are shrunk on a page, and ten-point type must stay readable."""
CRITERION: Mapping[str, Any] = {"color": "#444444", "linestyle": (0, (5, 3)), "linewidth": 1.2, "zorder": 1.5}
"""The line of a criterion."""
STYLE: Mapping[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.fontsize": 9.5,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "pdf.fonttype": 42,
}


@contextmanager
def panels(count: int, height: float = 4.2) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with `count` panels side by side."""
    import matplotlib
    from matplotlib import figure as figures
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(dict(STYLE)):
        layout = ConstrainedLayoutEngine(w_pad=0.1)  # with the default, the label of one panel touches the next
        figure = figures.Figure(figsize=(WIDTHS[count], height), layout=layout)
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(1, count, squeeze=False)[0])


def save(draw: Callable[[Mapping[str, Any]], Figure], numbers: Mapping[str, Any], folder: Path) -> None:
    """Writes figure.png and figure.pdf; the same numbers give the same bytes."""
    import matplotlib
    from PIL import Image

    with matplotlib.rc_context(dict(STYLE)):
        figure = draw(numbers)
        pdf, png, small = io.BytesIO(), io.BytesIO(), io.BytesIO()
        figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})  # a date would change the bytes
        figure.savefig(png, format="png", dpi=144)
        # a palette makes it a third of the size; this method keeps colours that only the legend has
        Image.open(png).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(small, "png", optimize=True)
        write_atomically(folder / "figure.pdf", pdf.getvalue())
        write_atomically(folder / "figure.png", small.getvalue())


def series(axes: Axes, points: Mapping[str, Any], index: int, label: str) -> None:
    """A line through the means, with the intervals as a band.

    Main arguments:
        points: "x", "mean", "low" and "high", lists of the same length.
        index: which colour and marker.
    """
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    axes.plot(
        points["x"], points["mean"], color=colour, label=label, marker=marker, markersize=5, linewidth=1.6, zorder=3
    )
    axes.fill_between(points["x"], points["low"], points["high"], color=colour, alpha=0.18, linewidth=0, zorder=2)


def scatter(axes: Axes, points: Mapping[str, Any], index: int, label: str) -> None:
    """The means as separate points, with the intervals as bars; arguments as for `series`."""
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    for x, low, high in zip(points["x"], points["low"], points["high"], strict=True):
        axes.plot([x, x], [low, high], color=colour, linewidth=1.4, zorder=2)
    axes.plot(points["x"], points["mean"], marker, color=colour, markersize=6, label=label, zorder=3)


def label_sizes(axes: Axes, sizes: Sequence[float], label: str) -> None:
    """A logarithmic x axis with ticks at `sizes`, which are powers of two."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    large = max(sizes) > 128  # in full, large numbers would overlap
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"2$^{{{math.log2(value):.3g}}}$" if large else f"{value:g}")
    )
    axes.set_xlabel(label)


def log_height(axes: Axes) -> None:
    """A logarithmic y axis with ticks at 1, 2 and 5 of every decade."""
    axes.set_yscale("log")
    _decade_ticks(axes.yaxis)


def log_width(axes: Axes) -> None:
    """A logarithmic x axis with ticks at 1, 2 and 5 of every decade."""
    axes.set_xscale("log")
    _decade_ticks(axes.xaxis)


def log_decades(axes: Axes) -> None:
    """A logarithmic x axis with numbers at powers of ten, for three panels side by side."""
    from matplotlib.ticker import NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())


def log_ticks(axes: Axes, at: Sequence[float]) -> None:
    """A logarithmic x axis with ticks at these values alone."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(at, [f"{value:,g}" for value in at])


def _decade_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def legend_below(figure: Figure, columns: int = 3) -> None:
    """One legend below all panels; a label that several panels have is shown once."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False)
