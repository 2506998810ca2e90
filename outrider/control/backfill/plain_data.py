"""Plain data from pickles and marshalled bytes, without running anything that they name.

Queues of Scrapy hold requests as mappings of plain values, pickled or marshalled. Whoever can write to such a file
could have a pickle call any function, and bytes that are not what `marshal` wrote may crash the interpreter. So pickles
are read by an unpickler that knows no names but those of plain values, and marshalled data by a reader of our own.
"""

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, Final

MAX_LEVELS: Final = 100
PICKLE_PROTOCOL: Final = 0x80
"""What every pickle from protocol 2 on begins with, and nothing marshalled that is a mapping."""


class NotPlain(ValueError):
    """Bytes that are no plain data."""


class Foreign:
    """Stands for a value that is none of plain data; nothing of it is kept, and nothing of it is run."""

    def __new__(cls, *_arguments: object, **_named: object) -> "Foreign":
        """Be made of anything."""
        return object.__new__(cls)

    def __init__(self, *_arguments: object, **_named: object) -> None:
        pass

    def __setstate__(self, _state: object) -> None:
        pass

    def __setitem__(self, _key: object, _value: object) -> None:
        pass

    def append(self, _item: object) -> None:
        """Drop an item of a list."""

    def extend(self, _items: object) -> None:
        """Drop items of a list."""

    def add(self, _item: object) -> None:
        """Drop an item of a set."""


def _encoded(text: object, encoding: object = "latin1") -> bytes:
    """Give the bytes that protocol 2 writes as a text and the name of an encoding."""
    if not isinstance(text, str) or encoding not in ("latin1", "utf-8", "utf8", "ascii"):
        raise NotPlain("bytes in an unknown encoding")
    return text.encode("latin1" if encoding == "latin1" else "utf-8")


_PLAIN: Final[dict[tuple[str, str], Any]] = {
    ("_codecs", "encode"): _encoded,
    **{
        (module, name): kind
        for module in ("builtins", "__builtin__")
        for name, kind in (("set", set), ("frozenset", frozenset), ("bytes", bytes), ("bytearray", bytearray))
    },
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _PLAIN.get((module, name), Foreign)

    def persistent_load(self, _identity: Any) -> Any:
        return Foreign()


def read_plain(data: bytes) -> object:
    """Read pickled or marshalled plain data, or raise `NotPlain`."""
    try:
        if data[:1] == bytes([PICKLE_PROTOCOL]):
            return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
        return _Marshalled(data).read()
    except NotPlain:
        raise
    except Exception as error:  # whatever a torn or forged pickle leads to
        raise NotPlain(f"neither a pickle nor marshalled data: {str(error) or type(error).__name__}") from None


class _Marshalled:
    """Reads what `marshal.dumps` writes for plain data, versions 2 to 5."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._references: list[object] = []

    def read(self, level: int = 0) -> Any:
        if level > MAX_LEVELS:
            raise NotPlain(f"more than {MAX_LEVELS} levels deep")
        byte = self._take(1)[0]
        code, is_kept = chr(byte & 0x7F), bool(byte & 0x80)
        place = len(self._references)
        if is_kept:
            self._references.append(None)
        value = self._value(code, level)
        if is_kept:
            self._references[place] = value
        return value

    def _value(self, code: str, level: int) -> Any:
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _SIMPLE:
            return _SIMPLE[code](self)
        if code in "([<>":
            return self._items(self._number(), level, _COLLECTIONS[code])
        if code == ")":
            return self._items(self._take(1)[0], level, tuple)
        if code == "{":
            return self._mapping(level)
        raise NotPlain(f"marshalled data with a value of type {code!r}, which is not plain")

    def _take(self, number: int) -> bytes:
        taken = self._data[self._at : self._at + number]
        if number < 0 or len(taken) != number:
            raise NotPlain("marshalled data that ends too early")
        self._at += number
        return taken

    def _number(self) -> int:
        return int(struct.unpack("<i", self._take(4))[0])

    def _long_number(self) -> int:
        digits = self._number()
        value = 0
        for place, (digit,) in enumerate(struct.iter_unpack("<H", self._take(2 * abs(digits)))):
            value |= digit << (15 * place)
        return -value if digits < 0 else value

    def _reference(self) -> object:
        number = self._number()
        if not 0 <= number < len(self._references):
            raise NotPlain("marshalled data that refers to nothing")
        return self._references[number]

    def _items(self, number: int, level: int, collection: Callable[[list[Any]], Any]) -> Any:
        if number < 0 or number > len(self._data):
            raise NotPlain("marshalled data that ends too early")
        return collection([self.read(level + 1) for _ in range(number)])

    def _mapping(self, level: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while self._data[self._at : self._at + 1] != b"0":
            key = self.read(level + 1)
            found[key] = self.read(level + 1)
        self._at += 1
        return found

    def _bytes(self) -> bytes:
        return self._take(self._number())

    def _text(self) -> str:
        return self._bytes().decode("utf-8", "surrogatepass")

    def _ascii(self) -> str:
        return self._bytes().decode("latin1")

    def _short_ascii(self) -> str:
        return self._take(self._take(1)[0]).decode("latin1")

    def _real(self) -> float:
        return float(struct.unpack("<d", self._take(8))[0])


_CONSTANTS: Final[dict[str, object]] = {"N": None, "T": True, "F": False}
_COLLECTIONS: Final[dict[str, Callable[[list[Any]], Any]]] = {"(": tuple, "[": list, "<": set, ">": frozenset}
_SIMPLE: Final[dict[str, Callable[[_Marshalled], Any]]] = {
    "i": _Marshalled._number,
    "l": _Marshalled._long_number,
    "g": _Marshalled._real,
    "s": _Marshalled._bytes,
    "u": _Marshalled._text,
    "t": _Marshalled._text,
    "a": _Marshalled._ascii,
    "A": _Marshalled._ascii,
    "z": _Marshalled._short_ascii,
    "Z": _Marshalled._short_ascii,
    "r": _Marshalled._reference,
}
