"""Pages without end, for a crawler that does not notice: each leads to ever new ones of its kind."""

from outrider.demo.answer import Answer, Request, html_page, link_list
from outrider.demo.odd.oddity import Oddity, name_of
from outrider.demo.options import SiteOptions

DAYS = 28


def _calendar(request: Request, _options: SiteOptions) -> Answer | None:
    """A month, which links to its days and to the months beside it, or a day."""
    parts = name_of(request).split("/")
    if not all(part.isdecimal() and len(part) <= 5 for part in parts):
        return None
    if len(parts) == 3:
        return html_page(f"Nothing happens on {'-'.join(parts)}", "")
    if len(parts) != 2 or not 1 <= int(parts[1]) <= 12:
        return None
    months = int(parts[0]) * 12 + int(parts[1]) - 1
    targets = {_month(months - 1): "earlier", _month(months + 1): "later"} if months else {_month(1): "later"}
    days = {f"{_month(months)}/{day:02}": str(day) for day in range(1, DAYS + 1)}
    return html_page(f"Calendar of {parts[0]}-{parts[1]}", link_list(targets | days))


def _month(months: int) -> str:
    return f"/odd/calendar/{months // 12}/{months % 12 + 1:02}"


def _repetition(_request: Request, _options: SiteOptions) -> Answer:
    """A relative link that forgot its first slash: the path grows with every step."""
    return html_page("Deeper and deeper", '<a href="again/and/">again</a>')


def _variants(request: Request, _options: SiteOptions) -> Answer:
    """A list that can be sorted and filtered in ever more ways, all of which show the same."""
    orders = {f"/odd/variants?{request.query}&amp;{key}={value}": f"{key} {value}" for key, value in _CHOICES}
    first = {f"/odd/variants?{key}={value}": f"{key} {value}" for key, value in _CHOICES}
    return html_page("Sorted", link_list(orders if request.query else first))


_CHOICES = [(key, value) for key in ("sort", "colour", "size") for value in ("1", "2", "3")]


def _sessions(request: Request, _options: SiteOptions) -> Answer:
    """Every page makes a new session, and links to itself with that."""
    last = request.query.removeprefix("session=")
    number = int(last) if last.isdecimal() and len(last) < 12 else 0
    return html_page("Welcome back", f'<a href="/odd/sessions?session={number * 48_271 % 2_147_483_647 + 1}">on</a>')


ODDITIES = (
    Oddity(path="/odd/calendar/2026/01", about="a calendar without end", answer=_calendar, family=True),
    Oddity(path="/odd/repetition/", about="a path that repeats itself", answer=_repetition, family=True),
    Oddity(path="/odd/variants", about="ever more variants of a query", answer=_variants),
    Oddity(path="/odd/sessions", about="a session number that is always new", answer=_sessions),
)
