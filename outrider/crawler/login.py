"""Login walls: answers that show a login form in place of what was asked for.

A page that was asked for as a login page is none, and neither is a page with content that has a login box as well.
"""

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from outrider.crawler.main_text import main_words, regions

FEWEST_WORDS_OF_CONTENT: Final = 120
"""A page that says this much beside its form has something to show to everybody."""

MAX_FIELDS: Final = 100
"""A query with more fields than this is no login page's."""

_LOGIN_SEGMENT = re.compile(
    r"(?:user|member|customer|account|admin|wp|web)?[-_.]?(?:log[-_]?[io]n|sign[-_]?in)(?:\.\w{1,5}|[-_]?page|[-_]?form)?"
)
_DOOR_SEGMENT = re.compile(r"auth\w*|oauth2?|sso|saml2?|cas|openid[-_]connect|accounts?|sessions?|identity|idp")
"""Words of addresses where people are let in, among other things."""
_LOGIN_HOST = re.compile(r"(?:login|signin|sso|auth|accounts?|idp|identity|id)\.")
_WAY_BACK = re.compile(
    r"next|continue|goto|dest|destination|target|from|ref|back|.*(?:return|redirect|url|uri|request|relaystate).*"
)
_INPUT = re.compile(r"<input(?=[\s/])[^>]{0,2000}+>?", re.IGNORECASE)
_PASSWORD = re.compile(r"[\s\"'/]type\s*=\s*[\"']?password[\"'\s/>]", re.IGNORECASE)


def is_login_address(url: str) -> bool:
    """Tell whether an address is, by its own words, that of a login page.

    >>> is_login_address("https://example.org/users/sign_in"), is_login_address("https://example.org/blog/login-tips")
    (True, False)
    """
    try:
        parts = urlsplit(url.lower())
    except ValueError:
        return False
    segments = [segment for segment in parts.path.split("/") if segment][-3:]
    if any(_LOGIN_SEGMENT.fullmatch(segment) for segment in segments):
        return True
    at_door = _LOGIN_HOST.match(parts.hostname or "") or any(_DOOR_SEGMENT.fullmatch(segment) for segment in segments)
    return bool(at_door) and _has_way_back(parts.query)


def is_sent_to_login(url: str, target: str) -> bool:
    """Tell whether a redirect asks for a login first: it leads to a login page, from a page that is none."""
    return is_login_address(target) and not is_login_address(url)


def is_login_wall(url: str, html: str) -> bool:
    """Tell whether a page shows a password field and little else, though it was not asked for as a login page.

    A field in the page's header, navigation, footer or side is an offer, not a wall.
    """
    if "password" not in html.lower():
        return False
    if is_login_address(url) or not any(map(_has_password_field, regions(html, with_forms=True))):
        return False
    return len(main_words(html)) < FEWEST_WORDS_OF_CONTENT


def _has_password_field(markup: str) -> bool:
    return any(_PASSWORD.search(field[0]) for field in _INPUT.finditer(markup))


def _has_way_back(query: str) -> bool:
    """Tell whether a query says where to go afterwards."""
    try:
        fields = parse_qsl(query, max_num_fields=MAX_FIELDS)
    except ValueError:
        return False
    return any(_WAY_BACK.fullmatch(name) and (value.startswith("/") or "://" in value) for name, value in fields)
