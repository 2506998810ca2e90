"""The outbox: messages written with what they tell of, delivered afterwards, at least once, in order.

Whoever takes messages has them to itself for a while: they are due again only when that is over. A
message is never taken before an earlier one of its ordering key that is not due.
"""

from collections.abc import Mapping, Sequence

from outrider.model.job import OutboxMessage, StoredMessage, TopicBacklog
from outrider.store.sql.control.rows import as_json, record
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls

PRUNE_CHUNK = 2_000


def _message(row: Row) -> StoredMessage:
    return record(StoredMessage, row, json=("payload",))


def append(messages: Mapping[str, OutboxMessage], now: int | None) -> Script[None]:
    """Store messages by the ids that they are to have, in their order; one that is there stays."""
    keys = sorted({(message.topic, message.ordering_key) for message in messages.values()})
    yield Call("lock_ordering_keys", (), keys)
    moment = yield from crawls.clock(now)
    yield Call(
        "insert_messages",
        (moment,),
        [
            (each, message.topic, message.ordering_key, as_json(message.payload, "the payload of a message"))
            for each, message in messages.items()
        ],
    )


def take(topic: str, limit: int, hold_ms: int, now: int | None) -> Script[list[StoredMessage]]:
    """Take what is due, in order, and keep it from others for `hold_ms`."""
    yield Call("lock_topic", (topic,))
    moment = yield from crawls.clock(now)
    rows = yield Call("take_messages", (topic, moment, limit, moment + hold_ms))
    return sorted(map(_message, rows), key=lambda message: message.sequence)


def mark_delivered(ids: Sequence[str], now: int | None) -> Script[int]:
    """Note that messages have arrived; tell how many had not before."""
    moment = yield from crawls.clock(now)
    rows = yield Call("mark_delivered", (moment,), [(each,) for each in sorted(set(ids))])
    return len(rows)


def mark_failed(message: str, error: str, retry_in_ms: int, now: int | None) -> Script[bool]:
    """Note that a message did not arrive and when to try again; False where it has arrived or is gone."""
    moment = yield from crawls.clock(now)
    rows = yield Call("mark_failed", (message, error, moment + retry_in_ms))
    return bool(rows)


def backlog() -> Script[list[TopicBacklog]]:
    """Sum up what waits, topic by topic."""
    rows = yield Call("outbox_backlog")
    return [record(TopicBacklog, row) for row in rows]


def prune(before: int) -> Script[int]:
    """Forget one chunk of what was delivered before a moment; tell how many."""
    rows = yield Call("prune_outbox", (before, PRUNE_CHUNK))
    return len(rows)
