import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cli.main import ExitCode
from outrider.store.sql.migrate import HEAD

ROOT = Path(__file__).parent.parent.parent
FIRST = "0001"


def outrider_db(
    *arguments: str, answer: str = "", environ: dict[str, str] | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "OUTRIDER_STORE"}
    return subprocess.run(
        [sys.executable, "-m", "outrider.cli.main", "db", *arguments],
        input=answer, capture_output=True, text=True, check=False, cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **(environ or {})},
    )  # fmt: skip


def told(answer: subprocess.CompletedProcess[str]) -> str:
    assert answer.returncode == ExitCode.OK, answer.stderr
    return answer.stdout.strip()


def refused(answer: subprocess.CompletedProcess[str], code: ExitCode) -> str:
    assert answer.returncode == code, answer.stderr
    assert answer.stderr.strip().startswith("outrider: "), answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/outrider.sqlite"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outrider.sqlite"


def test_a_schema_goes_up_and_down_and_is_told(store: str) -> None:
    here = ("--store", store)
    assert told(outrider_db("current", *here)) == "empty: run `outrider db upgrade`"
    assert told(outrider_db("upgrade", *here, "--revision", FIRST)) == f"empty -> {FIRST}"
    assert told(outrider_db("current", *here)) == f"{FIRST} (this program's is {HEAD})"
    assert told(outrider_db("upgrade", *here)) == f"{FIRST} -> {HEAD}"
    assert told(outrider_db("current", *here)) == f"{HEAD} (head)"
    assert told(outrider_db("upgrade", *here)) == f"already at {HEAD}"
    assert told(outrider_db("downgrade", *here, "--revision", FIRST, "--yes")) == f"{HEAD} -> {FIRST}"
    assert told(outrider_db("downgrade", *here, "--revision", "base", "--yes")) == f"{FIRST} -> empty"
    assert told(outrider_db("current", *here)) == "empty: run `outrider db upgrade`"


def test_an_unknown_revision_is_an_error_that_names_it(store: str) -> None:
    assert "nowhere" in refused(outrider_db("upgrade", "--store", store, "--revision", "nowhere"), ExitCode.STORE)


@pytest.mark.parametrize(("answer", "reason"), [("", "--yes"), ("n\n", "not confirmed")])
def test_without_a_yes_nothing_is_dropped(sqlite: str, answer: str, reason: str) -> None:
    here = ("--store", sqlite)
    told(outrider_db("upgrade", *here))
    downgrade = outrider_db("downgrade", *here, "--revision", "base", answer=answer)
    assert reason in refused(downgrade, ExitCode.REFUSED)
    assert told(outrider_db("current", *here)) == f"{HEAD} (head)"


def test_a_yes_at_the_question_is_enough(sqlite: str) -> None:
    told(outrider_db("upgrade", "--store", sqlite))
    downgrade = outrider_db("downgrade", "--store", sqlite, "--revision", "base", answer="y\n")
    assert f"{HEAD} -> empty" in told(downgrade)


def test_an_interrupt_at_the_question_changes_nothing(sqlite: str) -> None:
    told(outrider_db("upgrade", "--store", sqlite))
    # Ctrl-C may be switched off in what runs the tests, and a child would inherit that.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from outrider.cli.main import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "db", "downgrade", "--store", sqlite, "--revision", "base"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read(1) == "T"  # the question has begun, so the program waits for the answer
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint.splitlines()[-1]) == (130, "outrider: interrupted")
    assert told(outrider_db("current", "--store", sqlite)) == f"{HEAD} (head)"


def test_telling_where_a_store_stands_does_not_create_it(tmp_path: Path) -> None:
    told(outrider_db("current", "--store", f"sqlite:///{tmp_path}/new/outrider.sqlite"))
    assert list(tmp_path.iterdir()) == []


def test_the_store_is_named_by_option_or_environment_or_default(tmp_path: Path) -> None:
    told(outrider_db("upgrade", folder=tmp_path))
    assert (tmp_path / "outrider-data" / "outrider.sqlite").exists()
    told(outrider_db("upgrade", folder=tmp_path, environ={"OUTRIDER_STORE": "sqlite:///named.sqlite"}))
    assert (tmp_path / "named.sqlite").exists()


@pytest.mark.parametrize("dsn", ["", "outrider.sqlite", "mysql://host/db", "sqlite://", "postgresql://[::1/db"])
def test_a_store_that_cannot_be_read_is_refused_with_what_one_looks_like(dsn: str) -> None:
    complaint = refused(outrider_db("current", "--store", dsn), ExitCode.REFUSED)
    assert "postgresql://user@host/database" in complaint


def test_a_server_that_is_not_there_is_store_trouble_and_the_password_stays_secret(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    dsn = f"postgresql://somebody:secret@127.0.0.1:{unused_tcp_port_factory()}/outrider"
    complaint = refused(outrider_db("current", "--store", dsn), ExitCode.STORE)
    assert "somebody" in complaint
    assert "secret" not in complaint


def test_a_file_that_is_no_database_is_store_trouble(tmp_path: Path) -> None:
    (tmp_path / "letter.sqlite").write_text("Dear reader, this is not a database.\n" * 100)
    complaint = refused(outrider_db("upgrade", "--store", f"sqlite:///{tmp_path}/letter.sqlite"), ExitCode.STORE)
    assert "letter.sqlite" in complaint
