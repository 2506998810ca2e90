"""Private addresses are taken only where the operator allows it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.service.private import refusal_of
from tests.service.serving import Port, open_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRIVATE = [
    "http://127.0.0.1/", "http://127.0.0.1:8080/x", "http://2130706433/", "http://0x7f.1/", "http://017700000001/",
    "http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://10.1.2.3", "http://192.168.0.1./", "http://169.254.169.254/",
    "http://user@127.0.0.1/", "http://user:a@10.0.0.1:80/", "HTTP://LOCALHOST/", "http://localhost:80/",
    "http://a.localhost/", "http://%31%32%37.0.0.1/", "http://１２７.0.0.1/", "http:\\\\127.0.0.1/", " http://127.1/",
]  # fmt: skip
PUBLIC = [
    "http://example.org/", "https://example.org:8443/a?b#c", "http://93.184.215.14/", "http://1und1.de/",
    "http://localhost.example.org/", "http://example.org/127.0.0.1", "http://example.org/.localhost", "https://müller.de/",
    "http://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/", "nonsense", "mailto:x@localhost",
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with open_port() as opened:
        yield opened


@pytest.mark.parametrize("url", PRIVATE)
async def test_a_private_address_is_known_however_it_is_written(url: str) -> None:
    refusal = refusal_of(url)
    assert refusal is not None
    assert "private address" in str(refusal.detail)


@pytest.mark.parametrize("url", PUBLIC)
async def test_what_is_public_or_no_url_is_left_to_the_store(url: str) -> None:
    assert refusal_of(url) is None


async def test_each_is_refused_alone_unless_the_operator_allows_them(port: Port, tmp_path: Path) -> None:
    urls = ("http://a.example/", "http://127.0.0.1/", "http://b.example/")
    async with port.serving(tmp_path) as served:
        await served.crawl()
        assert await served.add(*urls) == ["new", "rejected", "new"]
        headers = {"content-type": "application/x-ndjson"}
        lines = '{"url": "http://10.0.0.1/"}\n{"url": "http://c.example/"}'
        imported = await served.ask("POST", "/v1/crawls/news/import", data=lines, headers=headers)
        assert (imported.json["new"], imported.json["rejected"]) == (1, 1)
    async with port.serving(tmp_path, allow_private=True) as served:
        assert await served.add(*urls) == ["known", "new", "known"]
