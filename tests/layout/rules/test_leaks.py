"""L4: what a raw read of a list's prefix returns besides the list."""

import pytest

from keyplan.layout.rules import Severity, lint
from keyplan.layout.rules.decision import key_listed_astray
from keyplan.layout.rules.subject import subjects_of
from tests.layout.rules.builders import binary_tables, counter, layout, table, tables, text


def test_lists_below_prefixes_of_their_own_do_not_leak() -> None:
    assert lint(tables("racks/{rack:text}", "users/{user:text}", "blades/{rack:text}/{blade:text}")).of_rule("L4") == ()


def test_tables_that_share_a_directory_are_read_with_each_other() -> None:
    (finding,) = lint(tables("rack/{rack:text}/tor", "rack/{rack:text}/blades/{blade:text}")).of_rule("L4")
    assert (finding.items, finding.severity) == (("t0", "t1"), Severity.NOTE)
    assert (finding.witness, finding.second) == (b"rack/a/tor", b"rack/")
    assert finding.message == (
        "a raw scan of the prefix that lists t0, t1 returns all of them; keyplan's lists return their own alone"
    )


def test_one_prefix_is_one_finding_however_many_tables_share_it() -> None:
    (finding,) = lint(tables("r/{r:text}/a", "r/{r:text}/b", "r/{r:text}/c", "r/{r:text}/d", "s/{s:text}")).of_rule(
        "L4"
    )
    assert finding.items == ("t0", "t1", "t2", "t3")


def test_those_that_only_come_along_stand_after_those_that_are_listed() -> None:
    (finding,) = lint(tables("p/by-name/{name:text}", "p/{p:hex_uuid}/tags/{tag:text}")).of_rule("L4")
    assert finding.items == ("t1", "t0")
    assert (finding.witness, finding.second) == (b"p/by-name/a", b"p/")
    assert finding.message.startswith("a raw scan of the prefix that lists t1 also returns t0")


def test_the_longest_prefix_that_leaks_is_reported() -> None:
    spec = tables("{site:text}/{rack:text}/{blade:text}", "{site:text}/{rack:text}/{blade:text}/log")
    finding = next(finding for finding in lint(spec).of_rule("L4") if finding.items == ("t0", "t1"))
    assert (finding.witness, finding.second) == (b"a/a/a", b"a/a/")


def test_a_counter_among_records_is_read_with_them() -> None:
    spec = layout(table("ports", text("routing/{name:text}")), counter("next", text("routing/next/port")))
    (finding,) = lint(spec).of_rule("L4")
    assert (finding.items, finding.witness) == (("ports", "next"), b"routing/next/port")


def test_the_prefix_without_its_separator_finds_the_plural() -> None:
    (finding,) = lint(tables("rack/{rack:text}", "racks/{rack:text}")).of_rule("L4")
    assert (finding.items, finding.witness, finding.second) == (("t0", "t1"), b"racks/a", b"rack")
    assert finding.severity is Severity.NOTE


def test_keys_of_another_layout_in_a_list_are_a_warning() -> None:
    own = layout(table("users", text("{user:text}")), root=text("site/"))
    other = layout(table("users", text("{user:text}/mail")), name="Mail", root=text("site/"))
    finding = next(one for one in lint(own, others=[other]).of_rule("L4"))
    assert (finding.items, finding.witness) == (("users", "Mail.users"), b"site/a/mail")
    assert finding.severity is Severity.WARNING


def test_a_prefix_that_ends_inside_a_word_is_shared_by_longer_words() -> None:
    (finding,) = lint(tables("rack{rack:text}")).of_rule("L4")
    assert (finding.items, finding.witness, finding.second) == (("t0",), b"racka", b"rack")


def test_a_value_without_a_separator_is_shared_by_longer_values() -> None:
    (finding,) = lint(binary_tables("{rack:text(allow='a-z0-9')}{blade:u64}")).of_rule("L4")
    assert finding.witness == b"a" * 9
    assert finding.second == b"aa"


def test_a_value_without_a_separator_is_told_behind_any_other_field() -> None:
    (finding,) = lint(binary_tables("{id:raw_uuid}{rack:text(allow='a-z')}{blade:decimal(width=4)}")).of_rule("L4")
    assert finding.witness == b"a" * 18 + b"0000"
    assert finding.second == b"a" * 17


def test_a_path_that_goes_on_where_the_prefix_ends_is_told() -> None:
    (finding,) = lint(tables("files/{folder:path}/{name:text}")).of_rule("L4")
    assert (finding.witness, finding.second) == (b"files/a/a/a", b"files/a/")


@pytest.mark.parametrize("template", ["{p.level:u8}{p:path}/{q:u8}", "{p.level:u8}{p:directory}{q:path}"])
def test_a_level_says_where_a_path_ends(template: str) -> None:
    (subject,), _ = subjects_of(binary_tables(template))
    assert [key_listed_astray(prefix, subject.template).key for prefix in subject.prefixes] == [None, None]


def test_a_value_that_delimits_itself_is_not_shared() -> None:
    assert lint(binary_tables("{rack:escaped_text}{blade:u64}")).of_rule("L4") == ()
    assert lint(binary_tables("{rack:raw_uuid}{blade:u64}")).of_rule("L4") == ()


def test_templates_that_collide_are_not_reported_as_leaks_too() -> None:
    report = lint(tables("names/{name:text}", "names/port"))
    assert [finding.rule for finding in report.findings] == ["L1"]
