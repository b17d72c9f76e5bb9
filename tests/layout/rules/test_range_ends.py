"""L9: keys that a range ending at prefix + FF loses."""

from keyplan.layout.rules import Severity, lint
from tests.layout.rules.builders import binary_tables, tables


def test_text_never_goes_on_with_ff() -> None:
    assert lint(tables("racks/{rack:text}", "{name:percent}")).of_rule("L9") == ()


def test_a_raw_uuid_may_begin_with_ff() -> None:
    (finding,) = lint(binary_tables("o{uuid:raw_uuid}")).of_rule("L9")
    assert (finding.items, finding.severity) == (("t0",), Severity.NOTE)
    assert (finding.witness, finding.second) == (b"o\xff" + b"a" * 15, b"o")


def test_every_list_that_loses_keys_is_named() -> None:
    (finding,) = lint(binary_tables("{name:escaped_text}{run:u64}{event:u64}")).of_rule("L9")
    assert finding.message == "a range that ends at prefix + FF loses keys, in lists by 1, 2 bound fields"
    assert (finding.witness, finding.second) == (b"\x00\xff" + b"a" * 15, b"\x00")
