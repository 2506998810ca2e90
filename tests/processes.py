"""Real processes for the tests: forked from a server that has imported everything once.

A process that is forked takes milliseconds to start, so that hundreds can be started and killed.
"""

import asyncio
import multiprocessing
import traceback
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Final, NamedTuple, TypeVar

Result = TypeVar("Result")

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["outrider.store.opening", "alembic.command", "sqlalchemy.ext.asyncio", "tests.recount"])

LONG_S = 120.0
"""Nothing here takes so long, unless it hangs."""


class Child(NamedTuple):
    """A process, and our end of the pipe to it."""

    process: ForkServerProcess
    pipe: Connection

    def kill(self) -> None:
        """Kill it with -9 and wait until it is gone."""
        self.process.kill()
        self.process.join()

    def receive(self) -> Any:
        """Take its next message; raises `EOFError` where there will be none."""
        if not self.pipe.poll(LONG_S):
            self.kill()
            raise TimeoutError(f"{self.process.name} said nothing for {LONG_S:g} s")
        return self.pipe.recv()

    def last_words(self) -> list[Any]:
        """Take what it had still sent before it ended."""
        words = []
        try:
            while True:
                words.append(self.pipe.recv())
        except EOFError:
            return words


def start(work: Callable[..., None], *arguments: Any) -> Child:
    """Start `work(pipe, *arguments)` in a process of its own."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return Child(process, ours)


def run_together(
    work: Callable[..., Coroutine[Any, Any, Result]], arguments: Sequence[tuple[Any, ...]]
) -> list[Result]:
    """Run `work` once for each tuple of arguments, each in its own process and all at the same moment."""
    barrier = FORKS.Barrier(len(arguments))
    children = [start(_run_one, barrier, work, each) for each in arguments]
    answers = []
    try:
        for child in children:
            failed, answer = child.receive()
            assert not failed, f"in {child.process.name}:\n{answer}"
            answers.append(answer)
    finally:
        for child in children:
            if len(answers) < len(children):
                child.process.kill()
            child.process.join()
    return answers


def _run_one(pipe: Connection, barrier: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        barrier.wait(LONG_S)
        answer = asyncio.run(work(*arguments))
    except BaseException:
        pipe.send((True, traceback.format_exc()))
    else:
        pipe.send((False, answer))
