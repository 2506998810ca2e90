"""How the commands that look at a crawl print: tables on a terminal, aligned columns at full length elsewhere."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cli.display import printable

if TYPE_CHECKING:
    from outrider.control.story import Fact

WIDE = 110
"""Columns of a terminal that has room for everything."""
LONGEST_WORD = 20


def print_facts(facts: "Iterable[Fact]") -> None:
    """Print names and what is said of them; a name stands beside its first line only."""
    rows = [
        (name if number == 0 else "", printable(line))
        for name, text in facts
        for number, line in enumerate(text.split("\n"))
    ]
    console = Console()
    if not console.is_terminal:
        wide = max((len(name) for name, _ in rows), default=0)
        for name, line in rows:
            typer.echo(f"{name:{wide}}  {line}".rstrip())
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, line in rows:
        grid.add_row(name, Text(line))
    console.print(grid)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table on a terminal, with most of the room for the last column.

    What is empty in every row is left out, and so is what is spare where the terminal is narrow.
    """
    console = Console()
    left_out = set(spare) if console.width < WIDE else set()
    kept = [
        place for place, heading in enumerate(headings) if heading not in left_out and any(row[place] for row in rows)
    ]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for place in kept:
        is_number = headings[place] in numbers
        table.add_column(
            headings[place],
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            max_width=None if is_number or place == kept[-1] else max(console.width // 4, LONGEST_WORD),
        )
    for row in rows:
        table.add_row(*(Text(printable(row[place])) for place in kept))
    console.print(table)


class Columns:
    """Prints rows one after another, aligned as far as the widths seen so far allow."""

    def __init__(self, headings: Sequence[str]) -> None:
        self._widths = [len(heading) for heading in headings]
        self._headings: Sequence[str] | None = headings

    def print(self, rows: Sequence[Sequence[str]]) -> None:
        """Print some more rows, after the headings where they are the first."""
        for row in rows:
            for place, cell in enumerate(row[:-1]):
                self._widths[place] = max(self._widths[place], len(cell))
        if self._headings is not None:
            self._print(self._headings)
            self._headings = None
        for row in rows:
            self._print([printable(cell) for cell in row])

    def _print(self, row: Sequence[str]) -> None:
        aligned = (f"{cell:{wide}}" for cell, wide in zip(row[:-1], self._widths, strict=False))
        typer.echo("  ".join([*aligned, row[-1]]).rstrip())
