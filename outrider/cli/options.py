"""A crawl's options: from flags, variables, a file and the defaults to one plan, each value with its source.

The first of these that names an option decides it, lists included: a flag, the variable
`OUTRIDER_<FIELD>`, the file `outrider.toml`, the default. What is given is read even where it is
overridden, so that a mistake is found where it was made.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from outrider.cli import settings as values
from outrider.cli.settings import PREFIX, ValueKind, read_value
from outrider.crawler.plan import DATABASE, CrawlPlan
from outrider.model.domain import MAX_SOURCE_CHARACTERS
from outrider.model.errors import InvalidInput, OutriderError, shown
from outrider.model.settings import Settings
from outrider.model.task import MAX_DEPTH, MAX_KEY_CHARACTERS
from outrider.policy.admission import storable
from outrider.policy.scope import ScopeRule
from outrider.store.dsn import parse_dsn

CONFIG_FILE: Final = "outrider.toml"
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
DEFAULT: Final = "default"
MOST_PAGES: Final = 2**31 - 1
_YEAR_S = values.YEAR_MS // 1000
_NEARLY_THE_SAME = 0.8
_UNSET: Final[Mapping[str, str]] = {
    "store": f"{DATABASE} in the data folder",
    **dict.fromkeys(("max_pages", "max_pages_per_domain", "max_depth"), "no limit"),
}


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A value in force, and where it comes from."""

    table: str
    """The table of the file that it belongs to: `crawl` or `frontier`."""
    key: str
    """Its name in that table."""
    field: str
    """Its name in the record."""
    value: object
    source: str
    """`--delay`, `OUTRIDER_DELAY`, `outrider.toml [crawl] delay` or `default`."""

    @property
    def told(self) -> object:
        """The value as its place tells it: without passwords, and some spans in seconds."""
        if isinstance(self.value, str):
            return without_password(self.value)
        if isinstance(self.value, tuple):
            return [without_password(each) for each in self.value]
        if isinstance(self.value, int) and self.field in values.IN_SECONDS:
            return self.value / 1000
        return self.value

    @property
    def shown(self) -> str:
        """The value for people."""
        told = self.told
        if told is None or told == []:
            return _UNSET.get(self.key, "none")
        if isinstance(told, list):
            return "\n".join(told)
        return str(told).lower() if isinstance(told, bool) else str(told)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be set, and what it is called in each place."""

    table: str
    field: str
    key: str
    kind: ValueKind
    flag: str | None
    """None where the command line has none."""
    only_flag: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.key.upper()

    def resolved(self, value: object, source: str) -> Resolved:
        """Name the value in force and its source."""
        return Resolved(table=self.table, key=self.key, field=self.field, value=value, source=source)


def without_password(url: str) -> str:
    """Hide the password of a URL or DSN, also where it is not encoded as it should be.

    >>> without_password("http://me:p@s/s@proxy:3128/?password=y"), without_password("https://host:80/@x")
    ('http://me:***@proxy:3128/?password=***', 'https://host:80/@x')
    """
    hidden = _PASSWORD.sub(r"\1:***@", url)
    return re.sub(r"(password=)[^&\s]*", r"\1***", hidden)


_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):(?![0-9]+(?:[/?#]|\Z)).*@", re.DOTALL)
"""From a colon that no port follows to the last `@`."""


def _shown_without_password(value: object) -> str:
    if isinstance(value, list | tuple):
        return shown([without_password(each) if isinstance(each, str) else each for each in value])
    return shown(without_password(value) if isinstance(value, str) else value)


def _text(wanted: str, accepted: Callable[[str], bool]) -> ValueKind:
    def check(value: object) -> str:
        if not isinstance(value, str) or not storable(value) or not accepted(value):
            raise ValueError(f"must be {wanted}")
        return value

    return ValueKind(parse=lambda text: text, check=check, show=_shown_without_password)


def _is_store(text: str) -> bool:
    try:
        parse_dsn(text)
    except OutriderError:
        return False
    return True


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable() and bool(text.strip())


_PROXY = re.compile(r"https?://(?:[^/?#\s]*@)?(?:\[[0-9a-f:.]+\]|[^/?#@:\s\[\]]+)(?::[0-9]{1,5})?/?", re.IGNORECASE)


def _check_scope(value: object) -> ScopeRule:
    if not isinstance(value, str) or value not in list(ScopeRule):
        raise ValueError(f"must be one of {', '.join(ScopeRule)}")
    return ScopeRule(value)


def _check_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError("must be a list of texts")
    return tuple(value)


def _check_patterns(value: object) -> tuple[str, ...]:
    patterns = _check_texts(value)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"must be regular expressions ({shown(pattern)}: {error})") from None
    return patterns


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


_PATH = _text("the name of a file or folder", lambda text: bool(text.strip()))
_PATTERNS = ValueKind(parse=_lines, check=_check_patterns)

_CRAWL_KINDS: Final[Mapping[str, ValueKind]] = {
    "seeds": ValueKind(parse=_lines, check=_check_texts, show=_shown_without_password),
    "seeds_file": _PATH,
    "seeds_source": _text(
        f"a name of 1 to {MAX_SOURCE_CHARACTERS} characters", lambda text: 0 < len(text) <= MAX_SOURCE_CHARACTERS
    ),
    "data": _PATH,
    "store": _text("sqlite:///path/to/file.sqlite or postgresql://user@host/database", _is_store),
    "crawl": _text(f"a name of 1 to {MAX_KEY_CHARACTERS} characters", lambda text: 0 < len(text) <= MAX_KEY_CHARACTERS),
    "max_pages": values.whole_number(1, MOST_PAGES),
    "max_pages_per_domain": values.whole_number(1, MOST_PAGES),
    "max_depth": values.whole_number(0, MAX_DEPTH),
    "scope": ValueKind(parse=lambda text: text.strip().lower(), check=_check_scope),
    "include": _PATTERNS,
    "exclude": _PATTERNS,
    "concurrency": values.whole_number(1, 10_000),
    "per_domain": values.whole_number(1, 10_000),
    "delay": values.number(0, 86_400),
    "sitemaps": values.YES_OR_NO,
    "robots": values.YES_OR_NO,
    "ignore_nofollow": values.YES_OR_NO,
    "user_agent": _text("printable ASCII characters in one line", _is_header_text),
    "timeout": values.number(0, 3600, above=True),
    "max_body": values.size(1024, 1024**3),
    "proxy": _text(
        "a URL such as http://host:3128 or https://user@host", lambda text: _PROXY.fullmatch(text) is not None
    ),
    "output": _PATH,
    "warc": values.YES_OR_NO,
    "allow_private": values.YES_OR_NO,
    "claims": values.YES_OR_NO,
    "max_wait": values.number(0, _YEAR_S),
    "fresh": values.YES_OR_NO,
}
_FLAGS: Final[Mapping[str, str]] = {"seeds": "SEED", "seeds_file": "--seeds"}
"""What is not called as the field is."""


def _options() -> Iterator[Option]:
    for field in CrawlPlan.__struct_fields__:
        # Forgetting a crawl again and again is nobody's lasting wish.
        yield Option(
            table="crawl", field=field, key=field, kind=_CRAWL_KINDS[field],
            flag=_FLAGS.get(field, "--" + field.replace("_", "-")), only_flag=field == "fresh",
        )  # fmt: skip
    for field, kind in values.KINDS.items():
        key = values.variable_of(field).removeprefix(PREFIX).lower()
        yield Option(table="frontier", field=field, key=key, kind=kind, flag=None)


OPTIONS: Final = tuple(_options())
TABLES: Final[Mapping[str, Mapping[str, Option]]] = {
    table: {option.key: option for option in OPTIONS if option.table == table} for table in ("crawl", "frontier")
}


def load_plan(
    flags: Mapping[str, object],
    environ: Mapping[str, str] = os.environ,
    config_path: str | Path | None = None,
) -> tuple[CrawlPlan, Settings, tuple[Resolved, ...]]:
    """Put a crawl's plan and the frontier's settings together, with the source of every value.

    `flags` are named as the plan's fields; None, or an empty list, is a flag that was not given.
    """
    found = {**_from_file(config_path, environ), **_from_environment(environ), **_from_flags(flags)}
    plan = CrawlPlan(**_chosen("crawl", found))
    settings = Settings(**_chosen("frontier", found))
    values.check_orders(settings, {field: each.source for field, each in found.items()})
    in_force = tuple(
        found.get(option.field)
        or option.resolved(getattr(plan if option.table == "crawl" else settings, option.field), DEFAULT)
        for option in OPTIONS
    )
    return plan, settings, in_force


def _chosen(table: str, found: Mapping[str, Resolved]) -> dict[str, Any]:
    return {field: each.value for field, each in found.items() if each.table == table}


def _from_flags(flags: Mapping[str, object]) -> dict[str, Resolved]:
    found = {}
    for name, given in flags.items():
        option = TABLES["crawl"].get(name)
        if option is None or option.flag is None:
            _refuse_unknown(f"--{name.replace('_', '-')}", name, TABLES["crawl"])
        if given is None or given in ([], ()):
            continue
        value = read_value(option.flag, option.kind, given, as_text=True)
        source = option.flag.replace("--", "--no-", 1) if value is False else option.flag
        found[option.field] = option.resolved(value, source)
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, Resolved]:
    values.refuse_wrong_unit(environ)
    _refuse_slips(environ)
    found = {}
    for option in OPTIONS:
        variable = values.variable_in(environ, option.field) if option.table == "frontier" else option.variable
        text = "" if variable is None else environ.get(variable, "").strip()
        if variable is None or not text:
            continue
        if option.only_flag:
            raise InvalidInput(f"{option.variable} is not a setting: {option.flag} is for the command line alone")
        found[option.field] = option.resolved(read_value(variable, option.kind, text, as_text=True), variable)
    return found


def _refuse_slips(environ: Mapping[str, str]) -> None:
    """Refuse variables that are nearly called as a setting.

    Others may begin with our prefix too: a cluster announces a service named `outrider` that way.
    """
    known = {option.variable: option for option in OPTIONS}
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in known and variable != CONFIG_VARIABLE:
            name = variable.removeprefix(PREFIX)
            names = [each.removeprefix(PREFIX) for each in known]
            for match in difflib.get_close_matches(name, names, n=1, cutoff=_NEARLY_THE_SAME):
                raise InvalidInput(f"{variable} is not a setting: did you mean {PREFIX}{match}?")


def _from_file(config_path: str | Path | None, environ: Mapping[str, str]) -> dict[str, Resolved]:
    named = config_path or environ.get(CONFIG_VARIABLE, "").strip() or None
    if named is None and not Path(CONFIG_FILE).exists():
        return {}
    path = Path(named or CONFIG_FILE)
    found = {}
    for table, entries in _read_file(path).items():
        for key, given in entries.items():
            option = TABLES[table][key]
            place = f"{path} [{table}] {key}"
            found[option.field] = option.resolved(read_value(place, option.kind, given, as_text=False), place)
    return found


def _read_file(path: Path) -> dict[str, dict[str, object]]:
    """Read the tables of a file, keys with underscores, or refuse what has no place in it."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidInput(f"cannot read the configuration {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a TOML file: {error}") from None
    tables: dict[str, dict[str, object]] = {}
    for table, entries in content.items():
        if table not in TABLES:
            _refuse_table(path, table)
        if not isinstance(entries, dict):
            raise InvalidInput(f"{path}: {table} must be a table, [{table}], not {shown(entries)}")
        tables[table] = {}
        for written, given in entries.items():
            key = written.replace("-", "_")
            place = f"{path} [{table}] {written}"
            _check_key(place, table, key)
            if key in tables[table]:
                raise InvalidInput(f"{place} is there twice, with a dash and with an underscore")
            tables[table][key] = given
    return tables


def _refuse_table(path: Path, table: str) -> NoReturn:
    key = table.replace("-", "_")
    for home, options in TABLES.items():
        if key in options:
            raise InvalidInput(f"{path}: {table} stands outside of a table: put it below [{home}]")
    raise InvalidInput(f"{path}: [{shown(table)[1:-1]}] is not a table of settings: there are [crawl] and [frontier]")


def _check_key(place: str, table: str, key: str) -> None:
    option = TABLES[table].get(key)
    if option is not None and option.only_flag:
        raise InvalidInput(f"{place} is not a setting: {option.flag} is for the command line alone")
    if option is not None:
        return
    if key in values.IN_SECONDS:
        raise InvalidInput(f"{place} is not a setting: set {key.removesuffix('_ms')}, in seconds")
    for home, options in TABLES.items():
        if key in options:
            raise InvalidInput(f"{place} is not a setting of [{table}]: put it below [{home}]")
    _refuse_unknown(place, key, TABLES[table])


def _refuse_unknown(place: str, name: str, options: Mapping[str, Option]) -> NoReturn:
    matches = difflib.get_close_matches(name, options, n=1)
    raise InvalidInput(f"{place} is not a setting" + (f": did you mean {matches[0]}?" if matches else ""))
