"""API keys: what every control plane keeps of them."""

import pytest

from outrider.model.api_key import ApiKey, Role, UnknownKey
from outrider.model.errors import InvalidInput
from outrider.store.protocols import ControlStore
from tests.conformance.controlling import NOW, at

DIGEST = "d" * 64


async def create(control: ControlStore, key_id: str = "one", *, now: int = NOW) -> ApiKey:
    return await control.create_key(
        key_id, DIGEST, name="Ünï's crawler", role=Role.CRAWL, crawls=["news", "a/b", "news"], now=now
    )


async def test_a_key_is_kept_as_it_was_made(control: ControlStore) -> None:
    made = await create(control)
    assert made == ApiKey(
        key_id="one",
        name="Ünï's crawler",
        role=Role.CRAWL,
        crawls=("a/b", "news"),
        digest=DIGEST,
        created_at=at(NOW),
        revoked_at=None,
        owner="Ünï's crawler",
    )
    assert await control.find_key("one") == made
    assert await control.find_key("two") is None


async def test_keys_are_listed_the_oldest_first(control: ControlStore) -> None:
    assert await control.list_keys() == []
    await create(control, "younger", now=NOW + 1)
    await create(control, "older")
    await control.revoke_key("older")
    assert [key.key_id for key in await control.list_keys()] == ["older", "younger"]


async def test_making_the_same_key_again_changes_nothing(control: ControlStore) -> None:
    made = await create(control)
    assert await create(control, now=NOW + 1) == made


async def test_another_key_of_the_same_id_is_refused(control: ControlStore) -> None:
    made = await create(control)
    with pytest.raises(InvalidInput):
        await control.create_key("one", "e" * 64, name="thief", role=Role.ADMIN)
    assert await control.list_keys() == [made]


async def test_a_revoked_key_stays_revoked_since_when_it_was(control: ControlStore) -> None:
    await create(control)
    revoked = await control.revoke_key("one", now=NOW + 5)
    assert revoked.revoked_at == at(NOW + 5)
    assert await control.revoke_key("one", now=NOW + 9) == revoked
    assert await control.find_key("one") == revoked


async def test_a_key_that_nobody_made_cannot_be_revoked(control: ControlStore) -> None:
    with pytest.raises(UnknownKey):
        await control.revoke_key("none")


@pytest.mark.parametrize(
    "changes",
    [{"name": ""}, {"name": "x" * 256}, {"name": "a\0b"}, {"role": "king"}, {"crawls": [""]}, {"crawls": [3]}],
)
async def test_what_makes_no_sense_is_refused(control: ControlStore, changes: dict[str, object]) -> None:
    fields: dict[str, object] = {"name": "mine", "role": Role.READ, "crawls": []} | changes
    with pytest.raises(InvalidInput):
        await control.create_key("one", DIGEST, **fields)  # type: ignore[arg-type]
    assert await control.list_keys() == []
