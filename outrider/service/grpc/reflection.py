"""Server reflection, v1 and v1alpha: clients such as grpcurl learn the services without a .proto."""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from outrider.service.grpc.definitions import REFLECTIONS, message_class
from outrider.service.grpc.methods import Bidirectional, CallContext, Service
from outrider.service.grpc.status import Status


def reflection_services(services: Iterable[Service]) -> list[Service]:
    """The services that describe the given ones, and themselves."""
    names = [f"grpc.reflection.{version}.ServerReflection" for version in REFLECTIONS]
    described = list(services)
    files = [service.file for service in described] + list(REFLECTIONS.values())
    catalogue = _Catalogue([service.name for service in described] + names, files)
    return [
        Service(
            name=name,
            file=file,
            methods={
                "ServerReflectionInfo": Bidirectional(
                    request=message_class(file, "ServerReflectionRequest"), handle=_Answering(catalogue, file)
                )
            },
        )
        for name, file in zip(names, REFLECTIONS.values(), strict=True)
    ]


class _Catalogue:
    """What is described: only the files of our services, whatever else this process has loaded."""

    def __init__(self, names: list[str], files: Iterable[FileDescriptor]) -> None:
        self.names = sorted(names)
        self._files = {file.name: file for root in files for file in _with_dependencies(root)}
        self._symbols = {symbol: file for file in self._files.values() for symbol in _symbols(file)}

    def by_name(self, name: str) -> list[bytes] | None:
        """A file and all that it needs, serialized."""
        return _serialized(self._files.get(name))

    def by_symbol(self, symbol: str) -> list[bytes] | None:
        """The file that defines a symbol and all that it needs, serialized."""
        return _serialized(self._symbols.get(symbol))

    def is_message(self, symbol: str) -> bool:
        """Whether this is the full name of a message."""
        file = self._symbols.get(symbol)
        return file is not None and symbol.removeprefix(f"{file.package}.") in file.message_types_by_name


class _Answering:
    """Answers the questions of one version."""

    def __init__(self, catalogue: _Catalogue, file: FileDescriptor) -> None:
        self._catalogue = catalogue
        self._response = message_class(file, "ServerReflectionResponse")

    async def __call__(self, _context: CallContext, questions: list[Any]) -> list[Any]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Any) -> Any:
        answer = self._response(valid_host=question.host, original_request=question)
        match question.WhichOneof("message_request"):
            case "list_services":
                for name in self._catalogue.names:
                    answer.list_services_response.service.add(name=name)
            case "file_by_filename":
                self._describe(answer, self._catalogue.by_name(question.file_by_filename))
            case "file_containing_symbol":
                self._describe(answer, self._catalogue.by_symbol(question.file_containing_symbol))
            case "all_extension_numbers_of_type" if self._catalogue.is_message(question.all_extension_numbers_of_type):
                # Messages of proto3 have no extensions.
                answer.all_extension_numbers_response.base_type_name = question.all_extension_numbers_of_type
            case "file_containing_extension" | "all_extension_numbers_of_type":
                _refuse(answer, Status.NOT_FOUND, "there is no such extension or message")
            case _:
                _refuse(answer, Status.INVALID_ARGUMENT, "the request asks for nothing")
        return answer

    def _describe(self, answer: Any, files: list[bytes] | None) -> None:
        if files is None:
            _refuse(answer, Status.NOT_FOUND, "there is no such file or symbol")
        else:
            answer.file_descriptor_response.file_descriptor_proto.extend(files)


def _refuse(answer: Any, status: Status, words: str) -> None:
    answer.error_response.error_code = int(status)
    answer.error_response.error_message = words


def _serialized(file: FileDescriptor | None) -> list[bytes] | None:
    return None if file is None else [each.serialized_pb for each in _with_dependencies(file)]


def _with_dependencies(file: FileDescriptor) -> Iterator[FileDescriptor]:
    seen: set[str] = set()
    waiting = [file]
    while waiting:
        each = waiting.pop()
        if each.name not in seen:
            seen.add(each.name)
            yield each
            waiting.extend(each.dependencies)


def _symbols(file: FileDescriptor) -> Iterator[str]:
    for service in file.services_by_name.values():
        yield service.full_name
        yield from (method.full_name for method in service.methods)
    yield from (enum.full_name for enum in file.enum_types_by_name.values())
    messages = list(file.message_types_by_name.values())
    while messages:
        message = messages.pop()
        yield message.full_name
        yield from (field.full_name for field in message.fields)
        yield from (enum.full_name for enum in message.enum_types)
        messages.extend(message.nested_types)
