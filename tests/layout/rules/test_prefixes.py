"""A prefix that a document or a script reads by: what else it returns, or nothing."""

import pytest

from keyplan.errors import UnknownNameError
from keyplan.layout.rules import lint_prefix
from tests.layout.rules.builders import binary, binary_tables, layout, table, tables, text


def test_a_prefix_that_ends_at_a_separator_returns_what_it_says() -> None:
    assert lint_prefix(tables("racks/{rack:text}", "rack/{rack:text}/tor"), text("rack/{rack:text}/")) == ()


def test_a_prefix_without_separator_returns_longer_words() -> None:
    (finding,) = lint_prefix(tables("rack/{rack:text}/tor", "racks/{rack:text}"), text("rack"))
    assert (finding.rule, finding.items) == ("L4", ("rack", "t1"))
    assert (finding.witness, finding.second) == (b"racks/a", b"rack")


def test_a_prefix_without_separator_leaks_in_an_open_world() -> None:
    (finding,) = lint_prefix(tables("racks/{rack:text}"), text("racks"))
    assert (finding.rule, finding.items) == ("L4", ("racks",))
    assert (finding.witness, finding.second) == (b"racksa", b"racks")


def test_a_prefix_below_which_nothing_is_returns_nothing() -> None:
    rules = [
        finding.rule for finding in lint_prefix(tables("a/{x:text}/instance/{y:text}"), text("a/{x:text}/instances/"))
    ]
    assert rules == ["L5"]


def test_a_named_wish_makes_everything_else_unwanted() -> None:
    spec = tables("rack/{rack:text}/tor", "rack/{rack:text}/blades/{blade:text}")
    (finding,) = lint_prefix(spec, text("rack/{rack:text}/"), returns=["t1"])
    assert (finding.items, finding.witness) == (("rack/{rack:text}/", "t0"), b"rack/a/tor")


def test_a_named_wish_that_cannot_be_returned_is_found() -> None:
    spec = tables("rack/{rack:text}/tor", "racks/{rack:text}")
    findings = lint_prefix(spec, text("rack/"), returns=["t0", "t1"])
    assert [(finding.rule, finding.items) for finding in findings] == [("L5", ("rack/", "t1"))]


def test_a_wish_for_an_unknown_item_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        lint_prefix(tables("{a:text}"), text("a/"), returns=["t7"])


def test_a_tag_byte_of_a_binary_layout_is_whole() -> None:
    spec = binary_tables("r{run:u64}", "s{run:u64}")
    assert [finding.items for finding in lint_prefix(spec, binary("r"))] == [("r",)]
    assert lint_prefix(spec, binary("r{run:u64}")) == ()


def test_other_layouts_are_below_the_prefix_as_well() -> None:
    own = layout(table("users", text("users/{user:text}")), root=text("/site/"))
    test = layout(table("users", text("users/{user:text}")), name="Standard", root=text("/site/test/"))
    (finding,) = lint_prefix(own, text("/site/"), returns=["users"], others=[test])
    assert (finding.items, finding.witness) == (("/site/", "Standard.users"), b"/site/test/users/a")
