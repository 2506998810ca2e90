"""Health and reflection, asked by the official clients."""

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from outrider.service.grpc.definitions import HEALTH, REFLECTIONS
from outrider.service.grpc.health import Serving
from outrider.service.urlfrontier_pb2 import DESCRIPTOR
from tests.service.grpc_peers import URLFRONTIER, WAIT_S, RunningService

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def service() -> Iterator[RunningService]:
    with RunningService() as running:
        yield running


@pytest.fixture
def channel(service: RunningService) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(service.target) as channel:
        yield channel


def request(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


def test_the_server_and_each_service_are_checked(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", URLFRONTIER):
        assert health.Check(request(name), timeout=WAIT_S).status == SERVING
    with pytest.raises(grpc.RpcError) as error:
        health.Check(request("unheard.of"), timeout=WAIT_S)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watch_tells_every_change_and_ends_with_the_service(service: RunningService, channel: grpc.Channel) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(request(URLFRONTIER), timeout=WAIT_S)
    assert next(watch).status == SERVING
    service.on_loop(service.health.set, Serving.NOT_SERVING, URLFRONTIER)
    assert next(watch).status == NOT_SERVING
    service.on_loop(service.health.set, Serving.SERVING, URLFRONTIER)
    assert next(watch).status == SERVING
    service.stop()
    assert [each.status for each in watch] == [NOT_SERVING]
    unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert unknown == Serving.SERVICE_UNKNOWN


def test_a_watch_of_an_unknown_service_says_so_and_goes_on(channel: grpc.Channel) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(request("unheard.of"), timeout=WAIT_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def test_a_client_learns_the_services_by_reflection(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert set(database.get_services()) == {
        URLFRONTIER, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }  # fmt: skip
    described = DescriptorPool(database).FindServiceByName(URLFRONTIER)
    assert [method.name for method in described.methods] == [
        method.name for method in DESCRIPTOR.services_by_name["URLFrontier"].methods
    ]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_answers_every_question(channel: grpc.Channel, version: str) -> None:
    ask = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    extension = reflection_pb2.ExtensionRequest(containing_type="urlfrontier.URLInfo", extension_number=9)
    questions = [
        reflection_pb2.ServerReflectionRequest(host="here", list_services=""),
        reflection_pb2.ServerReflectionRequest(file_by_filename=DESCRIPTOR.name),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="urlfrontier.AckMessage.Status"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="urlfrontier.URLFrontier.PutURLs"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="urlfrontier.Unheard"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="google.protobuf.FileDescriptorProto"),
        reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="urlfrontier.URLInfo"),
        reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="urlfrontier.Unheard"),
        reflection_pb2.ServerReflectionRequest(file_containing_extension=extension),
        reflection_pb2.ServerReflectionRequest(),
    ]
    answers = list(ask(iter(questions), timeout=WAIT_S))
    assert [answer.original_request for answer in answers] == questions
    assert answers[0].valid_host == "here"
    for answer in answers[1:4]:
        assert list(answer.file_descriptor_response.file_descriptor_proto) == [DESCRIPTOR.serialized_pb]
    assert answers[6].all_extension_numbers_response.base_type_name == "urlfrontier.URLInfo"
    codes = [answer.error_response.error_code for answer in answers]
    assert codes == [0, 0, 0, 0, 5, 5, 0, 5, 5, 3]


def test_our_definitions_are_wire_compatible_with_the_official_ones() -> None:
    """Not the same bytes: the official files have comments, options and newer methods."""
    ours = REFLECTIONS["v1alpha"].message_types_by_name
    for official in reflection_pb2.DESCRIPTOR.message_types_by_name.values():
        assert {(field.number, field.name, field.type) for field in official.fields} == {
            (field.number, field.name, field.type) for field in ours[official.name].fields
        }
    for name in ("HealthCheckRequest", "HealthCheckResponse"):
        official = health_pb2.DESCRIPTOR.message_types_by_name[name]
        assert [(field.number, field.type) for field in official.fields] == [
            (field.number, field.type) for field in HEALTH.message_types_by_name[name].fields
        ]
