"""What workers say of a page that was fetched before, and of a site that does not want them."""

from pathlib import Path

import msgspec
import pytest

from outrider.crawler.robots import RobotsRules
from outrider.model.lease import Lease
from outrider.model.task import Kind
from tests.crawler.raw_server import Answer, Exchange, page, unused_port
from tests.crawler.test_visit import HTML, bench

WORDS = " ".join(f"word{letter} and some more of it" for letter in "abcdefghijklmnopqrstuvwxyz")
FORM = b'<form><input name=user><input type="password" name=secret></form>'


def text(body: str) -> bytes:
    return page(f"<main>{body}</main>".encode(), HTML)


def again(lease: Lease, **known: object) -> Lease:
    """The same lease as a refresh would have it."""
    return msgspec.structs.replace(lease, **known)


async def test_a_first_fetch_brings_hashes_only_where_pages_are_to_be_refreshed(tmp_path: Path) -> None:
    async with bench(tmp_path, {"/": text(WORDS)}) as at:
        lease = await at.lease()
        plain = await at.visit(lease)
        at.visitor._remembers = True
        remembered = await at.visit(lease)
    assert plain.fetch.digest == remembered.fetch.digest
    assert (plain.fetch.similarity, plain.changed) == (None, None)
    assert remembered.fetch.similarity is not None
    assert remembered.changed is None


@pytest.mark.parametrize(
    ("body", "changed"),
    [(WORDS, False), (f"{WORDS} 1,234 visitors", False), ("Something else altogether is to be read here. " * 9, True)],
    ids=["same", "another counter", "another text"],
)
async def test_a_page_has_changed_where_its_main_text_says_something_else(
    tmp_path: Path, body: str, changed: bool
) -> None:
    async with bench(tmp_path, {"/": text(WORDS), "/later": text(body)}) as at:
        at.visitor._remembers = True
        first = (await at.visited()).fetch
        lease = again(await at.lease("/later"), digest=first.digest, similarity=first.similarity)
        assert (await at.visit(lease)).changed is changed


async def test_a_page_without_text_has_changed_with_its_bytes(tmp_path: Path) -> None:
    image = page(b"\x89PNG 1", "Content-Type: image/png")
    async with bench(tmp_path, {"/": image}) as at:
        lease = await at.lease()
        same = (await at.visit(lease)).fetch.digest
        assert (await at.visit(again(lease, digest=same))).changed is False
        assert (await at.visit(again(lease, digest="sha256:0"))).changed is True


async def test_304_is_asked_for_and_leaves_what_is_known_as_it_is(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        asked = b'If-None-Match: "1"' in exchange.head and b"If-Modified-Since: then" in exchange.head
        await exchange.send(page(b"", "Connection: close", status="304 Not Modified" if asked else "200 OK"))

    async with bench(tmp_path, {"/": answer}) as at:
        known = {"etag": '"1"', "last_modified": "then", "digest": "sha256:1", "similarity": 5}
        report = await at.visit(again(await at.lease(), **known))
    fetch = report.fetch
    assert (fetch.http_status, report.changed) == (304, False)
    assert (fetch.etag, fetch.last_modified, fetch.digest, fetch.similarity) == ('"1"', "then", "sha256:1", 5)


async def test_a_promise_to_stay_fresh_is_passed_on(tmp_path: Path) -> None:
    async with bench(tmp_path, {"/": page(b"x", HTML, "Cache-Control: max-age=60")}) as at:
        report = await at.visit(again(await at.lease(), digest="sha256:1"))
    assert report.fresh_for_ms == 60_000


async def test_a_sitemap_that_is_read_again_tells_when_known_pages_changed(tmp_path: Path) -> None:
    entries = "<url><loc>{0}a</loc><lastmod>2020-01-01</lastmod></url><url><loc>{0}b</loc></url>"
    answers: dict[str, Answer] = {"/": page()}
    async with bench(tmp_path, answers) as at:
        xml = f"<urlset>{entries.format(at.server.url('/'))}</urlset>".encode()
        answers["/sitemap.xml"] = page(xml, "Content-Type: application/xml")
        lease = await at.lease("/sitemap.xml", Kind.SITEMAP)
        first = await at.visit(lease)
        assert [link.changed_at for link in first.links] == [None, None]
        at.visitor.acknowledged(lease, first.links)
        second = await at.visit(again(lease, digest="sha256:1"))
    assert [(link.url, link.changed_at) for link in second.links] == [(at.server.url("/a"), 1_577_836_800_000)]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (text(WORDS), None),
        (page(b"", status="404 Not Found"), None),
        (page(b"", status="401 Unauthorized"), "login_required"),
        (page(b"", status="403 Forbidden"), "forbidden"),
        (page(b"", status="429 Too Many Requests"), "rate_limited"),
        (page(b"", status="500 Internal Server Error"), "server_error"),
        (page(FORM, HTML), "login_required"),
        (page(FORM + WORDS.encode(), HTML), None),
        (page(b"", "Location: /users/sign_in", status="302 Found"), "login_required"),
        (page(b"", "Location: /elsewhere", status="302 Found"), None),
    ],
)
async def test_an_answer_has_the_code_of_what_it_says_of_the_site(
    tmp_path: Path, answer: Answer, code: str | None
) -> None:
    async with bench(tmp_path, {"/": answer}) as at:
        assert (await at.visited()).block_code == code


async def test_a_site_that_nobody_answers_for_has_the_code_of_that(tmp_path: Path) -> None:
    async with bench(tmp_path, {}) as at:
        lease = await at.lease()
        refused = again(lease, url=f"http://127.0.0.1:{unused_port()}/")
        unknown = again(lease, url="http://nowhere.invalid/")
        assert (await at.visit(refused)).block_code == "connection_refused"
        assert (await at.visit(unknown)).block_code == "dns_failure"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (page(b"User-agent: *\nDisallow: /"), "robots_denied"),
        (page(b"User-agent: *\nDisallow: /\nAllow: /open"), None),
        (page(b"User-agent: other\nDisallow: /"), None),
        (page(b"", status="403 Forbidden"), None),
        (page(b"", status="429 Too Many Requests"), None),
        (page(b"", status="503 Service Unavailable"), "server_error"),
    ],
)
async def test_a_robots_txt_has_a_code_where_it_leaves_nothing_or_cannot_be_had(
    tmp_path: Path, answer: Answer, code: str | None
) -> None:
    async with bench(tmp_path, {"/robots.txt": answer}, robots=True) as at:
        lease = await at.lease()
        assert lease.kind is Kind.ROBOTS
        assert (await at.visit(lease)).block_code == code


async def test_a_sitemap_that_is_forbidden_says_nothing_of_the_site(tmp_path: Path) -> None:
    async with bench(tmp_path, {"/s.xml": page(b"", status="403 Forbidden")}) as at:
        assert (await at.visited("/s.xml", Kind.SITEMAP)).block_code is None


def test_rules_that_forbid_all_are_told_from_those_that_forbid_much() -> None:
    assert RobotsRules("User-agent: *\nDisallow: /*", "outrider").allows_nothing
    assert not RobotsRules("User-agent: *\nDisallow: /a", "outrider").allows_nothing
    assert not RobotsRules("", "outrider").allows_nothing
