import doctest
import io
import json
import os
import pty
import re
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TextIO

import msgspec
import pytest
from rich.console import Console

from outrider.cli import display
from outrider.cli.display import Display, Outlook, ProgressMode, live_picture, make_display
from outrider.crawler.progress import DomainTrouble, SlowDomain, Snapshot
from outrider.model.task import Counts

NOW_MS = 1_700_000_000_000
QUIET = Snapshot(
    crawl="DEFAULT", elapsed_s=0, counts=Counts(pending=100, completed=50), completed_before=0, in_flight=8, fetched=50,
    pages_per_s=10.0, bytes_received=1_500_000, failures={}, skipped={}, slowest=[], troubles=[],
)  # fmt: skip
BUSY = msgspec.structs.replace(
    QUIET,
    counts=Counts(pending=12_000, assigned=32, completed=1_204, failed=7),
    in_flight=32,
    failures={"http 404": 12, "timeout": 3, "dns": 1, "tls": 1, "http 500": 1, "http 403": 1, "reset": 1},
    slowest=[SlowDomain(domain="slow." + "x" * 80 + ".example", average_ms=5_432, fetches=12)],
    troubles=[
        DomainTrouble(domain="example.org", reason="429, asked for 30 s", until=NOW_MS + 25_000, waiting=1_200),
        DomainTrouble(domain="blocked.example", reason="blocked by an operator", until=None, waiting=3),
    ],
    max_pages=5_000,
)


def at(elapsed_s: float, snapshot: Snapshot = QUIET) -> Snapshot:
    return msgspec.structs.replace(snapshot, elapsed_s=elapsed_s)


def shown(mode: ProgressMode, stream: io.StringIO | None = None) -> tuple[Display, io.StringIO]:
    stream = stream or io.StringIO()
    return make_display(mode, stream, now_ms=lambda: NOW_MS), stream


def drawn(snapshot: Snapshot, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(live_picture(snapshot, "still discovering", NOW_MS))
    return re.sub(r"\x1b\[[0-9;]*m", "", capture.get())


def outlook_of(*snapshots: Snapshot) -> str:
    outlook = Outlook()
    for snapshot in snapshots:
        outlook.observe(snapshot)
    return outlook.describe(snapshots[-1])


def on_a_terminal(act: Callable[[TextIO], None]) -> str:
    """Give all that is written to a terminal, which would block a writer that nobody reads."""
    ours, theirs = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # how Linux says that the other side is closed
            while part := os.read(ours, 65_536):
                parts.append(part)

    reader = Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as stream:
        act(stream)
    reader.join()
    os.close(ours)
    return b"".join(parts).decode()


def show_live(live: Display) -> None:
    for hundredth in range(100):
        live.update(at(hundredth / 100, BUSY))
    live.message("stopping")
    live.close()


def test_the_examples_hold() -> None:
    assert doctest.testmod(display).failed == 0


@pytest.mark.parametrize("mode", [ProgressMode.AUTO, ProgressMode.PLAIN])
def test_off_a_terminal_there_is_one_plain_line_soon_and_then_every_five_seconds(mode: ProgressMode) -> None:
    plain, stream = shown(mode)
    for tenth in range(125):
        plain.update(at(tenth / 10))
    lines = stream.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["1 s", "6 s", "11 s"]
    assert lines[0].startswith("1 s: 10.0 pages/s, 50 done, 100 pending, 8 in flight, 0 failed, 1.5 MB, ")


def test_a_plain_line_tells_errors_and_who_is_waited_for() -> None:
    plain, stream = shown(ProgressMode.PLAIN)
    plain.update(at(2, BUSY))
    assert "errors: http 404 (12), timeout (3), dns (1), others (4)" in stream.getvalue()
    assert "waiting on example.org (429, asked for 30 s, 25 s left, 1,200 waiting) and 1 more" in stream.getvalue()


@pytest.mark.parametrize("mode", [ProgressMode.PLAIN, ProgressMode.JSON])
def test_the_last_snapshot_is_shown_at_the_end_once(mode: ProgressMode) -> None:
    lines, stream = shown(mode)
    lines.update(at(2))
    lines.update(at(2.5))
    assert len(stream.getvalue().splitlines()) == 1
    lines.close()
    lines.close()
    assert len(stream.getvalue().splitlines()) == 2


def test_json_is_one_object_per_line_about_every_second() -> None:
    lines, stream = shown(ProgressMode.JSON)
    lines.message("half \ud800 a pair\n")
    for tenth in range(21):
        lines.update(at(tenth / 10, BUSY))
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert told[0] == {"event": "message", "text": "half \ud800 a pair\n"}
    assert [each["elapsed_s"] for each in told[1:]] == [0.0, 1.0, 2.0]
    assert told[1]["event"] == "progress"
    assert told[1]["counts"]["completed"] == 1_204
    assert told[1]["troubles"][0]["reason"] == "429, asked for 30 s"


def test_none_says_nothing() -> None:
    nothing, stream = shown(ProgressMode.NONE)
    nothing.update(at(10))
    nothing.message("hello")
    nothing.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("mode", [ProgressMode.PLAIN, ProgressMode.AUTO, ProgressMode.JSON])
def test_what_a_site_calls_itself_cannot_steer_the_terminal(mode: ProgressMode) -> None:
    trouble = DomainTrouble(domain="evil\x1b[2J.example", reason="reset\r\n\x07", until=None, waiting=1)
    evil = msgspec.structs.replace(QUIET, elapsed_s=2, failures={"\x1b[31mred": 1}, troubles=[trouble])
    display, stream = shown(mode)
    display.update(evil)
    display.message("\x1b]0;title\x07")
    assert "evil" in stream.getvalue()
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))
    picture = drawn(evil, 100)
    assert "evil" in picture
    assert all(line.isprintable() for line in picture.split("\n"))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_picture_fits_and_leaves_nothing_out(width: int) -> None:
    picture = drawn(BUSY, width)
    assert max(len(line) for line in picture.splitlines()) <= width
    words = " ".join(picture.split())
    for part in (
        "10.0 pages/s", "1,204 done", "12,000 pending", "32 in flight", "7 failed", "1.5 MB", "still discovering",
        "1,204 of 5,000", "http 404 (12)", "others (2)", "5.4 s on average of 12",
        "example.org: 429, asked for 30 s, 25 s left, 1,200 waiting",
        "blocked.example: blocked by an operator, no end known, 3 waiting",
    ):  # fmt: skip
        assert part in words


def test_many_domains_are_told_as_a_number() -> None:
    troubles = [DomainTrouble(domain=f"d{n}.example", reason="dns", until=None, waiting=1) for n in range(100)]
    picture = drawn(msgspec.structs.replace(QUIET, troubles=troubles), 80)
    assert "and 95 more" in picture
    assert len(picture.splitlines()) < 20


def test_on_a_terminal_the_display_is_live_and_leaves_only_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = on_a_terminal(lambda stream: show_live(make_display(ProgressMode.AUTO, stream, now_ms=lambda: NOW_MS)))
    text = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert 1 <= text.count("1,204 done") <= 6, "four times in a second, and around the message"
    assert "stopping" in text
    assert text.endswith("\x1b[1A\x1b[2K"), "the picture is wiped out at the end"
    assert "\x1b[?25h" in text, "the cursor is back"


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    seen = on_a_terminal(lambda stream: make_display(ProgressMode.AUTO, stream).update(at(2)))
    assert "50 done" in seen
    assert "\x1b" not in seen


@pytest.mark.parametrize("mode", [ProgressMode.PLAIN, ProgressMode.JSON])
def test_a_crawl_goes_on_when_nobody_reads_its_progress(mode: ProgressMode) -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    display = make_display(mode, stream)
    display.update(at(2))
    display.update(at(20))
    display.message("still here")
    display.close()
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_crawl_goes_on_when_its_terminal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w")
    live = make_display(ProgressMode.AUTO, stream)
    live.update(at(0))
    os.close(ours)
    live.update(at(2))
    live.message("still here")
    live.close()
    with pytest.raises(OSError, match="Input/output error"):
        stream.close()


def test_with_a_limit_that_known_work_can_reach_there_is_an_estimate() -> None:
    assert outlook_of(at(1, msgspec.structs.replace(QUIET, max_pages=110))) == "about 6 s left"


def test_with_a_limit_that_known_work_cannot_reach_there_is_none() -> None:
    growing = [msgspec.structs.replace(QUIET, elapsed_s=n, counts=Counts(pending=n), max_pages=9_999) for n in (1, 2)]
    assert outlook_of(*growing) == "still discovering"


def test_without_a_limit_the_outlook_follows_what_is_known() -> None:
    def pending(number: int, second: float) -> Snapshot:
        return msgspec.structs.replace(QUIET, elapsed_s=second, counts=Counts(pending=number))

    assert outlook_of(pending(100, 1), pending(300, 2)) == "still discovering"
    assert outlook_of(pending(400, 1), pending(300, 2)) == "30 s for what is known"
    assert outlook_of(pending(100, 1), pending(400, 20), pending(300, 21)) == "30 s for what is known"


def test_a_crawl_that_stands_still_says_so() -> None:
    idle = msgspec.structs.replace(QUIET, in_flight=0, pages_per_s=0.0)
    assert outlook_of(msgspec.structs.replace(idle, next_ready_in_s=90)) == "waiting, next page in 1 min 30 s"
    assert outlook_of(idle) == "no answers at the moment"
    assert outlook_of(msgspec.structs.replace(idle, fetched=0)) == "starting"
    assert outlook_of(msgspec.structs.replace(QUIET, max_pages=50)) == "limit reached"
