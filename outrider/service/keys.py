"""API keys: making them, knowing them again, and how often each may ask.

A key is one word, `outrider_<id>_<secret>`: the id finds it, the secret proves it. The store keeps a digest of the
secret alone, so that whoever reads the store cannot use what is there.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from outrider.model.api_key import ApiKey, Role
from outrider.model.quota import JobQuota
from outrider.service.problems import Forbidden, RateExceeded, Unauthenticated
from outrider.store.protocols import ControlStore

FRESH_S: Final = 2.0
"""How long a key is taken for what the store last said of it: a revoked one opens nothing after that."""
MOST_REMEMBERED: Final = 10_000
DEFAULT_RATE: Final = 2_000.0
"""Requests per second of one key; a burst of as many is let through at once."""

NO_QUOTA: Final = JobQuota()

LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]", ""})

_KEY: Final = re.compile(r"outrider_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class Principal(NamedTuple):
    """Who asks, and what for they may."""

    name: str
    role: Role
    crawls: frozenset[str] | None = None
    """None where all are allowed."""
    key_id: str | None = None
    """None where no key was needed."""
    owner: str | None = None
    """Whose jobs are submitted and seen with it."""
    quota: JobQuota | None = None

    def check(self, needed: Role, crawl: str | None = None) -> None:
        """Raise `Forbidden` where the key is not good for this."""
        if not self.role.includes(needed):
            raise Forbidden(f"this needs a key with the role {needed}, and {self.name!r} has the role {self.role}")
        if crawl is not None and not self.sees(crawl):
            raise Forbidden(f"the key {self.name!r} is not good for this crawl")

    def check_unbound(self, what: str) -> None:
        """Raise `Forbidden` where the key is good for some crawls only."""
        if self.crawls is not None:
            raise Forbidden(f"{what} is not for the key {self.name!r}, which is bound to crawls: name one of them")

    def sees(self, crawl: str) -> bool:
        """Tell whether the key is good for a crawl."""
        return self.crawls is None or crawl in self.crawls


ANYBODY: Final = Principal("anybody", Role.ADMIN)
"""Who asks a service that has no keys; such a service listens on this machine only."""


class NewKey(NamedTuple):
    """A key that was just made: the only moment at which its text is known."""

    text: str
    key_id: str


def make_key() -> tuple[NewKey, str]:
    """Make up a key; give it with the digest to keep of it."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return NewKey(f"outrider_{key_id}_{secret}", key_id), digest_of(secret)


def digest_of(secret: str) -> str:
    """Tell what is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def create_key(
    control: ControlStore,
    name: str,
    role: Role,
    crawls: Sequence[str] = (),
    *,
    owner: str | None = None,
    quota: JobQuota = NO_QUOTA,
) -> NewKey:
    """Make a key and keep what is to be kept of it."""
    made, digest = make_key()
    await control.create_key(made.key_id, digest, name=name, role=role, crawls=crawls, owner=owner, quota=quota)
    return made


class _Remembered(NamedTuple):
    key: ApiKey | None
    at: float


class Keys:
    """The keys of one service; knows for a moment what the store said of each."""

    def __init__(self, control: ControlStore, *, open_without_keys: bool, rate: float = DEFAULT_RATE) -> None:
        self._control = control
        self._open_without_keys = open_without_keys
        """Only for a service that nobody but this machine can reach, and only as long as no key was ever made."""
        self._remembered: dict[str, _Remembered] = {}
        self._is_open = False
        self._asked_at = -FRESH_S
        self._rates = Rates(rate)

    async def principal(self, authorization: str | None, host: str = "") -> Principal:
        """Tell who asks by a header `authorization: Bearer …`, or raise what there is to object.

        Who has no key, where none is needed, must have asked for this machine by one of its own names: a page in a
        browser could else have its name point here.
        """
        if not authorization:
            if await self._needs_no_key():
                if _name_of(host) not in LOCAL_HOSTS:
                    raise Forbidden("without a key, ask for this service as 127.0.0.1 or localhost")
                return ANYBODY
            raise Unauthenticated("send a key: `authorization: Bearer outrider_…`; `outrider keys create` makes one")
        scheme, _, text = authorization.partition(" ")
        found = _KEY.fullmatch(text.strip())
        if scheme.lower() != "bearer" or found is None:
            raise Unauthenticated("the authorization is not of the form `Bearer outrider_…`")
        key = await self._find(found[1])
        # Compared in any case, so that the time taken does not tell whether there is such a key.
        matches = hmac.compare_digest(digest_of(found[2]), key.digest if key is not None else "")
        if key is None or not matches or key.revoked_at is not None:
            raise Unauthenticated("there is no such key, or it was revoked")
        self._rates.take(key.key_id)
        return Principal(key.name, key.role, frozenset(key.crawls) or None, key.key_id, key.owner, key.quota)

    async def _needs_no_key(self) -> bool:
        if self._open_without_keys and time.monotonic() - self._asked_at > FRESH_S:
            self._is_open = not await self._control.list_keys()
            self._asked_at = time.monotonic()
        return self._is_open

    async def _find(self, key_id: str) -> ApiKey | None:
        remembered = self._remembered.get(key_id)
        now = time.monotonic()
        if remembered is not None and now - remembered.at < FRESH_S:
            return remembered.key
        key = await self._control.find_key(key_id)
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key_id] = _Remembered(key, now)
        return key


def _name_of(host: str) -> str:
    """Take the port from a host.

    >>> _name_of("[::1]:7071"), _name_of("Localhost:7071")
    ('[::1]', 'localhost')
    """
    lowered = host.lower()
    return lowered.partition("]")[0] + "]" if lowered.startswith("[") else lowered.partition(":")[0]


class Rates:
    """How often each key may ask: `rate` times a second, and as many at once after a pause."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key_id: str) -> None:
        """Count a request, or raise `RateExceeded`."""
        now = time.monotonic()
        left, at = self._left.get(key_id, (self._rate, now))
        left = min(left + (now - at) * self._rate, self._rate) - 1
        if left < 0:
            raise RateExceeded(f"a key may ask {self._rate:g} times a second", -left / self._rate)
        self._left[key_id] = (left, now)
