"""Mistakes planted in the rules, one at a time; the enumeration of all short keys notices each.

A mistake is one text in the source of a module in the place of another one. Its functions take the code of the changed source
while the enumeration runs, so that whoever imported them before has the mistake, too.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib import import_module
from inspect import getsource
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.layout.rules import test_rules_by_brute_force as enumerated
from tests.layout.rules.test_rules_by_brute_force import Small

SEEDS = 80

L1, L2, L3 = (
    enumerated.test_l1_finds_each_pair_that_shares_a_key,
    enumerated.test_l2_finds_each_template_that_reads_a_key_in_two_ways,
    enumerated.test_l3_finds_each_key_that_is_a_directory,
)
L5, L6, L7, L10 = (
    enumerated.test_a_prefix_is_judged_as_trying_all_keys_does,
    enumerated.test_l6_finds_each_layout_inside_anothers_root,
    enumerated.test_l7_finds_each_element_that_does_not_sort_as_its_values_do,
    enumerated.test_l10_finds_each_item_with_keys_beyond_the_limit,
)

# ruff: noqa: E501  # Why: a mistake is read on one line.
MISTAKES: list[tuple[Callable[[Iterable[Small]], None], str, str, str]] = [
    (L1, "overlaps", "chain(combinations(own, 2), product(own, foreign))", "product(own, foreign)"),
    (L1, "decision", "ends = (len(key),) if tail is None", "ends = (0,) if tail is None"),
    (L1, "decision", "        if not holds(template, key):\n            return None\n        ends", "        ends"),
    (L1, "spelling", "return tuple(one for one in divided if one.exact.can_exist) or divided[:1]", "return divided[:-1] or divided"),
    (L1, "spelling", "return tuple(one for one in divided if one.exact.can_exist) or divided[:1]", "return divided[1:] or divided"),
    (L1, "search", "found += [(allowed & also, row + other) for also, other in others if allowed & also]", "found += [(allowed & also, row + other) for also, other in others[:1] if allowed & also]"),
    (L1, "search", "return left in self._first.accepting and right in self._second.accepting\n\n\nclass AmbiguousWords", "return left in self._first.accepting\n\n\nclass AmbiguousWords"),
    (L1, "reading", "begin + most)", "begin + most - 1)"),
    (L1, "reading", "range(begin + least, last + 1)", "range(begin + least, last)"),
    (L1, "reading", "range(begin + least, last + 1)", "range(begin + least + 1, last + 1)"),
    (L2, "overlaps", "for subject in own:", "for subject in own[1:]:"),
    (L2, "decision", "list(islice(readings(template, key), 2))) > 1", "list(islice(readings(template, key), 3))) > 2"),
    (L2, "search", "1 if has_parted or part_of[one] != part_of[other] else 0", "1 if part_of[one] != part_of[other] else 0"),
    (L2, "search", "1 if has_parted or part_of[one] != part_of[other] else 0", "1 if has_parted and part_of[one] != part_of[other] else 0"),
    (L2, "search", "low, high = (one, other) if one <= other else (other, one)", "low, high = (one, one)"),
    (L3, "overlaps", "chain(itself, permutations(own, 2), product", "chain(permutations(own, 2), product"),
    (L3, "overlaps", "chain(itself, permutations(own, 2), product", "chain(itself, [(own[0], own[1])], product"),
    (L3, "overlaps", 'literal(b"/") + Repeat(Bytes(ANY_BYTE))', "Repeat(Bytes(ANY_BYTE), 1)"),
    (L3, "overlaps", 'literal(b"/") + Repeat(Bytes(ANY_BYTE))', 'literal(b"/") + Repeat(Bytes(ANY_BYTE), 2)'),
    (L3, "overlaps", "= Repeat(Bytes(ANY_BYTE), 1)", "= Repeat(Bytes(ANY_BYTE))"),
    (L3, "overlaps", "= Repeat(Bytes(ANY_BYTE), 1)", "= Repeat(Bytes(ANY_BYTE), 2)"),
    (L3, "overlaps", "tail = _BELOW_TEXT if parent.template.is_text", "tail = _BELOW_TEXT if not parent.template.is_text"),
    (L3, "decision", "range(len(key) + 1)\n        return", "range(len(key) - 1)\n        return"),
    (L5, "lists", 'Series(()) | (literal(b"/") + ANYTHING)', 'literal(b"/") + ANYTHING'),
    (L5, "lists", 'Series(()) | (literal(b"/") + ANYTHING)', "Series(())"),
    (L5, "lists", "tail = ANYTHING if is_whole else _AT_OR_BELOW", "tail = None"),
    (L5, "lists", "answer.key is not None or answer.is_open or (not", "answer.key is None or answer.is_open or (not"),
    (L5, "lists", "if name not in found:", "if name in found:"),
    (L5, "lists", "if name not in found:", "if not found:"),
    (L5, "lists", "if answer.key is not None:\n        yield", "if False:\n        yield"),
    (L5, "lists", "returns and subject.name not in returns", "returns and subject.name in returns"),
    (L6, "overlaps", "key_below(root, _ANYTHING, subject.template)", "key_below(root, _SOMETHING, subject.template)"),
    (L6, "overlaps", "for subject in subjects_of(inner)[0]]", "for subject in subjects_of(inner)[0][1:]]"),
    (L6, "overlaps", "            yield from _nested(other, spec,", "            yield from _nested(spec, other,"),
    (L7, "lists", "if not field.element.is_ordered and", "if field.element.is_ordered and"),
    (L7, "lists", "for field in subject.template.fields:", "for field in subject.template.fields[1:]:"),
    (L7, "lists", "if raw < other_raw:", "if raw > other_raw:"),
    (L7, "lists", "if pair[1][0] < pair[0][0]]", "if pair[1][0] > pair[0][0]]"),
    (L10, "refusals", "longest is None or longest > allowed):\n        size = \"of any length\" if longest is None else f\"of up to {longest} bytes\"\n        message = f\"keys", "longest is None or longest > allowed + 1):\n        size = \"of any length\" if longest is None else f\"of up to {longest} bytes\"\n        message = f\"keys"),
    (L10, "refusals", "allowed is not None and (longest is None or longest > allowed):\n        size", "allowed is not None and longest is not None and longest > allowed:\n        size"),
]  # fmt: skip


RULES = (
    "collisions",
    "ambiguities",
    "directories",
    "leaks",
    "nested_roots",
    "disorders",
    "lost_range_ends",
    "exceeded_limits",
)
NEEDED: dict[Callable[[Iterable[Small]], None], str] = {
    L1: "collisions",
    L2: "ambiguities",
    L3: "directories",
    L6: "nested_roots",
    L7: "disorders",
    L10: "exceeded_limits",
}


def planted(patch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> None:
    """Give the module's functions, methods and constants what its source with the other text makes of them."""
    source = getsource(module)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    changed = ModuleType(module.__name__)
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), vars(changed))
    for name, value in list(vars(module).items()):
        twin = vars(changed).get(name)
        if getattr(value, "__module__", None) == module.__name__:
            for own, other in _functions(value, twin):
                patch.setattr(own, "__code__", other.__code__)
        elif name.isupper() and value != twin:
            patch.setattr(module, name, twin)


def _functions(own: Any, other: Any) -> Iterator[tuple[FunctionType, FunctionType]]:
    if isinstance(own, type):
        for name, member in vars(own).items():
            if name in vars(other) and not name.startswith("__dataclass"):
                yield from _functions(member, vars(other)[name])
        return
    own, other = (_plain(member) for member in (own, other))
    if isinstance(own, FunctionType) and own.__code__ != other.__code__:
        yield own, other


def _plain(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    return getattr(member, "__wrapped__", getattr(member, "__func__", member))


def forget() -> None:
    """Forget what was answered without the mistake, or with it."""
    for name in ("decision", "spelling", "reading"):
        for value in vars(import_module(f"keyplan.layout.rules.{name}")).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("check", "name", "old", "new"), MISTAKES, ids=[f"{one[1]}-{n}" for n, one in enumerate(MISTAKES)]
)
def test_a_mistake_in_a_rule_is_noticed(
    check: Callable[[Iterable[Small]], None], name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = import_module("keyplan.layout.rules.check")
    for rule in RULES:
        if rule != NEEDED.get(check):
            monkeypatch.setattr(rules, rule, lambda *_: ())
    planted(monkeypatch, import_module(f"keyplan.layout.rules.{name}"), old, new)
    with pytest.raises(Exception):  # noqa: B017  # Why: a mistake may show as any error.
        check(Small(seed) for seed in range(SEEDS))
