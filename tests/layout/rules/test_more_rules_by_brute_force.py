"""The lists' rules, placement, leases and waivers against all short keys of random small layouts; and mutations of them.

A mutation takes one condition out of a rule. That the enumeration notices it shows that the enumeration looks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any

import pytest

from keyplan.codec import ANY_BYTE, Bytes, Repeat, literal
from keyplan.layout import Finding, LayoutSpec, Literal, TableSpec, Template, Waiver, lint
from keyplan.layout.rules import RULES
from keyplan.layout.rules.decision import Answer
from tests.small_keys import KeysByBytes, layout_of, random_template, small_keys

SEEDS = 40

FF_ALPHABET = b"ab/\x00\xff"


def pairs(seeds: range, *, is_text: bool | None = None) -> Iterator[tuple[Template, Template]]:
    for seed in seeds:
        rng = Random(seed)
        kind = rng.random() < 0.5 if is_text is None else is_text
        found: list[Template] = []
        while len(found) < 2:
            made = random_template(rng, is_text=kind)
            if made is not None and small_keys(made):
                found.append(made)
        yield found[0], found[1]


def beginning(template: Template, values: tuple[Any, ...], bound: int) -> bytes:
    """The bytes of a key before its first field that is not among the first `bound` ones."""
    given = dict(zip(template.field_names[:bound], values, strict=False))
    elements = {field.name: field.element for field in template.fields}
    raw = b""
    for part in template.parts:
        if isinstance(part, Literal):
            raw += part.raw
        elif part.name not in given:
            break
        else:
            value = given[part.name]
            raw += part.element.encode(
                elements[part.name].attributes[part.attribute](value) if part.attribute else value
            )
    return raw


def beginnings(template: Template, keys: KeysByBytes) -> set[bytes]:
    return {
        beginning(template, values, bound)
        for readings in keys.values()
        for values in readings
        for bound in range(len(template.fields))
    }


def is_undecided(finding: Finding) -> bool:
    return "undecided" in finding.message


# ---- L4 -------------------------------------------------------------------------------------------------------------------


def check_lists() -> None:
    for first, second in pairs(range(SEEDS)):
        found = lint(layout_of(first, second))
        if any(one.items == ("t0", "t1") for one in found.of_rule("L1")):
            continue
        keys = small_keys(first), small_keys(second)
        starts = beginnings(first, keys[0])
        unwanted = [raw for raw in keys[1] if any(raw.startswith(start) for start in starts)]
        told = [one for one in found.of_rule("L4") if set(one.items) == {"t0", "t1"}]
        assert told or not unwanted, (first.source, second.source, unwanted[:3])
        for one in told:
            assert is_undecided(one) or (one.witness or b"").startswith(one.second or b"")


def test_l4_finds_each_pair_of_which_one_stands_in_the_others_list() -> None:
    check_lists()


# ---- L8 -------------------------------------------------------------------------------------------------------------------


def check_placement() -> None:
    for first, _ in pairs(range(SEEDS)):
        keys = small_keys(first)
        name = first.field_names[-1]
        (table,) = layout_of(first).tables.values()
        for place in ((), (name,)):
            found = lint(replace(layout_of(first), items=(replace(table, place=place),))).of_rule("L8")
            assert len(found) == len(place), first.source
            for one in found:
                assert f"placed by {name}" in one.message
                _check_placed_apart(one, keys, first)


def _check_placed_apart(found: Finding, keys: KeysByBytes, template: Template) -> None:
    if found.witness in keys and found.second in keys:
        ones, others = ({values[-1] for values in keys[raw]} for raw in (found.witness, found.second))
        assert ones != others, (template.source, found)


def test_l8_finds_each_placed_table_and_shows_two_keys_placed_apart() -> None:
    check_placement()


# ---- L9 -------------------------------------------------------------------------------------------------------------------


def check_range_ends() -> None:
    for first, _ in pairs(range(SEEDS), is_text=False):
        lost: dict[int, set[bytes]] = defaultdict(set)
        keys = small_keys(first, FF_ALPHABET)
        for raw, readings in keys.items():
            for bound in range(len(first.fields)):
                if any(raw.startswith(beginning(first, values, bound) + b"\xff") for values in readings):
                    lost[bound].add(raw)
        found = next(iter(lint(layout_of(first)).of_rule("L9")), None)
        assert found is not None or not lost, (first.source, lost)
        if found is not None and found.witness is not None:
            bounds = [int(one) for one in found.message.partition("lists by ")[2].split(" bound")[0].split(", ")]
            assert set(lost) <= set(bounds), (first.source, lost, found)
            assert found.witness.startswith((found.second or b"") + b"\xff")
            assert all(len(found.witness) <= len(raw) for raw in lost[bounds[0]]), (first.source, found)


def test_l9_finds_each_list_that_loses_keys() -> None:
    check_range_ends()


# ---- L11 ------------------------------------------------------------------------------------------------------------------


def leased(spec: LayoutSpec, *names: str) -> LayoutSpec:
    return replace(
        spec,
        items=tuple(
            replace(item, has_lease=item.name in names) if isinstance(item, TableSpec) else item for item in spec.items
        ),
    )


def check_leases() -> None:
    for first, second in pairs(range(SEEDS), is_text=True):
        spec = layout_of(first, second)
        keys = small_keys(first), small_keys(second)
        outliving = [
            raw for raw in keys[1] for cut in range(len(raw)) if raw[:cut] in keys[0] and raw.startswith(b"/", cut)
        ]
        found = next(iter(lint(leased(spec, "t0")).of_rule("L11")), None)
        assert found is not None or not outliving, (first.source, second.source)
        if found is not None and found.witness is not None:
            assert (found.second or b"").startswith(found.witness + b"/")
            assert not outliving or len(found.second or b"") <= min(map(len, outliving))
        for names in ((), ("t0", "t1")):
            assert lint(leased(spec, *names)).of_rule("L11") == ()


def test_l11_finds_each_entry_that_outlives_the_record_above_it() -> None:
    check_leases()


# ---- L12 ------------------------------------------------------------------------------------------------------------------


def check_waivers() -> None:
    names = ("t0", "t1", "t0, t1", "t1, t0")
    for first, second in pairs(range(SEEDS // 2)):
        spec = layout_of(first, second)
        known = {(one.rule, one.subject) for one in lint(spec).findings}
        waivers = tuple(Waiver(rule, items, "tried") for rule in RULES if rule != "L10" for items in names)
        judged = lint(replace(spec, waivers=waivers))
        stale = {one.items[0] for one in judged.of_rule("L12")}
        expected = {f"{one.rule} {one.items}" for one in waivers if (one.rule, one.items) not in known}
        assert stale == expected, (first.source, second.source)
        tried = {(one.rule, one.items) for one in waivers}
        for one in judged.findings:
            assert one.is_waived == ((one.rule, one.subject) in tried), one


def test_l12_finds_each_waiver_that_names_no_finding_and_only_those() -> None:
    check_waivers()


# ---- mutations ------------------------------------------------------------------------------------------------------------

overlaps, lists, finding = (import_module(f"keyplan.layout.rules.{name}") for name in ("overlaps", "lists", "finding"))

_ANYTHING = Repeat(Bytes(ANY_BYTE))


def _nothing(*_: object, **__: object) -> Answer:
    return Answer(None)


def _same_twice(element: Any, _attribute: str) -> tuple[bytes | None, bytes | None]:
    _, raw = next(iter(lists.members(element)), (None, None))
    return raw, raw


MUTATIONS: list[tuple[str, Any, str, Any, Callable[[], None]]] = [
    ("L4: other bytes than any below", lists, "ANYTHING", literal(b"a"), check_lists),
    ("L4: keys below are not looked for", lists, "key_below", _nothing, check_lists),
    ("L4: no pairs", lists, "product", lambda *_: (), check_lists),
    ("L8: one value twice", lists, "_placed_apart", _same_twice, check_placement),
    ("L8: no finding", lists, "TableSpec", int, check_placement),
    ("L9: FE for FF", lists, "_FF", literal(b"\xfe") + _ANYTHING, check_range_ends),
    ("L9: nothing after FF", lists, "_FF", literal(b"\xff"), check_range_ends),
    ("L11: no slash", overlaps, "_BELOW_TEXT", Repeat(Bytes(ANY_BYTE), 1), check_leases),
    ("L11: nothing after the slash", overlaps, "_BELOW_TEXT", literal(b"/"), check_leases),
    ("L11: leased entries too", overlaps, "_hangs_on_lease", lambda *_: False, check_leases),
    ("L11: no entries", overlaps, "_hangs_on_lease", lambda *_: True, check_leases),
    ("L12: no waiver is stale", finding, "_stale", lambda _: Finding("L12", ("none",), ""), check_waivers),
    ("L12: items as a set", finding, "_target", lambda one: (one.rule, one.items[:2]), check_waivers),
]


@pytest.mark.parametrize(
    ("module", "name", "value", "check"), [one[1:] for one in MUTATIONS], ids=[one[0] for one in MUTATIONS]
)
def test_a_rule_without_one_of_its_conditions_is_noticed(
    module: Any, name: str, value: Any, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, value)
    with pytest.raises(AssertionError):
        check()
