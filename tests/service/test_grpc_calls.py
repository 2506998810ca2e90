"""Real clients of gRPC against the service: every kind of call, and every way in which one can end."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import grpc.aio
import pytest

from outrider.service.grpc.status import GrpcError, Status
from outrider.service.urlfrontier_pb2 import (
    AckMessage,
    BatchAck,
    DiscoveredBatch,
    Empty,
    GetParams,
    Local,
    StringList,
    URLInfo,
    URLItem,
    URLStatusRequest,
)  # fmt: skip
from tests.service.grpc_peers import URLFRONTIER, WAIT_S, RunningService, item


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningService]:
    with RunningService() as running:
        yield running


@pytest.fixture
def service(shared: RunningService) -> RunningService:
    shared.frontier.batches.clear()
    shared.frontier.contexts.clear()
    shared.frontier.cancelled.clear()
    shared.frontier.entered.clear()
    return shared


@pytest.fixture
def channel(service: RunningService) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(service.target) as channel:
        yield channel


def call(channel: Any, kind: str, name: str, answer: Any) -> Any:
    path = name if name.startswith("/") else f"/{URLFRONTIER}/{name}"
    return getattr(channel, kind)(
        path,
        request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
        response_deserializer=answer.FromString,
    )


def list_nodes(channel: grpc.Channel, **options: Any) -> StringList:
    answer: StringList = call(channel, "unary_unary", "ListNodes", StringList)(Empty(), timeout=WAIT_S, **options)
    return answer


def put_urls(channel: grpc.Channel, items: Iterator[URLItem], **options: Any) -> list[AckMessage]:
    return list(call(channel, "stream_stream", "PutURLs", AckMessage)(items, timeout=WAIT_S, **options))


def refusal(act: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        act()
    return error.value.code(), error.value.details()


def test_a_unary_call_is_answered(channel: grpc.Channel) -> None:
    assert list_nodes(channel).values == ["here"]


def test_a_server_streams_more_than_any_window_holds(channel: grpc.Channel) -> None:
    request = GetParams(max_queues=3_000, max_urls_per_queue=300)
    came = list(call(channel, "unary_stream", "GetURLs", URLInfo)(request, timeout=WAIT_S))
    assert [int(each.url.partition("/")[0]) for each in came] == list(range(3_000))


def test_a_stream_without_messages_is_a_successful_one(channel: grpc.Channel) -> None:
    stream = call(channel, "unary_stream", "GetURLs", URLInfo)(GetParams(), timeout=WAIT_S)
    assert (list(stream), stream.code()) == ([], grpc.StatusCode.OK)
    assert put_urls(channel, iter([])) == []


def test_every_item_of_a_stream_is_acknowledged_in_order(service: RunningService, channel: grpc.Channel) -> None:
    acks = put_urls(channel, (item(number) for number in range(2_000)))
    assert [ack.ID for ack in acks] == [str(number) for number in range(2_000)]
    assert sum(service.frontier.batches) == 2_000


def test_batches_are_acknowledged_with_a_status_for_each_item(channel: grpc.Channel) -> None:
    batches = [
        DiscoveredBatch(ID=str(size), items=[URLInfo(url="https://example.org/")] * size) for size in (0, 1, 256)
    ]
    acks = list(call(channel, "stream_stream", "PutDiscovered", BatchAck)(iter(batches), timeout=WAIT_S))
    assert [(ack.ID, len(ack.statuses)) for ack in acks] == [("0", 0), ("1", 1), ("256", 256)]


def test_an_error_has_its_code_and_its_words(channel: grpc.Channel) -> None:
    fail = call(channel, "unary_unary", "ListCrawls", StringList)
    expected = (grpc.StatusCode.NOT_FOUND, "50 % of “everything”\nis missing")
    assert refusal(lambda: fail(Local(local=True), timeout=WAIT_S)) == expected


def test_an_unforeseen_error_keeps_its_reason_to_itself(channel: grpc.Channel) -> None:
    fail = call(channel, "unary_unary", "ListCrawls", StringList)
    code, words = refusal(lambda: fail(Local(), timeout=WAIT_S))
    assert code == grpc.StatusCode.INTERNAL
    assert "secret" not in words


@pytest.mark.parametrize("path", [f"/{URLFRONTIER}/Unheard", "/unheard.Service/ListNodes", "/x"])
def test_an_unknown_method_is_unimplemented(channel: grpc.Channel, path: str) -> None:
    unheard = call(channel, "unary_unary", path, StringList)
    assert refusal(lambda: unheard(Empty(), timeout=WAIT_S))[0] == grpc.StatusCode.UNIMPLEMENTED


def test_a_malformed_message_is_an_internal_error_as_grpc_has_it(channel: grpc.Channel) -> None:
    fail = call(channel, "unary_unary", "ListCrawls", StringList)
    assert refusal(lambda: fail(b"\xff\xff", timeout=WAIT_S))[0] == grpc.StatusCode.INTERNAL


def test_unknown_fields_are_ignored(channel: grpc.Channel) -> None:
    nodes = call(channel, "unary_unary", "ListNodes", StringList)
    assert nodes(StringList(values=["a field that Empty has not"]), timeout=WAIT_S).values == ["here"]


def test_a_deadline_ends_the_call_and_its_handler(service: RunningService, channel: grpc.Channel) -> None:
    wait = call(channel, "unary_unary", "GetURLStatus", URLItem)
    assert refusal(lambda: wait(URLStatusRequest(), timeout=0.1))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert service.frontier.cancelled.wait(WAIT_S)


def test_a_handler_can_see_its_deadline(service: RunningService, channel: grpc.Channel) -> None:
    list_nodes(channel)
    (context,) = service.frontier.contexts
    left = context.seconds_left()
    assert left is not None
    assert 0 < left <= WAIT_S


def test_a_cancelled_call_cancels_its_handler(service: RunningService, channel: grpc.Channel) -> None:
    running = call(channel, "unary_unary", "GetURLStatus", URLItem).future(URLStatusRequest())
    assert service.frontier.entered.wait(WAIT_S)
    running.cancel()
    assert service.frontier.cancelled.wait(WAIT_S)


def test_a_stream_that_is_cancelled_half_way_ends_its_handler(service: RunningService, channel: grpc.Channel) -> None:
    request = GetParams(max_queues=10_000_000, max_urls_per_queue=300)
    stream = call(channel, "unary_stream", "GetURLs", URLInfo)(request)
    next(stream)
    stream.cancel()
    assert service.frontier.cancelled.wait(WAIT_S)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_understood_and_answered(channel: grpc.Channel, compression: grpc.Compression) -> None:
    long_id = "a long identifier " * 500
    acks = put_urls(channel, iter([URLItem(ID=long_id), item(1)]), compression=compression)
    assert [ack.ID for ack in acks] == [long_id, "1"]


def test_a_message_below_the_limit_passes_and_one_above_does_not(channel: grpc.Channel) -> None:
    (ack,) = put_urls(channel, iter([URLItem(ID="x" * 4_000_000)]))
    assert len(ack.ID) == 4_000_000
    code, words = refusal(lambda: put_urls(channel, iter([URLItem(ID="x" * 4_300_000)])))
    assert (code, "4194304" in words) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


def test_many_calls_share_a_connection(channel: grpc.Channel) -> None:
    nodes = call(channel, "unary_unary", "ListNodes", StringList)
    running = [nodes.future(Empty(), timeout=WAIT_S) for _ in range(300)]
    assert all(each.result().values == ["here"] for each in running)


async def test_a_client_on_an_event_loop_makes_every_kind_of_call(service: RunningService) -> None:
    async with grpc.aio.insecure_channel(service.target) as channel:
        nodes = await call(channel, "unary_unary", "ListNodes", StringList)(Empty(), timeout=WAIT_S)
        assert nodes.values == ["here"]
        urls = call(channel, "unary_stream", "GetURLs", URLInfo)(GetParams(max_queues=1_500), timeout=WAIT_S)
        assert len([each async for each in urls]) == 1_500
        put = call(channel, "stream_stream", "PutURLs", AckMessage)(timeout=WAIT_S)
        for number in range(20):
            await put.write(item(number))
            assert str(number) == (await put.read()).ID
        await put.done_writing()
        assert await put.read() == grpc.aio.EOF
        assert await put.code() == grpc.StatusCode.OK


async def test_a_client_sees_the_head_before_it_sends(service: RunningService) -> None:
    async with grpc.aio.insecure_channel(service.target) as channel:
        put = call(channel, "stream_stream", "PutURLs", AckMessage)(timeout=WAIT_S)
        assert "date" in dict(await asyncio.wait_for(put.initial_metadata(), WAIT_S))
        put.cancel()


async def authorise(metadata: Mapping[str, str], path: str) -> str:
    if path.endswith("/GetURLs"):
        raise GrpcError(Status.PERMISSION_DENIED, "not with this key")
    if metadata.get("authorization") != "Bearer right":
        raise GrpcError(Status.UNAUTHENTICATED, "a key is needed")
    return "the owner of the key"


def test_who_calls_is_asked_before_the_handler_runs() -> None:
    with RunningService(authorise=authorise) as service, grpc.insecure_channel(service.target) as channel:
        assert refusal(lambda: list_nodes(channel)) == (grpc.StatusCode.UNAUTHENTICATED, "a key is needed")
        assert service.frontier.contexts == []
        key = [("authorization", "Bearer right")]
        list_nodes(channel, metadata=key)
        assert service.frontier.contexts[0].principal == "the owner of the key"
        urls = call(channel, "unary_stream", "GetURLs", URLInfo)
        denied = refusal(lambda: list(urls(GetParams(), timeout=WAIT_S, metadata=key)))
        assert denied[0] == grpc.StatusCode.PERMISSION_DENIED


def translate(error: Exception) -> GrpcError | None:
    return GrpcError(Status.ABORTED, "try again") if isinstance(error, RuntimeError) else None


def test_errors_of_handlers_can_be_given_a_status() -> None:
    with RunningService(translate=translate) as service, grpc.insecure_channel(service.target) as channel:
        fail = call(channel, "unary_unary", "ListCrawls", StringList)
        assert refusal(lambda: fail(Local(), timeout=WAIT_S)) == (grpc.StatusCode.ABORTED, "try again")


async def test_a_stop_answers_what_was_sent_and_sends_clients_elsewhere() -> None:
    with RunningService() as service:
        async with grpc.aio.insecure_channel(service.target) as channel:
            put = call(channel, "stream_stream", "PutURLs", AckMessage)(timeout=WAIT_S)
            service.frontier.hold()
            await put.write(item(1))
            assert await asyncio.to_thread(service.frontier.entered.wait, WAIT_S)
            stopping = asyncio.create_task(asyncio.to_thread(service.stop))
            service.frontier.release()
            assert (await put.read()).ID == "1"
            assert await put.code() == grpc.StatusCode.UNAVAILABLE
            await asyncio.wait_for(stopping, WAIT_S)
