"""L10: what an engine can refuse."""

from keyplan.layout.rules import EngineLimits, Severity, lint
from tests.layout.rules.builders import binary_tables, index, layout, table, tables, text


def test_without_limits_nothing_is_too_large() -> None:
    assert lint(tables("{a:text}/{b:text}/{c:text}")).of_rule("L10") == ()


def test_two_names_fit_the_keys_of_lmdb_and_three_do_not() -> None:
    limits = EngineLimits(key_bytes_max=511)
    assert lint(tables("{a:text}/{b:text}"), limits=limits).of_rule("L10") == ()
    (finding,) = lint(tables("{a:text}/{b:text}/{c:text}"), limits=limits).of_rule("L10")
    assert finding.items == ("t0",)
    assert finding.message == "keys can be of up to 767 bytes, the engine takes 511"
    assert finding.witness == b"a" * 255 + b"/" + b"a" * 254 + b"/" + b"a"
    assert len(finding.witness) == 512


def test_a_key_without_a_longest_spelling_exceeds_every_limit() -> None:
    (finding,) = lint(binary_tables("{name:text_tail}"), limits=EngineLimits(key_bytes_max=8)).of_rule("L10")
    assert finding.message == "keys can be of any length, the engine takes 8"
    assert finding.witness == b"a" * 9


def test_the_longest_value_of_the_roots_parameter_counts() -> None:
    spec = layout(table("t", text("{a:text(bytes_max=10)}")), root=text("{site:text(bytes_max=10)}/"))
    assert lint(spec, limits=EngineLimits(key_bytes_max=21)).of_rule("L10") == ()
    (finding,) = lint(spec, limits=EngineLimits(key_bytes_max=20)).of_rule("L10")
    assert finding.message == "keys can be of up to 21 bytes, the engine takes 20"
    assert finding.witness is None


def test_indexes_that_spread_over_a_collection_can_exceed_a_commit() -> None:
    spec = layout(
        table("objects", text("o/{id:text}")),
        index("by_name", text("n/{name:text}"), "objects", unique=True),
        index("by_tag", text("t/{tag:text}/{id:text}"), "objects", each="tags"),
    )
    (finding,) = lint(spec, limits=EngineLimits(commit_operations_max=128)).of_rule("L10")
    assert (finding.items, finding.severity) == (("objects", "by_tag"), Severity.NOTE)
    assert finding.message == (
        "an update needs up to 3 operations and two for each changed item of tags, the engine takes 128 in a commit"
    )


def test_more_indexes_than_a_commit_holds_are_a_warning() -> None:
    indexes = [index(f"i{n}", text(f"i{n}/{{name:text}}"), "objects", unique=True) for n in range(3)]
    spec = layout(table("objects", text("o/{id:text}")), *indexes)
    assert lint(spec, limits=EngineLimits(commit_operations_max=7)).of_rule("L10") == ()
    (finding,) = lint(spec, limits=EngineLimits(commit_operations_max=6)).of_rule("L10")
    assert (finding.items, finding.severity) == (("objects", "i0", "i1", "i2"), Severity.WARNING)


def test_a_unique_entry_holds_the_primary_key_as_its_value() -> None:
    spec = layout(
        table("objects", text("o/{id:text(bytes_max=9)}")), index("by_name", text("{n:text}"), "objects", unique=True)
    )
    assert lint(spec, limits=EngineLimits(value_bytes_max=11)).of_rule("L10") == ()
    (finding,) = lint(spec, limits=EngineLimits(value_bytes_max=10)).of_rule("L10")
    assert (finding.items, finding.witness) == (("by_name", "value"), b"o/aaaaaaaaa")


def test_the_keys_of_one_update_can_exceed_a_commit() -> None:
    spec = layout(
        table("objects", text("o/{id:text(bytes_max=9)}")), index("i", text("{n:text(bytes_max=9)}"), "objects")
    )
    assert lint(spec, limits=EngineLimits(commit_bytes_max=29)).of_rule("L10") == ()
    (finding,) = lint(spec, limits=EngineLimits(commit_bytes_max=28)).of_rule("L10")
    assert finding.items == ("objects", "commit")
