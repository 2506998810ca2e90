"""URLs as people type them."""

import re

from outrider.model.domain_name import is_address, split_port
from outrider.model.task import Refusal
from outrider.model.url import UrlRefused

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\Z|[0-9]+(?:[/?#\\]|\Z))", re.ASCII | re.IGNORECASE)
"""A name and a colon, unless what follows can only be a port."""
_END_OF_HOST = re.compile(r"[/?#\\]")


def with_scheme(text: str) -> str:
    """Complete what was typed without a scheme: `https`, but `http` for this machine and for addresses.

    Raises `UrlRefused` where it can be neither a URL nor a domain.

    >>> with_scheme("example.org/a"), with_scheme("127.0.0.1:8000")
    ('https://example.org/a', 'http://127.0.0.1:8000')
    """
    text = text.strip()
    if _SCHEME.match(text):
        return text
    if text.startswith("//"):
        return f"https:{text}"
    authority = _END_OF_HOST.split(text, maxsplit=1)[0]
    name = split_port(authority)[0].lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost") or (is_address(name) and not name.isdecimal()):
        return f"http://{text}"
    if "." not in name or "@" in authority or "," in name:
        problem = "this is neither a URL nor a domain (a host without a dot needs its http:// in front)"
        raise UrlRefused(Refusal.BAD_HOST, problem, text)
    return f"https://{text}"
