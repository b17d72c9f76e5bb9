"""Plans from lists that are parts, or older than what PD has: nothing of a key space that they do not know is taken away."""

import json

import pytest

from keyplan.engine import Commit, KeyRange, MemoryEngine, Put
from keyplan.errors import InvalidInputError, NotFoundError
from keyplan.keyspace import State
from keyplan.regions import (
    Label,
    OwnedRange,
    Region,
    RegisteredSpace,
    Rule,
    StoreMode,
    import_spaces,
    parse_spaces,
    plan_regions,
    verify,
)

WHOLE = Region(1, KeyRange(b"", None))
RAW = (StoreMode.RAW,)
ONE, TWO = RegisteredSpace("one", b"\x01"), RegisteredSpace("two", b"\x02")


def rule(name: str, prefix: bytes, owner: str = "keyplan/c/") -> Rule:
    return Rule(owner + name, (KeyRange.of_prefix(prefix),), (Label("keyplan", name),))


def test_a_part_of_a_list_is_refused_and_a_page_is_read() -> None:
    part = json.dumps({"keyspaces": [{"name": "one", "prefix": "01"}], "next_page_token": "100"}).encode()
    with pytest.raises(InvalidInputError, match="next_page_token"):
        parse_spaces(part)
    assert parse_spaces(part, is_page=True) == [ONE]


def test_the_rule_of_a_key_space_that_the_list_does_not_know_stays_and_is_told() -> None:
    plan = plan_regions([ONE], [WHOLE], [rule("one", b"\x01"), rule("two", b"\x02")], cluster="c", modes=RAW)
    assert (plan.rules_to_set, plan.rules_to_delete, plan.rules_unknown) == ((), (), ("keyplan/c/two",))
    assert plan.data()["rules_unknown"] == ["keyplan/c/two"]


def test_the_rule_of_a_tombstone_goes_and_that_of_its_successor_stays() -> None:
    gone = RegisteredSpace("two", b"\x02", State.DELETED)
    plan = plan_regions([ONE, gone], [WHOLE], [rule("two", b"\x02")], cluster="c", modes=RAW)
    assert plan.rules_to_delete == ("keyplan/c/two",)
    later = plan_regions([ONE, gone], [WHOLE], [rule("two", b"\x05")], cluster="c", modes=RAW)
    assert (later.rules_to_delete, later.rules_unknown) == ((), ("keyplan/c/two",))


def test_no_rule_is_set_beside_pds_own_for_the_same_ranges() -> None:
    own = Rule("keyspaces/5", (KeyRange.of_prefix(b"\x01"),), (Label("id", "5"),))
    plan = plan_regions([ONE, TWO], [WHOLE], [own], cluster="c", modes=RAW)
    assert [found.id for found in plan.rules_to_set] == ["keyplan/c/two"]
    both = plan_regions([ONE], [WHOLE], [own, rule("one", b"\x01")], cluster="c", modes=RAW)
    assert both.rules_to_delete == ("keyplan/c/one",)
    other = rule("one", b"\x01", "keyplan/another/")
    assert plan_regions([ONE], [WHOLE], [other], cluster="c", modes=RAW).rules_to_set == (rule("one", b"\x01"),)


def test_a_cluster_of_5000_digits_is_no_cluster() -> None:
    with MemoryEngine() as engine:
        engine.commit(Commit((), (Put(b"/pd/" + b"9" * 5_000 + b"/x", b""),)))
        with pytest.raises(NotFoundError):
            import_spaces(engine)


def test_each_boundary_without_a_guard_names_its_key_spaces() -> None:
    ranges = [OwnedRange("a", KeyRange(b"a", b"b")), OwnedRange("b", KeyRange(b"b", b"c"))]
    found = [violation.names for violation in verify(ranges, [WHOLE], []).violations[-3:]]
    assert found == [("a",), ("a", "b"), ("b",)]
