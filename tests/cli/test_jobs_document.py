"""What the page on jobs says is true: its commands run, or at least exist."""

import time
from pathlib import Path
from typing import Any

from outrider.control.webhooks import signature_of
from tests.service.test_documents import HOW_TO, blocks, check_command, needs_programs, run_document, shown_commands

JOBS = HOW_TO / "jobs.md"


@needs_programs
def test_all_that_the_page_on_jobs_tells_runs(tmp_path: Path) -> None:
    """With a site that is nowhere, for jobs that are submitted here are run."""
    page = tmp_path / "jobs.md"
    page.write_text(JOBS.read_text().replace("https://example.org", "https://site.invalid"))
    output = run_document(page, tmp_path)
    assert "paused" in output
    assert '"max_pages":100' in output
    assert "event: state" in output
    assert '"total_pending"' in output


def test_commands_that_are_shown_exist() -> None:
    commands = list(shown_commands(JOBS))
    assert commands
    for words in commands:
        check_command(words)


def test_the_receiver_that_is_shown_knows_a_genuine_message() -> None:
    ((_, code),) = blocks(JOBS, "python")
    shown: dict[str, Any] = {}
    exec(code, shown)
    is_genuine, now = shown["is_genuine"], int(time.time())
    signature = signature_of("a secret", now, b"{}")
    assert is_genuine("a secret", signature, b"{}")
    assert not is_genuine("a secret", signature, b"[]")
    assert not is_genuine("another", signature, b"{}")
    assert not is_genuine("a secret", signature_of("a secret", now - 3600, b"{}"), b"{}")
