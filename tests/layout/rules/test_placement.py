"""L8: lists that ask every database of a ring."""

from keyplan.layout.rules import Severity, lint
from tests.layout.rules.builders import binary, layout, table


def test_a_table_that_is_not_placed_has_no_fan_out() -> None:
    assert lint(layout(table("runs", binary("{dataset:raw_uuid}{run:u64}")))).of_rule("L8") == ()


def test_the_fields_that_placement_needs_are_counted() -> None:
    spec = layout(table("events", binary("{dataset:raw_uuid}{run:u64}{event:u64}"), place=("dataset", "run")))
    (finding,) = lint(spec).of_rule("L8")
    assert finding.items == ("events",)
    assert finding.message == "placed by dataset, run: lists by fewer than 2 fields must ask every database"
    assert finding.severity is Severity.NOTE
    assert finding.witness == b"a" * 32
    assert finding.second == b"a" * 23 + b"\x00" + b"a" * 8


def test_placement_by_an_attribute_is_shown_by_values_that_differ_in_it() -> None:
    spec = layout(table("datasets", binary("{path.level:u8}{path:path}"), place=("path.parent",)))
    (finding,) = lint(spec).of_rule("L8")
    assert finding.message == "placed by path.parent: the list of all must ask every database"
    assert (finding.witness, finding.second) == (b"\x00a", b"\x01a/a")
