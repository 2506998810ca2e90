"""`outrider crawl` and the demo site as real processes, and what they leave behind."""

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from outrider.crawler.plan import DATABASE, WARC_FOLDER
from outrider.model.machines import TaskState
from outrider.model.task import Kind

Found = TypeVar("Found")

REQUESTS = "requests.log"
STARTS_S = 20.0
ENDS_S = 60.0
STATES = list(TaskState)


def machine_is_overloaded() -> bool:
    """Tell whether others keep this machine so busy that times say little about us."""
    return os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def wait_for(what: Callable[[], Found], deadline_s: float = STARTS_S) -> Found:
    """Ask again and again until the answer is true."""
    until = time.monotonic() + deadline_s
    while not (found := what()):
        assert time.monotonic() < until, f"nothing came within {deadline_s:g} s"
        time.sleep(0.002)
    return found


class Seen(NamedTuple):
    """A request as the site saw it."""

    at_s: float
    """On the monotonic clock, which all processes of a machine share."""
    host: str
    path: str


class ServedSite:
    """A demo site in a process of its own, which writes down every request."""

    def __init__(self, base_url: str, folder: Path) -> None:
        self.base_url = base_url
        self.port = int(base_url.rpartition(":")[2])
        self._log = folder / REQUESTS

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def requests(self) -> list[Seen]:
        """All requests so far."""
        seen = []
        for line in self._log.read_text().splitlines():
            at_ns, host, path = line.split(" ", 2)
            seen.append(Seen(int(at_ns) / 1e9, host, path))
        return seen

    def paths(self) -> Counter[str]:
        """How often each path was asked for."""
        return Counter(request.path for request in self.requests())

    def count(self) -> int:
        """How many requests there were so far."""
        return self._log.read_bytes().count(b"\n")


@contextmanager
def serving_site(folder: Path, *arguments: str | int | float) -> Iterator[ServedSite]:
    """Run a demo site for as long as the context lasts; the arguments are those of its command."""
    log = folder / REQUESTS
    log.touch()
    command = [sys.executable, "-m", "outrider.demo.server", "--log", str(log), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], STARTS_S)[0], "the site does not start"
            yield ServedSite(process.stdout.readline().strip(), folder)
        finally:
            process.terminate()


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    errors: str
    took_s: float


class Running:
    """A command that is under way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.began = time.monotonic()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for_line(self, text: str) -> None:
        """Read what it says until a line has this text."""
        assert self.process.stderr is not None
        until = time.monotonic() + STARTS_S
        line = ""
        while text not in line:
            readable = select.select([self.process.stderr], [], [], until - time.monotonic())[0]
            assert readable, f"it never said {text!r}"
            line = self.process.stderr.readline()
            assert line, f"it ended without {text!r}"

    def kill(self) -> None:
        """Kill it with -9 and wait until it is gone."""
        self.process.kill()
        self.process.communicate()

    def end(self, deadline_s: float = ENDS_S) -> Ended:
        """Wait until it ends by itself."""
        try:
            _, errors = self.process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return Ended(self.process.returncode, errors, time.monotonic() - self.began)


class Fate(NamedTuple):
    """What became of a task."""

    state: TaskState
    status: int | None
    reason: str
    attempts: int
    failures: int


class Crawl:
    """One command line of `outrider crawl`, to be run again and again, with a folder of its own."""

    def __init__(self, folder: Path, *arguments: str | int | float, **settings: str | int | float) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.output = folder / "pages.jsonl"
        self.arguments = [str(argument) for argument in arguments]
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
        self.environment |= {f"OUTRIDER_{name.upper()}": str(value) for name, value in settings.items()}

    def start(self, *more: str | int | float, prefix: Sequence[str] = ()) -> Running:
        command = [
            *prefix, sys.executable, "-m", "outrider.cli.main", "crawl", *self.arguments, *map(str, more),
            "--data", str(self.data), "--output", str(self.output), "--progress", "plain",
        ]  # fmt: skip
        return Running(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=self.environment,
                cwd=self.folder,
            )
        )

    def run(self, *more: str | int | float, prefix: Sequence[str] = ()) -> Ended:
        """Run the command to its end."""
        return self.start(*more, prefix=prefix).end()

    # ------------------------------------------------------- what it leaves behind

    def lines(self) -> list[dict[str, Any]]:
        """The pages in the output, every line of which must be whole."""
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    def paths(self) -> list[str]:
        """The paths of the pages in the output."""
        return ["/" + str(line["url"]).split("/", 3)[3] for line in self.lines()]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the store past our own code."""
        database = sqlite3.connect(f"file:{self.data / DATABASE}?mode=ro", uri=True)
        try:
            return database.execute(statement).fetchall()
        finally:
            database.close()

    def states(self, kind: Kind = Kind.PAGE) -> Counter[TaskState]:
        """How many tasks stand in each state."""
        rows = self.query(f"SELECT state, count(*) FROM tasks WHERE kind = {kind.value} GROUP BY state")
        return Counter({STATES[state]: number for state, number in rows})

    def fates(self) -> dict[str, "Fate"]:
        """What became of each task in the end, by path."""
        rows = self.query(
            """SELECT tasks.url, state, tasks.http_status, coalesce(crawl_log.reason, ''), attempt_count, failures
               FROM tasks LEFT JOIN crawl_log USING (artifact_id)"""
        )
        return {"/" + url.split("/", 3)[3]: Fate(STATES[state], *rest) for url, state, *rest in rows}

    def runs(self) -> list[tuple[str, str | None]]:
        """The status and the reason of each execution, in order."""
        return self.query("SELECT status, reason FROM crawl_runs ORDER BY id")

    def warc_files(self) -> list[Path]:
        return sorted((self.data / WARC_FOLDER).glob("*.warc.gz"))


def freeze(running: Running, crawl: Crawl) -> None:
    """Stop a process in its tracks, but not while it has the file to itself: then nobody else could work either."""

    def is_frozen() -> bool:
        running.send(signal.SIGSTOP)
        try:
            with closing(sqlite3.connect(crawl.data / DATABASE, isolation_level=None, timeout=0)) as database:
                database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            running.send(signal.SIGCONT)
            return False
        return True

    wait_for(is_frozen)
