"""Scripts: transactions written once, run by either engine.

    script                      engine
      |  yield Call("renew", …)   |
      | ------------------------> |  runs the statement of that name in its dialect
      | <------------------------ |
      |        its rows           |
      |  return answer            |
      | ------------------------> |  commits, then answers the caller

A script never commits, sleeps or reads a clock by itself, so it can be run again from the start when
the transaction could not be committed.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

Value = Any
Row = Sequence[Value]
Answer = TypeVar("Answer")


class Call(NamedTuple):
    """A statement by name, with the values that it takes once and the rows that it takes many of."""

    name: str
    values: tuple[Value, ...] = ()
    rows: Sequence[tuple[Value, ...]] | None = None
    take: Callable[[tuple[Value, ...]], tuple[Value, ...]] | None = None
    """Which columns of the rows the statement takes, where not all; an engine that has nothing to do does not pick."""

    def taken(self) -> Sequence[tuple[Value, ...]] | None:
        """Give the rows with those columns that the statement takes."""
        if self.rows is None or self.take is None:
            return self.rows
        return [self.take(row) for row in self.rows]


Script = Generator[Call, list[Row], Answer]


ROWS = "{rows}"
"""Where SQLite, which has no arrays, writes the rows of a call into a statement as a VALUES list; a statement
without it runs once for each row."""


class Sql(NamedTuple):
    """The text of a statement in one dialect; empty where an engine has nothing to do for it."""

    text: str


Catalogue = Mapping[str, Sql]
