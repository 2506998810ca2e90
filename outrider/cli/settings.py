"""Settings as environment variables, each refused by name where its value makes no sense."""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.model.errors import InvalidInput
from outrider.model.settings import Settings

PREFIX: Final = "OUTRIDER_"
CRASH_THRESHOLD: Final = "OUTRIDER_CRASH_THRESHOLD"
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
}


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read every setting that the environment names; the others keep their defaults.

    `OUTRIDER_<FIELD>` sets the field of that name. The length of a lease alone is told in seconds,
    as `OUTRIDER_CRASH_THRESHOLD`, fractions allowed.
    """
    wrong_unit = f"{CRASH_THRESHOLD}_MS"
    if wrong_unit in environ:
        raise InvalidInput(f"{wrong_unit} is not a setting: set {CRASH_THRESHOLD}, in seconds")
    values: dict[str, int | float] = {}
    for field in msgspec.structs.fields(Settings):
        variable = variable_of(field.name)
        text = environ.get(variable, "").strip()
        if text:
            values[field.name] = _read(variable, text, field.name, float if field.type is float else int)
    settings = msgspec.convert(values, Settings)
    _check_order(settings, "retry_base_ms", "retry_cap_ms")
    _check_order(settings, "backoff_base_ms", "backoff_cap_ms")
    return settings


def variable_of(field: str) -> str:
    """Name the environment variable that sets a field."""
    return CRASH_THRESHOLD if field == "crash_threshold_ms" else PREFIX + field.upper()


def _read(variable: str, text: str, field: str, kind: type[int] | type[float]) -> int | float:
    seconds = variable == CRASH_THRESHOLD
    try:
        value = float(text) if seconds else kind(text)
    except ValueError:
        wanted = "a number of seconds" if seconds else "a whole number" if kind is int else "a number"
        raise InvalidInput(f"{variable} must be {wanted}, not {text!r}") from None
    lowest, highest = BOUNDS[field]
    scaled = value * 1000 if seconds else value
    if not lowest <= scaled <= highest:
        shown = f"{lowest / 1000:g} and {highest // 1000}" if seconds else f"{lowest} and {highest}"
        raise InvalidInput(f"{variable} must be between {shown}, not {text!r}")
    return round(scaled) if seconds else value


def _check_order(settings: Settings, base: str, cap: str) -> None:
    if getattr(settings, base) > getattr(settings, cap):
        raise InvalidInput(
            f"{variable_of(base)} is {getattr(settings, base)}, more than "
            f"{variable_of(cap)}, which is {getattr(settings, cap)}"
        )
