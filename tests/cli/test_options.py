import doctest
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli import options
from outrider.cli.options import OPTIONS, TABLES, Resolved, load_plan
from outrider.crawler.plan import CrawlPlan
from outrider.model.errors import InvalidInput
from outrider.model.settings import Settings
from outrider.policy.scope import ScopeRule

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(text: str, name: str = "outrider.toml") -> None:
    Path(name).write_text(text, encoding="utf-8")


def in_force(sources: tuple[Resolved, ...], key: str) -> tuple[object, str]:
    (found,) = (each for each in sources if each.key == key)
    return found.value, found.source


def refusal_of(
    flags: dict[str, object] | None = None, environ: dict[str, str] | None = None, config: str | None = None
) -> str:
    with pytest.raises(InvalidInput) as refusal:
        load_plan(flags or {}, environ or {}, config)
    message = str(refusal.value)
    assert "\n" not in message
    return message


def test_nothing_said_gives_the_defaults() -> None:
    plan, settings, sources = load_plan({}, {})
    assert (plan, settings) == (CrawlPlan(), Settings())
    assert {each.source for each in sources} == {"default"}
    assert [each.field for each in sources] == [*CrawlPlan.__struct_fields__, *Settings.__struct_fields__]


def test_no_two_settings_share_a_name() -> None:
    assert len({option.field for option in OPTIONS}) == len({option.variable for option in OPTIONS}) == len(OPTIONS)


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default() -> None:
    configure("[crawl]\ndelay = 4\ntimeout = 4\nmax_pages = 4\n")
    plan, _, sources = load_plan(
        {"delay": 2.5, "timeout": None}, {"OUTRIDER_DELAY": "3", "OUTRIDER_TIMEOUT": "3"}, None
    )
    assert (plan.delay, plan.timeout, plan.max_pages, plan.max_depth) == (2.5, 3.0, 4, None)
    assert in_force(sources, "delay") == (2.5, "--delay")
    assert in_force(sources, "timeout") == (3.0, "OUTRIDER_TIMEOUT")
    assert in_force(sources, "max_pages") == (4, "outrider.toml [crawl] max_pages")
    assert in_force(sources, "max_depth") == (None, "default")


def test_a_switch_that_was_turned_off_is_told_by_its_flag() -> None:
    configure("[crawl]\nwarc = true\n")
    plan, _, sources = load_plan({"warc": False, "allow_private": True}, {})
    assert (plan.warc, plan.allow_private) == (False, True)
    assert in_force(sources, "warc") == (False, "--no-warc")
    assert in_force(sources, "allow_private") == (True, "--allow-private")


def test_an_empty_list_of_flags_and_an_empty_variable_leave_what_is_below() -> None:
    configure('[crawl]\ninclude = ["a"]\n')
    plan, _, _ = load_plan({"include": [], "seeds": ()}, {"OUTRIDER_INCLUDE": "  "})
    assert plan.include == ("a",)


def test_a_list_replaces_the_one_below_as_a_whole() -> None:
    configure('[crawl]\nexclude = ["a", "b"]\n')
    assert load_plan({"exclude": ["c"]}, {})[0].exclude == ("c",)


def test_a_variable_has_one_value_of_a_list_per_line_since_patterns_have_commas() -> None:
    plan, _, _ = load_plan({}, {"OUTRIDER_INCLUDE": "a{1,2}\n\n b,c \r\n", "OUTRIDER_SEEDS": "a.org\nb.org"})
    assert (plan.include, plan.seeds) == (("a{1,2}", "b,c"), ("a.org", "b.org"))


def test_dashes_and_underscores_are_the_same_in_the_file_but_not_both_at_once() -> None:
    configure("[crawl]\nmax-pages = 7\nper_domain = 2\n[frontier]\nmax-retries = 9\n")
    plan, settings, _ = load_plan({}, {})
    assert (plan.max_pages, plan.per_domain, settings.max_retries) == (7, 2, 9)
    configure("[crawl]\nmax-pages = 7\nmax_pages = 8\n")
    assert refusal_of().startswith("outrider.toml [crawl] max_pages is there twice")


@pytest.mark.parametrize("named_by", ["flag", "variable"])
def test_a_named_file_is_read_in_place_of_the_one_in_the_folder(named_by: str) -> None:
    configure("[crawl]\ndelay = 1\n")
    configure("[crawl]\nmax_depth = 2\n", "other.toml")
    environ = {"OUTRIDER_CONFIG": "other.toml"} if named_by == "variable" else {"OUTRIDER_CONFIG": "nowhere.toml"}
    _, _, sources = load_plan({}, environ, "other.toml" if named_by == "flag" else None)
    assert in_force(sources, "max_depth") == (2, "other.toml [crawl] max_depth")
    assert in_force(sources, "delay") == (1.0, "default")


def test_a_named_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    assert refusal_of(config="nowhere.toml") == "cannot read the configuration nowhere.toml: No such file or directory"
    assert "Is a directory" in refusal_of(config=str(folder))


@pytest.mark.parametrize(
    "content", [b"[crawl", b"\xff\xfe", b"[crawl]\nx = " + b"[" * 5000, b"[crawl]\na=1\na=2", b"\x00"]
)
def test_a_file_that_is_no_toml_is_refused_by_name(content: bytes) -> None:
    Path("outrider.toml").write_bytes(content)
    assert refusal_of().startswith("outrider.toml is not a TOML file: ")


def test_the_length_of_a_lease_is_in_seconds_everywhere() -> None:
    configure("[frontier]\ncrash_threshold = 0.25\n")
    _, settings, sources = load_plan({}, {})
    assert settings.crash_threshold_ms == 250
    assert next(each.told for each in sources if each.key == "crash_threshold") == 0.25
    configure("[frontier]\ncrash_threshold_ms = 250\n")
    assert (
        refusal_of() == "outrider.toml [frontier] crash_threshold_ms is not a setting: set crash_threshold, in seconds"
    )
    configure("")
    assert "set OUTRIDER_CRASH_THRESHOLD, in seconds" in refusal_of(environ={"OUTRIDER_CRASH_THRESHOLD_MS": "1"})


def test_the_frontiers_settings_come_from_variables_as_before() -> None:
    configure("[frontier]\nmax_retries = 9\nbackoff_jitter = 1\n")
    _, settings, sources = load_plan({}, {"OUTRIDER_MAX_RETRIES": "5"})
    assert (settings.max_retries, settings.backoff_jitter) == (5, 1.0)
    assert in_force(sources, "max_retries") == (5, "OUTRIDER_MAX_RETRIES")


def test_a_first_wait_above_its_cap_is_refused_by_both_places() -> None:
    configure("[frontier]\nretry_base_ms = 20\n")
    assert refusal_of(environ={"OUTRIDER_RETRY_CAP_MS": "10"}) == (
        "outrider.toml [frontier] retry_base_ms is 20, more than OUTRIDER_RETRY_CAP_MS, which is 10"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[crawl]\nmax_page = 1", "outrider.toml [crawl] max_page is not a setting: did you mean max_pages?"),
        ("[crawl]\nzzz = 1", "outrider.toml [crawl] zzz is not a setting"),
        ("[crawl]\nmax_retries = 1", "outrider.toml [crawl] max_retries is not a setting of [crawl]: put it below"),
        ("max-pages = 1", "outrider.toml: max-pages stands outside of a table: put it below [crawl]"),
        ("[crowl]\nx = 1", "outrider.toml: [crowl] is not a table of settings: there are [crawl] and [frontier]"),
        ("crawl = 1", "outrider.toml: crawl must be a table, [crawl], not 1"),
        ("[[crawl]]", "outrider.toml: crawl must be a table, [crawl], not [{}]"),
        ("[crawl]\nfresh = true", "outrider.toml [crawl] fresh is not a setting: --fresh is for the command line"),
        ("[crawl]\nmax_pages = '5'", "outrider.toml [crawl] max_pages must be a whole number, not '5'"),
        ("[crawl]\nmax_pages = true", "outrider.toml [crawl] max_pages must be a whole number, not True"),
        ("[crawl]\nmax_pages = 0", "outrider.toml [crawl] max_pages must be between 1 and 2147483647, not 0"),
        ("[crawl]\ndelay = nan", "outrider.toml [crawl] delay must be between 0 and 86400, not nan"),
        ("[crawl]\nwarc = 'no'", "outrider.toml [crawl] warc must be true or false, not 'no'"),
        ("[crawl]\ninclude = 'a'", "outrider.toml [crawl] include must be a list of texts, not 'a'"),
        ("[crawl]\ndata = 1979-05-27", "outrider.toml [crawl] data must be the name of a file or folder, not "),
        ("[frontier]\nmax_retries = 1.5", "outrider.toml [frontier] max_retries must be a whole number, not 1.5"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_named_with_file_table_and_key(content: str, message: str) -> None:
    configure(content)
    assert refusal_of().startswith(message)


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ("concurrency", "0", "must be between 1 and 10000, not '0'"),
        ("concurrency", "10001", "must be between 1 and 10000, not '10001'"),
        ("per_domain", "x", "must be a whole number, not 'x'"),
        ("max_pages_per_domain", "0", "must be between 1 and 2147483647, not '0'"),
        ("max_depth", "-1", "must be between 0 and 2147483647, not '-1'"),
        ("delay", "-0.1", "must be between 0 and 86400, not '-0.1'"),
        ("delay", "soon", "must be a number, not 'soon'"),
        ("timeout", "0", "must be above 0 and at most 3600, not '0'"),
        ("timeout", "3601", "must be above 0 and at most 3600, not '3601'"),
        ("max_wait", "inf", "must be between 0 and 31536000, not 'inf'"),
        ("max_body", "1023", "must be between 1024 and 1073741824 bytes, not '1023'"),
        ("max_body", "2GB", "must be between 1024 and 1073741824 bytes, not '2GB'"),
        ("max_body", "10 apples", "must be a number of bytes such as 512k or 10MB, not '10 apples'"),
        ("scope", "world", "must be one of host, domain, prefix, any, not 'world'"),
        ("user_agent", "two\nlines", "must be printable ASCII characters in one line, not 'two\\nlines'"),
        ("user_agent", "Käfer", "must be printable ASCII characters in one line, not 'Käfer'"),
        ("proxy", "socks5://host:1", "must be a URL such as http://host:3128 or https://user@host, not 'socks5://host:1'"),
        ("proxy", "http://", "must be a URL such as http://host:3128"),
        ("store", "mysql://me:secret@host/x", "must be sqlite:///path/to/file.sqlite or postgresql://user@host/database"),
        ("crawl", "c" * 256, "must be a name of 1 to 255 characters"),
        ("include", "ok\na(", "must be regular expressions ('a(': missing ), unterminated subpattern at position 1)"),
        ("robots", "perhaps", "must be true or false, not 'perhaps'"),
        ("data", "a\0b", "must be the name of a file or folder"),
    ],
)  # fmt: skip
def test_a_senseless_value_is_refused_by_variable_and_by_flag(field: str, text: str, problem: str) -> None:
    option = TABLES["crawl"][field]
    assert refusal_of(environ={option.variable: text}).startswith(f"{option.variable} {problem}")
    refusal = refusal_of({field: text})
    assert refusal.startswith(f"{option.flag} {problem}")
    assert "secret" not in refusal


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("512k", 512 * 1024),
        ("10MB", 10 * 1024**2),
        ("10 MiB", 10 * 1024**2),
        ("1.5m", 1536 * 1024),
        ("1G", 1024**3),
    ],
)
def test_sizes_may_have_suffixes_wherever_they_are_texts(text: str, size: int) -> None:
    assert load_plan({"max_body": text}, {})[0].max_body == size
    assert load_plan({}, {"OUTRIDER_MAX_BODY": text})[0].max_body == size
    configure(f"[crawl]\nmax_body = '{text}'\n")
    assert load_plan({}, {})[0].max_body == size


@pytest.mark.parametrize(("text", "value"), [("true", True), ("Yes", True), ("1", True), ("off", False), ("no", False)])
def test_yes_and_no_in_a_variable(text: str, value: bool) -> None:
    assert load_plan({}, {"OUTRIDER_SITEMAPS": text})[0].sitemaps is value


def test_a_scope_is_one_of_the_rules() -> None:
    assert load_plan({"scope": ScopeRule.ANY}, {})[0].scope is ScopeRule.ANY
    assert load_plan({}, {"OUTRIDER_SCOPE": "Prefix"})[0].scope is ScopeRule.PREFIX


def test_a_variable_that_is_nearly_a_setting_is_refused_and_others_are_left_alone() -> None:
    assert refusal_of(environ={"OUTRIDER_MAX_PAGE": "5"}) == (
        "OUTRIDER_MAX_PAGE is not a setting: did you mean OUTRIDER_MAX_PAGES?"
    )
    others = {"OUTRIDER_SERVICE_HOST": "10.0.0.1", "OUTRIDER_PORT": "tcp://10.0.0.1:80", "OUTRIDER_TEST_POSTGRES": "x"}
    assert load_plan({}, others)[0] == CrawlPlan()


@pytest.mark.parametrize("password", ["secret", "se@cret", "se/cret", "s" * 150 + "ecret"])
def test_a_password_is_in_no_refusal(password: str) -> None:
    for field in ("store", "proxy"):
        assert "cret" not in refusal_of({field: f"nonsense://me:{password}@host/x"})
    assert "cret" not in refusal_of({"seeds": [f"https://me:{password}@host/", 5]})


def test_the_examples_hold() -> None:
    assert doctest.testmod(options).failed == 0


def test_beginning_anew_is_for_the_command_line_alone() -> None:
    assert load_plan({"fresh": True}, {})[0].fresh
    assert "--fresh is for the command line alone" in refusal_of(environ={"OUTRIDER_FRESH": "1"})


def test_a_mistake_is_found_even_where_it_is_overridden() -> None:
    assert refusal_of({"delay": 1.0}, {"OUTRIDER_DELAY": "soon"}).startswith("OUTRIDER_DELAY must be a number")


def test_an_unknown_flag_is_refused_with_the_one_that_is_meant() -> None:
    assert refusal_of({"max_page": 1}) == "--max-page is not a setting: did you mean max_pages?"


VARIABLES = [option.variable for option in OPTIONS]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=12), max_size=4))
def test_any_environment_gives_a_plan_or_a_refusal(environ: dict[str, str]) -> None:
    try:
        load_plan({}, environ, None)
    except InvalidInput:
        return


@given(st.dictionaries(st.sampled_from(list(TABLES["crawl"])), ANYTHING, max_size=4))
def test_any_flags_give_a_plan_or_a_refusal(flags: dict[str, object]) -> None:
    try:
        load_plan(flags, {}, None)
    except InvalidInput:
        return


def test_every_option_of_a_crawl_is_documented_with_flag_variable_and_default() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (?:`(\w+)`)? ?\| ([^|]+) \|", page, re.MULTILINE)
    documented = {key: (flag.rstrip("…"), variable, default) for key, flag, variable, default in rows}
    _, _, sources = load_plan({}, {})
    defaults = {each.key: each.shown for each in sources}
    assert documented.pop("user_agent") == ("--user-agent", "OUTRIDER_USER_AGENT", "`Outrider/` and the version")
    for key, option in TABLES["crawl"].items():
        if key != "user_agent":
            flag, variable, default = documented.pop(key)
            assert (flag, variable) == (option.flag, "" if option.only_flag else option.variable)
            assert default.replace("`", "") == defaults[key]
    assert documented == {}
