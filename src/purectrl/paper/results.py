"""What the analysis of an item yields: numbers, a table, and checks of the criteria."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from purectrl.core.errors import require

MAX_COLUMNS = 12
"""The most columns that fit on a page."""


@dataclass(frozen=True)
class Check:
    """A criterion, either a claim of the paper or a requirement of ours, with what was observed."""

    criterion: str
    observed: str
    passed: bool


@dataclass(frozen=True)
class Table:
    """Columns with names, and rows of text and numbers.

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

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "Table":
        """A table from rows that map the name of a column to its cell."""
        return cls(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))

    def csv(self) -> str:
        """The table as CSV, with all digits."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """The table as Markdown with four digits, transposed if it has too many columns for a page."""
        columns, rows = self.columns, self.rows
        if len(rows) < len(columns) > MAX_COLUMNS:
            columns, *rows = zip(columns, *rows, strict=True)
        rule = "|" + "---|" * len(columns)
        return "\n".join([_row(columns), rule, *(_row(row) for row in rows)])


@dataclass(frozen=True)
class Analysis:
    """All results of an item. Its figure is drawn from `numbers` alone."""

    numbers: Mapping[str, Any]
    table: Table
    checks: tuple[Check, ...]


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int) or (
        isinstance(cell, float) and (cell.is_integer() or abs(cell) >= 1e3) and abs(cell) < 1e7
    ):
        return f"{cell:,.0f}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell).replace("|", "\\|")
