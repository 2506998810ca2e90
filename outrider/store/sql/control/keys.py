"""API keys: a digest of each secret, and what the key is good for."""

from collections.abc import Sequence

import msgspec

from outrider.model.api_key import ApiKey, UnknownKey
from outrider.model.errors import InvalidInput
from outrider.store.sql.control.rows import record
from outrider.store.sql.script import Call, Row, Script
from outrider.store.sql.urls import crawls as clock


def create(key: ApiKey, now: int | None) -> Script[ApiKey]:
    """Keep a key from now on; one that was kept before, by the same call whose answer got lost, is the same key."""
    moment = yield from clock.clock(now)
    yield Call(
        "insert_key",
        (
            key.key_id, key.name, key.role.value, _as_json(key.crawls), key.digest, moment, key.owner,
            key.max_active_jobs, key.max_pages_per_job, key.max_jobs_per_day,
        ),
    )  # fmt: skip
    kept = _key((yield Call("api_key", (key.key_id,)))[0])
    if kept.digest != key.digest:
        raise InvalidInput("there is another key of this id")
    return kept


def find(key_id: str) -> Script[ApiKey | None]:
    """Find a key, revoked or not."""
    rows = yield Call("api_key", (key_id,))
    return _key(rows[0]) if rows else None


def listed() -> Script[list[ApiKey]]:
    """List all keys, the revoked ones too, the oldest first."""
    return [_key(row) for row in (yield Call("list_keys"))]


def revoke(key_id: str, now: int | None) -> Script[ApiKey]:
    """End a key; one that has ended stays as it is."""
    moment = yield from clock.clock(now)
    yield Call("revoke_key", (key_id, moment))
    rows = yield Call("api_key", (key_id,))
    if not rows:
        raise UnknownKey(key_id)
    return _key(rows[0])


def _key(row: Row) -> ApiKey:
    return record(ApiKey, row, json=("crawls",))


def _as_json(crawls: Sequence[str]) -> str:
    return msgspec.json.encode(sorted(set(crawls))).decode()
