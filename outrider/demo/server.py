"""The synthetic site on loopback, in this process or, by `python -m outrider.demo.server`, in its own."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import uvloop

from outrider.demo.connection import Connection, OnRequest, Traffic
from outrider.demo.site import Site, SiteOptions

BACKLOG = 1_024
PORT_TRIES = 20


class DemoServer:
    """Serves a site for as long as it is entered, to any Host.

    async with DemoServer(SiteOptions(pages=100)) as server:
        …  # GET f"{server.base_url}/"

    With several hosts, such as `127.0.0.1` and `127.0.0.2`, it listens on the same port of each.
    """

    def __init__(
        self,
        options: SiteOptions | None = None,
        *,
        hosts: Sequence[str] = ("127.0.0.1",),
        port: int = 0,
        on_request: OnRequest | None = None,
    ) -> None:
        self.site = Site(options)
        self.hosts = tuple(hosts)
        self.port = port
        self._traffic = Traffic(site=self.site, on_request=on_request)
        self._listeners: list[asyncio.Server] = []

    @property
    def base_url(self) -> str:
        """The address of the site on the first host, without a slash at the end."""
        return self.base_urls[0]

    @property
    def base_urls(self) -> list[str]:
        """The address of the site on each host."""
        return [f"http://{host}:{self.port}" for host in self.hosts]

    @property
    def requests(self) -> int:
        """How many requests came whose head could be understood."""
        return self._traffic.requests

    @property
    def statuses(self) -> dict[int, int]:
        """How many answers were begun with each status."""
        return dict(self._traffic.statuses)

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait for clients to read on."""
        return sum(connection.unsent_bytes for connection in self._traffic.connections)

    async def __aenter__(self) -> Self:
        tries = 1 if self.port else PORT_TRIES
        for left in reversed(range(tries)):
            try:
                await self._listen()
                break
            except OSError:
                await self._stop_listening()
                if not left:
                    raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in list(self._traffic.connections):
            connection.abort()
        await self._stop_listening()

    async def _listen(self) -> None:
        """Listen everywhere; a free port of the first host may be taken on another."""
        port = self.port
        for host in self.hosts:
            listener = await asyncio.get_running_loop().create_server(
                lambda: Connection(self._traffic), host, port, backlog=BACKLOG
            )
            self._listeners.append(listener)
            port = listener.sockets[0].getsockname()[1]
        self.port = port

    async def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()


def log_to(file: int) -> OnRequest:
    """Write one line for each request, `monotonic_ns host path`, to a file descriptor, at once."""

    def log(_monotonic_time: float, host: str, path: str, /) -> None:
        os.write(file, f"{time.monotonic_ns()} {host} {path}\n".encode("latin-1"))

    return log


async def serve(options: SiteOptions, hosts: Sequence[str], port: int, on_request: OnRequest | None) -> None:
    """Serve until SIGTERM or SIGINT, after printing the address."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with DemoServer(options, hosts=hosts, port=port, on_request=on_request) as server:
        print(server.base_url, flush=True)
        await stopped.wait()


def _parser() -> argparse.ArgumentParser:
    defaults = SiteOptions()
    parser = argparse.ArgumentParser(prog="outrider.demo.server", description="Serve a synthetic site on loopback.")
    parser.add_argument("--host", action="append", help="listen here; may be given several times")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--pages", type=int, default=defaults.pages)
    parser.add_argument("--links", type=int, default=defaults.links_per_page, help="links on each page")
    parser.add_argument("--page-bytes", type=int, default=defaults.page_bytes)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--oddities", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--robots-delay", type=float, metavar="SECONDS", help="the Crawl-delay of robots.txt")
    parser.add_argument("--robots-status", type=int, default=defaults.robots_status)
    parser.add_argument("--slow", type=float, default=defaults.slow_s, metavar="SECONDS")
    parser.add_argument("--log", metavar="FILE", help="append `monotonic_ns host path` for every request")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve as the command line says; its first line of output is the address."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        options = SiteOptions(
            pages=given.pages,
            links_per_page=given.links,
            page_bytes=given.page_bytes,
            seed=given.seed,
            oddities=given.oddities,
            robots_delay_s=given.robots_delay,
            robots_status=given.robots_status,
            slow_s=given.slow,
        )
    except ValueError as bad:
        parser.error(str(bad))
    hosts = given.host or ["127.0.0.1"]
    with contextlib.ExitStack() as stack:
        on_request = None
        if given.log:
            file = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            stack.callback(os.close, file)
            on_request = log_to(file)
        try:
            uvloop.run(serve(options, hosts, given.port, on_request))
        except OSError as error:
            print(f"cannot serve on {', '.join(hosts)}: {error}", file=sys.stderr)
            raise SystemExit(1) from None


if __name__ == "__main__":
    main()
