"""Outrider: a crawl frontier and crawl control plane that loses nothing."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load what programs use from here when they first do: the rooms themselves import this module."""
    if name == "connect":
        return import_module("outrider.service.client").connect
    raise AttributeError(f"module 'outrider' has no attribute {name!r}")
