"""L3, a key that is also a directory; L11, what outlives the leased record above it."""

import pytest

from keyplan.layout.rules import lint
from tests.layout.rules.builders import binary, binary_tables, counter, index, layout, table, tables, text


def test_siblings_are_no_directories_of_each_other() -> None:
    assert lint(tables("racks/{rack:text}", "rack/{rack:text}/tor", "racks2")).of_rule("L3") == ()


def test_a_record_with_keys_below_it_is_a_directory() -> None:
    (finding,) = lint(tables("postgres/{name:text}", "postgres/{name:text}/leader")).of_rule("L3")
    assert finding.items == ("t0", "t1")
    assert (finding.witness, finding.second) == (b"postgres/a", b"postgres/a/leader")


def test_a_text_key_that_goes_on_without_a_slash_is_no_directory() -> None:
    assert lint(tables("rack", "racks", "rack-{number:decimal}")).of_rule("L3") == ()


def test_a_directory_that_is_itself_written_is_found() -> None:
    (finding,) = lint(tables("jobs", "jobs/")).of_rule("L3")
    assert (finding.witness, finding.second) == (b"jobs", b"jobs/")


def test_in_a_binary_layout_every_strict_prefix_counts() -> None:
    (finding,) = lint(binary_tables("r{run:u64}", "r{run:u64}{event:u64}")).of_rule("L3")
    assert (finding.witness, finding.second) == (b"raaaaaaaa", b"raaaaaaaaaaaaaaaa")


def test_an_unleased_child_outlives_its_leased_parent() -> None:
    spec = layout(
        table("members", text("service/{cluster:text}/members/{member:text}"), lease=True),
        table("tags", text("service/{cluster:text}/members/{member:text}/tags")),
    )
    (finding,) = lint(spec).of_rule("L11")
    assert finding.items == ("members", "tags")
    assert (finding.witness, finding.second) == (b"service/a/members/a", b"service/a/members/a/tags")


@pytest.mark.parametrize("is_leased", [True, False])
def test_a_child_on_a_lease_or_below_an_unleased_parent_is_right(*, is_leased: bool) -> None:
    spec = layout(
        table("members", text("members/{member:text}"), lease=is_leased),
        table("tags", text("members/{member:text}/tags"), lease=is_leased),
        table("history", text("history/{member:text}")),
    )
    assert lint(spec).of_rule("L11") == ()


def test_a_counter_below_a_leased_record_outlives_it() -> None:
    spec = layout(table("sessions", text("s/{name:text}"), lease=True), counter("calls", text("s/all/calls")))
    (finding,) = lint(spec).of_rule("L11")
    assert (finding.items, finding.witness) == (("sessions", "calls"), b"s/all")


def test_index_entries_hang_on_the_lease_of_their_record() -> None:
    spec = layout(
        table("sessions", text("s/{name:text}"), lease=True),
        table("users", text("u/{name:text}")),
        index("by_host", text("s/{host:text}/{name:text}"), "sessions"),
        index("by_user", text("s/{user:text}/of/{name:text}"), "users"),
    )
    assert [finding.items for finding in lint(spec).of_rule("L11")] == [("sessions", "by_user")]


def test_in_a_binary_layout_only_a_repeated_key_makes_a_child() -> None:
    spec = layout(
        table("runs", binary("{run:u64}"), lease=True),
        table("events", binary("{run:u64}{event:u64}")),
        table("blobs", binary("{blob:raw_uuid}")),
    )
    (finding,) = lint(spec).of_rule("L11")
    assert (finding.items, finding.witness, finding.second) == (("runs", "events"), b"a" * 8, b"a" * 16)
