"""What `diff` says of values, compared with what becomes of them: old ones in the new type, new ones in the old one.

Each pair is a random type and the same type with a change. Values at its edges are encoded by one and decoded by the other.
What `diff` calls harmless must be, and what it warns of must be seen. Faults planted in its rules are found.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest

from keyplan.errors import CorruptionError, InvalidRecordError, LayoutError
from keyplan.layout import Impact, Layout, Table, differences
from keyplan.layout.difference import readability, schemas
from keyplan.layout.difference.readability import Readability, Verdict
from keyplan.layout.schema_nodes import SchemaNode
from tests.layout.random_types import built, changed_shape, first_seed, random_shape, random_value, without_defaults

FIRST_PLANTED: Final = 0
"""Why the same types each time: a planted fault is looked for until it is found, and other types may not show it."""
PAIRS: Final = 250
PLANTED_PAIRS: Final = 3000
"""Why so many: some faults show in few types; a search ends with the first that it finds."""
VALUES: Final = 60
ROUNDS_MAX: Final = 30
"""Why: a value of a small part of a union within a union is rare."""
KEPT: Final[dict[str, tuple[type, ...]]] = {"json": (), "msgpack": (bytes, datetime)}
"""What a form has a type of its own for."""


@dataclass
class Seen:
    """What became of values: whether one was refused, and each field that came, went or changed, by its path."""

    refused: bool = False
    added: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    other: set[str] = field(default_factory=set)

    @property
    def is_harm(self) -> bool:
        return bool(self.refused or self.lost or self.other)


def layout_of(kind: Any, form: str) -> type[Layout]:
    class Made(Layout, root="/s/"):
        boxes = Table("boxes/{name}", key=str, value=kind, form=form)

    return Made


def plain(value: Any) -> Any:
    """A value as data, each record with all of its fields by their names; bytes are no text."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        own = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        return own if config.tag is None else {config.tag_field: config.tag, **own}
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bool):
        return ("exactly", value)
    return str(value) if isinstance(value, UUID) else msgspec.to_builtins(value)


def compare(given: Any, read: Any, seen: Seen, path: str = "") -> None:
    if isinstance(given, dict) and isinstance(read, dict):
        for name in given.keys() | read.keys():
            inner = f"{path}.{name}"
            if not isinstance(name, str):
                seen.other |= {path} if name not in read or name not in given else set()
            elif name not in read:
                seen.lost.add(inner)
            elif name not in given:
                seen.added.add(inner)
            if name in read and name in given:
                compare(given[name], read[name], seen, inner)
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        # Why in order: a set has none.
        pairs = (
            (given, read) if any(isinstance(item, dict | list) for item in given) else (_ordered(given), _ordered(read))
        )
        for one, other in zip(*pairs, strict=True):
            compare(one, other, seen, path)
    elif given != read or isinstance(given, str) != isinstance(read, str):
        seen.other.add(path)


def _ordered(items: list[Any]) -> list[Any]:
    return sorted(items, key=repr)


class Pair:
    """Two types of one form, and what `diff` says of them."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.form = self.chance.choice(["json", "msgpack"])
        while True:
            old = random_shape(self.chance)
            new = changed_shape(self.chance, old)
            try:
                self.layouts = [layout_of(built(shape), self.form) for shape in (old, new)]
                break
            except (TypeError, ValueError, AttributeError, LayoutError):
                continue  # msgspec, or Python, has no such type
        self.shapes = [old, new]
        self.forms: list[Any] = [layout.spec.tables["boxes"].form for layout in self.layouts]
        self.changes = list(differences(*self.layouts))

    def of_values(self, side: int, *, is_older: bool = False) -> Seen:
        """What becomes of the values of one side in the other."""
        own, other, shape = self.forms[side], self.forms[1 - side], self.shapes[side]
        library: Any = getattr(msgspec, self.form)
        seen = Seen()
        for _ in range(VALUES):
            data = random_value(self.chance, shape)
            try:
                value = msgspec.convert(data, own.value_type)
                raw = own.encode(value)
                if is_older:
                    raw = library.encode(
                        without_defaults(msgspec.to_builtins(value, builtin_types=KEPT[self.form]), shape)
                    )
                    value = own.decode(raw)
            except (msgspec.ValidationError, InvalidRecordError, CorruptionError, KeyError, TypeError):
                continue
            try:
                read = other.decode(raw)
            except CorruptionError:
                seen.refused = True
                continue
            compare(plain(value), plain(read), seen)
        return seen

    def told(self) -> str:
        return "\n".join(
            [f"{self.form}: {self.forms[0].describe()}", str(self.forms[1].describe()), *map(str, self.changes)]
        )


def last(path: str) -> str:
    return path.rpartition(".")[2]


def unsound(pair: Pair) -> Iterator[str]:
    """What becomes of values, and `diff` has no word of."""
    changes = pair.changes
    is_rewritten = any(change.impact.rank >= Impact.REWRITE.rank for change in changes)
    is_for_readers = is_rewritten or any(change.impact is Impact.READERS_FIRST for change in changes)
    new_fields = {last(change.field) for change in changes if change.code == "E9"}
    gone_fields = {last(change.field) for change in changes if change.code == "E10"}
    is_lossy = any(change.loses_values for change in changes)
    has_default = any(change.code == "E20" for change in changes)
    for is_older in (False, True):
        seen = pair.of_values(0, is_older=is_older)
        if seen.refused and not is_rewritten:
            yield "an old value is refused"
        if seen.lost and not is_lossy:
            yield f"a value is lost and no loss is told: {seen.lost}"
        if not is_rewritten and {last(path) for path in seen.added} - new_fields:
            yield f"a field comes that is not told: {seen.added}"
        if seen.other and not (is_rewritten or (is_older and has_default)):
            yield f"an old value is read as another one: {seen.other}"
    seen = pair.of_values(1)
    if seen.refused and not is_for_readers:
        yield "a new value is refused by old readers"
    if not is_for_readers and {last(path) for path in seen.lost} - new_fields:
        yield f"old readers pass over a field that is not told: {seen.lost}"
    if not is_for_readers and {last(path) for path in seen.added} - gone_fields:
        yield f"old readers see a field that is not told: {seen.added}"
    if not is_for_readers and seen.other:
        yield f"old readers read another value: {seen.other}"


def overstated(pair: Pair) -> Iterator[str]:
    """What `diff` warns of, and no value shows."""
    impacts = {change.impact for change in pair.changes}
    if any(impact.rank >= Impact.REWRITE.rank for impact in impacts):
        sides, problem = [(0, False), (0, True)], "a rewrite, and every old value is read as it was"
    elif Impact.READERS_FIRST in impacts:
        sides, problem = [(1, False)], "readers first, and old readers read every new value as it is"
    else:
        return
    rounds = (pair.of_values(side, is_older=is_older) for _ in range(ROUNDS_MAX) for side, is_older in sides)
    if not any(seen.is_harm for seen in rounds):
        yield problem


Judge = Callable[[Pair], Iterator[str]]


def faults(judge: Judge, pairs: int) -> Iterator[str]:
    first = first_seed()
    for seed in range(first, first + pairs):
        pair = Pair(seed)
        for found in judge(pair):
            yield f"{found}, seed {seed}\n{pair.told()}"


@pytest.mark.parametrize("judge", [unsound, overstated])
def test_what_diff_says_of_values_is_what_becomes_of_them(judge: Judge) -> None:
    assert list(faults(judge, PAIRS)) == []


# ---- planted faults --------------------------------------------------------------------------------------------------------


def _whole(*_: object) -> Verdict:
    return Verdict(reads=True, keeps=True)


def _nothing(*_: object) -> Iterator[Any]:
    return iter(())


def _true(*_: object) -> bool:
    return True


def _false(*_: object) -> bool:
    return False


_GONE: Final = schemas._Comparison._gone


def _lossless(*given: Any) -> schemas.FieldChange:
    return replace(_GONE(*given), loses_values=False)


PLANTED: Final[dict[str, tuple[Any, str, Any, Judge]]] = {
    "lengths and keys do not count": (Readability, "outside", _whole, unsound),
    "what stands within does not count": (schemas, "inner_types", _nothing, unsound),
    "every bound of numbers fits": (readability, "_takes_bounds", _true, unsound),
    "lower bounds alone count": (readability, "_most", lambda _: (0, True), unsound),
    "upper bounds alone count": (readability, "_least", lambda _: (0, False), unsound),
    "every whole number is a float": (readability, "_EXACT_MAX", inf, unsound),
    "every text fits": (Readability, "_takes_text", _true, unsound),
    "every word is taken": (readability, "_takes_word", _true, unsound),
    "floats read whole numbers beside their type": (readability, "_is_of_whole_numbers", _false, unsound),
    "fields that go lose nothing": (schemas._Comparison, "_gone", _lossless, unsound),
    "defaults are no change": (schemas, "_other_default", _nothing, unsound),
    "what is required is no change": (schemas, "_other_presence", _nothing, unsound),
    "places are no change": (schemas, "_moved", _nothing, unsound),
    "nothing is left out": (SchemaNode, "written", property(lambda node: frozenset(node.fields or ())), unsound),
    "nothing is closed": (SchemaNode, "is_closed", False, unsound),
    "records read each other": (Readability, "_record", _whole, unsound),
    "no bound of numbers fits": (readability, "_takes_bounds", _false, overstated),
    "no word is taken": (readability, "_takes_word", _false, overstated),
    "no text fits another": (Readability, "_takes_text", _false, overstated),
    "no float is exact": (readability, "_EXACT_MAX", 0, overstated),
    "everything is left out at times": (SchemaNode, "written", frozenset(), overstated),
}


@pytest.mark.slow
@pytest.mark.usefixtures("brief_failures")
@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_planted_in_the_rules_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, fault, judge = PLANTED[name]
    for seed in range(FIRST_PLANTED, FIRST_PLANTED + PLANTED_PAIRS):
        pair = Pair(seed)
        truth = pair.changes
        with monkeypatch.context() as planted:
            planted.setattr(place, attribute, fault)
            pair.changes = list(differences(*pair.layouts))
        # Why first: most types have nothing to do with the rule, and values cost more than both answers.
        if pair.changes != truth and next(judge(pair), None) is not None:
            return
    pytest.fail(f"nobody saw that {name}")
