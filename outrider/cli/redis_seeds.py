"""Seeds in a sorted set of Redis: members are URLs or hosts, scores their ranks."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from outrider.crawler.plan import without_credentials
from outrider.model.errors import InvalidInput

SCHEMES: Final = ("redis://", "rediss://")
AT_ONCE: Final = 1_000
PATIENCE_S: Final = 10.0
_PLACE = re.compile(r"/([0-9]{1,4})/(.+)", re.DOTALL)


class Member(NamedTuple):
    """One member of the set."""

    text: str
    score: float


class SortedSet:
    """A sorted set, read from the lowest score on while it is iterated over.

    It is read by position: of what is removed meanwhile, a neighbour may be missed; run the crawl again for it.
    """

    def __init__(self, place: str) -> None:
        self.shown = without_credentials(place)
        """Its address without what is secret about it."""
        parts = urlsplit(place)
        path = _PLACE.fullmatch(parts.path)
        if path is None or not parts.hostname:
            raise InvalidInput(f"{self.shown} names no sorted set: write redis://host/0/key")
        database, self.key = path[1], unquote(path[2])
        self._client = _connected(f"{parts.scheme}://{parts.netloc}/{database}")
        kind = self._ask("type", self.key).decode()
        if kind != "zset":
            found = "there is no such key" if kind == "none" else f"it is a {kind}, not a sorted set"
            raise InvalidInput(f"cannot read the seeds in {self.shown}: {found}")

    def __iter__(self) -> Iterator[Member]:
        start = 0
        while found := self._ask("zrange", self.key, start, start + AT_ONCE - 1, withscores=True):
            for member, score in found:
                yield Member(member.decode(errors="surrogateescape"), score)
            start += len(found)

    def _ask(self, command: str, *arguments: object, **options: object) -> Any:
        import redis

        try:
            return getattr(self._client, command)(*arguments, **options)
        except (redis.RedisError, OSError) as error:
            raise InvalidInput(f"cannot read the seeds in {self.shown}: {error}") from None


def _connected(address: str) -> Any:
    try:
        import redis
    except ImportError:
        raise InvalidInput("seeds in Redis need the package redis: install outrider[redis]") from None
    try:
        return redis.Redis.from_url(address, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S)
    except ValueError as error:
        raise InvalidInput(f"{without_credentials(address)} is no address of Redis: {error}") from None
