"""What an oddity is."""

from collections.abc import Callable

import msgspec

from outrider.demo.answer import Answer, Request
from outrider.demo.options import SiteOptions

ROOT = "/odd/"


class Oddity(msgspec.Struct, frozen=True, kw_only=True):
    """One odd page, or a family of them that lies below a folder of its own."""

    path: str
    """Where it is, or where its family is entered."""
    about: str
    answer: Callable[[Request, SiteOptions], Answer | None]
    """None means that the family has no such page."""
    family: bool = False
    """It answers for everything in its folder, `/odd/NAME/`, that no other oddity answers for."""

    @property
    def folder(self) -> str:
        """The folder of its family."""
        return folder_of(self.path)


def folder_of(path: str) -> str:
    """The first folder below the root of all oddities: `/odd/loop/` for `/odd/loop/1`."""
    return ROOT + path.removeprefix(ROOT).partition("/")[0] + "/"


def name_of(request: Request) -> str:
    """What follows the folder: `1` for `/odd/loop/1`."""
    return request.path.removeprefix(folder_of(request.path))
