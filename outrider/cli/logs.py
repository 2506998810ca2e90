"""Logs of the long-running commands: one line for each event, on standard error."""

import logging

FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class ActionFormatter(logging.Formatter):
    """Writes the `action` of a record, where it has one, so that a script finds all events of one kind."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Write one line."""
        line = super().formatMessage(record)
        action = getattr(record, "action", None)
        return line if action is None else f"{line} action={action}"


def log_to_standard_error() -> None:
    """Have all that is worth knowing written down."""
    handler = logging.StreamHandler()
    handler.setFormatter(ActionFormatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
