from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.settings import BOUNDS, FLAGS, IN_SECONDS, load_settings, variable_of
from outrider.model.errors import InvalidInput
from outrider.model.settings import Settings

FIELDS = [field.name for field in msgspec.structs.fields(Settings)]


def test_an_empty_environment_gives_the_defaults() -> None:
    assert load_settings({}) == Settings()


def test_an_empty_variable_leaves_the_default() -> None:
    assert load_settings({"OUTRIDER_MAX_RETRIES": " "}) == Settings()


def test_the_names_of_the_crawl_task_settings() -> None:
    settings = load_settings({"OUTRIDER_MAX_RETRIES": "5", "OUTRIDER_CRASH_THRESHOLD": "90"})
    assert (settings.max_retries, settings.crash_threshold_ms) == (5, 90_000)


def test_the_crash_threshold_is_in_seconds_and_may_have_a_fraction() -> None:
    assert load_settings({"OUTRIDER_CRASH_THRESHOLD": "0.25"}).crash_threshold_ms == 250


def test_the_crash_threshold_in_milliseconds_is_refused_and_not_ignored() -> None:
    with pytest.raises(InvalidInput, match=r"OUTRIDER_CRASH_THRESHOLD, in seconds"):
        load_settings({"OUTRIDER_CRASH_THRESHOLD_MS": "1000"})


def test_the_watch_is_set_in_seconds() -> None:
    environ = {"OUTRIDER_BEAT_EVERY": "0.5", "OUTRIDER_STALE_AFTER": "3", "OUTRIDER_WATCHDOG_EVERY": "1"}
    settings = load_settings(environ)
    assert (settings.beat_every_ms, settings.stale_after_ms, settings.watchdog_every_ms) == (500, 3_000, 1_000)


def test_beats_that_all_come_too_late_are_refused() -> None:
    with pytest.raises(InvalidInput, match="OUTRIDER_BEAT_EVERY is 10, more than half of OUTRIDER_STALE_AFTER"):
        load_settings({"OUTRIDER_STALE_AFTER": "15"})


@pytest.mark.parametrize("field", FLAGS)
def test_a_flag_can_be_set_under_its_bare_name(field: str) -> None:
    other = not getattr(Settings(), field)
    assert getattr(load_settings({field.upper(): str(other)}), field) is other
    both = {field.upper(): str(other), variable_of(field): str(not other)}
    assert getattr(load_settings(both), field) is not other


def test_every_field_has_bounds() -> None:
    assert set(BOUNDS) == set(FIELDS)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_can_be_set(field: str) -> None:
    default = getattr(Settings(), field)
    other: object = not default
    if not isinstance(default, bool):
        other = default / 2 if isinstance(default, float) else default + 1000
    text = str((default + 1000) / 1000) if field in IN_SECONDS else str(other)
    settings = load_settings({variable_of(field): text})
    assert settings == msgspec.structs.replace(Settings(), **{field: other})
    assert isinstance(getattr(settings, field), get_type_hints(Settings)[field])


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("text", ["many", "1e", "-1", "nan", "inf", "1_0_", "0x10", "9" * 400, "\x00"])
def test_a_senseless_value_is_refused_with_variable_and_value(field: str, text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        load_settings({variable_of(field): text})
    assert variable_of(field) in str(refusal.value)
    assert repr(text) in str(refusal.value)


def test_a_fraction_of_a_retry_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"OUTRIDER_MAX_RETRIES must be a whole number, not '2\.5'"):
        load_settings({"OUTRIDER_MAX_RETRIES": "2.5"})


def test_no_retries_at_all_is_refused_since_a_task_fails_when_its_failures_reach_it() -> None:
    with pytest.raises(InvalidInput, match="OUTRIDER_MAX_RETRIES must be between 1 and 1000000, not '0'"):
        load_settings({"OUTRIDER_MAX_RETRIES": "0"})


@pytest.mark.parametrize("kind", ["retry", "backoff"])
def test_a_first_wait_above_its_cap_is_refused(kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"OUTRIDER_{kind.upper()}_BASE_MS is 2, more than"):
        load_settings({variable_of(f"{kind}_base_ms"): "2", variable_of(f"{kind}_cap_ms"): "1"})


def test_other_variables_are_left_alone() -> None:
    assert load_settings({"OUTRIDER_STORE": "sqlite:///x", "MAX_RETRIES": "7"}) == Settings()


@given(st.dictionaries(st.sampled_from([variable_of(field) for field in FIELDS]), st.text(max_size=12)))
def test_any_environment_gives_settings_within_bounds_or_a_refusal(environ: dict[str, str]) -> None:
    try:
        settings = load_settings(environ)
    except InvalidInput:
        return
    for field, (lowest, highest) in BOUNDS.items():
        assert lowest <= getattr(settings, field) <= highest
