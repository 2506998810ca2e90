import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Never

import pytest
import typer

from outrider import __version__
from outrider.cli import main
from outrider.cli.main import ExitCode
from outrider.model import errors
from outrider.model.errors import JobConflict, OutriderError, StoreError
from tests.cli.conftest import CrawledSite

ROOT = Path(__file__).parent.parent.parent
OUTRIDER = f"{sys.executable} -m outrider.cli.main"


def outrider(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outrider.cli.main", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_command_that_raises(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def command() -> Never:
        raise error

    monkeypatch.setattr(main, "app", app)
    monkeypatch.setattr(sys, "argv", ["outrider"])
    with pytest.raises(SystemExit) as ending:
        main.main()
    return ending.value.code


def subclasses(tree: type[OutriderError]) -> list[type[OutriderError]]:
    return [tree, *(each for child in tree.__subclasses__() for each in subclasses(child))]


def test_it_tells_its_version() -> None:
    answer = outrider("--version")
    assert (answer.returncode, answer.stdout) == (0, f"outrider {__version__}\n")


def test_help_names_the_command_groups() -> None:
    answer = outrider("--help")
    assert answer.returncode == 0
    assert "Usage: outrider" in answer.stdout
    for group in ("db", "bench"):
        assert re.search(rf"\b{group}\b", answer.stdout)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["db", "nonsense"], ["db", "upgrade", "--nonsense"], ["db", "downgrade"]]
)
def test_bad_usage_is_2_and_says_what_is_wrong(arguments: list[str]) -> None:
    answer = outrider(*arguments)
    assert answer.returncode == ExitCode.USAGE
    assert ("nonsense" if "nonsense" in " ".join(arguments) else "--revision") in answer.stderr
    assert "Traceback" not in answer.stderr


def test_help_does_not_wait_for_what_only_commands_need() -> None:
    heavy = [
        "alembic",
        "asyncio",
        "asyncpg",
        "can_ada",
        "publicsuffixlist",
        "sqlalchemy",
        "sqlite3",
        "uvloop",
    ]
    program = f"import sys, outrider.cli.main; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", subclasses(OutriderError))
def test_an_expected_error_is_one_line_and_a_code(
    kind: type[OutriderError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind.__new__(kind)
    error.args = ("the file is on fire",)
    code = run_command_that_raises(error, monkeypatch)
    is_trouble = issubclass(kind, StoreError) and not issubclass(kind, JobConflict)
    assert code == (ExitCode.STORE if is_trouble else ExitCode.REFUSED)
    assert capsys.readouterr() == ("", "outrider: the file is on fire\n")


def test_a_message_that_is_not_encodable_is_still_told() -> None:
    program = (
        "from outrider.cli import main; from outrider.model.errors import InvalidInput\n"
        "def app(**_): raise InvalidInput('bad \\ud800 text')\n"
        "main.app = app; main.main()"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (answer.returncode, answer.stderr) == (ExitCode.REFUSED, "outrider: bad \\ud800 text\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_crawl_does_without_standard_streams(tmp_path: Path, closed: str) -> None:
    """The port is closed: to try and to find nothing is all that is wanted."""
    seeds = f"crawl http://127.0.0.1:{closed_port()}/ --no-robots --max-wait 0 --delay 0"
    answer = shell(f"{OUTRIDER} {seeds} --data {tmp_path} {closed}")
    assert answer.returncode in (ExitCode.WAITING, ExitCode.NOTHING_FETCHED)
    assert "Traceback" not in answer.stderr


def test_standard_input_that_is_closed_has_no_seeds(tmp_path: Path) -> None:
    answer = shell(f"{OUTRIDER} crawl --seeds - --data {tmp_path} <&-")
    assert answer.returncode == ExitCode.REFUSED
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "command", ["config", "status --data {data}", "status --json --data {data}", "urls --data {data}", "--help",
                "export --what urls --data {data}", "export --data {data}"],
)  # fmt: skip
def test_output_on_a_full_disk_is_one_line(crawled: CrawledSite, command: str) -> None:
    answer = shell(f"{OUTRIDER} {command.format(data=crawled.data)} > /dev/full")
    assert answer.returncode == ExitCode.STORE
    assert re.fullmatch(r"outrider: .*No space left on device.*\n", answer.stderr)


@pytest.mark.parametrize("command", ["config", "status --data {data}", "urls --data {data} --all", "--help"])
def test_a_reader_that_has_enough_is_no_error_message(crawled: CrawledSite, command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    words = shlex.split(f"{OUTRIDER} {command.format(data=crawled.data)}")
    answer = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(write)
    assert (answer.returncode, answer.stderr) == (ExitCode.UNEXPECTED, "")


def test_an_error_that_cannot_be_told_keeps_its_code(tmp_path: Path) -> None:
    assert shell(f"{OUTRIDER} status --data {tmp_path} 2> /dev/full").returncode == ExitCode.REFUSED


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "outrider.log").mkdir()
    answer = shell(f"{OUTRIDER} crawl http://127.0.0.1:{closed_port()}/ --data {tmp_path}")
    assert answer.returncode == ExitCode.STORE
    assert answer.stderr == f"outrider: reading or writing {tmp_path}/outrider.log failed: Is a directory\n"


@pytest.mark.parametrize("with_file", [False, True])
def test_without_a_usable_seed_nothing_is_begun(tmp_path: Path, with_file: bool) -> None:
    (tmp_path / "seeds.txt").write_text("hello\nworld\n")
    seeds = f"--seeds {tmp_path / 'seeds.txt'}" if with_file else "hello world"
    answer = shell(f"{OUTRIDER} crawl {seeds} --data {tmp_path / 'data'} --fresh")
    assert answer.returncode == ExitCode.REFUSED
    line = "line 1: " if with_file else ""
    assert answer.stderr.startswith(f"outrider: no usable seed: {line}this is neither a URL nor a domain")
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("content", ["", "\n\n", "# none yet\n", "rank,domain\n"])
def test_a_file_without_seeds_is_refused_before_anything_is_begun(tmp_path: Path, content: str) -> None:
    (tmp_path / "seeds.txt").write_text(content)
    for source in (f"--seeds {tmp_path / 'seeds.txt'}", f"--seeds - < {tmp_path / 'seeds.txt'}"):
        answer = shell(f"{OUTRIDER} crawl --data {tmp_path / 'data'} {source}")
        assert answer.returncode == ExitCode.REFUSED
        assert answer.stderr.startswith("outrider: no usable seed: there is none at all")
        assert not (tmp_path / "data").exists()


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_begun(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine\n")
    for output, words in (
        ("folder", "it is a folder"),
        ("none/pages.jsonl", "there is no folder"),
        ("notes.txt/pages.jsonl", "there is no folder"),
        ("notes.txt", "notes.txt"),
    ):
        answer = shell(f"{OUTRIDER} crawl http://127.0.0.1:9/ --data {tmp_path / 'data'} --output {tmp_path / output}")
        assert answer.returncode in (ExitCode.REFUSED, ExitCode.STORE)
        assert words in answer.stderr
        assert answer.stderr.count("\n") == 1
        assert not (tmp_path / "data").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine\n"


def test_the_output_may_lie_in_the_data_folder_that_the_crawl_makes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shell(f"{OUTRIDER} crawl http://127.0.0.1:{closed_port()}/ --data {data} --output {data}/p.jsonl --max-wait 0")
    assert (data / "p.jsonl").exists()


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_that_raises(KeyboardInterrupt(), monkeypatch) == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "outrider: interrupted\n")


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run_command_that_raises(ZeroDivisionError(), monkeypatch)


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code): name for code, name in re.findall(r"^\| (\d+) \| (\w+) \|", page, re.MULTILINE)}
    assert documented == {code.value: code.name.lower() for code in ExitCode}


def test_every_error_is_in_one_tree() -> None:
    defined = [each for each in vars(errors).values() if isinstance(each, type)]
    assert defined
    assert set(defined) <= set(subclasses(OutriderError))
