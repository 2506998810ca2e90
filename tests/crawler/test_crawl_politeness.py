"""Invariant *Politeness*, measured by the sites: every request counts, whichever process sent it."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from tests.crawler.crawling import Crawl, Seen, machine_is_overloaded, serving_site, wait_for

DOMAINS = 20
DELAY_S = 0.5
TOLERANCE_S = 0.02
MILLISECOND_S = 0.001
LATE_S = 0.1
"""How much later than it may a request may come, while there is work."""


def by_domain(requests: list[Seen]) -> dict[str, list[float]]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for request in requests:
        times[request.host].append(request.at_s)
    return {host: sorted(each) for host, each in times.items()}


def gaps_of(requests: list[Seen]) -> list[float]:
    """All gaps between two requests that follow one another on the same domain."""
    return [later - earlier for times in by_domain(requests).values() for earlier, later in pairwise(times)]


def gaps_sent(crawl: Crawl) -> list[float]:
    """The same gaps by the crawler's own account, which knows nothing of what was under way when it was killed."""
    rows = crawl.query("SELECT domain, fetched_at / 1000.0 FROM crawl_log WHERE fetched_at > 0")
    return gaps_of([Seen(at_s, domain, "") for domain, at_s in rows])


def test_twenty_domains_each_see_their_delay_across_a_kill_and_none_waits_longer_than_it_must(tmp_path: Path) -> None:
    hosts = [f"127.0.0.{number}" for number in range(1, DOMAINS + 1)]
    listen = [argument for host in hosts for argument in ("--host", host)]
    with serving_site(tmp_path, *listen, "--pages", 100) as served:
        crawl = Crawl(
            tmp_path,
            *(served.url("/", host) for host in hosts),
            *(served.url("/odd/redirect/301", host) for host in hosts),
            "--concurrency", 32, "--delay", DELAY_S,
        )  # fmt: skip
        first = crawl.start()
        wait_for(lambda: served.count() >= DOMAINS * 9)
        first.kill()
        at_kill = served.count()
        second = crawl.start()
        wait_for(lambda: served.count() >= at_kill + DOMAINS * 7)
        second.kill()
        requests = served.requests()

    asked = {request.path for request in requests}
    assert {"/robots.txt", "/sitemap.xml", "/odd/redirect/301"} <= asked, "every kind of request was there"
    assert len(by_domain(requests)) == DOMAINS
    assert min(gaps_sent(crawl)) >= DELAY_S - MILLISECOND_S
    # A request that a busy site takes late makes the next gap shorter than it was.
    assert min(gaps_of(requests)) >= DELAY_S - TOLERANCE_S or machine_is_overloaded()
    # The demo site answers at once, so that a response takes no time to speak of.
    busy = gaps_of(requests[:at_kill]) + gaps_of(requests[at_kill:])
    late = [gap for gap in busy if gap > DELAY_S + LATE_S]
    assert len(late) <= len(busy) * 0.05 or machine_is_overloaded(), sorted(late)


def test_the_delay_that_robots_txt_asks_for_is_kept_where_it_is_longer(tmp_path: Path) -> None:
    with serving_site(tmp_path, "--pages", 50, "--no-oddities", "--robots-delay", 0.4) as served:
        crawl = Crawl(tmp_path, served.url(), "--delay", 0, "--per-domain", 8)
        running = crawl.start()
        wait_for(lambda: served.count() >= 6)
        running.kill()
        gaps = gaps_of(served.requests())
    # The first is the one behind robots.txt itself.
    assert min(gaps_sent(crawl)[1:]) >= 0.4 - MILLISECOND_S
    assert min(gaps[1:]) >= 0.4 - TOLERANCE_S or machine_is_overloaded()
