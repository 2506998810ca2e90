"""JSON lines: each page once, in order, whatever happened before."""

import json
import os
import random
import resource
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outrider.crawler.page_lines import PageLine, PageLines, utc_text
from outrider.model.errors import InvalidInput, StoreError, StoreFull, StoreNotOurs
from tests import processes


def line(number: int, **changed: Any) -> PageLine:
    values: dict[str, Any] = {
        "id": number,
        "url": f"http://example.org/{number}",
        "status": 200,
        "depth": 1,
        "title": 'A “page”,\nand "more"',
        "links": 20,
        "images": 3,
        "digest": None,
        "fetched_at": utc_text(1_763_224_245_120),
        "content_type": "text/html",
        "elapsed_ms": 12,
        "redirects": ("http://example.org/old",),
        "noindex": False,
        "warc_file": "crawl-00001.warc.gz",
        "warc_offset": 0,
    }
    return PageLine(**values | changed)


def opened(path: Path | str) -> PageLines:
    lines = PageLines.try_open(path)
    assert lines is not None
    return lines


def written(path: Path, *ids: int) -> bytes:
    lines = opened(path)
    lines.append([line(number) for number in ids])
    lines.close()
    return path.read_bytes()


def ids_in(path: Path) -> list[int]:
    return [json.loads(text)["id"] for text in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.jsonl"


def test_a_line_shows_every_key_in_its_order(path: Path) -> None:
    assert written(path, 7).decode() == (
        '{"id":7,"url":"http://example.org/7","status":200,"depth":1,"title":"A “page”,\\nand \\"more\\"","links":20,'
        '"images":3,"digest":null,"fetched_at":"2025-11-15T16:30:45.120Z","content_type":"text/html","elapsed_ms":12,'
        '"redirects":["http://example.org/old"],"noindex":false,"warc_file":"crawl-00001.warc.gz","warc_offset":0}\n'
    )


def test_lines_that_are_in_the_file_are_not_written_again(path: Path) -> None:
    lines = opened(path)
    assert lines.last_id == 0
    assert lines.append([line(1), line(3)]) == 2
    assert lines.append([line(1), line(2), line(3)]) == 0
    assert lines.append([]) == 0
    assert lines.append([line(3), line(4)]) == 1
    lines.close()
    lines.close()
    again = opened(path)
    assert again.last_id == 4
    assert again.append([line(4), line(5)]) == 1
    again.close()
    assert ids_in(path) == [1, 3, 4, 5]


def test_lines_out_of_order_are_refused_and_none_is_written(path: Path) -> None:
    lines = opened(path)
    for wrong in ([line(2), line(1)], [line(1), line(1)]):
        with pytest.raises(InvalidInput, match="in the order of their ids"):
            lines.append(wrong)
    assert (lines.last_id, path.read_bytes()) == (0, b"")
    lines.close()


def test_text_that_utf8_cannot_say_costs_a_question_mark_and_no_line(path: Path) -> None:
    lines = opened(path)
    lines.append([line(1), line(2, title="a\ud800b", content_type="\udcff", redirects=("\udcfe",)), line(3)])
    lines.close()
    texts = [json.loads(text) for text in path.read_bytes().splitlines()]
    assert [text["id"] for text in texts] == [1, 2, 3]
    assert (texts[1]["title"], texts[1]["content_type"], texts[1]["redirects"]) == ("a?b", "?", ["?"])


def test_a_file_torn_at_any_byte_goes_on_after_its_last_whole_line(path: Path) -> None:
    """Invariant 5, Nothing lost."""
    content = written(path, 1, 2)
    ends = [offset + 1 for offset, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        lines = opened(path)
        assert lines.last_id == sum(end <= size for end in ends), f"torn at {size}"
        lines.append([line(1), line(2)])
        assert path.read_bytes() == content, f"torn at {size}"
        lines.close()


@pytest.mark.parametrize(
    "tail", [bytes(10_000), b'{"id":3,"url":"http\n', b"\n", bytes(50) + b"\n" + bytes(50) + b"\n{"]
)
def test_lines_at_the_end_that_are_no_json_are_cut_by_what_is_written_next(path: Path, tail: bytes) -> None:
    whole = written(path, 1, 2, 3)
    content = whole[: whole.rindex(b"\n", 0, -1) + 1]
    path.write_bytes(content + tail)
    lines = opened(path)
    lines.append([line(2)])
    assert (lines.last_id, path.read_bytes()) == (2, content + tail), "opening alone changes nothing"
    lines.append([line(3)])
    assert path.read_bytes() == whole
    lines.close()


def test_a_file_that_is_set_aside_makes_room_for_a_new_one(path: Path) -> None:
    (path.parent / "pages.jsonl.old").write_text("even older")
    content = written(path, 1, 2)
    opened(path).set_aside()
    assert (path.parent / "pages.jsonl.old").read_bytes() == content
    assert not path.exists()


@pytest.mark.parametrize("torn", [0, 1, 2_000_000])
def test_a_very_long_last_line_is_found(path: Path, torn: int) -> None:
    lines = opened(path)
    lines.append([line(1), line(2, title="x" * 3_000_000), line(3, title="x" * 3_000_000)])
    lines.close()
    os.truncate(path, path.stat().st_size - torn)
    lines = opened(path)
    assert lines.last_id == (2 if torn else 3)
    lines.append([line(3), line(4)])
    lines.close()
    assert ids_in(path) == [1, 2, 3, 4]


def test_only_the_ends_of_a_large_file_are_read(path: Path) -> None:
    content = written(path, 1)
    with path.open("wb") as file:
        file.write(content)
        file.seek(40 << 30)  # forty gigabytes of nothing, which would take minutes to read
        file.write(b"\n" + content.replace(b'"id":1', b'"id":9'))
    lines = opened(path)
    assert lines.last_id == 9
    lines.close()


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"hello\n",
        b"\n",
        b"id,url\n1,http://example.org/\n",
        b'{"name": 1}\n',
        b'{"id": "1"}\n',
        b'{"id": 1.5}\n',
        b'["id"]\n',
        b'{"id":1}\n{"name":1}\n',
        b'{"id":1,"url":"http://a.example/"}\n',
        b'{"id":0,"url":"http://a.example/","status":200}\n',
        b'{"id":1,"url":"http://a.example/","status":"well"}\n',
        b'{"id":1,"url":"http://a.example/","status":200}\n{"id":2,"name":"b"}\n',
        b'{"id":1,"name":"a"}',
        b'{"id":1,"url":"http://a.example/","title":"a"}',
        b'{"id":1,"url":"http://a.example/","status":200}',
        b'{"id":1}',
        b'{"idea',
        b"SQLite format 3\0" + bytes(1000),
        b"\xff\xfe\n",
    ],
)
def test_a_file_of_others_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreNotOurs, match=r"pages.jsonl was not written by a crawl"):
        PageLines.try_open(path)
    assert path.read_bytes() == content


def hold(pipe: Connection, path: Path) -> None:
    lines = opened(path)
    lines.append([line(1)])
    pipe.send("held")
    pipe.recv()


def test_one_process_at_a_time_has_the_file(path: Path) -> None:
    child = processes.start(hold, path)
    assert child.receive() == "held"
    assert PageLines.try_open(path) is None
    child.kill()
    lines = opened(path)
    assert lines.last_id == 1
    assert PageLines.try_open(path) is None
    lines.close()


def append_until_killed(pipe: Connection, path: Path) -> None:
    lines = opened(path)
    while True:
        begin = lines.last_id + 1
        batch = [line(number, title="x" * 5000) for number in range(begin, begin + 200)]
        pipe.send(begin)
        lines.append(batch)


def test_after_each_of_many_kills_the_lines_are_whole_and_without_a_gap(path: Path) -> None:
    """Invariant 5, Nothing lost."""
    chance = random.Random(3)
    known, checked = 0, 0
    for _ in range(30):
        child = processes.start(append_until_killed, path)
        begun = [child.receive() for _ in range(chance.randint(1, 3))]
        child.kill()
        begun += child.last_words()
        lines = opened(path)
        with path.open("rb") as file:
            file.seek(checked)
            whole = [text for text in file if text.endswith(b"\n")]
        found = [json.loads(text)["id"] for text in whole]
        assert found == list(range(known + 1, lines.last_id + 1))
        assert begun[-1] - 1 <= lines.last_id < begun[-1] + 200
        known, checked = lines.last_id, checked + sum(map(len, whole))
        lines.close()


def append_without_room(pipe: Connection, path: Path) -> None:
    lines = opened(path)
    lines.append([line(1)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        lines.append([line(number) for number in range(2, 30)])
    except StoreFull as error:
        pipe.send((str(error), lines.last_id, path.read_bytes()))
    lines.append([line(2)])
    lines.close()


def test_without_room_nothing_of_a_batch_is_written_and_the_error_names_the_file(path: Path) -> None:
    child = processes.start(append_without_room, path)
    error, last_id, content = child.receive()
    child.process.join()
    assert "no room left" in error
    assert str(path) in error
    assert (last_id, content) == (1, msgspec.json.encode(line(1)) + b"\n")
    assert ids_in(path) == [1, 2]


def test_standard_output_gets_every_line_and_stays_open() -> None:
    program = """
from tests.crawler.test_page_lines import line, opened
for _ in range(2):
    lines = opened("-")
    lines.append([line(number, title="x" * 100_000) for number in (1, 2, 3)])
    lines.close()
print("after")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    *lines, last = ran.stdout.splitlines()
    assert [json.loads(text)["id"] for text in lines] == [1, 2, 3, 1, 2, 3]
    assert last == b"after"


def test_a_named_pipe_gets_every_line(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        page = line(1, title="x" * 1000)
        lines = opened(fifo)
        assert lines.last_id == 0
        lines.append([page])
        lines.close()
        assert reader.stdout is not None
        assert json.loads(reader.stdout.read())["id"] == 1


def test_a_path_that_cannot_be_a_file_is_told(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "missing" / "pages.jsonl"):
        with pytest.raises(StoreError, match=str(wrong)):
            PageLines.try_open(wrong)


def test_a_reader_that_is_gone_is_told() -> None:
    program = 'from tests.crawler.test_page_lines import line, opened\nopened("-").append([line(1)])'
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert b"StoreError: reading or writing standard output failed: Broken pipe" in ran.stderr
