"""What a setting may be and how it is read, and the frontier's settings as environment variables.

A value that makes no sense is refused by the name of the place where it was given: a variable, a
flag, or a key of a file.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from outrider.model.errors import InvalidInput, shown
from outrider.model.settings import Settings

PREFIX: Final = "OUTRIDER_"
RESTS: Final = (
    "login_required_rest_ms", "rate_limited_rest_ms", "forbidden_rest_ms", "robots_denied_rest_ms",
    "server_error_rest_ms", "unreachable_rest_ms", "exhausted_rest_ms", "refresh_first_ms", "refresh_shortest_ms",
    "refresh_balance_ms", "refresh_gone_retry_ms",
)  # fmt: skip
IN_SECONDS: Final = frozenset({"crash_threshold_ms", "beat_every_ms", "stale_after_ms", "watchdog_every_ms", *RESTS})
"""What is kept in milliseconds and told in seconds, under a name without `_ms`."""
FLAGS: Final = tuple(field.name for field in msgspec.structs.fields(Settings) if field.type is bool)
"""What is on or off. Their names are an agreement, so each can also be set without the prefix."""
YEAR_MS: Final = 365 * 24 * 3600 * 1000

BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "max_retries": (1, 1_000_000),
    "crash_threshold_ms": (1, YEAR_MS),
    "max_deferrals": (0, 1_000_000),
    "max_lease_expiries": (1, 1_000_000),
    "retry_base_ms": (0, YEAR_MS),
    "retry_cap_ms": (0, YEAR_MS),
    "backoff_base_ms": (0, YEAR_MS),
    "backoff_cap_ms": (0, YEAR_MS),
    "backoff_jitter": (0, 1),
    "beat_every_ms": (10, YEAR_MS),
    "stale_after_ms": (100, YEAR_MS),
    "watchdog_every_ms": (10, YEAR_MS),
    **dict.fromkeys(FLAGS, (0, 1)),
    "max_domain_errors": (1, 1_000_000),
    "max_login_walls": (1, 1_000_000),
    "max_block_retries": (0, 1_000_000),
    **dict.fromkeys(RESTS, (0, 10 * YEAR_MS)),
    **dict.fromkeys(("refresh_first_ms", "refresh_balance_ms"), (1, 10 * YEAR_MS)),
    "refresh_max_gone": (1, 1_000_000),
    "priority_rank": (0, 1_000_000),
    "priority_image_yield": (0, 1_000_000),
    "priority_remaining_page": (0, 1_000_000),
    "priority_error_rate": (0, 1_000_000),
    "priority_stale_day": (0, 1_000_000),
    "priority_most_yield": (0, 1_000_000),
    "priority_most_remaining": (0, 1_000_000),
    "priority_most_stale_days": (0, 1_000_000),
}

_MOST_SHOWN = 500
_MULTIPLES: Final[Mapping[str, int]] = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmg]?)(?:i?b)?\s*", re.ASCII | re.IGNORECASE)


class ValueKind(msgspec.Struct, frozen=True, kw_only=True):
    """What a value may be.

    Both functions raise `ValueError` with what the value must be, as in `must be a whole number`.
    """

    parse: Callable[[str], object]
    """From a text, as variables and flags have it, to a value that can be checked."""
    check: Callable[[object], object]
    """From a value, as files have it, to the one that the record holds."""
    show: Callable[[object], str] = lambda value: shown(value, _MOST_SHOWN)
    """How the value stands in a message."""


def read_value(place: str, kind: ValueKind, given: object, *, as_text: bool) -> object:
    """Read what was given at a place, or refuse it by the place's name."""
    try:
        return kind.check(kind.parse(given) if as_text and isinstance(given, str) else given)
    except ValueError as problem:
        raise InvalidInput(f"{place} {problem}, not {kind.show(given)}") from None


def whole_number(lowest: int, highest: int) -> ValueKind:
    """A whole number within bounds, both allowed."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("must be a whole number")
        if not lowest <= value <= highest:
            raise ValueError(f"must be between {lowest} and {highest}")
        return value

    return ValueKind(parse=lambda text: _number(int, text, "a whole number"), check=check)


def number(lowest: float, highest: float, *, above: bool = False) -> ValueKind:
    """A number within bounds, fractions allowed; with `above`, the lower bound itself is not."""

    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError("must be a number")
        if above and not lowest < value <= highest:
            raise ValueError(f"must be above {lowest:g} and at most {highest:.15g}")
        if not lowest <= value <= highest:
            raise ValueError(f"must be between {lowest:g} and {highest:.15g}")
        return float(value)

    return ValueKind(parse=lambda text: _number(float, text, "a number"), check=check)


def seconds_kept_as_ms(lowest_ms: int, highest_ms: int) -> ValueKind:
    """A number of seconds, fractions allowed, that the record holds in milliseconds."""

    def check(value: object) -> int:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError("must be a number of seconds")
        if not lowest_ms <= value * 1000 <= highest_ms:
            raise ValueError(f"must be between {lowest_ms / 1000:g} and {highest_ms // 1000}")
        return round(value * 1000)

    return ValueKind(parse=lambda text: _number(float, text, "a number of seconds"), check=check)


def size(lowest: int, highest: int) -> ValueKind:
    """A number of bytes, with `k`, `M` or `G` for powers of 1024: `512k`, `10MB`, `1.5 GiB`."""

    def check(value: object) -> int:
        if isinstance(value, str):
            match = _SIZE.fullmatch(value)
            if match is None or len(value) > 40:
                raise ValueError("must be a number of bytes such as 512k or 10MB")
            value = int(float(match[1]) * _MULTIPLES[match[2].lower()])
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("must be a number of bytes such as 512k or 10MB")
        if not lowest <= value <= highest:
            raise ValueError(f"must be between {lowest} and {highest} bytes")
        return value

    return ValueKind(parse=lambda text: text, check=check)


def _check_yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


YES_OR_NO: Final = ValueKind(parse=lambda text: _WORDS.get(text.strip().lower(), text), check=_check_yes_or_no)
"""On or off: `true` or `false`, `yes` or `no`, `on` or `off`, `1` or `0`."""


def _number(kind: type[int] | type[float], text: str, wanted: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"must be {wanted}") from None


def _kind_of(field: msgspec.structs.FieldInfo) -> ValueKind:
    if field.type is bool:
        return YES_OR_NO
    lowest, highest = BOUNDS[field.name]
    if field.name in IN_SECONDS:
        return seconds_kept_as_ms(lowest, highest)
    return number(lowest, highest) if field.type is float else whole_number(lowest, highest)


KINDS: Final[Mapping[str, ValueKind]] = {field.name: _kind_of(field) for field in msgspec.structs.fields(Settings)}


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read every setting that the environment names; the others keep their defaults.

    `OUTRIDER_<FIELD>` sets the field of that name. What is told in seconds, fractions allowed, is called
    without the unit: `OUTRIDER_CRASH_THRESHOLD` is the length of a lease. What is on or off can be set under its bare
    name too, as in `ENABLE_REFRESH_MODE`; the one with the prefix counts first.
    """
    refuse_wrong_unit(environ)
    values: dict[str, object] = {}
    for field, kind in KINDS.items():
        variable = variable_in(environ, field)
        if variable is not None:
            text = environ[variable].strip()
            values[field] = read_value(variable, kind, text, as_text=True)
    settings = msgspec.convert(values, Settings)
    check_orders(settings, {})
    return settings


def variable_of(field: str) -> str:
    """Name the environment variable that sets a field."""
    return PREFIX + (field.removesuffix("_ms") if field in IN_SECONDS else field).upper()


def variable_in(environ: Mapping[str, str], field: str) -> str | None:
    """Name the variable that sets a field in this environment, if one does."""
    names = (variable_of(field), field.upper()) if field in FLAGS else (variable_of(field),)
    return next((name for name in names if environ.get(name, "").strip()), None)


def refuse_wrong_unit(environ: Mapping[str, str]) -> None:
    """Refuse milliseconds where seconds are told: they would else be left unread."""
    for field in sorted(IN_SECONDS):
        wrong_unit = PREFIX + field.upper()
        if wrong_unit in environ:
            raise InvalidInput(f"{wrong_unit} is not a setting: set {variable_of(field)}, in seconds")


def check_orders(settings: Settings, places: Mapping[str, str]) -> None:
    """Refuse a first wait above its cap, and beats that come too late.

    `places` names where a field was set, if not in its variable.
    """
    for base, cap in (("retry_base_ms", "retry_cap_ms"), ("backoff_base_ms", "backoff_cap_ms")):
        if getattr(settings, base) > getattr(settings, cap):
            raise InvalidInput(
                f"{places.get(base) or variable_of(base)} is {getattr(settings, base)}, more than "
                f"{places.get(cap) or variable_of(cap)}, which is {getattr(settings, cap)}"
            )
    if settings.beat_every_ms * 2 > settings.stale_after_ms:
        places = {field: places.get(field) or variable_of(field) for field in ("beat_every_ms", "stale_after_ms")}
        raise InvalidInput(
            f"{places['beat_every_ms']} is {settings.beat_every_ms / 1000:g}, more than half of "
            f"{places['stale_after_ms']}, which is {settings.stale_after_ms / 1000:g}: every beat would be too late"
        )
