"""How the logs of the long-running commands read."""

import logging

from outrider.cli.logs import FORMAT, ActionFormatter


def line_of(**more: object) -> str:
    record = logging.makeLogRecord(
        {"name": "outrider.control", "levelname": "INFO", "msg": "job %s", "args": (7,), **more}
    )
    return ActionFormatter(FORMAT).format(record)


def test_a_line_names_the_action_of_its_record() -> None:
    assert line_of(action="job_claimed").endswith(" INFO outrider.control: job 7 action=job_claimed")


def test_a_record_without_an_action_is_written_as_it_is() -> None:
    assert line_of().endswith(" INFO outrider.control: job 7")
