"""Webhooks: telling the outside that a job has ended, at least once and in order.

The message was written to the outbox in the transaction that ended the job. Any number of processes deliver; who
takes a message has it to itself for a while, and a process that dies in between leaves it to the next one.

    outbox --take--> POST, signed --2xx--> delivered
      ^                |
      +--- back-off ---+ anything else; after the last attempt it is kept under `UNDELIVERED`

A receiver knows a message that comes twice by `X-Outrider-Delivery`, and that it comes from us by
`X-Outrider-Signature`.
"""

import asyncio
import hashlib
import hmac
import logging
import time
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from yarl import URL

from outrider import __version__
from outrider.crawler import addresses
from outrider.model.errors import OutriderError, StoreError
from outrider.model.job import WEBHOOK_TOPIC, Job, OutboxMessage, StoredMessage
from outrider.store.protocols import ControlStore

UNDELIVERED: Final = f"{WEBHOOK_TOPIC}-undelivered"
"""The topic of what was given up: nobody takes it, so that it stays where a person sees it."""
SIGNATURE: Final = "X-Outrider-Signature"
DELIVERY: Final = "X-Outrider-Delivery"

SLOTS: Final = 32
"""Deliveries at the same time."""
STORE_TROUBLE_S: Final = 5.0
FAREWELL_S: Final = 2.0
"""How long an orderly stop waits for receivers; what is not answered by then is delivered again."""
ERROR_CHARACTERS: Final = 300
PRUNE_EVERY_S: Final = 3600.0
KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""How long a message that was delivered can still be looked up."""

logger = logging.getLogger(__name__)


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are delivered."""

    allow_private: bool = False
    """Whether receivers may have private addresses."""
    timeout_s: float = 10.0
    hold_s: float = 60.0
    """How long a message that was taken is kept from others; longer than the time-out."""
    first_wait_s: float = 5.0
    """Back-off after the first attempt; doubles with each."""
    longest_wait_s: float = 3600.0
    most_attempts: int = 24
    """With the back-off of the default, half a day."""
    look_every_s: float = 1.0


class DeliveryFailed(OutriderError):
    """A receiver did not take a message."""

    def __init__(self, detail: str, *, is_silent: bool = False) -> None:
        super().__init__(detail[:ERROR_CHARACTERS])
        self.is_silent = is_silent
        """Whether it did not even answer, so that its other messages need not be tried now."""


class NoReceiver(OutriderError):
    """There is nobody to deliver a message to."""


def signature_of(secret: str, timestamp: int, body: bytes) -> str:
    """Sign a body together with the moment of sending, so that an old message cannot be sent again by others.

    >>> signature_of("secret", 1767323045, b"{}")
    't=1767323045,v1=4a10b40c9c842e332be9ba9d790f8f8df44002dca45fd184d766fa8db55ef209'
    """
    digest = hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def wait_ms(attempt: int, options: WebhookOptions) -> int:
    """Tell how long to wait after an attempt that failed; the first one is 1.

    >>> [wait_ms(attempt, WebhookOptions()) for attempt in (1, 2, 10, 11, 24)]
    [5000, 10000, 2560000, 3600000, 3600000]
    """
    doubled: float = options.first_wait_s * 2 ** min(attempt - 1, 40)
    return round(1000 * min(doubled, options.longest_wait_s))


class WebhookDeliverer:
    """Delivers what is in the outbox. Use it as an asynchronous context, and `run` it.

    Each delivery has a slot to itself, so that a slow receiver holds up nobody else; while one does not answer at
    all, its other messages fail without being tried, for they would take all slots.
    """

    def __init__(self, control: ControlStore, options: WebhookOptions | None = None) -> None:
        self._control = control
        self._options = options or WebhookOptions()
        self._under_way: set[asyncio.Task[None]] = set()
        self._silent: dict[tuple[str | None, int | None], tuple[float, str]] = {}
        self._prune_at = 0.0
        self._resolver: AbstractResolver | None = None
        self._session: aiohttp.ClientSession | None = None
        self.delivered = 0
        self.failed = 0
        self.given_up = 0

    async def __aenter__(self) -> Self:
        self._resolver = addresses.open_resolver()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                limit=SLOTS,
                force_close=True,  # a kept connection would skip the check of its address
                socket_factory=addresses.guarded_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"Outrider/{__version__}", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(),  # `_post` has one for everything, looking the name up included
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver what is due until told to stop; trouble of the store is waited out."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                pause = await self._look()
                # A slot that becomes free is worth a look only where there may be more than slots.
                wanted = {stopping} if pause else {stopping, *self._under_way}
                await asyncio.wait(
                    wanted, timeout=pause or self._options.look_every_s, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            stopping.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=FAREWELL_S)

    async def _look(self) -> float:
        """Begin to deliver what is due; tell how long to rest, 0 where more may be waiting for a slot."""
        free = SLOTS - len(self._under_way)
        if not free:
            return 0.0
        try:
            await self._forget_old_messages()
            if not any(backlog.topic == WEBHOOK_TOPIC for backlog in await self._control.outbox_backlog()):
                return self._options.look_every_s
            taken = await self._control.take_messages(WEBHOOK_TOPIC, free, hold_ms=round(1000 * self._options.hold_s))
            for message in await self._put_back_followers(taken):
                task = asyncio.create_task(self._deliver(message))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        except StoreError as error:
            logger.warning("cannot look for webhooks: %s", error, extra={"action": "webhook_store_trouble"})
            return STORE_TROUBLE_S
        return 0.0 if len(taken) == free else self._options.look_every_s

    async def _forget_old_messages(self) -> None:
        if time.monotonic() >= self._prune_at:
            await self._control.prune_outbox(before=int(time.time() * 1000) - KEPT_MS)
            self._prune_at = time.monotonic() + PRUNE_EVERY_S

    async def _put_back_followers(self, taken: list[StoredMessage]) -> list[StoredMessage]:
        """Keep the first message of each job. The others are due at once, and not taken before the first is done."""
        first: dict[str, StoredMessage] = {}
        for message in taken:
            if first.setdefault(message.ordering_key, message) is not message:
                await self._control.mark_failed(message.id, "waits for an earlier message of its job", retry_in_ms=0)
        return list(first.values())

    async def _deliver(self, message: StoredMessage) -> None:
        try:
            await self._attempt(message)
        except StoreError as error:
            # It is taken again when the hold is over, and delivered twice where it had arrived.
            logger.warning(
                "webhook %s of job %s: %s", message.id, message.ordering_key, error,
                extra={"action": "webhook_store_trouble"},
            )  # fmt: skip

    async def _attempt(self, message: StoredMessage) -> None:
        try:
            job = await self._control.get_job(message.ordering_key)
            url = _receiver_of(job)
            await self._post(url, job.webhook_secret if job else None, message)
        except (DeliveryFailed, NoReceiver) as error:
            await self._note_failure(message, error)
            return
        await self._control.mark_delivered([message.id])
        self.delivered += 1
        logger.info(
            "webhook %s of job %s delivered at attempt %d", message.id, message.ordering_key, message.attempts,
            extra={"action": "webhook_delivered"},
        )  # fmt: skip

    async def _note_failure(self, message: StoredMessage, error: DeliveryFailed | NoReceiver) -> None:
        if isinstance(error, NoReceiver) or message.attempts >= self._options.most_attempts:
            await self._give_up(message, str(error))
            return
        wait = wait_ms(message.attempts, self._options)
        await self._control.mark_failed(message.id, str(error), retry_in_ms=wait)
        self.failed += 1
        logger.warning(
            "webhook %s of job %s failed at attempt %d, tried again in %g s: %s",
            message.id, message.ordering_key, message.attempts, wait / 1000, error,
            extra={"action": "webhook_failed"},
        )  # fmt: skip

    async def _give_up(self, message: StoredMessage, error: str) -> None:
        """Put a message aside, so that later ones of its job are not held up; killed in between, it is put twice."""
        kept = OutboxMessage(
            topic=UNDELIVERED,
            ordering_key=message.ordering_key,
            payload={"delivery": message.id, "attempts": message.attempts, "error": error, "payload": message.payload},
        )
        await self._control.append_messages([kept])
        await self._control.mark_delivered([message.id])
        self.given_up += 1
        logger.error(
            "webhook %s of job %s given up after %d attempts: %s",
            message.id, message.ordering_key, message.attempts, error,
            extra={"action": "webhook_given_up"},
        )  # fmt: skip

    async def _post(self, url: URL, secret: str | None, message: StoredMessage) -> None:
        """Send a message once, or raise `DeliveryFailed`."""
        receiver = (url.host, url.port)
        self._check_heard_of(receiver)
        try:
            await self._exchange(url, secret, message)
        except DeliveryFailed as error:
            if error.is_silent:
                self._silent[receiver] = (time.monotonic() + self._options.first_wait_s, str(error))
            raise

    def _check_heard_of(self, receiver: tuple[str | None, int | None]) -> None:
        now = time.monotonic()
        self._silent = {each: known for each, known in self._silent.items() if known[0] > now}
        if receiver in self._silent:
            raise DeliveryFailed(f"not tried, as another message just failed: {self._silent[receiver][1]}")

    async def _exchange(self, url: URL, secret: str | None, message: StoredMessage) -> None:
        assert self._session is not None, "a WebhookDeliverer is used as an asynchronous context"
        body = msgspec.json.encode({"delivery": message.id, **message.payload})
        headers = {DELIVERY: message.id}
        if secret is not None:
            headers[SIGNATURE] = signature_of(secret, int(time.time()), body)
        dial = addresses.Dial(private_allowed=self._options.allow_private)
        addresses.current_dial.set(dial)
        try:
            async with asyncio.timeout(self._options.timeout_s):
                answer = await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {self._options.timeout_s:g} s", is_silent=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            told = str(error) or type(error).__name__
            raise DeliveryFailed(told if dial.connected else dial.refusal or told, is_silent=True) from error
        answer.close()  # what it says beyond its status is of no interest
        if not 200 <= answer.status < 300:
            raise DeliveryFailed(_refusal(answer))


def _receiver_of(job: Job | None) -> URL:
    if job is None or job.webhook_url is None:
        raise NoReceiver("the job has no webhook any more")
    try:
        url = URL(job.webhook_url)
    except ValueError as error:
        raise NoReceiver(f"the webhook is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise NoReceiver("the webhook is neither http nor https")
    return url


def _refusal(answer: aiohttp.ClientResponse) -> str:
    told = f"answered {answer.status} {answer.reason or ''}".rstrip()
    return f"{told}: redirects are not followed" if 300 <= answer.status < 400 else told
