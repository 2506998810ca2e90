import asyncio
import socket
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler import addresses
from outrider.crawler.addresses import Dial, current_dial, guarded_socket, refused_because


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("169.254.169.254", addresses.METADATA),
        ("fd00:ec2::254", addresses.METADATA),
        ("168.63.129.16", addresses.METADATA),
        ("100.100.100.200", addresses.METADATA),
        ("100.64.0.1", "a carrier's shared address"),
        ("100.127.255.255", "a carrier's shared address"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("240.0.0.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("203.0.113.7", "reserved"),
        ("2001:db8::1", "reserved"),
        ("100::1", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:0:127.0.0.1", "reserved"),
        ("not.an.address", "not an address"),
        ("", "not an address"),
    ],
)
def test_an_address_that_is_not_public_is_refused_by_name(address: str, reason: str) -> None:
    assert refused_because(address) == reason


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.215.14",
        "172.15.255.255",
        "172.32.0.1",
        "100.63.0.1",
        "100.128.0.1",
        "169.253.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450:4001::200e",
        "2001:4860:4860::8888",
    ],
)
def test_a_public_address_is_not_refused(address: str) -> None:
    assert refused_because(address) is None


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", addresses.METADATA),
        ("2002:7f00:1::", "loopback"),
        ("2002:c0a8:101::1", "private"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b:1::8.8.8.8", "private"),
        # The last 32 bits of a Teredo address are the client's, inverted.
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "loopback"),
        ("2001:0:7f00:1:8000:63bf:f7f7:f7f7", "loopback"),
        ("::ffff:8.8.8.8", None),
        ("2002:808:808::1", None),
        ("64:ff9b::8.8.8.8", None),
        ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", None),
    ],
)
def test_an_address_within_an_address_is_what_counts(address: str, reason: str | None) -> None:
    assert refused_because(address) == reason


@given(st.ip_addresses())
def test_nothing_passes_that_the_standard_library_knows_to_be_private(address: object) -> None:
    parsed = ip_address(str(address))
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        assert refused_because(str(parsed))


@given(st.text(max_size=50))
def test_any_text_gets_an_answer(text: str) -> None:
    refused_because(text)


def info(address: str) -> tuple[int, int, int, str, tuple[str | int, ...]]:
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 80)


async def test_a_socket_is_made_only_for_an_address_that_its_fetch_may_reach() -> None:
    dial = Dial(private_allowed=False)
    current_dial.set(dial)
    with pytest.raises(PermissionError, match=r"10\.0\.0\.1 is private"):
        guarded_socket(info("10.0.0.1"))
    assert not dial.connected
    assert dial.refusal == "10.0.0.1 is private"
    guarded_socket(info("1.1.1.1")).close()
    assert dial.connected


async def test_a_task_that_a_fetch_starts_dials_for_that_fetch() -> None:
    current_dial.set(Dial(private_allowed=True))

    async def dial() -> None:
        guarded_socket(info("127.0.0.1")).close()

    await asyncio.create_task(dial())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "::1", "::ffff:127.0.0.1", "localhost"])
async def test_a_host_behind_a_proxy_is_refused_in_all_its_spellings(host: str) -> None:
    resolver = addresses.open_resolver()
    try:
        refusal = await addresses.ProxiedHosts(resolver).refusal(host)
    finally:
        await resolver.close()
    assert refusal is not None
    assert "loopback" in refusal


async def test_a_host_behind_a_proxy_that_only_the_proxy_can_resolve_is_left_to_it() -> None:
    resolver = addresses.open_resolver()
    try:
        hosts = addresses.ProxiedHosts(resolver)
        assert await hosts.refusal(f"{'x' * 64}.invalid") is None
        assert await hosts.refusal("93.184.215.14") is None
    finally:
        await resolver.close()
