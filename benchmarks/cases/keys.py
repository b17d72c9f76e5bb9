"""Key encoding and decoding against an f-string and a struct. No store."""

from collections.abc import Callable, Iterator
from itertools import repeat
from struct import Struct
from typing import Any, Final

from benchmarks.extent import Extent
from benchmarks.inventory import Event, Events, Inventory, ItemName
from benchmarks.measure import Result, Work, compared
from keyplan.layout import bind_layout

__all__ = ["measure"]

_KEYS: Final = 100_000


def measure(extent: Extent) -> Iterator[Result]:
    """A text key of two names, and a binary key of three u64."""
    inventory, events = bind_layout(Inventory.spec), bind_layout(Events.spec)
    name, event = ItemName("project-00000007", "name-000000071"), Event(77, 7, 700_000)
    text, binary = inventory.indexes["by_name"].keys, events.tables["events"].keys
    packer = Struct(">c3Q")

    def text_by_hand(key: ItemName) -> bytes:
        project, item = key
        return f"/inventory/names/{project}/{item}".encode()

    def text_read_by_hand(raw: bytes) -> ItemName | None:
        if not raw.startswith(b"/inventory/names/"):
            return None
        parts = raw[17:].decode().split("/")
        return ItemName(*parts) if len(parts) == 2 else None

    def binary_by_hand(key: Event) -> bytes:
        run, subrun, number = key
        return packer.pack(b"E", run, subrun, number)

    def binary_read_by_hand(raw: bytes) -> Event | None:
        if len(raw) != 25:
            return None
        _, run, subrun, number = packer.unpack(raw)
        return Event(run, subrun, number)

    raw_name, raw_event = text_by_hand(name), binary_by_hand(event)
    assert text.encode(name) == raw_name
    assert text.decode(raw_name) == text_read_by_hand(raw_name) == name
    assert binary.encode(event) == raw_event
    assert binary.decode(raw_event) == binary_read_by_hand(raw_event) == event
    cases: tuple[tuple[str, str, Callable[[Any], object], Callable[[Any], object], object], ...] = (
        ("text, encode", "f-string", text.encode, text_by_hand, name),
        ("text, decode", "startswith and split", text.decode, text_read_by_hand, raw_name),
        ("binary, encode", "struct", binary.encode, binary_by_hand, event),
        ("binary, decode", "struct", binary.decode, binary_read_by_hand, raw_event),
    )
    for variant, against, subject, comparator, argument in cases:
        yield compared(
            "keys",
            variant,
            against=against,
            subject=_repeated(subject, argument),
            comparator=_repeated(comparator, argument),
            operations=extent.operations(_KEYS),
            rounds=extent.rounds,
        )


def _repeated(function: Callable[[Any], object], argument: object) -> Work:
    def work(operations: int) -> None:
        for given in repeat(argument, operations):
            function(given)

    return work
