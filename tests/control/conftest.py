"""Fixtures of the watch: an empty store of each backend, or of one where the backend makes no difference."""

from collections.abc import Iterator

import pytest

from tests.conformance.backends import BACKENDS, Place
from tests.conformance.conftest import backend, place

__all__ = ["backend", "place"]


def _place_on(name: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    made = BACKENDS[name](request)
    dsn = made.create()
    yield Place(made, dsn)
    made.drop(dsn)


@pytest.fixture
def sqlite_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty store in a file."""
    yield from _place_on("sqlite", request)


@pytest.fixture
def postgres_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty store on the server."""
    yield from _place_on("postgres", request)
