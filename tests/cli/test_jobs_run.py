"""Jobs from their submission to the webhook that tells of their end, every part a process of its own."""

import asyncio
import hashlib
import hmac
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from outrider.cli.exits import ExitCode
from outrider.demo.server import DemoServer
from outrider.demo.site import SiteOptions
from tests.cli.commands import command, free_port
from tests.cli.test_work import Visits
from tests.control.receiving import Receiver, receiver

PAGES = 60
SECRET = "sixteen or more characters"
FAST = ("--delay", "0", "--per-domain", "8")


def check_told(receiving: Receiver, **expected: object) -> None:
    (request,) = receiving.requests
    timestamp, _, digest = request.headers["X-Outrider-Signature"].removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(SECRET.encode(), f"{timestamp}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert {name: request.json[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("place", "limit", "code", "reason"),
    [("store", None, ExitCode.OK, "drained"), ("service", 20, ExitCode.LIMIT, "limit")],
)
async def test_a_job_is_submitted_watched_run_and_told_of(
    place: str, limit: int | None, code: ExitCode, reason: str, tmp_path: Path
) -> None:
    visits, port = Visits(), free_port()
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(DemoServer(SiteOptions(pages=PAGES, oddities=False), on_request=visits))
        receiving = await stack.enter_async_context(receiver())
        if place == "store":
            running, where = ["supervise", "--runners", "1"], ["--allow-private"]
        else:
            running = ["serve", "--with-runners", "1", "--port", str(port)]
            where = ["--frontier", f"http://127.0.0.1:{port}"]
        supervisor = await stack.enter_async_context(command(tmp_path, *running, "--allow-private"))
        await supervisor.says("supervising" if place == "store" else "serving")
        order = ("jobs", "submit", f"{site.base_url}/", *FAST, "--webhook", receiving.url, "--webhook-secret", SECRET)
        limits = () if limit is None else ("--max-pages", str(limit))
        submitting = await stack.enter_async_context(command(tmp_path, *order, *limits, "--watch", *where))
        assert await submitting.ends() == code, submitting.said
        await receiving.has(1)
        supervisor.process.terminate()
        assert await supervisor.ends() == ExitCode.OK, supervisor.said
    check_told(receiving, status="completed", reason=reason, error=None)
    assert SECRET not in supervisor.said
    pages = sum(number for path, number in visits.paths.items() if path in set(site.site.page_paths()))
    assert pages == (PAGES if limit is None else limit)


async def test_ctrl_c_ends_the_watching_and_not_the_job(tmp_path: Path) -> None:
    async with command(tmp_path, "jobs", "submit", "https://example.org") as submitting:
        assert await submitting.ends() == ExitCode.OK
    job = submitting.said.rsplit("jobs watch ", 1)[1].strip()
    watching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outrider.cli.main", "jobs", "watch", job,
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert watching.stdout is not None
    assert b"submitted" in await asyncio.wait_for(watching.stdout.readline(), 30)
    watching.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(watching.communicate(), 30)
    assert watching.returncode == ExitCode.INTERRUPTED
    assert f"job {job} goes on" in said.decode()
    async with command(tmp_path, "jobs", "cancel", job) as cancelling:
        assert await cancelling.ends() == ExitCode.OK, "it had not ended"
