"""L1, two templates that can produce one key; L2, a template that reads one key in two ways."""

import pytest

from keyplan.layout.rules import Severity, lint
from tests.layout.rules.builders import binary_tables, layout, table, tables, text


def test_templates_with_different_literals_do_not_collide() -> None:
    report = lint(tables("racks/{rack:text}", "users/{user:text}", "rack/{rack:text}/tor"))
    assert report.of_rule("L1") == ()


def test_a_field_that_can_spell_another_templates_literal_collides() -> None:
    (finding,) = lint(tables("types/object/{code:text}", "types/{kind:text}/{code:text}")).of_rule("L1")
    assert finding.items == ("t0", "t1")
    assert finding.witness == b"types/object/a"
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("first", "second", "witness"),
    [
        ("{a:text}", "{b:text}", b"a"),
        ("{a:hex_uuid}", "{b:text}", b"a" * 32),
        ("{a:hex_uuid}", "{b:text(bytes_max=31)}", None),
        ("{a:hex_uuid}", "{b:text(bytes_max=32)}", b"a" * 32),
        ("{a:text(allow='a-m')}", "{b:text(allow='m-z')}", b"m"),
        ("{a:text(allow='a-m')}", "{b:text(allow='n-z')}", None),
        ("{a:text}/x", "y/{b:text}", b"y/x"),
        ("{a:decimal}", "{b:decimal(width=3)}", b"100"),
        ("{a:text(dots=false)}", ".", None),
        ("{a:text(dots=false)}", "...", b"..."),
        ("a{a:text(exclude='')}a", "/{b:text(exclude='')}", None),
    ],
)
def test_the_witness_is_the_shortest_common_key(first: str, second: str, witness: bytes | None) -> None:
    assert [finding.witness for finding in lint(tables(first, second)).of_rule("L1")] == ([witness] if witness else [])


def test_length_bounds_too_long_for_the_relaxed_automata_are_kept() -> None:
    literal = "a" * 60
    assert lint(tables(literal, "{name:text(bytes_max=59)}")).of_rule("L1") == ()
    (finding,) = lint(tables(literal, "{name:text(bytes_max=60)}")).of_rule("L1")
    assert finding.witness == b"a" * 60


def test_a_collision_with_another_layout_names_that_layout() -> None:
    own = layout(table("names", text("{kind:text}/{name:text}")), root=text("site/"))
    other = layout(table("jobs", text("job/{job:text}")), name="Queue", root=text("site/"))
    (finding,) = lint(own, others=[other]).of_rule("L1")
    assert (finding.items, finding.witness) == (("names", "Queue.jobs"), b"site/job/a")


def test_a_separator_that_the_parts_exclude_makes_a_key_readable_in_one_way() -> None:
    assert lint(tables("{host:text(exclude=':')}:{port:text}")).of_rule("L2") == ()


def test_a_separator_that_the_parts_may_hold_makes_a_key_readable_in_two_ways() -> None:
    (finding,) = lint(tables("{host:text}:{port:text}")).of_rule("L2")
    assert finding.items == ("t0",)
    assert finding.witness == b"a::a"
    assert finding.message == "one key reads as host=a port=:a or host=a: port=a"


def test_neighbouring_names_without_a_separator_are_read_in_two_ways() -> None:
    (finding,) = lint(tables("{first:text}{second:text}")).of_rule("L2")
    assert finding.witness == b"aaa"


def test_neighbours_of_fixed_width_are_read_in_one_way() -> None:
    assert lint(binary_tables("{dataset:raw_uuid}{run:u64}{name:text_tail}")).of_rule("L2") == ()


def test_a_name_before_a_fixed_width_is_read_in_one_way() -> None:
    assert lint(tables("{name:text}{id:hex_uuid}")).of_rule("L2") == ()
