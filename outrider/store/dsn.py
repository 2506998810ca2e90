"""How a store is named: `sqlite:///file` or `postgresql://…`."""

import re
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from outrider.model.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class SqliteDsn:
    """A file on this machine.

    >>> parse_dsn("sqlite:///data/frontier.sqlite").path
    'data/frontier.sqlite'
    >>> parse_dsn("sqlite:////var/frontier.sqlite").path
    '/var/frontier.sqlite'
    """

    path: str

    @property
    def shown(self) -> str:
        """The name for people."""
        return self.path

    @property
    def url(self) -> str:
        """The DSN, as `parse_dsn` reads it."""
        return f"sqlite:///{quote(self.path)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresDsn:
    """A PostgreSQL database, in libpq's URL form."""

    url: str

    @property
    def shown(self) -> str:
        """The name for people and logs, without the password."""
        return _without_password(self.url)


Dsn = SqliteDsn | PostgresDsn


def parse_dsn(dsn: str) -> Dsn:
    """Read a DSN, or say what one looks like."""
    if isinstance(dsn, str) and dsn.startswith("sqlite:///"):
        path = unquote(dsn.removeprefix("sqlite:///"))
        if path and "\0" not in path and not path.startswith(":memory:"):
            return SqliteDsn(path=path)
    if isinstance(dsn, str) and dsn.startswith(("postgresql://", "postgres://")):
        with suppress(ValueError):
            # Raises where the address or the port is none; several hosts have ports of their own.
            if "," in dsn or (urlsplit(dsn).port or 0) >= 0:
                return PostgresDsn(url=dsn)
    raise InvalidInput(
        f"cannot read the store name {_without_password(str(dsn))!r:.200}: use sqlite:///path/to/file.sqlite "
        "or postgresql://user@host/database"
    )


def _without_password(dsn: str) -> str:
    hidden = re.sub(r"(?<=://)([^:/@]*):[^@]*@", r"\1:***@", dsn)
    return re.sub(r"(password=)[^&]*", r"\1***", hidden)
