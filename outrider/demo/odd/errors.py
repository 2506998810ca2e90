"""Pages that fail: for ever, or until they have been asked often enough."""

from collections.abc import Callable
from email.utils import formatdate

from outrider.demo.answer import HTML, Answer, Headers, Request, html_page
from outrider.demo.odd.oddity import Oddity
from outrider.demo.options import SiteOptions

RECOVERING = "/odd/recovers/"
"""Below here an answer depends on how often it was asked for."""


def _always(status: int) -> Callable[[Request, SiteOptions], Answer]:
    return lambda _request, _options: html_page(f"Status {status}", "<p>Always.</p>", status=status)


def _nothing(_request: Request, _options: SiteOptions) -> Answer:
    return Answer(status=204)


def _recovering(status: int, *, retry_after: str = "") -> Callable[[Request, SiteOptions], Answer]:
    """A page that fails so many times, asks for patience in its way, and then is well."""

    def answer(request: Request, options: SiteOptions) -> Answer:
        if request.visit > options.failures:
            return html_page(f"Recovered from {status}", f"<p>After {options.failures} failures.</p>")
        headers: Headers = (HTML,)
        if retry_after == "seconds":
            headers = (HTML, ("Retry-After", str(options.retry_after_s)))
        elif retry_after == "date":
            headers = (HTML, ("Retry-After", formatdate(request.now + options.retry_after_s, usegmt=True)))
        return html_page(f"Status {status}", "<p>Later, perhaps.</p>", headers=headers, status=status)

    return answer


ODDITIES = (
    *(
        Oddity(path=f"/odd/always/{status}", about=f"always answers {status}", answer=_always(status))
        for status in (401, 403, 404, 410, 451, 500)
    ),
    Oddity(path="/odd/always/204", about="always answers 204, without a body", answer=_nothing),
    Oddity(path=f"{RECOVERING}500", about="500 at first", answer=_recovering(500)),
    *(
        Oddity(
            path=f"{RECOVERING}{status}-{form}",
            about=f"{status} at first, with Retry-After in {form}",
            answer=_recovering(status, retry_after=form),
        )
        for status in (429, 503)
        for form in ("seconds", "date")
    ),
)
