"""How a store is named: `sqlite:///file` or `postgresql://…`."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

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


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresDsn:
    """A PostgreSQL database, in libpq's URL form."""

    url: str

    @property
    def shown(self) -> str:
        """The name for people and logs, without the password."""
        return re.sub(r"(?<=://)([^:/@]*):[^@]*@", r"\1:***@", re.sub(r"(password=)[^&]*", r"\1***", self.url))


Dsn = SqliteDsn | PostgresDsn


def parse_dsn(dsn: str) -> Dsn:
    """Read a DSN, or say what one looks like."""
    scheme = urlsplit(dsn).scheme if isinstance(dsn, str) else ""
    if scheme == "sqlite" and dsn.startswith("sqlite:///"):
        path = unquote(dsn.removeprefix("sqlite:///"))
        if path and "\0" not in path and not path.startswith(":memory:"):
            return SqliteDsn(path=path)
    if scheme in ("postgresql", "postgres"):
        return PostgresDsn(url=dsn)
    raise InvalidInput(
        f"cannot read the store name {dsn!r}: use sqlite:///path/to/file.sqlite "
        "or postgresql://user@host/database"
    )
