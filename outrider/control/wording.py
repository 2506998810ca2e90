"""How sizes, spans of time and moments are written for people."""

from datetime import UTC, datetime


def byte_count(size: float) -> str:
    """Write a number of bytes for people.

    >>> byte_count(999), byte_count(34_500_000)
    ('999 B', '34.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def span(seconds: float) -> str:
    """Write a span of time for people.

    >>> span(0.4), span(42), span(192), span(7_500), span(200_000)
    ('0 s', '42 s', '3 min 12 s', '2 h 5 min', '2 d 7 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    if whole < 86_400:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // 86_400, "d", whole % 86_400 // 3600, "h")


def _two(number: int, unit: str, rest: int, smaller_unit: str) -> str:
    return f"{number} {unit} {rest} {smaller_unit}" if rest else f"{number} {unit}"


def moment(milliseconds: int) -> str:
    """Write a moment for people, in UTC.

    >>> moment(1_763_224_245_120)
    '2025-11-15 16:30:45 UTC'
    """
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "the end of time"


def moment_and_distance(milliseconds: int, now: int) -> str:
    """Write a moment and how far it is from now.

    >>> moment_and_distance(1_000, 31_000), moment_and_distance(61_000, 1_000)
    ('1970-01-01 00:00:01 UTC (30 s ago)', '1970-01-01 00:01:01 UTC (in 1 min)')
    """
    away_s = (milliseconds - now) / 1000
    return f"{moment(milliseconds)} ({f'in {span(away_s)}' if away_s > 0 else f'{span(-away_s)} ago'})"
