"""A service to measure: `outrider serve`, in a process of its own."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psutil

READY_S = 60.0
"""How long a service may take to start before the benchmark gives up."""
OURS = (sys.executable, "-m", "outrider.cli.main")


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A service in a process of its own."""

    port: int
    process: psutil.Process

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(dsn: str) -> Iterator[Running]:
    """Run `outrider serve` on a store until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        command = [*OURS, "serve", "--port", str(port), "--store", dsn, "--allow-private"]
        process = subprocess.Popen(command, stderr=log)
        try:
            _wait_until_ready(port, process)
            yield Running(port=port, process=psutil.Process(process.pid))
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError("the service did not start") from None
            time.sleep(0.02)
