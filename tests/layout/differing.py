"""Layouts that differ in one thing, and the changes between two, for the tests of what `diff` says. No test is here."""

from typing import Any, NamedTuple

import msgspec

from keyplan import Counter, Layout, Table, Unique
from keyplan.layout import differences


class Box(msgspec.Struct):
    name: str
    size: int = 0


class Shelf(NamedTuple):
    room: str
    number: int


class Turned(NamedTuple):
    number: int
    room: str


class Rack(NamedTuple):
    hall: str
    number: int


class Shifted(NamedTuple):
    number: int
    slot: str


class Old(Layout, root="/s/"):
    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    by_name = Unique("by-name/{name}", of=boxes, key=str)
    tickets = Counter("tickets", start=10)


def found(old: Any, new: Any, **options: Any) -> list[tuple[str, str, str]]:
    """Code, class and subject of each change, but for the layouts' names."""
    return [
        (change.code, change.impact.value, change.subject)
        for change in differences(old, new, **options)
        if change.code != "E1"
    ]


def one(old: Any, new: Any, code: str, **options: Any) -> Any:
    (change,) = [change for change in differences(old, new, **options) if change.code == code]
    return change


def keyed(template: str, kind: Any = str, **options: Any) -> type[Layout]:
    class Made(Layout, root="/s/"):
        boxes = Table(template, key=kind, value=Box, **options)

    return Made


def valued(value: Any, form: str | None = None) -> type[Layout]:
    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{name}", key=str, value=value, form=form)

    return Made


def texts(*names: str) -> Any:
    return NamedTuple("Key", [(name, str) for name in names])
