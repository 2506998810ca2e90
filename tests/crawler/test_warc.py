"""WARC files: written by us, read by others."""

import gzip
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import fastwarc.warc
import pytest
from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]

from outrider.crawler.warc import Exchange, Repair, WarcLocation, WarcWriter, read_response, repair
from outrider.model.errors import InvalidInput, StoreCorrupt, StoreError, StoreFull
from tests import processes

FETCHED_AT = 1_763_224_245_120


def exchange(number: int = 1, **changed: Any) -> Exchange:
    body = f"<title>Page {number}</title>".encode() + random.Random(number).randbytes(300).hex().encode()
    values: dict[str, Any] = {
        "url": f"http://example.org/{number}",
        "fetched_at": FETCHED_AT,
        "request_head": f"GET /{number} HTTP/1.1\r\nHost: example.org\r\n\r\n".encode(),
        "status": 200,
        "reason": "OK",
        "headers": [
            (b"Content-Type", b"text/html"),
            (b"Content-Length", str(len(changed.get("raw_body", body))).encode()),
        ],
        "raw_body": body,
        "peer_address": "192.0.2.1",
        "metadata": {"depth": 2, "via": "http://example.org/", "title": f"Page {number}"},
    }
    return Exchange(**values | changed)


def writer(folder: Path, **settings: Any) -> WarcWriter:
    return WarcWriter(folder, prefix="crawl", software="Outrider/0", **settings)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def records(path: Path) -> Iterator[tuple[Any, bytes]]:
    """All records as warcio reads them, with their content; raises where a digest is wrong."""
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise", no_record_parse=False):
            yield record, record.raw_stream.read()


def responses(path: Path) -> list[str]:
    """The URLs of the exchanges in a file, each of which must be whole, with nothing after the last."""
    gzip.decompress(path.read_bytes())  # warcio overlooks a torn end, this does not
    found = [(record.rec_type, record.rec_headers["WARC-Target-URI"]) for record, _ in records(path)]
    assert not found or found.pop(0) == ("warcinfo", None)
    urls = [url for kind, url in found if kind == "response"]
    assert found == [(kind, url) for url in urls for kind in ("response", "request", "metadata")]
    return urls


def test_an_exchange_is_read_by_warcio_as_it_was(tmp_path: Path) -> None:
    warc = writer(tmp_path)
    warc.write(exchange())
    warc.close()
    assert names(tmp_path) == ["crawl-00001.warc.gz"]
    (info, fields), (response, body), (request, sent), (metadata, known) = records(tmp_path / "crawl-00001.warc.gz")
    assert info.rec_headers["WARC-Filename"] == "crawl-00001.warc.gz"
    assert b"software: Outrider/0\r\n" in fields
    assert response.rec_headers.protocol == "WARC/1.1"
    assert response.rec_headers["WARC-Target-URI"] == "http://example.org/1"
    assert response.rec_headers["WARC-Date"] == "2025-11-15T16:30:45.120Z"
    assert response.rec_headers["WARC-IP-Address"] == "192.0.2.1"
    assert response.rec_headers["WARC-Warcinfo-ID"] == info.rec_headers["WARC-Record-ID"]
    assert response.rec_headers["WARC-Truncated"] is None
    assert (response.http_headers.get_statuscode(), body) == ("200", exchange().raw_body)
    assert (request.rec_type, request.http_headers.protocol, sent) == ("request", "GET", b"")
    assert (metadata.rec_type, metadata.content_type) == ("metadata", "application/warc-fields")
    assert known == b"depth: 2\r\nvia: http://example.org/\r\ntitle: Page 1\r\n"
    for record in (request, metadata):
        assert record.rec_headers["WARC-Concurrent-To"] == response.rec_headers["WARC-Record-ID"]


def test_the_checkers_of_warcio_and_fastwarc_find_no_fault(tmp_path: Path) -> None:
    warc = writer(tmp_path)
    for number in range(20):
        warc.write(exchange(number, raw_body=b"x" * number * 1000))
    warc.close()
    path = tmp_path / "crawl-00001.warc.gz"
    command = [sys.executable, "-c", "from warcio.cli import main; main()", "check", "-v", str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("digest pass") == 61
    with path.open("rb") as file:
        valid = [record.verify_block_digest() for record in fastwarc.warc.ArchiveIterator(file, parse_http=False)]
    assert valid == [True] * 61


def test_a_body_whose_chunks_were_joined_is_not_called_chunked(tmp_path: Path) -> None:
    body = gzip.compress(b"hello")
    headers = [(b"transfer-encoding", b"chunked"), (b"Content-Encoding", b"gzip")]
    read = written_and_read(tmp_path, exchange(headers=headers, raw_body=body))
    assert read == (
        [("X-Crawler-Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))],
        body,
    )


def test_the_length_of_a_truncated_body_is_the_one_that_is_kept(tmp_path: Path) -> None:
    read = written_and_read(
        tmp_path, exchange(headers=[(b"Content-Length", b"1000000")], raw_body=b"12345", truncated=True)
    )
    assert read == ([("X-Crawler-Content-Length", "1000000"), ("Content-Length", "5")], b"12345")
    marks = [record.rec_headers["WARC-Truncated"] for record, _ in records(tmp_path / "crawl-00001.warc.gz")]
    assert marks == [None, "length", None, None]


def test_a_response_without_a_length_is_left_without_one(tmp_path: Path) -> None:
    assert written_and_read(tmp_path, exchange(headers=[(b"A", b"b")])) == ([("A", "b")], exchange().raw_body)


def written_and_read(folder: Path, one: Exchange) -> tuple[list[tuple[str, str]], bytes]:
    warc = writer(folder)
    warc.write(one)
    warc.close()
    [(headers, body)] = [
        (record.http_headers.headers, body)
        for record, body in records(folder / "crawl-00001.warc.gz")
        if record.rec_type == "response"
    ]
    return headers, body


def test_odd_bytes_break_no_record(tmp_path: Path) -> None:
    odd = exchange(
        headers=[
            (b"X-Odd", b"\xff\xfe caf\xe9 \0"),
            (b"X-Split", b"a\r\nInjected: b\r\n\r\n"),
            (b"", b""),
            (b":", b":"),
        ],
        reason="\udcff caf\xe9\r\nInjected: c",
        metadata={"title": "a\r\nb\ud800\u2028c", "none": None, "line\nname": 1},
        url="http://example.org/a\r\nInjected: d",
        request_head=b"",
        raw_body=b"\r\n\r\n\0WARC/1.1\r\n\r\n",
        peer_address=None,
    )
    warc = writer(tmp_path)
    locations = [warc.write(each) for each in (odd, exchange(2))]
    warc.close()
    _, (response, body), _, (_, known), *rest = records(tmp_path / "crawl-00001.warc.gz")
    assert body == odd.raw_body
    assert known == "title: a  b?\u2028c\r\nline name: 1\r\n".encode()
    assert len(rest) == 3
    assert not response.rec_headers["Injected"]
    assert not response.http_headers["Injected"]
    stored = read_response(tmp_path, locations[0])
    assert stored.headers[:2] == ((b"X-Odd", b"\xff\xfe caf\xe9  "), (b"X-Split", b"a  Injected: b    "))


def test_a_location_finds_its_response_in_open_and_in_complete_files(tmp_path: Path) -> None:
    warc = writer(tmp_path)
    exchanges = [exchange(number, truncated=number == 3) for number in range(5)]
    locations = [warc.write(each) for each in exchanges]
    for _ in ("open", "complete"):
        for each, location in zip(exchanges, locations, strict=True):
            stored = read_response(tmp_path, location)
            assert (stored.url, stored.status, stored.fetched_at) == (each.url, 200, FETCHED_AT)
            assert (list(stored.headers), stored.raw_body) == (each.headers, each.raw_body)
            assert stored.truncated == each.truncated
        warc.close()


def test_a_location_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    warc = writer(tmp_path)
    location = warc.write(exchange())
    warc.close()
    with pytest.raises(StoreError, match=r"there is no file .*other"):
        read_response(tmp_path, WarcLocation(file="other", offset=0, length=1))
    for offset, length in [(location.offset + 1, location.length), (location.offset, 40), (10**9, 10), (0, 10**9)]:
        with pytest.raises(StoreCorrupt, match=rf"no response at byte {offset} of .*crawl-00001.warc.gz"):
            read_response(tmp_path, WarcLocation(file=location.file, offset=offset, length=length))


def test_files_end_at_their_size_and_the_next_number_follows(tmp_path: Path) -> None:
    warc = writer(tmp_path, max_bytes=2000)
    files = [warc.write(exchange(number)).file for number in range(10)]
    assert names(tmp_path)[-1] == f"{files[-1]}.open"
    warc.close()
    assert names(tmp_path) == sorted(set(files))
    assert len(set(files)) > 2
    found = [url for name in names(tmp_path) for url in responses(tmp_path / name)]
    assert found == [f"http://example.org/{number}" for number in range(10)]
    assert all((tmp_path / name).stat().st_size >= 2000 for name in names(tmp_path)[:-1])


def test_no_file_is_ever_overwritten(tmp_path: Path) -> None:
    (tmp_path / "crawl-00007.warc.gz").write_bytes(b"precious")
    (tmp_path / "crawl-other.warc.gz").write_bytes(b"")
    writers = [writer(tmp_path), writer(tmp_path)]
    assert [each.write(exchange()).file for each in writers] == ["crawl-00008.warc.gz", "crawl-00009.warc.gz"]
    for each in writers:
        each.close()
        assert each.write(exchange()).file in ("crawl-00010.warc.gz", "crawl-00011.warc.gz")
        each.close()
    assert (tmp_path / "crawl-00007.warc.gz").read_bytes() == b"precious"
    assert len(names(tmp_path)) == 6


async def write_one_per_file(folder: Path, first: int) -> None:
    warc = writer(folder, max_bytes=1)
    for number in range(first, first + 50):
        warc.write(exchange(number))
        assert not any(each.length for each in repair(folder))  # at most it takes away a file that is not yet locked
    warc.close()


def test_processes_that_share_a_folder_never_share_a_file(tmp_path: Path) -> None:
    processes.run_together(write_one_per_file, [(tmp_path, first) for first in (0, 50, 100, 150)])
    found = [url for name in names(tmp_path) for url in responses(tmp_path / name)]
    assert sorted(found) == sorted(f"http://example.org/{number}" for number in range(200))
    assert len(names(tmp_path)) == 200


def test_without_an_exchange_there_is_no_file(tmp_path: Path) -> None:
    warc = writer(tmp_path / "warc")
    warc.close()
    assert names(tmp_path) == []
    assert repair(tmp_path / "warc") == []


@pytest.mark.parametrize("prefix", ["", "a/b", "a\0"])
def test_a_prefix_that_is_no_name_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the start"):
        WarcWriter(tmp_path, prefix=prefix, software="Outrider/0")


def left_behind(folder: Path, exchanges: list[Exchange], **settings: Any) -> tuple[bytes, list[int]]:
    """What a writer has in its file when it is killed, and where each exchange ends."""
    warc = writer(folder, **settings)
    path = folder / "crawl-00001.warc.gz.open"
    ends = [(warc.write(each), path.stat().st_size)[1] for each in exchanges]
    content = path.read_bytes()
    warc.close()
    (folder / "crawl-00001.warc.gz").unlink()
    return content, ends


def test_a_file_torn_anywhere_is_cut_after_its_last_whole_exchange(tmp_path: Path) -> None:
    """Invariant 5, Nothing lost."""
    content, ends = left_behind(tmp_path, [exchange(number) for number in range(4)])
    sizes = {*range(0, len(content), 41), *(end + step for end in ends for step in (-1, 0, 1))} - {len(content) + 1}
    for size in sorted(sizes):
        (tmp_path / "crawl-00001.warc.gz.open").write_bytes(content[:size])
        whole = [end for end in ends if end <= size]
        length = whole[-1] if whole else 0
        assert repair(tmp_path) == [Repair(file="crawl-00001.warc.gz", length=length, cut_bytes=size - length)]
        assert names(tmp_path) == (["crawl-00001.warc.gz"] if whole else [])
        if whole:
            assert len(responses(tmp_path / "crawl-00001.warc.gz")) == len(whole)
            (tmp_path / "crawl-00001.warc.gz").unlink()


def test_a_tail_of_zeros_or_noise_is_cut(tmp_path: Path) -> None:
    content, _ = left_behind(tmp_path, [exchange(number) for number in range(3)])
    for tail in (bytes(5000), random.Random(1).randbytes(5000), b"\x1f\x8b\x08" * 100):
        (tmp_path / "crawl-00001.warc.gz.open").write_bytes(content + tail)
        assert repair(tmp_path)[0].length == len(content)
        assert len(responses(tmp_path / "crawl-00001.warc.gz")) == 3


def test_a_torn_response_that_holds_a_warc_file_itself_is_cut_whole(tmp_path: Path) -> None:
    inner, inner_ends = left_behind(tmp_path, [exchange(number) for number in range(3)])
    # What cannot be compressed is stored in blocks of some 60 KB, so that most copies lie in the file as they are.
    draw = random.Random(1)
    body = b"".join(draw.randbytes(50_000) + inner for _ in range(60))
    content, ends = left_behind(tmp_path, [exchange(1), exchange(2, raw_body=body)])
    inner_at = content.index(inner)
    for size in (inner_at + end for end in inner_ends):
        (tmp_path / "crawl-00001.warc.gz.open").write_bytes(content[:size])
        assert repair(tmp_path)[0].length == ends[0]
        assert responses(tmp_path / "crawl-00001.warc.gz") == ["http://example.org/1"]


def test_only_the_tail_of_a_large_file_is_read(tmp_path: Path) -> None:
    content, ends = left_behind(tmp_path, [exchange(number) for number in range(4)])
    path, hole = tmp_path / "crawl-00001.warc.gz.open", 40 << 30
    with path.open("wb") as file:
        file.write(content[: ends[0]])
        file.seek(hole)  # forty gigabytes which would take minutes to read
        file.write(random.Random(1).randbytes(1 << 20))
        file.write(content[ends[0] : -1])
    started = time.process_time()
    [repaired] = repair(tmp_path)
    assert time.process_time() - started < 5
    assert repaired.length == hole + (1 << 20) + ends[2] - ends[0]


def test_the_file_of_a_live_writer_is_left_alone(tmp_path: Path) -> None:
    warc = writer(tmp_path)
    warc.write(exchange(1))
    assert repair(tmp_path) == []
    warc.write(exchange(2))
    warc.close()
    assert len(responses(tmp_path / "crawl-00001.warc.gz")) == 2
    assert repair(tmp_path) == []


def write_until_killed(pipe: Connection, folder: Path) -> None:
    warc = writer(folder, max_bytes=700_000)
    number = 0
    while True:
        pipe.send(number)
        warc.write(exchange(number, raw_body=random.Random(number).randbytes(200_000)))
        number += 1


def test_after_each_kill_all_that_was_written_is_there(tmp_path: Path) -> None:
    """Invariant 5, Nothing lost."""
    chance = random.Random(7)
    for turn in range(10):
        folder = tmp_path / str(turn)
        child = processes.start(write_until_killed, folder)
        wanted = chance.randint(1, 8)
        while child.receive() < wanted:
            pass
        child.kill()
        begun = max([wanted, *child.last_words()])
        repair(folder)
        found = [url for name in names(folder) for url in responses(folder / name)]
        assert found == [f"http://example.org/{number}" for number in range(len(found))]
        assert len(found) in (begun, begun + 1)


def write_without_room(pipe: Connection, folder: Path, room: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    warc = writer(folder)
    written, errors = 0, []
    for number in range(30):
        try:
            warc.write(exchange(number))
            written += 1
        except StoreFull as error:
            errors.append(str(error))
    warc.close()
    pipe.send((written, errors))


@pytest.mark.parametrize("room", [10_000, 100])
def test_without_room_the_file_stays_whole_and_the_error_names_it(tmp_path: Path, room: int) -> None:
    folder = tmp_path / "warc"
    folder.mkdir()
    child = processes.start(write_without_room, folder, room)
    written, errors = child.receive()
    child.process.join()
    assert written + len(errors) == 30
    assert all("no room left" in error and "crawl-0000" in error for error in errors)
    if room == 100:
        assert (written, names(folder)) == (0, [])
    else:
        assert 0 < written < 30
        assert len(responses(folder / "crawl-00001.warc.gz")) == written


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/warc"):
        writer(tmp_path / "file" / "warc").write(exchange())
    assert names(tmp_path) == ["file"]
