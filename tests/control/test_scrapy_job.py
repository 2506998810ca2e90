"""The folder of a Scrapy job: every form of queue is read, and nothing in it is run."""

import os
import pickle
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outrider.control.backfill.plain_data import NotPlain, read_plain
from outrider.control.backfill.scrapy import MAX_RECORD_BYTES, ScrapyJob, request_of
from outrider.model.task import Restored
from tests.control.old_crawlers import LENGTH, marshalled, pickled, queue, request, scrapy_job, stack


def urls_of(folder: Path) -> list[str]:
    return [
        each.found.url if isinstance(each.found, Restored) else each.found for each in ScrapyJob(folder).records(None)
    ]


@pytest.mark.parametrize("dump", [pickled, marshalled, lambda value: pickle.dumps(value, protocol=2)])
def test_a_stack_is_read_from_its_end_however_it_was_written(dump: Any, tmp_path: Path) -> None:
    scrapy_job(tmp_path, [f"https://a.example/{n}" for n in range(5)], dump)
    assert urls_of(tmp_path) == [f"https://a.example/{n}" for n in reversed(range(5))]


@pytest.mark.parametrize("given_out", [0, 1, 3, 4, 6])
def test_a_queue_is_read_from_what_it_has_not_given_out(given_out: int, tmp_path: Path) -> None:
    records = [pickled(request(f"https://a.example/{n}")) for n in range(7)]
    queue(tmp_path / "requests.queue" / "-5s", records, given_out)
    assert urls_of(tmp_path) == [f"https://a.example/{n}" for n in range(given_out, 7)]


def test_the_queues_of_download_slots_are_found(tmp_path: Path) -> None:
    for slot in ("a.example", "b.example"):
        stack(tmp_path / "requests.queue" / f"{slot}-0123" / "0", [pickled(request(f"https://{slot}/"))])
    (tmp_path / "requests.queue" / "active.json").write_text("{}")
    assert urls_of(tmp_path) == ["https://a.example/", "https://b.example/"]


def test_reading_goes_on_from_a_position(tmp_path: Path) -> None:
    scrapy_job(tmp_path, [f"https://a.example/{n}" for n in range(5)])
    whole = list(ScrapyJob(tmp_path).records(None))
    assert list(ScrapyJob(tmp_path).records(whole[2].position)) == whole[3:]


def test_what_is_torn_is_refused_and_what_is_whole_behind_it_is_read(tmp_path: Path) -> None:
    """A job that is killed may leave half a record where the next would have been written."""
    scrapy_job(tmp_path, ["https://a.example/"])
    path = tmp_path / "requests.queue" / "0"
    path.write_bytes(path.read_bytes() + b"half a record")
    (problem,) = urls_of(tmp_path)
    assert "bytes that are no records" in problem
    torn = pickled(request("https://b.example/"))
    queue(tmp_path / "requests.queue" / "1", [pickled(request("https://c.example/")), torn])
    path = tmp_path / "requests.queue" / "1" / "q00000"
    path.write_bytes(path.read_bytes()[:-3])
    assert urls_of(tmp_path)[1:] == ["https://c.example/", "the file ends in the middle of a record"]


def test_a_record_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    stack(tmp_path / "requests.queue" / "0", [b"x"])
    path = tmp_path / "requests.queue" / "0"
    path.write_bytes(b"\0" * 4 + b"x" * 100 + LENGTH.pack(MAX_RECORD_BYTES + 1))
    assert len(urls_of(tmp_path)) == 1


def test_priorities_keep_their_order_and_depth_is_kept() -> None:
    found = [request_of(pickled(request("https://a.example/", priority=n))) for n in (-(10**9), -7, 0, 7, 10**12)]
    priorities = [each.priority for each in found if isinstance(each, Restored)]
    assert priorities == sorted(priorities) == [0, 493, 500, 507, 2**31 - 1]
    assert [each.depth for each in found if isinstance(each, Restored)] == [2] * 5


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (request("https://a.example/", method="POST"), "method 'POST'"),
        ({"method": "GET"}, "without a URL"),
        (["https://a.example/"], "not a request"),
        (request(5), "without a URL"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_request_for_a_page_is_refused_with_the_reason(value: object, complaint: str) -> None:
    for dump in (pickled, marshalled):
        found = request_of(dump(value))
        assert isinstance(found, str)
        assert complaint in found


class Evil:
    """Pickled, it is the order to run a command."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._path}",)


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    evil = pickled(request("https://a.example/", meta={"depth": 1, "item": Evil(tmp_path / "ran")}))
    found = request_of(evil)
    assert isinstance(found, Restored)
    assert (found.url, found.depth) == ("https://a.example/", 1)
    assert not (tmp_path / "ran").exists()
    pickle.loads(evil)
    assert (tmp_path / "ran").exists(), "the pickle would have done it"


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04cbuiltins\neval\n(S'1/0'\ntR.",
        b"\x80\x04csubprocess\nPopen\n(S'false'\ntR.",
        b"\x80\x02cbuiltins\n__import__\n(S'os'\ntRp0\n0g0\n(dS'system'\nNsb.",
        b"\x80\x04cbuiltins.set\n__init__\n.",
    ],
)
def test_names_of_functions_stand_for_nothing(data: bytes) -> None:
    assert type(read_plain(data)).__name__ in ("Foreign", "type")


def test_objects_of_others_do_no_harm() -> None:
    value = {"a": subprocess.CompletedProcess([], 0), "b": {1, 2}, "c": b"\0\xff", "d": (1.5, None, 2**80, -5)}
    for protocol in (2, 4, 5):
        found = read_plain(pickle.dumps(value, protocol=protocol))
        assert isinstance(found, dict)
        assert type(found.pop("a")).__name__ == "Foreign"
        assert found == {"b": {1, 2}, "c": b"\0\xff", "d": (1.5, None, 2**80, -5)}


def test_marshalled_plain_data_comes_back_as_it_was() -> None:
    text = "ü" * 300
    value = {
        "url": "https://a.example/", "again": ["https://a.example/"] * 2, "s": {1}, "f": frozenset({"x"}), text: text,
        b"k": (True, False, None, -1, 2**70, 0.5), "long": "x" * 300, "minus": -(2**45),
    }  # fmt: skip
    assert read_plain(marshalled(value)) == value


@pytest.mark.parametrize("make", [marshalled, pickled])
def test_forged_bytes_are_refused_and_never_break_anything(make: Any) -> None:
    chance = random.Random(7)
    whole = bytearray(make(request("https://a.example/")))
    for _ in range(3000):
        forged = bytearray(whole[: chance.randrange(1, len(whole) + 1)])
        for _ in range(chance.randrange(3)):
            forged[chance.randrange(len(forged))] = chance.randrange(256)
        try:
            read_plain(bytes(forged))
        except NotPlain:
            continue


def test_code_and_endless_depth_are_not_plain() -> None:
    with pytest.raises(NotPlain, match="not plain"):
        read_plain(marshalled(compile("1", "", "eval")))
    with pytest.raises(NotPlain, match="levels deep"):
        read_plain(b"[\x01\0\0\0" * 5000 + b"N")
