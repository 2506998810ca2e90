"""Fixtures of the watch: an empty store of each backend."""

from tests.conformance.conftest import backend, place

__all__ = ["backend", "place"]
