import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.servers import PORTS, Databases, PostgresServer, RunFolder, StopMode

ROOT = Path(__file__).parent.parent


async def query(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_each_database_is_new_empty_and_separate(postgres_server: Databases) -> None:
    first, second = postgres_server.create_database(), postgres_server.create_database()
    try:
        assert first != second
        await query(first, "CREATE TABLE here (x int)")
        assert await query(first, "SELECT to_regclass('here') IS NOT NULL") is True
        assert await query(second, "SELECT to_regclass('here') IS NOT NULL") is False
        assert await query(first, "SHOW server_encoding") == "UTF8"
    finally:
        postgres_server.drop_database(first)
        postgres_server.drop_database(second)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await query(first, "SELECT 1")


async def test_a_database_in_use_can_be_dropped(postgres_server: Databases) -> None:
    dsn = postgres_server.create_database()
    connection = await asyncpg.connect(dsn)
    postgres_server.drop_database(dsn)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await connection.fetchval("SELECT 1")
    connection.terminate()


@pytest.mark.parametrize("version", [16, 18])
async def test_a_private_server_answers_by_tcp_and_by_socket(
    private_postgres: Callable[..., PostgresServer], version: int
) -> None:
    server = private_postgres(version=version)
    assert server.port in PORTS
    assert f"127.0.0.1:{server.port}" in server.dsn("postgres")
    for dsn in (server.dsn("postgres"), server.socket_dsn("postgres")):
        assert str(await query(dsn, "SHOW server_version")).startswith(str(version))


@pytest.mark.parametrize("durable", [True, False])
async def test_durability_is_a_choice(private_postgres: Callable[..., PostgresServer], durable: bool) -> None:
    dsn = private_postgres(durable=durable).dsn("postgres")
    assert await query(dsn, "SHOW fsync") == ("on" if durable else "off")
    assert await query(dsn, "SHOW synchronous_commit") == "on"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_what_was_committed_is_there_after_a_restart_at_the_same_address(
    private_postgres: Callable[..., PostgresServer], mode: StopMode
) -> None:
    server = private_postgres()
    dsn = server.create_database()
    await query(dsn, "CREATE TABLE kept AS SELECT 7 AS x")
    server.restart(mode)
    assert await query(dsn, "SELECT x FROM kept") == 7


async def test_what_was_committed_is_there_after_a_kill(
    private_postgres: Callable[..., PostgresServer],
) -> None:
    server = private_postgres()
    dsn = server.create_database()
    await query(dsn, "CREATE TABLE kept AS SELECT 7 AS x")
    server.kill()
    assert server.pid is None
    with pytest.raises(OSError, match="Connect call failed"):
        await query(dsn, "SELECT 1")
    server.start()
    assert await query(dsn, "SELECT x FROM kept") == 7


def test_stopping_what_is_stopped_is_no_error(private_postgres: Callable[..., PostgresServer]) -> None:
    server = private_postgres()
    server.stop()
    server.stop()
    server.kill()
    assert server.pid is None


def test_all_processes_of_a_run_share_one_server(run_folder: RunFolder) -> None:
    server = run_folder.shared_server()
    assert RunFolder(run_folder.path).shared_server().pid == server.pid


def test_a_password_is_needed(private_postgres: Callable[..., PostgresServer]) -> None:
    server = private_postgres()
    wrong = server.dsn("postgres").replace(server.password, "guess")
    with pytest.raises(asyncpg.InvalidPasswordError):
        asyncio.run(query(wrong, "SELECT 1"))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_no_server_and_no_folder(ending: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.servers"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        dsn = process.stdout.readline().strip()
        assert asyncio.run(query(dsn, "SELECT 1")) == 1
        folder = Path(str(asyncio.run(query(dsn, "SHOW unix_socket_directories"))))
        postmaster = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split("\n")[0]))
        os.kill(process.pid, ending)
    deadline = time.monotonic() + 30
    while folder.parent.exists() or (postmaster.is_running() and postmaster.status() != psutil.STATUS_ZOMBIE):
        assert time.monotonic() < deadline, "the watcher did not clean up"
        time.sleep(0.01)
