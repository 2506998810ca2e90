"""SQLite files that cannot be used: each is a clear error, and the file is left as it was."""

import asyncio
import hashlib
import json
import os
import pwd
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from outrider.model.errors import StoreCorrupt, StoreError, StoreFull, StoreNotOurs, StoreReadOnly
from outrider.model.task import Added, CrawlLimits, Discovered
from outrider.store.dsn import SqliteDsn
from outrider.store.opening import open_store
from outrider.store.protocols import UrlStore
from outrider.store.sql.sqlite import engine
from tests.conformance.backends import Place, SqliteBackend
from tests.processes import start
from tests.recount import check_counts

ROOT = Path(__file__).parent.parent.parent
NOW = 1_700_000_000_000
LIMITS = CrawlLimits(delay_ms=0, robots=False)


def pages(start_at: int, number: int) -> list[Discovered]:
    return [Discovered(url=f"https://s{n % 50}.example/{n}") for n in range(start_at, start_at + number)]


async def fill(path: Path, number: int) -> None:
    async with await open_store(f"sqlite:///{path}") as stores:
        await stores.urls.create_crawl("c", limits=LIMITS, now=NOW)
        await stores.urls.add("c", pages(0, number), now=NOW)


async def use(path: Path) -> None:
    """Do what anybody would do with a store."""
    async with await open_store(f"sqlite:///{path}", patience_s=2) as stores:
        await stores.urls.create_crawl("c", limits=LIMITS, now=NOW)
        await stores.urls.add("c", pages(100_000, 10), now=NOW)
        await stores.urls.list_tasks("c")


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


class FilesOnly(SqliteBackend):
    """Asks files past the store, without making any."""

    def __init__(self) -> None:
        pass


async def check_whole(path: Path, number: int) -> None:
    """Check that the file has so many tasks, and nothing half-written: Invariant 6, Counts are exact."""
    place = Place(FilesOnly(), f"sqlite:///{path}")
    assert await place.backend.query(place.dsn, "SELECT count(*) FROM tasks") == [(number,)]
    assert await place.backend.query(place.dsn, "PRAGMA integrity_check") == [("ok",)]
    await check_counts(place)


# ------------------------------------------------------------ not one of ours


def another_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE tasks (theirs); INSERT INTO tasks VALUES (1)")
    connection.close()


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(50_000))


def a_text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 500)


@pytest.mark.parametrize("make", [another_database, random_bytes, a_text])
def test_a_file_that_is_not_ours_is_refused_and_not_touched(tmp_path: Path, make: object) -> None:
    path = tmp_path / "theirs.sqlite"
    assert callable(make)
    make(path)
    before = fingerprint(tmp_path)
    with pytest.raises(StoreNotOurs, match=r"theirs\.sqlite is "):
        asyncio.run(use(path))
    assert fingerprint(tmp_path) == before


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder; name a file in it"):
        asyncio.run(use(tmp_path))


def test_a_file_cannot_be_made_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot create .*/file/outrider\.sqlite"):
        asyncio.run(use(tmp_path / "file" / "outrider.sqlite"))


# ----------------------------------------------------------------- read-only


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that the account `nobody` can get to; pytest's own are closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="outrider-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def use_without_privileges(pipe: Connection, path: str) -> None:
    """Use a store as somebody to whom permissions apply: they do not apply to root."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    try:
        asyncio.run(use(Path(path)))
    except StoreError as error:
        pipe.send((type(error).__name__, str(error)))
    else:
        pipe.send(("nothing", ""))


def told_without_privileges(path: Path) -> tuple[str, str]:
    child = start(use_without_privileges, str(path))
    kind, message = child.receive()
    child.process.join()
    return kind, message


def hand_over(folder: Path) -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, *folder.iterdir()):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


@pytest.mark.parametrize("in_use", [False, True])
def test_a_file_that_may_not_be_written_is_an_error_that_says_so(shared_folder: Path, in_use: bool) -> None:
    path = shared_folder / "outrider.sqlite"
    asyncio.run(fill(path, 100))
    hand_over(shared_folder)
    path.chmod(0o444)
    # Where the log lies beside it, a file that may only be read can even be opened.
    holder = sqlite3.connect(path) if in_use else None
    if holder is not None:
        holder.execute("SELECT count(*) FROM tasks")
    kind, message = told_without_privileges(path)
    assert kind == StoreReadOnly.__name__, message
    assert str(path) in message
    assert "permissions" in message
    if holder is not None:
        holder.close()
    path.chmod(0o644)
    asyncio.run(check_whole(path, 100))


def test_a_folder_that_may_not_be_written_is_an_error_that_says_so(shared_folder: Path) -> None:
    path = shared_folder / "outrider.sqlite"
    asyncio.run(fill(path, 100))
    hand_over(shared_folder)
    shared_folder.chmod(0o555)
    kind, message = told_without_privileges(path)
    assert kind == StoreReadOnly.__name__, message
    assert str(path) in message
    assert "folder" in message
    shared_folder.chmod(0o755)
    asyncio.run(check_whole(path, 100))


def test_a_file_cannot_be_made_in_a_folder_that_may_not_be_written(shared_folder: Path) -> None:
    shared_folder.chmod(0o555)
    kind, message = told_without_privileges(shared_folder / "outrider.sqlite")
    assert kind in (StoreError.__name__, StoreReadOnly.__name__), message
    assert "folder" in message
    kind, message = told_without_privileges(shared_folder / "below" / "outrider.sqlite")
    assert kind in (StoreError.__name__, StoreReadOnly.__name__), message
    assert "cannot create" in message


# ------------------------------------------------------------------- damaged


def spoil(path: Path, table: str) -> None:
    """Write over the page at the root of a table."""
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(random.Random(1).randbytes(size))


async def queues_and_sums(path: Path) -> list[list[tuple[object, ...]]]:
    place = Place(FilesOnly(), f"sqlite:///{path}")
    return [await place.backend.query(place.dsn, f"SELECT * FROM {table}") for table in ("queues", "counts")]


async def test_a_damaged_file_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "outrider.sqlite"
    await fill(path, 2000)
    spoil(path, "tasks")
    before = await queues_and_sums(path)
    async with await open_store(f"sqlite:///{path}") as stores:
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=r"outrider\.sqlite is damaged .*\.recover"):
                await stores.urls.add("c", [Discovered(url="https://new.example/")], now=NOW)
        with pytest.raises(StoreCorrupt):
            await stores.urls.list_tasks("c")
        assert (await stores.urls.counts("c")).total == 2000, "what is not damaged can still be read"
    assert await queues_and_sums(path) == before


def test_a_file_that_was_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "outrider.sqlite"
    asyncio.run(fill(path, 2000))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        asyncio.run(use(path))


# ----------------------------------------------------------------- disk full


async def add_some(urls: UrlStore, start_at: int) -> int | str:
    """Add pages; tell how many were new, or what was said against it."""
    try:
        added = await urls.add("c", pages(start_at, 500), now=NOW)
    except StoreFull as error:
        return str(error)
    return sum(result.outcome is Added.NEW for result in added)


async def add_until_full(path: Path, made: int) -> int:
    """Add pages until there is no room; tell how many are there, by what was acknowledged."""
    async with await open_store(f"sqlite:///{path}") as stores:
        while isinstance(added := await add_some(stores.urls, made), int):
            made += added
            assert made < 1_000_000, "the disk is larger than expected"
        assert "nothing of this request was written" in added
        assert (await stores.urls.counts("c")).total == made
    return made


async def test_a_full_file_is_an_error_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 5, Nothing lost: what was acknowledged before is there, and of the rest nothing."""
    path = tmp_path / "outrider.sqlite"
    await fill(path, 1000)

    def small(dsn: SqliteDsn, *, lock_wait_s: float = 1) -> sqlite3.Connection:
        connection = connect(dsn, lock_wait_s=lock_wait_s)
        (pages_now,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages_now + 200}")
        return connection

    connect = engine.connect
    with monkeypatch.context() as patch:
        patch.setattr(engine, "connect", small)
        made = await add_until_full(path, 1000)
    await check_whole(path, made)
    await use(path)
    await check_whole(path, made + 10)


def fill_a_small_disk(folder: str) -> None:
    """Be a process that has a disk of 3 MB to itself."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=True)
    path, ballast = Path(folder) / "outrider.sqlite", Path(folder) / "ballast"
    ballast.write_bytes(bytes(500_000))
    asyncio.run(fill(path, 500))
    made = asyncio.run(add_until_full(path, 500))
    ballast.unlink()
    asyncio.run(check_whole(path, made))
    asyncio.run(use(path))
    asyncio.run(check_whole(path, made + 10))
    print(json.dumps({"made": made}))


def test_a_full_disk_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    """Invariant 5, Nothing lost: with a real disk, which has room again in the end."""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this system gives no mount namespace of our own; the test with a full file remains")
    work = f"from {__name__} import fill_a_small_disk; fill_a_small_disk({str(tmp_path)!r})"
    finished = subprocess.run(
        [*alone, sys.executable, "-c", work], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["made"] > 500
