"""Outrider: a crawl frontier and crawl control plane that loses nothing."""

__version__ = "0.1.0"
