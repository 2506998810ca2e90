"""The door for runners: a socket that only its user can open, and that asks for no key."""

import stat
from pathlib import Path

import pytest

from outrider.model.api_key import Role
from outrider.model.errors import InvalidInput, StoreUnavailable
from outrider.model.task import Added, CrawlLimits, Discovered
from outrider.service.app import open_service
from outrider.service.client import connect
from outrider.service.keys import create_key
from outrider.service.local_door import LONGEST_PATH, SOCKET, open_door


async def test_the_frontier_is_reached_through_a_socket_of_its_user_alone(tmp_path: Path) -> None:
    async with open_service(f"sqlite:///{tmp_path}/outrider.sqlite", only_local=False) as service:
        await create_key(service.backend.stores.control, "others", Role.READ)
        async with open_door(service, tmp_path) as address, connect(address) as frontier:
            mode = (tmp_path / SOCKET).stat().st_mode
            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o600
            await frontier.create_crawl("news", limits=CrawlLimits(delay_ms=0))
            [result] = await frontier.add("news", [Discovered(url="http://127.0.0.1/")])
            assert result.outcome is Added.NEW, "whoever fetches judges addresses"
        assert not (tmp_path / SOCKET).exists()


async def test_a_socket_that_a_killed_process_has_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / SOCKET).touch()
    async with (
        open_service(f"sqlite:///{tmp_path}/outrider.sqlite") as service,
        open_door(service, tmp_path) as address,
        connect(address) as frontier,
    ):
        assert await frontier.list_crawls() == []


async def test_a_second_service_of_one_folder_leaves_the_first_its_door(tmp_path: Path) -> None:
    async with (
        open_service(f"sqlite:///{tmp_path}/outrider.sqlite") as service,
        open_door(service, tmp_path) as first,
    ):
        async with open_door(service, tmp_path) as second, connect(second) as frontier:
            assert second != first
            assert await frontier.list_crawls() == []
        async with connect(first) as frontier:
            assert await frontier.list_crawls() == []


async def test_a_folder_whose_name_is_too_long_for_a_socket_is_served_from_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * LONGEST_PATH)
    async with (
        open_service(f"sqlite:///{tmp_path}/outrider.sqlite") as service,
        open_door(service, folder) as address,
        connect(address) as frontier,
    ):
        assert await frontier.list_crawls() == []
    assert not folder.exists()


async def test_a_socket_that_nobody_serves_is_out_of_reach(tmp_path: Path) -> None:
    path = str(tmp_path / "none.sock").replace("/", "%2F")
    async with connect(f"http+unix://{path}", patience_s=0) as frontier:
        with pytest.raises(StoreUnavailable, match="out of reach"):
            await frontier.list_crawls()


@pytest.mark.parametrize("address", ["http+unix://", "http+unix://relative.sock", "http+unix://%2Fa%00b"])
def test_an_address_that_names_no_socket_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="socket is like"):
        connect(address)
