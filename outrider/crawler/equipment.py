"""The equipment of a plan: what it fetches with, and where it keeps what was fetched."""

import logging
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address
from pathlib import Path

from yarl import URL

from outrider import __version__
from outrider.crawler import warc
from outrider.crawler.addresses import refused_because
from outrider.crawler.exchange import FetchLimits
from outrider.crawler.fetch import Fetcher
from outrider.crawler.file_lock import told
from outrider.crawler.plan import WARC_FOLDER, CrawlPlan
from outrider.model.errors import OutriderError
from outrider.model.url import locate

logger = logging.getLogger(__name__)


def fetcher_of(plan: CrawlPlan, typed_seeds: tuple[str, ...]) -> Fetcher:
    """Make the fetcher of a plan; private places that were typed as seeds are allowed, each for itself."""
    typed = filter(None, map(_place_of, typed_seeds))
    limits = FetchLimits(
        connect_s=min(10.0, plan.timeout),
        first_byte_s=min(20.0, plan.timeout),
        total_s=plan.timeout,
        max_body=plan.max_body,
    )
    return Fetcher(
        user_agent=plan.user_agent,
        concurrency=plan.concurrency,
        limits=limits,
        allow_private=plan.allow_private,
        private_places=frozenset((host, port) for host, port in typed if _is_private_literal(host)),
        proxy=plan.proxy,
    )


def archive_of(plan: CrawlPlan, stack: AsyncExitStack) -> warc.WarcWriter | None:
    """Open the archive of a plan, where it wants one, and repair what killed processes have left there."""
    if not plan.warc:
        return None
    folder = Path(plan.data) / WARC_FOLDER
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for repair in warc.repair(folder):
        if repair.cut_bytes:
            logger.info("cut %d torn bytes off %s", repair.cut_bytes, repair.file)
    writer = warc.WarcWriter(folder, prefix="outrider", software=f"Outrider/{__version__}")
    stack.callback(writer.close)
    return writer


def _is_private_literal(host: str) -> bool:
    """Tell whether a host that was typed names a private place by itself, without any DNS."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return refused_because(str(ip_address(host))) is not None
    return False


def _place_of(seed: str) -> tuple[str, int] | None:
    """Name the host, of IPv6 without brackets, and the port of a seed that was typed."""
    with suppress(OutriderError):
        url = URL(locate(seed if "://" in seed else f"http://{seed}").url, encoded=True)
        if url.raw_host is not None and url.port is not None:
            return url.raw_host, url.port
    return None
