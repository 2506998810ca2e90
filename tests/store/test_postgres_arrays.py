"""Arrays as texts: whatever a column holds arrives in the server as it was."""

from typing import Any

import asyncpg
import pytest

from outrider.store.sql.postgres.arrays import Statement, array_text, prepared

COLUMNS: list[tuple[str, list[Any]]] = [
    ("text", ["plain", "https://a.example/?q=1"]),
    ("text", ['"', "\\", '\\"', "{}", "a,b", "NULL", "null", "", " ", "\n\t", "ä€😀", "'", "\x01"]),
    ("text", ["a", None, 'b"']),
    ("text", [None, None]),
    ("int", [0, -1, 2**31 - 1]),
    ("bigint", [2**63 - 1, None, -(2**63)]),
    ("boolean", [True, False]),
    ("boolean", [None, True]),
    ("bytea", [b"", b"\x00\xff", b'"\\']),
    ("bytea", [None, b"a"]),
]


@pytest.mark.parametrize(("kind", "column"), COLUMNS)
async def test_a_column_arrives_as_it_was(postgres_database: str, kind: str, column: list[Any]) -> None:
    statement = prepared(f"SELECT * FROM unnest($1::{kind}[])")
    assert statement.unnested == {1}
    connection = await asyncpg.connect(postgres_database)
    try:
        rows = await connection.fetch(statement.text, array_text(column))
    finally:
        await connection.close()
    assert [row[0] for row in rows] == column


def test_arrays_in_a_condition_stay_arrays() -> None:
    text = "SELECT FROM unnest($2::int[], $3::text[]) AS w (a, b) WHERE w.b = ANY ($1::text[])"
    assert prepared(text) == Statement(
        "SELECT FROM unnest($2::text::int[], $3::text::text[]) AS w (a, b) WHERE w.b = ANY ($1::text[])",
        frozenset({2, 3}),
    )
