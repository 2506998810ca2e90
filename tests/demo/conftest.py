from collections.abc import AsyncIterator

import aiohttp
import pytest

from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions

OPTIONS = SiteOptions(
    pages=200, slow_s=0.01, huge_bytes=3_000_000, bomb_bytes=8 * 1024 * 1024, flood_headers=2_000, many_links=100
)


@pytest.fixture
async def server() -> AsyncIterator[DemoServer]:
    async with DemoServer(OPTIONS) as server:
        yield server


@pytest.fixture
async def client(server: DemoServer) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that asks as plainly as it can: no redirects, and at most two seconds."""
    async with aiohttp.ClientSession(server.base_url, timeout=aiohttp.ClientTimeout(total=2)) as session:
        yield session
