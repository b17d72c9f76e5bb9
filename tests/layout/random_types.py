"""Random types of values, small changes of them, and values at the edges of what they take. No test is here."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from random import Random, SystemRandom
from types import ModuleType
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec

__all__ = ["Shape", "built", "changed_shape", "first_seed", "random_shape", "random_value", "without_defaults"]

WHOLE_NUMBERS: Final = (
    -(2**60) - 1,
    -(2**53) - 1,
    -6,
    -5,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    2**53 - 1,
    2**53,
    2**53 + 1,
    2**60 + 1,
)
WORDS: Final = ("a", "b", "c", "dd", "eee")
KEYS: Final = ("text", "number", "word", "uuid")
UUIDS: Final = (UUID(int=0), UUID(int=7))
TIMES: Final = ("2020-01-01T00:00:00", "2020-01-01T00:00:00Z")
MISSING: Final = object()
DEPTH_MAX: Final = 3
_SERIAL: Final = count()


@dataclass(frozen=True)
class Member:
    """A field of a record."""

    name: str
    shape: "Shape"
    default: Any = MISSING


@dataclass(frozen=True)
class Shape:
    """A type: what it is, its bounds, and what stands within it."""

    kind: str
    least: int | None = None
    most: int | None = None
    words: tuple[Any, ...] = ()
    inner: tuple["Shape", ...] = ()
    members: tuple[Member, ...] = ()
    keys: str = "text"
    tag: str | None = None
    is_closed: bool = False
    is_positional: bool = False
    omits: bool = False
    holds_itself: bool = False


def first_seed() -> int:
    """Return where a search of random pairs begins: another place each time, and that of KEYPLAN_SEED where it is set."""
    seed = int(os.environ.get("KEYPLAN_SEED") or SystemRandom().randrange(1 << 32))
    print(f"KEYPLAN_SEED={seed}")  # shown by pytest when it fails
    return seed


# ---- made at random --------------------------------------------------------------------------------------------------------


def random_shape(chance: Random, depth: int = 0) -> Shape:
    """Return a type; nested less and less."""
    scalars = ["number", "float", "text", "truth", "bytes", "uuid", "time", "words"]
    holders = ["list", "set", "tuple", "map", "union", "maybe", "record", "record", "records"]
    kind = chance.choice(scalars if depth >= DEPTH_MAX else holders if depth == 0 else scalars + holders)
    return _SHAPES[kind](chance, depth)


def _number(chance: Random, _depth: int) -> Shape:
    least, most = chance.choice([(None, None), (0, None), (None, 5), (0, 5), (-5, 5), (1, 2**53)])
    return Shape("number", least, most)


def _sized(kind: str) -> Callable[[Random, int], Shape]:
    def made(chance: Random, depth: int) -> Shape:
        inner = () if kind in {"text", "bytes"} else (random_shape(chance, depth + 1),)
        least, most = chance.choice([(None, None), (None, None), (1, None), (None, 3), (1, 2)])
        return Shape(kind, least, most, inner=inner, keys=chance.choice(KEYS) if kind == "map" else "text")

    return made


def _set(chance: Random, _depth: int) -> Shape:
    kinds = ["number", "text", "uuid", "words"]
    return Shape("set", inner=(_SHAPES[chance.choice(kinds)](chance, DEPTH_MAX),))


def _words(chance: Random, _depth: int) -> Shape:
    if chance.random() < 0.3:
        return Shape("words", words=tuple(chance.sample(range(4), chance.randint(2, 3))))
    return Shape("words", words=tuple(chance.sample(WORDS, chance.randint(2, 4))))


def _tuple(chance: Random, depth: int) -> Shape:
    return Shape("tuple", inner=tuple(random_shape(chance, depth + 1) for _ in range(chance.randint(1, 3))))


def _maybe(chance: Random, depth: int) -> Shape:
    inner = random_shape(chance, depth + 1)
    return inner if inner.kind in {"maybe", "union", "records"} else Shape("maybe", inner=(inner,))


def _union(chance: Random, depth: int) -> Shape:
    families = [("number",), ("float",), ("text", "bytes", "uuid"), ("truth",), ("list", "tuple"), ("map", "record")]
    chosen = chance.sample(families, chance.randint(2, 3))
    options = [_SHAPES[chance.choice(family)](chance, depth + 1) for family in chosen]
    return Shape("union", inner=tuple(replace(option, is_positional=False) for option in options))


def _record(chance: Random, depth: int) -> Shape:
    names = chance.sample("pqrstu", chance.randint(1, 3))
    members = tuple(_member(chance, name, depth) for name in names)
    is_positional = chance.random() < 0.2
    if is_positional:
        members = tuple(sorted(members, key=lambda member: member.default is not MISSING))
    itself = chance.random() < 0.2 and not is_positional
    return Shape(
        "record",
        members=members,
        is_closed=chance.random() < 0.4,
        is_positional=is_positional,
        omits=chance.random() < 0.3 and not is_positional,
        holds_itself=itself,
    )


def _records(chance: Random, depth: int) -> Shape:
    tags = chance.sample(["One", "Two", "Three"], chance.randint(2, 3))
    made = [replace(_record(chance, depth + 1), tag=tag, is_positional=False) for tag in tags]
    return Shape("records", inner=tuple(made))


def _member(chance: Random, name: str, depth: int) -> Member:
    shape = random_shape(chance, depth + 1)
    if chance.random() < 0.5 and shape.kind in {"number", "text", "truth", "words", "maybe", "float"}:
        return Member(name, shape, random_value(chance, shape, defaults=True))
    return Member(name, shape)


def _plain(kind: str) -> Callable[[Random, int], Shape]:
    return lambda _chance, _depth: Shape(kind)


def _time(chance: Random, _depth: int) -> Shape:
    return Shape("time", words=(chance.choice([None, True, False]),))


_SHAPES: Final[dict[str, Callable[[Random, int], Shape]]] = {
    "number": _number,
    "float": _plain("float"),
    "truth": _plain("truth"),
    "uuid": _plain("uuid"),
    "time": _time,
    "text": _sized("text"),
    "bytes": _sized("bytes"),
    "words": _words,
    "list": _sized("list"),
    "map": _sized("map"),
    "set": _set,
    "tuple": _tuple,
    "union": _union,
    "maybe": _maybe,
    "record": _record,
    "records": _records,
}


# ---- changed a little ------------------------------------------------------------------------------------------------------


def changed_shape(chance: Random, shape: Shape) -> Shape:
    """Return the type with one change somewhere in it, the same inner records under other class names."""
    places = list(_places(shape))
    target = chance.choice(places)
    return _with(shape, target, _other(chance, target))


def _places(shape: Shape) -> Iterator[Shape]:
    yield shape
    for inner in (*shape.inner, *(member.shape for member in shape.members)):
        yield from _places(inner)


def _with(shape: Shape, target: Shape, other: Shape) -> Shape:
    if shape is target:
        return other
    return replace(
        shape,
        inner=tuple(_with(inner, target, other) for inner in shape.inner),
        members=tuple(_member_with(member, target, other) for member in shape.members),
    )


def _member_with(member: Member, target: Shape, other: Shape) -> Member:
    shape = _with(member.shape, target, other)
    # Why: a default that its type would refuse is no field of anybody.
    is_fit = member.shape is not target or (shape.kind == "maybe" and member.default is not MISSING)
    return replace(member, shape=shape, default=member.default if is_fit else MISSING)


def _other(chance: Random, shape: Shape) -> Shape:
    if shape.kind == "record":
        return _other_record(chance, shape)
    if shape.kind in {"number", "text", "bytes", "list", "map"} and chance.random() < 0.6:
        bounds = [None, 2, 3, 5, 2**53, 2**53 + 1] if shape.kind == "number" else [None, 2, 3, 4]
        moved = chance.choice(["least", "most", "inner", "keys"])
        if moved == "least":
            return replace(shape, least=chance.choice([None, 0, 1, 2]))
        if moved == "most":
            return replace(shape, most=chance.choice(bounds))
        return replace(shape, keys=chance.choice(KEYS))
    if shape.kind == "words" and chance.random() < 0.8:
        every = WORDS if isinstance(shape.words[0], str) else range(4)
        return replace(shape, words=tuple(chance.sample(every, chance.randint(2, 4))))
    if shape.kind in {"union", "records"} and len(shape.inner) > 2:
        return replace(shape, inner=shape.inner[:-1])
    if shape.kind in {"list", "set", "tuple"} and chance.random() < 0.7:
        first = next(iter(shape.inner))
        is_hashable = first.kind in {"number", "text", "uuid", "words"}
        kind = chance.choice(["list", "tuple", "set"] if is_hashable else ["list", "tuple"])
        return Shape(kind, inner=shape.inner if kind == "tuple" else (first,))
    if shape.kind == "maybe":
        return next(iter(shape.inner))
    swaps = {"number": "float", "float": "number", "uuid": "text", "text": "uuid", "bytes": "text", "time": "time"}
    if shape.kind in swaps and chance.random() < 0.5:
        return _SHAPES[swaps[shape.kind]](chance, DEPTH_MAX)
    return Shape("maybe", inner=(shape,)) if shape.kind not in {"union", "records"} else shape


def _other_record(chance: Random, shape: Shape) -> Shape:
    members = list(shape.members)
    place = chance.randrange(len(members))
    match chance.choice(["add", "drop", "rename", "turn", "default", "bare", "closed", "omits", "positional"]):
        case "add":
            members.append(_member(chance, chance.choice("vw"), DEPTH_MAX))
        case "drop" if len(members) > 1:
            del members[place]
        case "rename":
            members[place] = replace(members[place], name="z")
        case "turn":
            members.reverse()
        case "default" if members[place].shape.kind in {"number", "text", "truth", "words", "maybe"}:
            default = random_value(chance, members[place].shape, defaults=True)
            members[place] = replace(members[place], default=default)
        case "bare":
            members[place] = replace(members[place], default=MISSING)
        case "closed":
            return replace(shape, is_closed=not shape.is_closed)
        case "omits" if not shape.is_positional:
            return replace(shape, omits=not shape.omits)
        case "positional" if shape.tag is None and not shape.holds_itself:
            members.sort(key=lambda member: member.default is not MISSING)
            return replace(shape, is_positional=not shape.is_positional, omits=False, members=tuple(members))
        case _:
            pass  # Why: the change is none of this record, and the pair is one of equal types.
    if shape.is_positional:
        members.sort(key=lambda member: member.default is not MISSING)
    return replace(shape, members=tuple(members))


# ---- values ----------------------------------------------------------------------------------------------------------------


def random_value(  # noqa: PLR0911  # Why: one for each kind.
    chance: Random, shape: Shape, *, depth: int = 0, defaults: bool = False
) -> Any:
    """Return a value of a type, as plain data that msgspec converts to it; at its edges more often than elsewhere."""
    match shape.kind:
        case "number":
            least, most = -(2**61) if shape.least is None else shape.least, 2**61 if shape.most is None else shape.most
            fitting = [number for number in (*WHOLE_NUMBERS, least, most) if least <= number <= most]
            return chance.choice(fitting)
        case "float":
            return chance.choice([0.0, 0.5, 1.0, -2.5, 1e300])
        case "truth":
            return chance.random() < 0.5
        case "text":
            return "x" * _length(chance, shape)
        case "bytes":
            return b"\xff" * _length(chance, shape)
        case "uuid":
            return chance.choice(UUIDS)
        case "time":
            has_zone = shape.words[0] if shape.words[0] is not None else chance.random() < 0.5
            return TIMES[has_zone]
        case "words":
            return chance.choice(shape.words)
        case "maybe":
            return None if defaults or chance.random() < 0.4 else random_value(chance, shape.inner[0], depth=depth)
        case "union" | "records":
            return random_value(chance, chance.choice(shape.inner), depth=depth)
        case "tuple":
            return [random_value(chance, inner, depth=depth) for inner in shape.inner]
        case "list":
            made = [random_value(chance, shape.inner[0], depth=depth) for _ in range(_length(chance, shape))]
            return made if len(made) < 2 or chance.random() < 0.5 else [made[0]] * len(made)
        case "set":
            made = [random_value(chance, shape.inner[0], depth=depth) for _ in range(chance.randint(0, 3))]
            return list(dict.fromkeys(made))
        case "map":
            return {
                key: random_value(chance, shape.inner[0], depth=depth) for key in _keys(shape, _length(chance, shape))
            }
        case _:
            return _random_record(chance, shape, depth)


def _length(chance: Random, shape: Shape) -> int:
    least = shape.least or 0
    most = least + 6 if shape.most is None else shape.most
    return chance.choice([least, most, chance.randint(least, max(least, most))])


def _keys(shape: Shape, length: int) -> list[Any]:
    every: dict[str, list[Any]] = {
        "text": ["k", "l", "1", "a", "b", "m", "n", "o"],
        "number": [1, 2, 3, -4, 5, 6, 7, 8],
        "word": ["a", "b", "c"],
        "uuid": [str(UUID(int=number)) for number in range(8)],
    }
    return every[shape.keys][:length]


def _random_record(chance: Random, shape: Shape, depth: int) -> dict[str, Any] | list[Any]:
    made = {
        member.name: member.default
        if member.default is not MISSING and chance.random() < 0.5
        else random_value(chance, member.shape, depth=depth)
        for member in shape.members
    }
    if shape.holds_itself:
        made["again"] = _random_record(chance, shape, depth + 1) if depth < 2 and chance.random() < 0.5 else None
    if shape.is_positional:
        return list(made.values())
    return made if shape.tag is None else {"type": shape.tag, **made}


def without_defaults(value: Any, shape: Shape) -> Any:
    """Return plain data as a still earlier layout stored it, which did not know the fields that have a default."""
    match shape.kind:
        case "maybe":
            return None if value is None else without_defaults(value, shape.inner[0])
        case "list" | "set":
            return [without_defaults(item, shape.inner[0]) for item in value]
        case "tuple":
            return [without_defaults(item, inner) for item, inner in zip(value, shape.inner, strict=True)]
        case "map":
            return {key: without_defaults(item, shape.inner[0]) for key, item in value.items()}
        case "records":
            return without_defaults(value, next(one for one in shape.inner if one.tag == value["type"]))
        case "union":
            kinds = (
                {"map", "record"}
                if isinstance(value, dict)
                else {"list", "tuple"}
                if isinstance(value, list | tuple)  # Why both: a tuple stays one where plain data is made of it.
                else set()
            )
            chosen = next((one for one in _options(shape) if one.kind in kinds), None)
            return value if chosen is None else without_defaults(value, chosen)
        case "record" if shape.is_positional:
            own = [(m, item) for m, item in zip(shape.members, value, strict=True) if m.default is MISSING]
            return [without_defaults(item, m.shape) for m, item in own]
        case "record":
            kept = {m.name: without_defaults(value[m.name], m.shape) for m in shape.members if m.default is MISSING}
            again = {} if value.get("again") is None else {"again": without_defaults(value["again"], shape)}
            return {**({} if shape.tag is None else {"type": shape.tag}), **kept, **again}
        case _:
            return value


def _options(shape: Shape) -> Iterator[Shape]:
    """The alternatives of a union, those of unions in it among them."""
    for one in shape.inner:
        yield from _options(one) if one.kind in {"union", "maybe"} else [one]


# ---- built -----------------------------------------------------------------------------------------------------------------

_CLASSES: Final = ModuleType("keyplan_random_types")
"""Where records that hold themselves find their own class by its name."""
sys.modules[_CLASSES.__name__] = _CLASSES


def built(shape: Shape) -> Any:  # noqa: PLR0911  # Why: one for each kind.
    """Return the type. Raises TypeError where msgspec has no such union."""
    match shape.kind:
        case "number":
            return Annotated[int, msgspec.Meta(ge=shape.least, le=shape.most)]
        case "float":
            return float
        case "truth":
            return bool
        case "text":
            return Annotated[str, msgspec.Meta(min_length=shape.least, max_length=shape.most)]
        case "bytes":
            return Annotated[bytes, msgspec.Meta(min_length=shape.least, max_length=shape.most)]
        case "uuid":
            return UUID
        case "time":
            return Annotated[datetime, msgspec.Meta(tz=shape.words[0])]
        case "words":
            return Literal[shape.words]
        case "maybe" | "union" | "records":
            _require_safe(shape)
            options = [built(inner) for inner in shape.inner]
            made = options[0]
            for option in (*options[1:], *([None] if shape.kind == "maybe" else [])):
                made = made | option
            return made
        case "tuple":
            generic: Any = tuple
            return generic[tuple(built(inner) for inner in shape.inner)]
        case "list" | "set":
            generic = {"list": list, "set": set}[shape.kind]
            bounds = msgspec.Meta(min_length=shape.least, max_length=shape.most)
            return Annotated[generic[built(shape.inner[0])], bounds]
        case "map":
            keys: Any = {"text": str, "number": int, "word": Literal["a", "b", "c"], "uuid": UUID}[shape.keys]
            generic, bounds = dict, msgspec.Meta(min_length=shape.least, max_length=shape.most)
            return Annotated[generic[keys, built(shape.inner[0])], bounds]
        case _:
            return _built_record(shape)


def _require_safe(shape: Shape) -> None:
    """Refuse what ends the process in msgspec 0.22: a tuple beside a type with bounds in one union."""
    options = list(shape.inner)
    for option in options:
        options += option.inner if option.kind in {"maybe", "union"} else ()
    has_tuple = any(option.kind == "tuple" for option in options)
    if has_tuple and any((option.least, option.most) != (None, None) for option in options):
        raise TypeError


def _built_record(shape: Shape) -> Any:
    name = f"R{next(_SERIAL)}"  # Why each time: a class that names itself finds the last one of the name.
    fields: list[Any] = [
        (member.name, built(member.shape))
        if member.default is MISSING
        else (member.name, built(member.shape), member.default)
        for member in shape.members
    ]
    if shape.holds_itself:
        fields.append(("again", f"{name} | None", None))
    made = msgspec.defstruct(
        name,
        fields,
        module=_CLASSES.__name__,
        kw_only=not shape.is_positional,
        tag=shape.tag,
        array_like=shape.is_positional,
        omit_defaults=shape.omits,
        forbid_unknown_fields=shape.is_closed,
    )
    setattr(_CLASSES, name, made)
    return made
