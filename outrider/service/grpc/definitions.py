"""The messages of gRPC's own services, health and reflection, which every client knows.

They live in a descriptor pool of their own: a program that also loads the official packages, as our tests do, would
otherwise define the same files twice.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message

_Field = descriptor_pb2.FieldDescriptorProto
_POOL = descriptor_pool.DescriptorPool()
_SCALARS = {"string": _Field.TYPE_STRING, "bytes": _Field.TYPE_BYTES, "int32": _Field.TYPE_INT32}

# Message: fields as (number, name, type, oneof). A type in brackets is repeated; one that is no scalar is a message,
# and with an exclamation mark an enum.
_Fields = list[tuple[int, str, str, str]]
_HEALTH: dict[str, _Fields] = {
    "HealthCheckRequest": [(1, "service", "string", "")],
    "HealthCheckResponse": [(1, "status", "!HealthCheckResponse.ServingStatus", "")],
}
_REFLECTION: dict[str, _Fields] = {
    "ServerReflectionRequest": [
        (1, "host", "string", ""),
        (3, "file_by_filename", "string", "message_request"),
        (4, "file_containing_symbol", "string", "message_request"),
        (5, "file_containing_extension", "ExtensionRequest", "message_request"),
        (6, "all_extension_numbers_of_type", "string", "message_request"),
        (7, "list_services", "string", "message_request"),
    ],
    "ExtensionRequest": [(1, "containing_type", "string", ""), (2, "extension_number", "int32", "")],
    "ServerReflectionResponse": [
        (1, "valid_host", "string", ""),
        (2, "original_request", "ServerReflectionRequest", ""),
        (4, "file_descriptor_response", "FileDescriptorResponse", "message_response"),
        (5, "all_extension_numbers_response", "ExtensionNumberResponse", "message_response"),
        (6, "list_services_response", "ListServiceResponse", "message_response"),
        (7, "error_response", "ErrorResponse", "message_response"),
    ],
    "FileDescriptorResponse": [(1, "file_descriptor_proto", "[bytes]", "")],
    "ExtensionNumberResponse": [(1, "base_type_name", "string", ""), (2, "extension_number", "[int32]", "")],
    "ListServiceResponse": [(1, "service", "[ServiceResponse]", "")],
    "ServiceResponse": [(1, "name", "string", "")],
    "ErrorResponse": [(1, "error_code", "int32", ""), (2, "error_message", "string", "")],
}


def _file(package: str, name: str, messages: dict[str, _Fields]) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for number, field_name, kind, oneof in fields:
            field = message.field.add(number=number, name=field_name, label=_Field.LABEL_OPTIONAL)
            if kind.startswith("["):
                field.label, kind = _Field.LABEL_REPEATED, kind[1:-1]
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = _Field.TYPE_ENUM if kind.startswith("!") else _Field.TYPE_MESSAGE
                field.type_name = f".{package}.{kind.removeprefix('!')}"
            if oneof:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=oneof)
                field.oneof_index = 0
    return file


def _health_file() -> FileDescriptor:
    file = _file("grpc.health.v1", "grpc/health/v1/health.proto", _HEALTH)
    statuses = file.message_type[1].enum_type.add(name="ServingStatus")
    for number, name in enumerate(["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]):
        statuses.value.add(name=name, number=number)
    service = file.service.add(name="Health")
    for name, streaming in (("Check", False), ("Watch", True)):
        service.method.add(
            name=name,
            input_type=".grpc.health.v1.HealthCheckRequest",
            output_type=".grpc.health.v1.HealthCheckResponse",
            server_streaming=streaming,
        )
    return _added(file)


def _reflection_file(version: str) -> FileDescriptor:
    package = f"grpc.reflection.{version}"
    file = _file(package, f"grpc/reflection/{version}/reflection.proto", _REFLECTION)
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=f".{package}.ServerReflectionRequest",
        output_type=f".{package}.ServerReflectionResponse",
        client_streaming=True,
        server_streaming=True,
    )
    return _added(file)


def _added(file: descriptor_pb2.FileDescriptorProto) -> FileDescriptor:
    _POOL.AddSerializedFile(file.SerializeToString())
    return _POOL.FindFileByName(file.name)


def message_class(file: FileDescriptor, name: str) -> Any:
    """The class of a message in one of these files."""
    made: type[Message] = message_factory.GetMessageClass(file.message_types_by_name[name])
    return made


HEALTH = _health_file()
# Clients ask for v1 and fall back to v1alpha; the messages are the same.
REFLECTIONS = {version: _reflection_file(version) for version in ("v1", "v1alpha")}
