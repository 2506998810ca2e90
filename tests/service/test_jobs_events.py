"""Following a job: every step once and in order, through breaks of the stream and restarts of the service."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import pytest

from outrider.control import job_events
from outrider.model.api_key import Role
from outrider.model.machines import DesiredState, JobStatus
from outrider.service import keys
from outrider.service.http import event_stream
from tests.service.job_serving import (
    SEED,
    backend,
    bearer,
    claimed,
    dsn,
    fetched,
    finished,
    port,
    served,
    stores_of,
    submitted,
)
from tests.service.serving import Port, Served

__all__ = ["backend", "dsn", "port", "served"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 20


class Event(NamedTuple):
    """What a client of server-sent events reads."""

    kind: str
    id: str | None
    data: Any


class Stream:
    """An open stream, read as a browser reads it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments = 0
        self.retry_ms: int | None = None

    async def next(self) -> Event | None:
        """Wait for the next event; None where the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(DEADLINE_S):
            while line := (await self.response.content.readline()).decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if name == "" and value:
                    self.comments += 1
                elif name == "retry":
                    self.retry_ms = int(value)
                elif name:
                    fields[name] = value
                elif "event" in fields:
                    return Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
        return None

    async def next_step(self) -> Event | None:
        """Wait for the next change of state."""
        while (event := await self.next()) is not None and event.kind != "state":
            pass
        return event

    async def rest(self) -> list[Event]:
        """Read to the end."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


@asynccontextmanager
async def following(served: Served, job_id: str, **headers: str) -> AsyncIterator[Stream]:
    path = f"{served.base_url}/v1/jobs/{job_id}/events"
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.get(path, headers=sent) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


def steps(events: list[Event]) -> list[str]:
    return [event.data["to_status"] for event in events if event.kind == "state"]


async def test_a_stream_tells_steps_as_they_happen_and_ends_after_the_last(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    async with following(served, job_id) as stream:
        first = await stream.next_step()
        assert first is not None
        assert (first.data["to_status"], first.data["actor"]) == ("pending", "user")
        assert first.id == str(first.data["sequence"])
        assert stream.retry_ms == event_stream.RETRY_MS
        job = await claimed(stores)
        await fetched(stores, job, SEED)
        second = await stream.next_step()
        assert second is not None
        assert second.data["to_status"] == "processing"
        await finished(stores, job, reason="drained")
        events = await stream.rest()
    assert steps(events) == ["completed"]
    assert events[-1].kind == "state"
    progress = [event for event in events if event.kind == "progress"][-1]
    assert (progress.id, progress.data["done"], progress.data["percentage"]) == (None, 1, 100)


async def test_progress_is_told_while_a_job_runs(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served, max_pages=10)
    job = await claimed(stores)
    async with following(served, job_id) as stream:
        for number in range(1, 3):
            await fetched(stores, job, f"{SEED}{number}")
            while (event := await stream.next()) is not None:
                if event.kind == "progress" and event.data["done"] == number:
                    assert (event.data["percentage"], event.data["percentage_of"]) == (10 * number, "limit")
                    break
            assert event is not None


async def test_a_client_that_comes_back_hears_what_it_missed_and_nothing_twice(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    async with following(served, job_id) as stream:
        first = await stream.next_step()
    assert first is not None
    assert first.id is not None
    await served.ask("POST", f"/v1/jobs/{job_id}/pause")
    await served.ask("POST", f"/v1/jobs/{job_id}/resume")
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    async with following(served, job_id, last_event_id=first.id) as stream:
        missed = await stream.rest()
    assert steps(missed) == ["paused", "pending", "processing", "failed"]
    ids = [int(event.id) for event in missed if event.id is not None]
    assert ids == sorted(ids)
    assert int(first.id) < ids[0]
    by_query = await served.ask("GET", f"/v1/jobs/{job_id}/events?after={ids[0]}")
    assert by_query.text.count("event: state") == 3


async def test_where_nothing_can_follow_the_answer_is_204_until_the_job_is_retried(served: Served) -> None:
    stores = stores_of(served)
    job_id = await submitted(served)
    await finished(stores, await claimed(stores), JobStatus.FAILED, error_message="broken")
    async with following(served, job_id) as stream:
        events = await stream.rest()
    last = {"last-event-id": str(events[-1].id)}
    over = await served.ask("GET", f"/v1/jobs/{job_id}/events", headers=last)
    assert (over.status, over.text) == (204, "")
    await served.ask("POST", f"/v1/jobs/{job_id}/retry")
    async with following(served, job_id, last_event_id=last["last-event-id"]) as stream:
        again = await stream.next_step()
        assert again is not None
        assert again.data["to_status"] == "pending"
        await stores.control.set_desired_state(job_id, DesiredState.CANCEL)
        assert steps(await stream.rest()) == ["cancelled"]


async def test_a_stream_after_a_step_that_there_never_was_ends_with_the_job(served: Served) -> None:
    job_id = await submitted(served)
    async with following(served, job_id, last_event_id=str(2**62)) as stream:
        await stores_of(served).control.set_desired_state(job_id, DesiredState.CANCEL)
        assert steps(await stream.rest()) == []


async def test_a_stream_goes_on_over_a_restart_of_the_service_without_loss_or_doubling(port: Port, dsn: str) -> None:
    heard: list[str] = []
    async with port.serving(dsn) as served:
        job_id = await submitted(served)
        async with following(served, job_id) as stream:
            first = await stream.next_step()
            assert first is not None
            heard += steps([first])
            served.service.stop()
            assert await stream.next_step() is None, "an orderly stop ends streams, so that they are asked for anew"
        await stores_of(served).control.set_desired_state(job_id, DesiredState.PAUSE)
    async with port.serving(dsn) as served, following(served, job_id, last_event_id=str(first.id)) as stream:
        second = await stream.next_step()
        assert second is not None
        await served.ask("POST", f"/v1/jobs/{job_id}/cancel")
        heard += steps([second, *await stream.rest()])
    assert heard == ["pending", "paused", "cancelled"]


@pytest.mark.parametrize("at_once", [1, 2, 3])
async def test_a_long_history_is_told_in_parts(served: Served, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(job_events, "AT_ONCE", at_once)
    stores = stores_of(served)
    job_id = await submitted(served)
    await finished(stores, await claimed(stores))
    async with following(served, job_id) as stream:
        assert steps(await stream.rest()) == ["pending", "processing", "completed"]


async def test_a_silent_stream_is_kept_alive(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.02)
    job_id = await submitted(served)
    async with following(served, job_id) as stream:
        await stream.next_step()
        waiting = asyncio.create_task(stream.rest())
        await until(lambda: stream.comments >= 3)
        await served.ask("POST", f"/v1/jobs/{job_id}/cancel")
        assert steps(await waiting) == ["cancelled"]


async def test_a_stream_ends_when_its_key_is_revoked(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.02)
    monkeypatch.setattr(keys, "FRESH_S", 0.0)
    headers = await bearer(served, "ada", Role.CRAWL)
    job_id = await submitted(served, headers)
    async with following(served, job_id, **headers) as stream:
        await stream.next_step()
        (key,) = await stores_of(served).control.list_keys()
        await stores_of(served).control.revoke_key(key.key_id)
        assert steps(await stream.rest()) == []


async def test_a_client_that_goes_away_leaves_nobody_asking_the_store(served: Served) -> None:
    job_id = await submitted(served)
    async with following(served, job_id) as stream:
        await stream.next_step()
        assert followers() == 1
    await until(lambda: not followers())


def followers() -> int:
    """Count the streams that this process is telling events to."""
    return sum("_written" in repr(task.get_coro()) or "_next" in repr(task.get_coro()) for task in asyncio.all_tasks())
