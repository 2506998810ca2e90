"""`outrider serve`: what it binds to, what it says, how it stops."""

import asyncio
import signal
import ssl
import time
from pathlib import Path

import aiohttp
import pytest

from outrider.cli.serve import is_loopback
from outrider.model.api_key import Role
from outrider.model.task import CrawlLimits, Discovered
from outrider.service.client import connect
from outrider.service.keys import create_key
from outrider.store.opening import open_store
from tests.cli.commands import command, free_port


async def test_it_serves_this_machine_without_a_key_and_says_how_to_change_that(tmp_path: Path) -> None:
    async with command(tmp_path, "serve", "--port", "0") as serving:
        line = await serving.says("serving")
        base_url = line.split(" on ")[1].split(",")[0]
        assert base_url.startswith("http://127.0.0.1:")
        assert "outrider keys create" in await serving.says("no API keys")
        async with aiohttp.ClientSession() as session, session.get(f"{base_url}/readyz") as response:
            assert response.status == 200
    assert (tmp_path / "outrider-data" / "outrider.sqlite").exists()


async def test_it_stops_in_order_while_somebody_waits_for_work(tmp_path: Path) -> None:
    port = free_port()
    async with command(tmp_path, "serve", "--port", str(port)) as serving:
        await serving.says("serving")
        async with connect(f"http://127.0.0.1:{port}", patience_s=0) as frontier, aiohttp.ClientSession() as session:
            await frontier.create_crawl("news", limits=CrawlLimits(delay_ms=0, robots=False))
            await frontier.add("news", [Discovered(url="http://a.example/")])
            body = {"worker": "w", "request_id": "r", "slots": 1, "wait_ms": 30_000}
            url = f"http://127.0.0.1:{port}/v1/crawls/news/lease"
            async with session.post(url, json=body) as first:
                assert len((await first.json())["leases"]) == 1
            began = time.monotonic()
            waiting = asyncio.create_task(session.post(url, json=body | {"request_id": "r2"}))
            await frontier.outlook("news")
            serving.process.send_signal(signal.SIGTERM)
            assert (await waiting).status == 503
        assert await serving.ends() == 0
        assert time.monotonic() - began < 10


async def test_without_a_key_it_refuses_to_serve_others(tmp_path: Path) -> None:
    async with command(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0") as serving:
        assert await serving.ends() == 4
    assert "outrider keys create NAME" in serving.said
    assert "--host 127.0.0.1" in serving.said


async def test_a_revoked_key_is_no_key(tmp_path: Path) -> None:
    async with await open_store(f"sqlite:///{tmp_path}/outrider.sqlite") as stores:
        made = await create_key(stores.control, "gone", Role.ADMIN)
        await stores.control.revoke_key(made.key_id)
    async with command(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", "--data", ".") as serving:
        assert await serving.ends() == 4


async def test_with_a_key_it_serves_others_and_asks_them_for_it(tmp_path: Path) -> None:
    async with await open_store(f"sqlite:///{tmp_path}/outrider.sqlite") as stores:
        made = (await create_key(stores.control, "mine", Role.READ)).text
    port = free_port()
    async with command(tmp_path, "serve", "--host", "0.0.0.0", "--port", str(port), "--data", ".") as serving:
        await serving.says("keys travel readable")
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/v1/crawls"
            async with session.get(url) as response:
                assert response.status == 401
            async with session.get(url, headers={"authorization": f"Bearer {made}"}) as response:
                assert response.status == 200
        serving.process.terminate()
        await serving.ends()
        assert made.rpartition("_")[2] not in serving.said


async def test_it_speaks_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", str(key), "-out", str(certificate),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await made.wait() == 0
    arguments = ("serve", "--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key))
    async with command(tmp_path, *arguments) as serving:
        base_url = (await serving.says("serving")).split(" on ")[1].split(",")[0]
        assert base_url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with connect(base_url, tls=trusting) as frontier:
            assert (await frontier.create_crawl("news")).name == "news"


async def test_half_of_what_tls_needs_is_refused(tmp_path: Path) -> None:
    async with command(tmp_path, "serve", "--tls-cert", "some.pem") as serving:
        assert await serving.ends() == 4
    assert "--tls-key" in serving.said


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("example.org", False), ("localhost.example", False)],
)  # fmt: skip
def test_only_what_nobody_else_can_reach_is_this_machine(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so
