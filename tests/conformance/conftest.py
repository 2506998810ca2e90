"""Fixtures of the conformance suite: each is there once for every backend."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from outrider.model.settings import Settings
from outrider.store.opening import Stores, open_store
from outrider.store.protocols import ControlStore, UrlStore
from tests.conformance.backends import BACKENDS, Backend, Place

STEADY = Settings(backoff_jitter=0.0)
"""Settings without chance, so that a test can say what must come out."""


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """One of the backends."""
    return BACKENDS[request.param](request)


@pytest.fixture
def place(backend: Backend) -> Iterator[Place]:
    """An empty store, not opened."""
    dsn = backend.create()
    yield Place(backend, dsn)
    backend.drop(dsn)


@pytest_asyncio.fixture
async def stores(place: Place) -> AsyncIterator[Stores]:
    """Both planes, open and empty."""
    async with await open_store(place.dsn, STEADY) as opened:
        yield opened


@pytest.fixture
def urls(stores: Stores) -> UrlStore:
    """The URL plane, open and empty."""
    return stores.urls


@pytest.fixture
def control(stores: Stores) -> ControlStore:
    """The control plane, open and empty."""
    return stores.control
