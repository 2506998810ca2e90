"""Which addresses a crawl may connect to, and the one place where every connection meets that rule.

A page can link to `http://169.254.169.254/`, and a name can resolve to `127.0.0.1` on the second lookup
only. So the rule is applied to the socket's own address, in the moment in which the socket for it is
made: there is no other lookup between the check and the connection, and no way to connect around it.

    fetch -> Dial in `current_dial` -> aiohttp resolves the host -> guarded_socket(address) -> connect
"""

import asyncio
import errno
import socket
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from time import monotonic
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver

METADATA: Final = "a cloud's metadata service"

# 168.63.129.16 is Azure's and looks public; the others would also be refused for their network.
_METADATA_ADDRESSES: Final = frozenset(
    map(ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"))
)
_REFUSED_IPV4: Final = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("127.0.0.0/8", "loopback"),
        ("10.0.0.0/8", "private"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("169.254.0.0/16", "link-local"),
        ("100.64.0.0/10", "a carrier's shared address"),
        ("224.0.0.0/4", "multicast"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("240.0.0.0/4", "reserved"),
    )
)
_REFUSED_IPV6: Final = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fec0::/10", "private"),
        ("64:ff9b:1::/48", "private"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("2001:db8::/32", "reserved"),
        ("2001:10::/28", "reserved"),
        ("2001:2::/48", "reserved"),
        ("3fff::/20", "reserved"),
    )
)
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


@lru_cache(maxsize=65_536)
def refused_because(address: str) -> str | None:
    """Say why an IP address is not for crawling, or None where it may be connected to.

    What hides an IPv4 address inside an IPv6 one is judged by the address inside.

    >>> refused_because("127.0.0.1"), refused_because("::ffff:10.0.0.1"), refused_because("93.184.215.14")
    ('loopback', 'private', None)
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return "not an address"
    return _reason(parsed)


def _reason(address: IPv4Address | IPv6Address) -> str | None:
    if address in _METADATA_ADDRESSES:
        return METADATA
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _REFUSED_IPV4 if address in network), None)
    inner = _embedded(address)
    if inner:
        return next(filter(None, map(_reason, inner)), None)
    refused = next((reason for network, reason in _REFUSED_IPV6 if address in network), None)
    return refused or (None if address in _GLOBAL_IPV6 else "reserved")


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Give the IPv4 addresses to which a packet for this IPv6 address may end up going."""
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64:
        return (IPv4Address(address.packed[-4:]),)
    return ()


class Dial:
    """What one fetch may connect to, and what became of it."""

    def __init__(self, *, private_allowed: bool) -> None:
        self.private_allowed = private_allowed
        self.connected = False
        """Whether a socket was made; a fetch without one used a connection kept from an earlier fetch."""
        self.refusal: str | None = None
        """The last address that was refused, and why."""


current_dial: ContextVar[Dial] = ContextVar("current_dial")
"""Who is connecting. A variable of the context, for aiohttp asks for sockets from tasks of its own."""


def guarded_socket(address_info: tuple[int, int, int, str, tuple[str | int, ...]]) -> socket.socket:
    """Make the socket for one address, as aiohttp's `socket_factory`, or refuse the address.

    A name with a refused and a public address is reached at the public one.
    """
    family, kind, protocol, _, socket_address = address_info
    address = str(socket_address[0])
    dial = current_dial.get()
    if not dial.private_allowed and (reason := refused_because(address)):
        dial.refusal = refusal_of(address, reason)
        raise PermissionError(errno.EACCES, dial.refusal)
    dial.connected = True
    return socket.socket(family=family, type=kind, proto=protocol)


def refusal_of(address: str, reason: str) -> str:
    """Tell a person which address was refused."""
    return f"{address} is {reason}"


def open_resolver() -> AbstractResolver:
    """Open the asynchronous resolver, or the one with threads where c-ares cannot be set up."""
    try:
        return aiohttp.AsyncResolver()
    except Exception:  # whatever is wrong with the library or the machine's set-up, threads still work
        return aiohttp.ThreadedResolver()


class ProxiedHosts:
    """Judges hosts to which a proxy will connect, where no socket of ours shows the address.

    Best effort: the proxy looks the name up again and may see another address, and a name that
    cannot be resolved here is left to the proxy.
    """

    _KEPT_S: Final = 300.0
    _KEPT_HOSTS: Final = 10_000
    _LOOKUP_S: Final = 2.0

    def __init__(self, resolver: AbstractResolver) -> None:
        self._resolver = resolver
        self._judged: dict[str, tuple[float, str | None]] = {}

    async def refusal(self, host: str) -> str | None:
        """Name the first address of a host that is refused, and why."""
        now = monotonic()
        kept = self._judged.get(host)
        if kept is not None and kept[0] > now:
            return kept[1]
        refusal = None
        for address in await self._addresses(host):
            if reason := refused_because(address):
                refusal = refusal_of(address, reason)
                break
        if len(self._judged) >= self._KEPT_HOSTS:
            self._judged.clear()
        self._judged[host] = (now + self._KEPT_S, refusal)
        return refusal

    async def _addresses(self, host: str) -> list[str]:
        if literal := _literal(host):
            return [literal]
        try:
            async with asyncio.timeout(self._LOOKUP_S):
                answers = await self._resolver.resolve(host, 0, family=socket.AF_UNSPEC)
        except OSError:  # a TimeoutError is one
            return []
        return [answer["host"] for answer in answers]


def _literal(host: str) -> str | None:
    """Read a host that is an address, in any of the spellings that programs accept, as `0x7f.1`."""
    if ":" in host:
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
