"""Regions, rules and key spaces as JSON: what PD's HTTP API answers, and what people keep of it in files.

Fields come and go between PD's versions: of a region only `id` and its two keys are needed. Keys are hexadecimal digits in
either case.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.keyspace import State
from keyplan.regions.spaces import NumberedSpace, RegisteredSpace, Space, StoreMode

__all__ = [
    "Label",
    "Region",
    "Rule",
    "page_token_of",
    "parse_regions",
    "parse_rules",
    "parse_spaces",
    "rule_data",
]

KEY_RANGE_RULE: Final = "key-range"
"""The type of rule that PD knows."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region: the keys of `range`, spelled as TiKV stores them. Sizes are PD's estimates; 0 where it gives none."""

    id: int
    range: KeyRange
    size_mebibytes: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """What a rule says about the regions in its ranges."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A label rule of PD, or the range of a placement rule, without labels. PD splits at their ends and merges across none."""

    id: str
    ranges: tuple[KeyRange, ...]
    labels: tuple[Label, ...] = ()
    index: int = 0


# ---- regions ---------------------------------------------------------------------------------------------------------------


class _Region(msgspec.Struct):
    id: int
    start_key: str = ""
    end_key: str = ""
    approximate_size: int = 0
    approximate_keys: int = 0


class _Regions(msgspec.Struct):
    regions: list[_Region] | None
    count: int | None = None


def parse_regions(raw: bytes, *, source: str = "regions") -> list[Region]:
    """Read `{"count", "regions"}`, or the bare list of regions. Their order does not matter.

    Raises InvalidInputError for what is not that, and for a list that holds fewer regions than its count says: a part proves
    nothing about the whole.
    """
    found = _decoded(raw, _Regions | list[_Region], source)
    regions = found if isinstance(found, list) else found.regions or []
    if isinstance(found, _Regions) and found.count is not None and found.count != len(regions):
        problem = f"not the whole list: the count is {found.count}, and there are {len(regions)} regions"
        raise InvalidInputError(source=source, problem=problem)
    return [
        Region(
            region.id,
            _key_range(region.start_key, region.end_key, source, f"region {region.id}"),
            region.approximate_size,
            region.approximate_keys,
        )
        for region in regions
    ]


# ---- rules -----------------------------------------------------------------------------------------------------------------


class _Label(msgspec.Struct):
    key: str
    value: str


class _RuleRange(msgspec.Struct):
    start_key: str = ""
    end_key: str = ""


class _LabelRule(msgspec.Struct):
    id: str
    rule_type: str = KEY_RANGE_RULE
    labels: list[_Label] = []
    index: int = 0
    data: list[_RuleRange] | None = None


class _PlacementRule(msgspec.Struct):
    id: str
    start_key: str = ""
    end_key: str = ""


class _Bundle(msgspec.Struct):
    group_id: str
    rules: list[_PlacementRule]


def parse_rules(raw: bytes, *, source: str = "rules") -> list[Rule]:
    """Read a list of region label rules, of bundles of placement rules, or of both. Raises InvalidInputError."""
    rules: list[Rule] = []
    for item in _decoded(raw, list[msgspec.Raw] | None, source) or []:
        fields = _decoded(bytes(item), dict[str, Any], source)
        if "group_id" in fields and "rules" in fields:
            bundle = _converted(fields, _Bundle, source)
            rules += [
                Rule(f"{bundle.group_id}/{rule.id}", (_key_range(rule.start_key, rule.end_key, source, rule.id),))
                for rule in bundle.rules
            ]
        else:
            rules.append(_label_rule(_converted(fields, _LabelRule, source), source))
    return rules


def _label_rule(rule: _LabelRule, source: str) -> Rule:
    if rule.rule_type != KEY_RANGE_RULE:
        problem = f"the rule {rule.id} has the type {rule.rule_type!r}; PD knows {KEY_RANGE_RULE!r} alone"
        raise InvalidInputError(source=source, problem=problem)
    ranges = tuple(_key_range(pair.start_key, pair.end_key, source, rule.id) for pair in rule.data or [])
    return Rule(rule.id, ranges, tuple(Label(label.key, label.value) for label in rule.labels), rule.index)


def rule_data(rule: Rule) -> dict[str, Any]:
    """Return a label rule as PD takes it: lower-case digits, an empty text for no end."""
    return {
        "id": rule.id,
        "index": rule.index,
        "labels": [{"key": label.key, "value": label.value} for label in rule.labels],
        "rule_type": KEY_RANGE_RULE,
        "data": [{"start_key": pair.start.hex(), "end_key": (pair.end or b"").hex()} for pair in rule.ranges],
    }


# ---- key spaces ------------------------------------------------------------------------------------------------------------


class _Registered(msgspec.Struct):
    name: str
    prefix: str
    state: str = State.ENABLED


class _Numbered(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(ge=0)]
    name: str
    state: str = State.ENABLED
    config: dict[str, str] = {}


_PD_STATES: Final = {"ARCHIVED": State.DELETING, "TOMBSTONE": State.DELETED}
"""1.5: PD's words for a key space that goes, and for one that is gone."""


def parse_spaces(raw: bytes, *, source: str = "key spaces", is_page: bool = False) -> list[Space]:
    """Read `{"keyspaces": [...]}`, as keyplan's registry, `keyplan region import` or PD give it, or the bare list.

    One with a prefix is keyplan's, one with a number as its id is PD's. Raises InvalidInputError; also for a list that goes on
    behind its end, unless a page is asked for: what is planned from a part would leave the rest out.
    """
    found = _decoded(raw, dict[str, Any] | list[Any], source)
    items = found.get("keyspaces") if isinstance(found, dict) else found
    if isinstance(found, dict) and "keyspaces" not in found:
        raise InvalidInputError(source=source, problem="there is no list `keyspaces`")
    if isinstance(found, dict) and found.get("next_page_token") and not is_page:
        problem = "not the whole list: it has a next_page_token; ask for the pages that follow and put them together"
        raise InvalidInputError(source=source, problem=problem)
    return [_space(item, source) for item in items or []]


class _Page(msgspec.Struct):
    next_page_token: str | None = None


def page_token_of(raw: bytes, *, source: str) -> str:
    """Return the token with which PD's list goes on; empty on its last page. Raises InvalidInputError."""
    page: _Page = _decoded(raw, _Page, source)
    return page.next_page_token or ""


def _space(item: Any, source: str) -> Space:
    if isinstance(item, dict) and "prefix" in item:
        registered = _converted(item, _Registered, source)
        return RegisteredSpace(
            registered.name, _bytes(registered.prefix, source, registered.name), _state(registered.state, source)
        )
    numbered = _converted(item, _Numbered, source)
    bound_type = numbered.config.get("region_bound_type")
    if bound_type is not None and bound_type not in set(StoreMode):
        raise InvalidInputError(source=source, problem=f"{numbered.name} has the region_bound_type {bound_type!r}")
    modes = () if bound_type is None else (StoreMode(bound_type),)
    return NumberedSpace(numbered.name, numbered.id, _state(numbered.state, source), modes=modes)


def _state(text: str, source: str) -> State:
    known: dict[str, State] = {state.value: state for state in State} | _PD_STATES
    state = known.get(text.upper())
    if state is None:
        raise InvalidInputError(source=source, problem=f"there is no state {text!r}; the states are {', '.join(known)}")
    return state


# ---- keys ------------------------------------------------------------------------------------------------------------------


def _key_range(start: str, end: str, source: str, name: str) -> KeyRange:
    key_range = KeyRange(_bytes(start, source, name), _bytes(end, source, name) or None)
    if key_range.is_empty:
        raise InvalidInputError(source=source, problem=f"{name} ends at or before its start")
    return key_range


def _bytes(digits: str, source: str, name: str) -> bytes:
    try:
        raw = bytes.fromhex(digits)
    except ValueError as error:
        raise InvalidInputError(source=source, problem=f"a key of {name} is not hexadecimal") from error
    # Trap: fromhex skips blanks between digits.
    if 2 * len(raw) != len(digits):
        raise InvalidInputError(source=source, problem=f"a key of {name} is not hexadecimal")
    return raw


def _decoded(raw: bytes, kind: Any, source: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(source=source, problem=f"not as PD has it: {error}") from error


def _converted(fields: Any, kind: Any, source: str) -> Any:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidInputError(source=source, problem=f"not as PD has it: {error}") from error
