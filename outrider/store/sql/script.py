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

from collections.abc import Generator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

Value = Any
Row = Sequence[Value]
Answer = TypeVar("Answer")


class Call(NamedTuple):
    """A statement by name, with the values that it takes once and the rows that it takes many of."""

    name: str
    values: tuple[Value, ...] = ()
    rows: Sequence[tuple[Value, ...]] | None = None


Script = Generator[Call, list[Row], Answer]


class Mode(Enum):
    """How SQLite, which has no arrays, runs a statement over many rows; PostgreSQL unnests them."""

    ONCE = "once"
    MANY = "many"
    """Once per row, no answer needed."""
    EACH = "each"
    """Once per row, answers collected in order."""
    NONE = "none"
    """Not at all: what one engine must lock, the other has to itself."""


class Sql(NamedTuple):
    """The text of a statement in one dialect."""

    text: str
    mode: Mode = Mode.ONCE


Catalogue = Mapping[str, Sql]
