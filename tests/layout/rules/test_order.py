"""L7: keys that do not sort as their values do."""

from keyplan.layout import Component, IndexSpec, LayoutSpec, Origin
from keyplan.layout.rules import Finding, lint
from tests.layout.rules.builders import SHAPE, binary_tables, layout, table, tables, text


def only(spec: LayoutSpec) -> Finding:
    (finding,) = lint(spec).of_rule("L7")
    return finding


def test_padded_and_binary_numbers_sort() -> None:
    assert lint(tables("blades/{blade:decimal(width=4)}")).of_rule("L7") == ()
    assert lint(binary_tables("{blade:u64}{name:text_tail}")).of_rule("L7") == ()


def test_plain_decimals_sort_as_text() -> None:
    finding = only(tables("blades/{blade:decimal}"))
    assert finding.items == ("t0.blade",)
    assert (finding.witness, finding.second) == (b"blades/10", b"blades/2")
    assert finding.message.startswith("10 sorts before 2: ")


def test_a_little_endian_varint_sorts_256_before_129() -> None:
    finding = only(binary_tables("{id:uvarint}"))
    assert (finding.witness, finding.second) == (b"\x80\x02", b"\x81\x01")
    assert finding.message.startswith("256 sorts before 129: ")


def test_a_level_sorts_before_the_path() -> None:
    finding = only(binary_tables("{path:level_path}"))
    assert (finding.witness, finding.second) == (b"\x00b", b"\x01a/a")


def test_escapes_sort_where_the_percent_sign_does() -> None:
    finding = only(tables("{name:percent}"))
    assert (finding.witness, finding.second) == (b"%2F", b"&")
    assert finding.message.startswith("'/' sorts before '&': ")


def test_an_index_is_not_blamed_for_the_primary_keys_order() -> None:
    by_slot = IndexSpec(
        "by_slot",
        text("s/{slot:decimal}/{blade:decimal}"),
        "blades",
        is_unique=False,
        key=SHAPE,
        components=(Component(Origin.RECORD, "slot"), Component(Origin.KEY, "blade")),
    )
    spec = layout(table("blades", text("b/{blade:decimal}")), by_slot)
    assert [finding.items for finding in lint(spec).of_rule("L7")] == [("blades.blade",), ("by_slot.slot",)]
