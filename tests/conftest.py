"""Fixtures of the whole suite: the run's PostgreSQL server, shared by all pytest-xdist workers.

`OUTRIDER_TEST_POSTGRES`, the DSN of a server on which its role may create databases, takes the place
of the shared server; a test that stops and starts servers always has its own.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Databases, PostgresServer, RunFolder

EXTERNAL = "OUTRIDER_TEST_POSTGRES"
RUN_FOLDER = pytest.StashKey[RunFolder]()


def pytest_configure(config: pytest.Config) -> None:
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is None:
        config.stash[RUN_FOLDER] = RunFolder.create()
    else:
        config.stash[RUN_FOLDER] = RunFolder(Path(worker_input["run_folder"]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a pytest-xdist worker, before it starts, where the run's folder is."""
    node.workerinput["run_folder"] = str(node.config.stash[RUN_FOLDER].path)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN_FOLDER, None)
    if run is not None and not hasattr(config, "workerinput"):
        run.remove()


@pytest.fixture(scope="session")
def run_folder(pytestconfig: pytest.Config) -> RunFolder:
    """The folder in which this run's servers live."""
    return pytestconfig.stash[RUN_FOLDER]


@pytest.fixture(scope="session")
def postgres_server(run_folder: RunFolder) -> Iterator[Databases]:
    """A PostgreSQL server to make databases on. Nothing may stop it: others use it at the same time."""
    external = os.environ.get(EXTERNAL)
    if external:
        server = Databases(external)
        yield server
        server.drop_created_databases()
    else:
        yield run_folder.shared_server()


@pytest.fixture
def postgres_database(postgres_server: Databases) -> Iterator[str]:
    """The DSN of an empty database of this test's own."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def private_postgres(run_folder: RunFolder) -> Iterator[Callable[..., PostgresServer]]:
    """Start a server that this test may stop, restart and kill.

    Call it as `private_postgres(durable=True, version=16)`; both have defaults.
    """
    servers: list[PostgresServer] = []

    def start(*, version: int = 18, durable: bool = False) -> PostgresServer:
        server = run_folder.private_server(version=version, durable=durable)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.remove()
