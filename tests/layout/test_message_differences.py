"""What `diff` says of protobuf messages, compared with what becomes of their bytes in both directions."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from keyplan.codec import ProtobufForm
from keyplan.errors import CorruptionError
from keyplan.layout import Impact, Layout, LayoutChange, Table, describe, differences
from keyplan.layout.difference import messages

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # Why: behind the question for it.

FIRST: Final = 0
"""Why the same types each time: that a warning is seen takes a value that shows it, which few tries may not hit."""
PAIRS: Final = 400
VALUES: Final = 40
KINDS: Final = {
    "bool": (False, True),
    "int32": (-(2**31), -1, 0, 1, 2, 2**31 - 1),
    "int64": (-(2**63), -1, 0, 1, 2, 2**31, 2**63 - 1),
    "uint32": (0, 1, 2, 2**31, 2**32 - 1),
    "uint64": (0, 1, 2, 2**32, 2**64 - 1),
    "sint32": (-(2**31), -1, 0, 1, 2**31 - 1),
    "sint64": (-(2**63), -1, 0, 1, 2**63 - 1),
    "fixed32": (0, 1, 2**32 - 1),
    "sfixed32": (-1, 0, 1),
    "float": (0.0, 0.5, -1.0),
    "fixed64": (0, 1, 2**64 - 1),
    "sfixed64": (-1, 0, 1),
    "double": (0.0, 0.5, -1.0),
    "string": ("", "a", "b"),
    "bytes": (b"", b"a", b"\xff"),
    "enum": (0, 1, 2),
    "message": (),
}
Fields = dict[int, tuple[str, str, bool]]
"""By number: the name, the type, and whether it is repeated."""


def message(fields: Fields, *, groups: dict[int, str] | None = None) -> Any:
    """A message class; fields of the type "message" hold one text, and enumerations have 0 to 2."""
    file = descriptor_pb2.FileDescriptorProto(name="made.proto", package="made", syntax="proto3")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="text", number=1, type=9, label=1)
    kinds = file.enum_type.add(name="Kind")
    for number in range(3):
        kinds.value.add(name=f"KIND_{number}", number=number)
    made = file.message_type.add(name="Made")
    names = sorted(set((groups or {}).values()))
    for name in names:
        made.oneof_decl.add(name=name)
    for number, (name, kind, is_repeated) in fields.items():
        field = made.field.add(name=name, number=number, label=3 if is_repeated else 1)
        field.type = getattr(field, f"TYPE_{kind.upper()}")
        if kind in {"message", "enum"}:
            field.type_name = {"message": ".made.Inner", "enum": ".made.Kind"}[kind]
        if number in (groups or {}):
            field.oneof_index = names.index((groups or {})[number])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("made.Made"))


def layout(kind: Any) -> type[Layout]:
    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{name}", key=str, value=kind)

    return Made


def changes(old: Any, new: Any, **options: Any) -> list[LayoutChange]:
    return list(differences(layout(old), layout(new), **options))


def values_of(chance: Random, kind: Any, fields: Fields) -> Any:
    made = kind()
    for name, of, is_repeated in fields.values():
        count = chance.randint(0, 2) if is_repeated else 1
        for _ in range(count):
            if of == "message":
                held = getattr(made, name)
                (held.add() if is_repeated else held).text = chance.choice(["", "a"])
            elif is_repeated:
                getattr(made, name).append(chance.choice(KINDS[of]))
            else:
                setattr(made, name, chance.choice(KINDS[of]))
    return made


def plain(made: Any, fields: Fields) -> dict[int, list[Any]]:
    """The values by number, those that are not their types' defaults; text and its bytes are one, a number and a truth."""
    found = {}
    for number, (name, of, is_repeated) in fields.items():
        value = getattr(made, name)
        items = list(value) if is_repeated else [value]
        items = [item.text if of == "message" else item for item in items]
        items = [item.encode() if isinstance(item, str) else item for item in items]
        if is_repeated or any(items):
            found[number] = [(of == "message", item) for item in items]
    return {number: items for number, items in found.items() if items}


def seen_in(chance: Random, own: tuple[Any, Fields], other: tuple[Any, Fields]) -> tuple[bool, set[int], set[int]]:
    """Whether a value was refused; the numbers whose values are others, and those that are passed over."""
    refused, changed, lost = False, set(), set()
    for _ in range(VALUES):
        value = values_of(chance, *own)
        try:
            read = ProtobufForm(other[0]).decode(ProtobufForm(own[0]).encode(value))
        except CorruptionError:
            refused = True
            continue
        before, after = plain(value, own[1]), plain(read, other[1])
        changed |= {number for number in before.keys() & other[1].keys() if before[number] != after.get(number)}
        lost |= before.keys() - other[1].keys()
    return refused, changed, lost


def pair(chance: Random) -> tuple[tuple[Any, Fields], tuple[Any, Fields]]:
    plain_kinds = list(KINDS)
    fields: Fields = {
        number: (f"field{number}", chance.choice(plain_kinds), chance.random() < 0.3)
        for number in range(1, chance.randint(2, 4))
    }
    other = dict(fields)
    number = chance.choice(list(other))
    name, kind, is_repeated = other[number]
    match chance.choice(["type", "type", "type", "name", "repeated", "gone", "new"]):
        case "type":
            other[number] = (name, chance.choice(plain_kinds), is_repeated)
        case "name":
            other[number] = ("renamed", kind, is_repeated)
        case "repeated":
            other[number] = (name, kind, not is_repeated)
        case "gone":
            del other[number]
        case _:
            other[9] = ("more", chance.choice(plain_kinds), False)
    return (message(fields), fields), (message(other), other)


def faults(seed: int) -> Iterator[str]:
    chance = Random(seed)
    old, new = pair(chance)
    told = changes(old[0], new[0])
    said = "\n".join([str(old[1]), str(new[1]), *map(str, told)])
    is_rewritten = any(change.impact.rank >= Impact.REWRITE.rank for change in told)
    is_lossy = any(change.loses_values for change in told)
    is_for_readers = is_rewritten or any(change.impact is Impact.READERS_FIRST for change in told)
    refused, other, lost = seen_in(chance, old, new)
    if refused and not is_rewritten:
        yield f"an old value is refused\n{said}"
    if (other or lost) and not is_lossy:
        yield f"old values are read as others\n{said}"
    if is_rewritten and not (refused or other or lost):
        yield f"it is harmless\n{said}"
    refused, other, lost = seen_in(chance, new, old)
    if (refused or other) and not is_for_readers:
        yield f"old readers refuse a new value, or read another\n{said}"
    if lost and not any(change.code == "E9" for change in told):
        yield f"old readers pass over a field\n{said}"
    if any(change.impact is Impact.READERS_FIRST for change in told) and not (refused or other):
        yield f"old readers read every new value\n{said}"


def test_what_diff_says_of_messages_is_what_becomes_of_their_bytes() -> None:
    assert [fault for seed in range(FIRST, FIRST + PAIRS) for fault in faults(seed)] == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("_read", lambda _kind, _wire, raw: raw),
        ("_written", lambda _kind, value: ("varint", value if isinstance(value, int) else 0)),
        ("_edges", lambda _kind: [0, 1]),
        ("_DELIMITED", {}),
        ("_ZIGZAGS", {}),
        ("_VARINTS", {"int32": (0, 1), "int64": (0, 1)}),
    ],
)
def test_a_fault_planted_in_the_rules_is_found(name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, name, fault)
    assert any(next(faults(seed), None) is not None for seed in range(FIRST, FIRST + 20 * PAIRS))


@pytest.mark.parametrize(
    ("old", "new", "code", "impact"),
    [
        ("int32", "int64", "E11", "readers-first"),
        ("int64", "int32", "E11", "breaking"),
        ("string", "bytes", "E11", "readers-first"),
        ("bytes", "string", "E11", "rewrite"),
        ("int32", "sint32", "E11", "breaking"),
        ("bool", "uint64", "E11", "readers-first"),
        ("uint32", "double", "E11", "breaking"),
        ("message", "bytes", "E11", "breaking"),
    ],
)
def test_a_field_of_another_type_has_the_class_of_what_its_bytes_become(
    old: str, new: str, code: str, impact: str
) -> None:
    (change,) = changes(message({1: ("a", old, False)}), message({1: ("a", new, False)}))
    assert (change.code, change.impact.value, change.subject) == (code, impact, "boxes.a")


def test_numbers_count_and_names_do_not() -> None:
    (change,) = changes(message({1: ("a", "string", False)}), message({1: ("b", "string", False)}))
    assert (change.impact, change.message) == (Impact.COMPATIBLE, "it was called a and is called b")
    found = changes(message({1: ("a", "string", False)}), message({2: ("a", "string", False)}))
    assert [(change.code, change.impact.value) for change in found] == [("E9", "writers-first"), ("E10", "breaking")]
    dropped = changes(message({1: ("a", "string", False)}), message({2: ("b", "string", False)}), drops=["boxes.a"])
    assert not any(change.loses_values for change in dropped)


def test_fields_that_share_a_oneof_lose_one_of_two() -> None:
    fields: Fields = {1: ("a", "string", False), 2: ("b", "string", False)}
    apart, together = message(fields), message(fields, groups={1: "one", 2: "one"})
    assert {(change.code, change.impact.value) for change in changes(apart, together)} == {("E11", "breaking")}
    assert {(change.code, change.impact.value) for change in changes(together, apart)} == {("E11", "readers-first")}


def test_a_message_does_not_differ_from_its_description() -> None:
    made = layout(message({1: ("a", "enum", True), 2: ("b", "message", False)}))
    assert differences(describe(made.spec), made) == ()


def test_a_message_that_holds_itself_is_compared() -> None:
    def held(*fields: tuple[int, str]) -> Any:
        file = descriptor_pb2.FileDescriptorProto(name="tree.proto", package="made", syntax="proto3")
        tree = file.message_type.add(name="Tree")
        tree.field.add(name="inner", number=1, label=3, type=11, type_name=".made.Tree")
        for number, name in fields:
            tree.field.add(name=name, number=number, label=1, type=9)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("made.Tree"))

    (change,) = changes(held((2, "label")), held())
    assert (change.code, change.subject, change.loses_values) == ("E10", "boxes.label", True)
