"""Rules about keys against all short keys of random small layouts: no finding is missed, none is false, none too long.

What the lint says is compared with what tables of keys say that were made without automata (`tests.small_keys`).
"""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import pytest

from keyplan.codec import Element
from keyplan.layout import EngineLimits, Field, Finding, Template, layout_class_of, lint, lint_prefix
from keyplan.layout.rules import LintReport
from keyplan.layout.rules.reading import readings
from tests.small_keys import KEY_BYTES_MAX, KeysByBytes, layout_of, random_template, small_keys, small_members

SEEDS_EACH = 16


@cache
def drawn(seed: int) -> tuple[tuple[Template, Template], tuple[KeysByBytes, KeysByBytes]]:
    """Two templates and their keys, for all tests of a seed."""
    rng = Random(seed)
    is_text = rng.random() < 0.5
    found: list[tuple[Template, KeysByBytes]] = []
    while len(found) < 2:
        made = random_template(rng, is_text=is_text)
        keys = small_keys(made) if made is not None else {}
        if made is not None and keys:
            found.append((made, keys))
    (first, second), (ones, others) = zip(*found, strict=True)
    return (first, second), (ones, others)


class Small:
    """Two random templates of one kind, all their short keys, and what the lint says of them as tables t0 and t1."""

    def __init__(self, seed: int) -> None:
        self.templates, self.keys = drawn(seed)
        self.first, self.second = self.templates
        self.spec = layout_of(*self.templates)
        self.report = lint(self.spec, limits=EngineLimits(key_bytes_max=KEY_BYTES_MAX - 2))
        self.told = f"seed {seed}: {self.first.source} | {self.second.source}"
        bound = layout_class_of(self.spec).bound()
        self.decode = [bound.tables[name].keys.decode for name in ("t0", "t1")]

    @property
    def may_be_undecided(self) -> bool:
        """Whether a codec has rules beside its language, of which the automata know nothing."""
        return any("percent" in template.source for template in self.templates)

    @property
    def separator(self) -> bytes:
        return b"/" if self.first.is_text else b""

    def finding(self, rule: str, *items: str) -> Finding | None:
        return _one(self.report, rule, items)

    def is_key(self, number: int, raw: bytes) -> bool:
        """Whether these bytes are a key: by the enumeration, where it reaches."""
        return raw in self.keys[number] or self.decode[number](raw) is not None


def _one(report: LintReport, rule: str, items: tuple[str, ...]) -> Finding | None:
    return next((finding for finding in report.of_rule(rule) if finding.items == items), None)


@pytest.fixture(scope="module", params=range(5))
def smalls(request: pytest.FixtureRequest) -> list[Small]:
    return [Small(seed) for seed in range(request.param * SEEDS_EACH, (request.param + 1) * SEEDS_EACH)]


def judge(small: Small, found: Finding | None, expected: Iterable[bytes], holds: Callable[[Finding], bool]) -> None:
    """Nothing missed; what is found holds; and it is no longer than the shortest that was expected."""
    shortest = min(map(len, expected), default=None)
    told = (small.told, found, shortest)
    if found is None:
        assert shortest is None, told
    elif found.witness is not None:
        assert holds(found), told
        assert shortest is None or len(found.witness) <= shortest, told
    else:
        assert small.may_be_undecided, told


def _is_key_of(small: Small, *numbers: int) -> Callable[[Finding], bool]:
    def holds(found: Finding) -> bool:
        return all(small.is_key(number, found.witness or b"") for number in numbers)

    return holds


# ---- L1, L2 ---------------------------------------------------------------------------------------------------------------


def test_l1_finds_each_pair_that_shares_a_key(smalls: Iterable[Small]) -> None:
    for small in smalls:
        shared = small.keys[0].keys() & small.keys[1].keys()
        judge(
            small,
            small.finding("L1", "t0", "t1"),
            shared,
            _is_key_of(small, 0, 1),
        )


def test_l2_finds_each_template_that_reads_a_key_in_two_ways(smalls: Iterable[Small]) -> None:
    for small in smalls:
        for number, keys in enumerate(small.keys):
            ambiguous = {raw for raw, values in keys.items() if len(values) > 1}
            found = small.finding("L2", f"t{number}")
            judge(small, found, ambiguous, _is_read_twice(keys))


def _is_read_twice(keys: KeysByBytes) -> Callable[[Finding], bool]:
    def holds(found: Finding) -> bool:
        return found.witness not in keys or found.witness in _twice(keys)

    return holds


def _twice(keys: KeysByBytes) -> set[bytes]:
    return {raw for raw, values in keys.items() if len(values) > 1}


# ---- L3, L11 --------------------------------------------------------------------------------------------------------------


def test_l3_finds_each_key_that_is_a_directory(smalls: Iterable[Small]) -> None:
    for small in smalls:
        for parent, child in ((0, 1), (1, 0), (0, 0), (1, 1)):
            if parent == child and not small.first.is_text:
                continue
            below = set(_below(small.keys[parent], small.keys[child], small.separator))
            names = (f"t{parent}",) if parent == child else (f"t{parent}", f"t{child}")
            judge(small, small.finding("L3", *names), below, _is_in_directory(small, parent, child))


def _below(parents: KeysByBytes, children: KeysByBytes, separator: bytes) -> Iterable[bytes]:
    for child in children:
        for cut in range(len(child)):
            if child[:cut] in parents and child.startswith(separator, cut):
                yield child


def _is_in_directory(small: Small, parent: int, child: int) -> Callable[[Finding], bool]:
    def holds(one: Finding) -> bool:
        above, below = one.witness or b"", one.second or b""
        is_below = below.startswith(above + small.separator) and len(below) > len(above)
        return is_below and small.is_key(parent, above) and small.is_key(child, below)

    return holds


# ---- prefixes of others: L4 and L5 ----------------------------------------------------------------------------------------


def test_a_prefix_is_judged_as_trying_all_keys_does(smalls: Iterable[Small]) -> None:
    for small in smalls:
        findings = lint_prefix(small.spec, small.first, returns=["t0"])
        beginnings = set(small.keys[0])
        unwanted = {raw for raw in small.keys[1] if any(raw.startswith(one) for one in beginnings)}
        found = next((one for one in findings if one.rule == "L4" and "t1" in one.items), None)
        judge(small, found, unwanted, _is_key_of(small, 1))
        nothing = [one for one in lint_prefix(small.spec, small.first, returns=["t1"]) if one.rule == "L5"]
        assert not (nothing and _at_or_below(small, beginnings)), (small.told, nothing)
        # Why: where no key of t1 begins with the prefix, none can exist below it.
        assert nothing or found is not None or _ends_alike(small), small.told


def _at_or_below(small: Small, beginnings: set[bytes]) -> set[bytes]:
    below = {raw for raw in small.keys[1] for one in beginnings if raw == one or raw.startswith(one + small.separator)}
    return below if small.first.is_text else {raw for raw in below if raw in beginnings}


def _ends_alike(small: Small) -> bool:
    """Whether the prefix is a whole number of parts of t1: then a key that goes on where it ends is below it."""
    parts = zip(small.first.parts, small.second.parts, strict=False)
    return len(small.first.parts) <= len(small.second.parts) and all(
        one.language == other.language for one, other in parts
    )


# ---- L6: roots ------------------------------------------------------------------------------------------------------------


def test_l6_finds_each_layout_inside_anothers_root(smalls: Iterable[Small]) -> None:
    rng = Random(6)
    for small in smalls:
        root = min(rng.choice(small.keys), key=len)[: rng.randint(1, 2)]
        outer = layout_of(small.first, root=root)
        inner = layout_of(small.second)
        inside = {raw for raw in small.keys[1] if raw.startswith(root)}
        findings = [one for one in lint(inner, others=[outer]).of_rule("L6") if one.second == root]
        judge(small, next(iter(findings), None), inside, _is_key_of(small, 1))


# ---- L7: order ------------------------------------------------------------------------------------------------------------


def test_l7_finds_each_element_that_does_not_sort_as_its_values_do(smalls: Iterable[Small]) -> None:
    for small in smalls:
        for number, template in enumerate(small.templates):
            for field in template.fields:
                inverted = _inverted(field.element, is_text=template.is_text)
                found = small.finding("L7", f"t{number}.{field.name}")
                assert (found is None) <= (not inverted), (small.told, field.name)
                if found is not None and found.witness and found.second:
                    assert found.witness < found.second, small.told
                    assert _first_value(found.witness, template, field) > _first_value(found.second, template, field)


def _first_value(raw: bytes, template: Template, field: Field) -> Any:
    return field.element.decode(next(readings(template, raw))[field.name])


def _inverted(element: Element[object], *, is_text: bool) -> bool:
    """Whether two short values sort otherwise than their bytes do."""
    pairs = combinations(sorted(small_members(element, is_text=is_text))[:80], 2)
    return any(first > second for (_, first), (_, second) in pairs)


# ---- L10 ------------------------------------------------------------------------------------------------------------------


def test_l10_finds_each_item_with_keys_beyond_the_limit(smalls: Iterable[Small]) -> None:
    for small in smalls:
        for number in range(2):
            long = {raw for raw in small.keys[number] if len(raw) > KEY_BYTES_MAX - 2}
            found = small.finding("L10", f"t{number}")
            assert not long or (found is not None and found.witness is not None), (small.told, long)
            if found is not None and found.witness is not None:
                assert len(found.witness) > KEY_BYTES_MAX - 2, small.told
                assert small.is_key(number, found.witness), small.told
