"""Login walls: what is one, and above all what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.crawler import login

PAGE = "https://example.org/reports/2026"
FORM = """<form action="/session" method="post"><label>E-mail <input type="email" name="user"></label>
    <label>Password <input name="secret" type="password"></label><button>Log in</button></form>"""
FRAME = '<header><a href="/">Example</a><nav><a href="/a">One</a></nav>{}</header>{}<footer>Imprint</footer>'
PROSE = "<p>" + "Owls hunt at night and sleep by day in hollow trees, barns and church towers. " * 12 + "</p>"


@pytest.mark.parametrize(
    "target",
    [
        "https://example.org/login",
        "https://example.org/login?next=/reports/2026",
        "https://example.org/en/users/sign_in",
        "https://example.org/wp-login.php?redirect_to=https%3A%2F%2Fexample.org%2F",
        "https://example.org/account/Log-In.aspx",
        "https://example.org/user/logon",
        "https://login.example.org/start?return_to=https://example.org/reports/2026",
        "https://accounts.example.com/o/oauth2/v2/auth?redirect_uri=https://example.org/callback",
        "https://idp.example.edu/saml2/request?RelayState=https://example.org/",
        "https://example.org/auth?continue=%2Freports",
        "https://example.org/session/new/login",
    ],
)
def test_a_redirect_to_a_login_page_is_a_wall(target: str) -> None:
    assert login.is_sent_to_login(PAGE, target)


@pytest.mark.parametrize(
    "target",
    [
        "https://example.org/",
        "https://www.example.org/reports/2026",
        "https://example.org/blog/login-tips",
        "https://example.org/blogging",
        "https://example.org/design/in",
        "https://example.org/authors/ada?from=home",
        "https://example.org/accounts",
        "https://example.org/news?next=/page/2",
        "https://id.example.org/",
        "https://example.org/session?redirect=",
        "https://[broken/login",
        "",
    ],
)
def test_another_redirect_is_none(target: str) -> None:
    assert not login.is_sent_to_login(PAGE, target)


def test_a_login_page_that_redirects_to_another_one_is_what_was_asked_for() -> None:
    assert not login.is_sent_to_login("https://example.org/login", "https://example.org/users/sign_in")


@pytest.mark.parametrize(
    "html",
    [
        FORM,
        FRAME.format("", FORM),
        FRAME.format("", f"<main><h1>Members only</h1><p>Please log in to go on.</p>{FORM}</main>"),
        FRAME.format("", FORM.replace('type="password"', "TYPE=PASSWORD")),
        FRAME.format("", FORM.replace('name="secret" type="password"', "type='password'/")),
    ],
)
def test_a_page_with_a_password_field_and_little_else_is_a_wall(html: str) -> None:
    assert login.is_login_wall(PAGE, html)


@pytest.mark.parametrize(
    "html",
    [
        "",
        FRAME.format("", PROSE),
        FRAME.format(FORM, PROSE),
        FRAME.format(FORM, "<p>A short page.</p>"),
        FRAME.format("", f"<aside>{FORM}</aside><p>A short page.</p>"),
        FRAME.format("", f"<p>A short page.</p><footer>{FORM}</footer>"),
        FRAME.format("", PROSE + FORM),
        FRAME.format("", FORM + "".join(f'<li><a href="/{at}">What owls eat and why</a></li>' for at in range(60))),
        "<p>Your password must be long.</p>",
        f"<!-- {FORM} --><p>A short page.</p>",
        f"<script>form = '{FORM}'</script><p>A short page.</p>",
        "<form><input type=search name=password></form>",
    ],
    ids=str,
)
def test_a_page_that_has_something_to_show_is_none(html: str) -> None:
    assert not login.is_login_wall(PAGE, html)


def test_a_login_page_that_was_asked_for_is_none() -> None:
    assert not login.is_login_wall("https://example.org/login", FORM)


@given(st.text(max_size=200), st.text(max_size=200))
def test_nothing_that_is_sent_raises(url: str, html: str) -> None:
    login.is_login_address(url)
    login.is_sent_to_login(url, "https://example.org/?" + url)
    login.is_login_wall(url, html + FORM)
