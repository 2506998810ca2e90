"""The definition of URLFrontier: the generated module is current, and the wire is that of version 2.6."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from outrider.service.urlfrontier_pb2 import DESCRIPTOR

ROOT = Path(__file__).parent.parent.parent
PROTO = "outrider/service/urlfrontier.proto"

# RPC: request, response; `*` marks a stream.
METHODS = """
ListNodes Empty StringList
ListCrawls Local StringList
DeleteCrawl DeleteCrawlMessage Long
ListQueues Pagination QueueList
GetURLs GetParams *URLInfo
PutURLs *URLItem *AckMessage
PutDiscovered *DiscoveredBatch *BatchAck
GetStats QueueWithinCrawlParams Stats
DeleteQueue QueueWithinCrawlParams Long
BlockQueueUntil BlockQueueParams Empty
SetActive Active Empty
GetActive Local Boolean
SetDelay QueueDelayParams Empty
SetLogLevel LogLevelParams Empty
SetCrawlLimit CrawlLimitParams Empty
GetURLStatus URLStatusRequest URLItem
ListURLs ListUrlParams *URLItem
CountURLs CountUrlParams Long
PurgeURLs PurgeUrlParams Long
"""

# Message: number, name and type of each field; `[]` repeated, `?` with presence.
MESSAGES = """
Stats: 1 size uint64; 2 inProcess uint32; 3 counts map<string,uint64>; 4 numberOfQueues uint64; 5 crawlID string
Pagination: 1 start uint32; 2 size uint32; 3 include_inactive bool; 4 crawlID string; 5 local bool
DeleteCrawlMessage: 1 value string; 2 local bool
Empty:
Local: 1 local bool
Active: 1 state bool; 2 local bool
Boolean: 1 state bool
Long: 1 value uint64
QueueList: 1 values string[]; 2 total uint64; 3 start uint32; 4 size uint32; 5 crawlID string
StringList: 1 values string[]
QueueWithinCrawlParams: 1 key string; 2 crawlID string; 3 local bool
QueueDelayParams: 1 key string; 2 delay_requestable uint32; 3 crawlID string; 4 local bool
BlockQueueParams: 1 key string; 2 time uint64; 3 crawlID string; 4 local bool
GetParams: 1 max_urls_per_queue uint32; 2 max_queues uint32; 3 key string; 4 delay_requestable uint32; \
5 anyCrawlID AnyCrawlID item; 6 crawlID string item
AnyCrawlID:
URLItem: 1 discovered DiscoveredURLItem item; 2 known KnownURLItem item; 3 ID string; 4 creation_date uint64
AckMessage: 1 ID string; 2 status AckMessage.Status
URLInfo: 1 url string; 2 key string; 3 metadata map<string,StringList>; 4 crawlID string
KnownURLItem: 1 info URLInfo; 2 refetchable_from_date uint64
DiscoveredURLItem: 1 info URLInfo
DiscoveredBatch: 1 ID string; 2 items URLInfo[]
BatchAck: 1 ID string; 2 statuses AckMessage.Status[]
LogLevelParams: 1 package string; 2 level LogLevelParams.Level; 3 local bool
CrawlLimitParams: 1 key string; 2 limit uint32; 3 crawlID string; 4 local bool
URLStatusRequest: 1 url string; 2 key string; 3 crawlID string
ListUrlParams: 1 start uint32; 2 size uint32; 3 key string; 4 crawlID string; 5 local bool; 6 filter string?; \
7 ignoreCase bool?
CountUrlParams: 1 key string; 2 crawlID string; 3 filter string?; 4 ignoreCase bool?; 5 local bool?
PurgeUrlParams: 1 key string; 2 crawlID string; 3 days uint32
"""

TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_BOOL: "bool",
}


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        message = field.message_type
        if message.GetOptions().map_entry:
            key, value = message.fields_by_number[1], message.fields_by_number[2]
            return f"map<{type_of(key)},{type_of(value)}>"
        name = message.full_name.removeprefix("urlfrontier.")
    elif field.enum_type is not None:
        name = field.enum_type.full_name.removeprefix("urlfrontier.")
    else:
        name = TYPES[field.type]
    return f"{name}[]" if field.is_repeated else name


def described(message: Descriptor) -> str:
    fields = []
    for field in sorted(message.fields, key=lambda field: field.number):
        oneof = field.containing_oneof
        presence = "?" if oneof is not None and oneof.name.startswith("_") else ""
        group = f" {oneof.name}" if oneof is not None and not presence else ""
        fields.append(f"{field.number} {field.name} {type_of(field)}{presence}{group}")
    return f"{message.name}: {'; '.join(fields)}".strip()


def test_the_methods_are_those_of_urlfrontier() -> None:
    (service,) = DESCRIPTOR.services_by_name.values()
    assert service.full_name == "urlfrontier.URLFrontier"
    found = [
        f"{method.name} {'*' * method.client_streaming}{method.input_type.name} "
        f"{'*' * method.server_streaming}{method.output_type.name}"
        for method in service.methods
    ]
    assert found == METHODS.split("\n")[1:-1]


def test_the_messages_are_those_of_urlfrontier() -> None:
    found = sorted(described(message) for message in DESCRIPTOR.message_types_by_name.values())
    assert found == sorted(MESSAGES.split("\n")[1:-1])


def test_the_enums_are_those_of_urlfrontier() -> None:
    ack = DESCRIPTOR.message_types_by_name["AckMessage"].enum_types_by_name["Status"]
    assert {value.name: value.number for value in ack.values} == {"OK": 0, "SKIPPED": 1, "FAIL": 2}
    level = DESCRIPTOR.message_types_by_name["LogLevelParams"].enum_types_by_name["Level"]
    assert [value.name for value in level.values] == ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]


def test_the_generated_module_is_current(tmp_path: Path) -> None:
    """What it says, not how it looks: formatters and versions of the compiler may differ."""
    pytest.importorskip("grpc_tools")
    made = tmp_path / "made"
    command = [
        sys.executable, "-m", "grpc_tools.protoc", "-I.",
        f"--descriptor_set_out={made}", f"--pyi_out={tmp_path}", PROTO,
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    (file,) = FileDescriptorSet.FromString(made.read_bytes()).file
    current = FileDescriptorProto()
    DESCRIPTOR.CopyToProto(current)
    # Names in JSON are derived, and only the compiler writes them down.
    for message in file.message_type:
        for field in (*message.field, *(field for nested in message.nested_type for field in nested.field)):
            field.ClearField("json_name")
    assert current == file
    stub = PROTO.replace(".proto", "_pb2.pyi")
    assert names_in(tmp_path / stub) == names_in(ROOT / stub)


def names_in(stub: Path) -> dict[str, list[str]]:
    """The attributes of each class in a file of types."""
    classes = [node for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    return {
        each.name: [ast.unparse(node.target) for node in each.body if isinstance(node, ast.AnnAssign)]
        for each in classes
    }
