"""`outrider export`: what a crawl found, as files for other programs."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import IO, Annotated

import typer

from outrider.cli.exits import ExitCode
from outrider.cli.opened import Config, CrawlName, Data, Opened, Store, chosen_plan, one_of, open_crawl, run
from outrider.model.errors import InvalidInput, StoreError

WHAT = ["pages", "urls", "artifacts"]
FORMATS = ["json", "csv", "txt"]
AT_ONCE = 1_000
URL_KEYS = ("url", "state", "kind", "discovered_by")
ARTIFACT_KEYS = ("artifact_id", "url", "outcome", "fetch")
"""What tells a line of ours from others."""
LONGEST_LINE = 1_000_000
TELL_EVERY_S = 1.0
STANDARD_OUTPUT = "-"


def export(
    output: Annotated[str, typer.Option(metavar="FILE|-", help="Where to; - is standard output.")] = STANDARD_OUTPUT,
    what: Annotated[
        str, typer.Option(metavar="pages|urls|artifacts", help="Completed pages, all seen URLs, or every fetch.")
    ] = "pages",
    form: Annotated[
        str, typer.Option("--format", metavar="json|csv|txt", help="Of URLs: JSON lines, a table, or the bare URLs.")
    ] = "json",
    data: Data = None,
    store: Store = None,
    crawl: CrawlName = None,
    config: Config = None,
) -> None:
    """Write a crawl's results as JSON lines.

    Pages are the lines that `crawl --output` writes; a file that has some already gets only what is new. URLs and
    artifacts are written anew, and the file of an earlier export is replaced when the new one is whole.
    """
    chosen = one_of("--what", what, WHAT)
    chosen_form = one_of("--format", form, FORMATS)
    if chosen != "urls" and chosen_form != "json":
        raise InvalidInput(f"--format {chosen_form} is for --what urls alone: {chosen} are JSON lines")
    plan, settings = chosen_plan(data, store, crawl, config)

    async def exporting() -> None:
        async with open_crawl(plan, settings) as opened:
            if chosen == "pages":
                await _export_pages(opened, output)
            else:
                _check_replaceable(output, str(chosen), str(chosen_form))
                lines = _artifact_lines(opened) if chosen == "artifacts" else _url_lines(opened, str(chosen_form))
                await _write(lines, output, "URLs" if chosen == "urls" else "artifacts")

    run(exporting())


async def _export_pages(opened: Opened, output: str) -> None:
    """Append the pages that a file lacks; where a pipe's reader has gone, as in `… | head`, end without a word."""
    from outrider.cli.whole_tail import copy_pages

    try:
        with _Telling("pages", output) as telling:
            await copy_pages(opened, output, telling.tell)
    except StoreError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            sys.exit(ExitCode.UNEXPECTED)
        raise


async def _url_lines(opened: Opened, form: str) -> AsyncIterator[list[str]]:
    import csv
    import io

    from outrider.cli.urls import pages_of_tasks, task_record
    from outrider.model.task import TaskFilter

    is_first = True
    async for tasks in pages_of_tasks(opened, TaskFilter()):
        if form == "txt":
            yield [task.url for task in tasks]
            continue
        records = [task_record(task) for task in tasks]
        if form == "json":
            yield [json.dumps(record, ensure_ascii=False) for record in records]
            continue
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, records[0].keys(), lineterminator="\n")
        if is_first:
            table.writeheader()
        for record in records:
            if record["metadata"] is not None:
                record["metadata"] = json.dumps(record["metadata"], ensure_ascii=False)
        table.writerows(records)
        is_first = False
        yield [text.getvalue().removesuffix("\n")]


async def _artifact_lines(opened: Opened) -> AsyncIterator[list[str]]:
    import msgspec

    last_id = 0
    while artifacts := await opened.urls.artifacts(opened.name, after_id=last_id, limit=AT_ONCE):
        last_id = artifacts[-1].artifact_id
        lines = []
        for artifact in artifacts:
            if artifact.reported_at < opened.crawl.created_at:
                continue  # of an older crawl of this name, which was deleted
            record = msgspec.to_builtins(artifact)
            record |= {"kind": artifact.kind.name.lower(), "discovery_type": artifact.discovery_type.name.lower()}
            lines.append(json.dumps(record, ensure_ascii=False))
        if lines:
            yield lines


def _check_replaceable(output: str, what: str, form: str) -> None:
    """Refuse a file that does not begin as an earlier export of the same kind, which nobody would miss."""
    from pathlib import Path

    if output == STANDARD_OUTPUT:
        return
    path = Path(output)
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            first = file.readline(LONGEST_LINE)
    except OSError as error:
        raise InvalidInput(f"cannot write {output}: {error.strerror or error}") from None
    if first and not _begins_an_export(first, what, form):
        raise InvalidInput(f"{output} is there already, and is no earlier export of {what}: name another file")


def _begins_an_export(first: bytes, what: str, form: str) -> bool:
    """Tell whether a file's first line is one of ours; that of bare URLs could be anybody's."""
    keys = ARTIFACT_KEYS if what == "artifacts" else URL_KEYS
    if form == "csv":
        return all(key in first.decode(errors="replace").strip().split(",") for key in keys)
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return form == "json" and isinstance(record, dict) and all(key in record for key in keys)


async def _write(parts: AsyncIterator[list[str]], output: str, what: str) -> None:
    with _Telling(what, output) as telling, _opened_for_writing(output) as file:
        number = 0
        async for lines in parts:
            file.write("\n".join(lines) + "\n")
            number += len(lines)
            telling.tell(f"{number:,} so far")
        file.flush()


@contextmanager
def _opened_for_writing(output: str) -> Iterator[IO[str]]:
    """Open a file that takes the place of an older one only when it is whole."""
    import os
    from pathlib import Path

    if output == STANDARD_OUTPUT:
        yield sys.stdout
        return
    path = Path(output)
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
        try:
            with unfinished.open("w", encoding="utf-8") as file:
                yield file
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write {output}: {error.strerror or error}") from None


class _Telling:
    """Tells on stderr how far a long export has come, at most once a second."""

    def __init__(self, what: str, output: str) -> None:
        import time

        self._clock = time.monotonic
        self._due = self._clock() + TELL_EVERY_S
        self._what = what
        self._to = "standard output" if output == STANDARD_OUTPUT else output

    def __enter__(self) -> "_Telling":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and self._to != "standard output":
            typer.echo(f"the {self._what} are in {self._to}", err=True)

    def tell(self, progress: str) -> None:
        """Say how far it is, if it is time to."""
        if self._clock() >= self._due:
            self._due = self._clock() + TELL_EVERY_S
            typer.echo(f"exporting {self._what}: {progress}", err=True)
