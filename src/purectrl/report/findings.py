"""What an item says: its numbers, its table, and which marks it meets."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from purectrl.core.errors import require

MOST_COLUMNS = 12
"""That a page has room for."""


@dataclass(frozen=True)
class Mark:
    """Something that the paper says or that we ask for, and whether the numbers agree.

    Main arguments:
        asks: what should be so.
        found: what is so.
        met: whether that is enough.
    """

    asks: str
    found: str
    met: bool


@dataclass(frozen=True)
class Table:
    """Columns with names, rows of text and numbers.

    >>> print(Table(("N", "gap"), ((256, 0.123456), (65536.5, None))).markdown())
    | N | gap |
    |---|---|
    | 256 | 0.1235 |
    | 65,536 | – |
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            require(len(row) == len(self.columns), f"rows: {row} does not have the columns {self.columns}")

    def csv(self) -> str:
        """For other programs: every digit."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """For readers: four digits, and no wider than a page: what has too many columns is turned."""
        columns, rows = self.columns, self.rows
        if len(rows) < len(columns) > MOST_COLUMNS:
            columns, *rows = zip(columns, *rows, strict=True)
        rule = "|" + "---|" * len(columns)
        return "\n".join([_row(columns), rule, *(_row(row) for row in rows)])


@dataclass(frozen=True)
class Findings:
    """All of it; a figure is drawn from `numbers` alone."""

    numbers: Mapping[str, Any]
    table: Table
    marks: tuple[Mark, ...]


def _row(cells: tuple[Any, ...]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int) or (
        isinstance(cell, float) and (cell.is_integer() or abs(cell) >= 1000) and abs(cell) < 1e7
    ):
        return f"{cell:,.0f}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell).replace("|", "\\|")
