"""Webhooks over real sockets: signed, in order, at least once, and never to where they must not go."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection

import pytest
import pytest_asyncio

from outrider.control.webhooks import SLOTS, UNDELIVERED, WebhookDeliverer, WebhookOptions
from outrider.model.job import WEBHOOK_TOPIC, Job, JobRequest, OutboxMessage
from outrider.model.machines import DesiredState, JobStatus
from outrider.store.opening import open_store
from outrider.store.protocols import ControlStore
from tests.cli.commands import free_port
from tests.conformance.backends import Place
from tests.control.receiving import LONG_S, never, receiver
from tests.processes import start

SECRET = "between us"
QUICK = WebhookOptions(allow_private=True, first_wait_s=0.01, look_every_s=0.01)


@pytest_asyncio.fixture
async def control(place: Place) -> AsyncIterator[ControlStore]:
    """The control plane of a store of each backend, open and empty."""
    async with await open_store(place.dsn) as stores:
        yield stores.control


@asynccontextmanager
async def delivering(control: ControlStore, options: WebhookOptions = QUICK) -> AsyncIterator[WebhookDeliverer]:
    """Deliver until the test is done."""
    stop = asyncio.Event()
    async with WebhookDeliverer(control, options) as deliverer:
        running = asyncio.create_task(deliverer.run(stop))
        try:
            yield deliverer
        finally:
            stop.set()
            await running


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(LONG_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.005)


async def submit(control: ControlStore, url: str | None, secret: str | None = SECRET) -> Job:
    return await control.submit_job(JobRequest(payload={}, webhook_url=url, webhook_secret=secret))


async def submit_and_cancel(control: ControlStore, url: str | None, secret: str | None = SECRET) -> Job:
    job = await submit(control, url, secret)
    return await control.set_desired_state(job.id, DesiredState.CANCEL)


async def tell(control: ControlStore, job: Job, number: int) -> str:
    """Append a message of a job, as its ends do."""
    [message] = await control.append_messages(
        [OutboxMessage(topic=WEBHOOK_TOPIC, ordering_key=job.id, payload={"n": number})]
    )
    return message


async def backlog(control: ControlStore) -> dict[str, int]:
    return {each.topic: each.number for each in await control.outbox_backlog()}


async def nothing_waits(control: ControlStore) -> bool:
    return WEBHOOK_TOPIC not in await backlog(control)


async def test_the_end_of_a_job_is_told_with_a_signature_that_its_secret_verifies(control: ControlStore) -> None:
    async with receiver() as receiving, delivering(control) as deliverer:
        job = await submit_and_cancel(control, receiving.url)
        [request] = await receiving.has(1)
        await until(lambda: nothing_waits(control))
        assert deliverer.delivered == 1
    timestamp, _, digest = request.headers["X-Outrider-Signature"].removeprefix("t=").partition(",v1=")
    expected = hmac.new(SECRET.encode(), f"{timestamp}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(digest, expected)
    assert abs(int(timestamp) - time.time()) < LONG_S
    assert request.headers["Content-Type"] == "application/json"
    assert (request.json["job"], request.json["status"]) == (job.id, JobStatus.CANCELLED)
    assert request.json["delivery"] == request.id
    assert SECRET.encode() not in request.body


async def test_a_job_without_a_secret_is_told_of_without_a_signature(control: ControlStore) -> None:
    async with receiver() as receiving, delivering(control):
        await submit_and_cancel(control, receiving.url, None)
        [request] = await receiving.has(1)
    assert "X-Outrider-Signature" not in request.headers


async def test_a_job_without_a_webhook_tells_nobody(control: ControlStore) -> None:
    await submit_and_cancel(control, None)
    assert await backlog(control) == {}


async def test_a_refusal_is_tried_again_with_the_same_id_until_it_is_taken(control: ControlStore) -> None:
    async with receiver() as receiving, delivering(control) as deliverer:
        receiving.answer(500, 404, 302)
        await submit_and_cancel(control, receiving.url)
        requests = await receiving.has(4)
        await until(lambda: nothing_waits(control))
        assert (deliverer.delivered, deliverer.failed) == (1, 3)
    assert len({request.id for request in requests}) == 1
    assert len({request.body for request in requests}) == 1


async def test_a_receiver_that_is_down_gets_the_message_when_it_is_up(control: ControlStore) -> None:
    port = free_port()
    async with delivering(control) as deliverer:
        await submit_and_cancel(control, f"http://127.0.0.1:{port}/hook")

        async def has_failed() -> bool:
            return deliverer.failed > 0

        await until(has_failed)
        async with receiver(port) as receiving:
            await receiving.has(1)
            await until(lambda: nothing_waits(control))


async def test_a_redirect_is_not_followed(control: ControlStore) -> None:
    async with receiver() as target, receiver() as receiving, delivering(control):
        receiving.answer(307, Location=target.url)
        await submit_and_cancel(control, receiving.url)
        await receiving.has(2)
        await until(lambda: nothing_waits(control))
        assert target.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254"])
async def test_a_private_address_is_refused_where_it_is_not_allowed(
    host: str, control: ControlStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    refusing = WebhookOptions(first_wait_s=60, look_every_s=0.01)
    async with receiver() as receiving, delivering(control, refusing) as deliverer:
        port = receiving.url.split(":")[2].partition("/")[0]
        await submit_and_cancel(control, f"http://{host}:{port}/hook")

        async def has_failed() -> bool:
            return deliverer.failed > 0

        await until(has_failed)
        assert receiving.requests == []
    assert {record.action for record in caplog.records if hasattr(record, "action")} == {"webhook_failed"}
    assert " is " in caplog.text


async def test_what_is_given_up_stays_visible_and_does_not_hold_up_its_job(
    control: ControlStore, caplog: pytest.LogCaptureFixture
) -> None:
    impatient = WebhookOptions(allow_private=True, first_wait_s=0.001, look_every_s=0.01, most_attempts=3)
    async with receiver() as receiving, delivering(control, impatient) as deliverer:
        job = await submit(control, receiving.url)
        receiving.answer(500, 500, 500)
        await tell(control, job, 1)
        await receiving.has(3)
        await tell(control, job, 2)
        requests = await receiving.has(4)
        await until(lambda: nothing_waits(control))
        assert (deliverer.given_up, deliverer.failed, deliverer.delivered) == (1, 2, 1)
    assert [request.json["n"] for request in requests] == [1, 1, 1, 2]
    assert await backlog(control) == {UNDELIVERED: 1}
    [kept] = await control.take_messages(UNDELIVERED, 9)
    assert kept.payload == {
        "delivery": requests[0].id, "attempts": 3, "error": "answered 500 Internal Server Error", "payload": {"n": 1},
    }  # fmt: skip
    assert f"webhook {requests[0].id} of job {job.id} given up after 3 attempts" in caplog.text


async def test_a_message_without_a_receiver_is_given_up_at_once(control: ControlStore) -> None:
    async with delivering(control) as deliverer:
        await tell(control, await submit(control, None), 1)
        await until(lambda: nothing_waits(control))
        assert (deliverer.given_up, deliverer.failed) == (1, 0)


async def test_messages_of_one_job_arrive_in_order_though_the_first_fails(control: ControlStore) -> None:
    async with receiver() as receiving:
        job = await submit(control, receiving.url)
        for number in range(5):
            await tell(control, job, number)
        receiving.answer(500, 200, 503)
        async with delivering(control):
            requests = await receiving.has(7)
            await until(lambda: nothing_waits(control))
    assert [request.json["n"] for request in requests] == [0, 0, 1, 1, 2, 3, 4]


async def test_a_silent_receiver_holds_up_nobody_else(control: ControlStore) -> None:
    """It has more messages than there are slots; once it was found silent, they fail without being tried."""
    options = WebhookOptions(allow_private=True, timeout_s=0.3, first_wait_s=60, look_every_s=0.01)
    async with receiver() as silent, receiver() as quick:
        silent.answers = [never] * (2 * SLOTS)
        for _ in range(2 * SLOTS):
            await tell(control, await submit(control, silent.url), 1)
        job = await submit(control, quick.url)
        await tell(control, job, 2)
        async with delivering(control, options) as deliverer:
            await quick.has(1)

            async def all_failed() -> bool:
                return deliverer.failed == 2 * SLOTS

            await until(all_failed)
        assert len(silent.requests) == SLOTS


def deliver_until_killed(pipe: Connection, dsn: str) -> None:
    async def work() -> None:
        async with await open_store(dsn) as stores, WebhookDeliverer(stores.control, KILLED) as deliverer:
            pipe.send("ready")
            await deliverer.run(asyncio.Event())

    asyncio.run(work())


KILLED = WebhookOptions(allow_private=True, hold_s=1.0, look_every_s=0.01)


async def test_a_deliverer_killed_after_the_sending_is_followed_by_one_that_sends_the_same_again(
    place: Place, control: ControlStore
) -> None:
    async with receiver() as receiving:
        receiving.answers = [never]
        child = await asyncio.to_thread(start, deliver_until_killed, place.dsn)
        try:
            assert await asyncio.to_thread(child.receive) == "ready"
            await submit_and_cancel(control, receiving.url)
            await receiving.has(1)
        finally:
            await asyncio.to_thread(child.kill)
        assert not await nothing_waits(control)
        async with delivering(control, KILLED):
            first, second = await receiving.has(2)
            await until(lambda: nothing_waits(control))
    assert (first.id, first.body) == (second.id, second.body)


async def test_two_deliverers_share_the_work_and_deliver_once(place: Place, control: ControlStore) -> None:
    async with receiver() as receiving, await open_store(place.dsn) as others:
        for _ in range(40):
            await submit_and_cancel(control, receiving.url)
        async with delivering(control), delivering(others.control):
            await until(lambda: nothing_waits(control))
        assert len(receiving.requests) == len({request.id for request in receiving.requests}) == 40


async def test_what_was_delivered_long_ago_is_forgotten_and_what_was_not_is_kept(control: ControlStore) -> None:
    long_ago = int(time.time() * 1000) - 8 * 24 * 3600 * 1000
    job = await submit(control, None)
    messages = [OutboxMessage(topic="others", ordering_key=job.id, payload={"n": n}) for n in range(3)]
    old, recent, _ = await control.append_messages(messages, now=long_ago)
    await control.mark_delivered([old], now=long_ago)
    await control.mark_delivered([recent])
    async with delivering(control):
        await tell(control, job, 1)
        await until(lambda: nothing_waits(control))
    far_away = int(time.time() * 1000) + 10**9
    assert await control.prune_outbox(before=far_away) == 2, "the recent one, and the one that was given up just now"
    assert await backlog(control) == {"others": 1, UNDELIVERED: 1}
