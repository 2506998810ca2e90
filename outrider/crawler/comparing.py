"""Comparing: whether a page says something else than when it was last fetched."""

import hashlib
from typing import Final, NamedTuple

from outrider.crawler.charset import decode
from outrider.crawler.exchange import Response
from outrider.crawler.page import is_html
from outrider.crawler.similarity import says_the_same, similarity_hash
from outrider.model.lease import Lease
from outrider.policy.freshness import fresh_until

NOT_MODIFIED: Final = 304


class Comparison(NamedTuple):
    """The hashes of a body, and what they say beside those of the last fetch."""

    digest: str | None = None
    similarity: int | None = None
    changed: bool | None = None
    """None where there is nothing to compare with."""


def compare(lease: Lease, response: Response, *, remembers: bool) -> Comparison:
    """Compare an answer with what the lease tells of the last one.

    A body with another digest may say the same but for a date or a counter: then the similarity of the main texts
    counts. It takes a while to work out, so that is left where nobody `remembers` it and nothing was remembered.
    """
    if response.status == NOT_MODIFIED:
        return Comparison(lease.digest, lease.similarity, changed=False)
    digest = f"sha256:{hashlib.sha256(response.body).hexdigest()}" if response.body else None
    if not 200 <= response.status < 300 or digest is None:
        return Comparison(digest)
    if digest == lease.digest:
        return Comparison(digest, lease.similarity, changed=False)
    if not remembers and lease.digest is None:
        return Comparison(digest)
    similarity = None
    if is_html(response.content_type, response.body):
        similarity = similarity_hash(decode(response.body, response.charset_declared)[0])
    if lease.digest is None:
        return Comparison(digest, similarity)
    return Comparison(digest, similarity, changed=not says_the_same(similarity, lease.similarity))


def fresh_for_ms(response: Response) -> int | None:
    """Tell for how long an answer promises not to change."""
    now_ms = response.fetched_at
    until = fresh_until(response.header("cache-control"), response.header("expires"), now_ms=now_ms)
    return None if until is None else until - now_ms
