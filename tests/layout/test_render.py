"""The map of a layout and its Markdown reference."""

from dataclasses import replace

from keyplan.layout import Component, IndexSpec, LayoutSpec, Origin, Waiver
from keyplan.layout.render import render_docs, render_map
from keyplan.layout.spec import Condition
from tests.layout.rules.builders import SHAPE, binary, counter, index, layout, table, text


def site() -> LayoutSpec:
    by_tag = IndexSpec(
        "by_tag",
        text("by-tag/{tag:text(bytes_max=9)}/{rack:text(bytes_max=9)}"),
        "blades",
        is_unique=False,
        key=SHAPE,
        components=(Component(Origin.EACH, "tags"), Component(Origin.KEY, "rack")),
        when=(Condition("state", "on"), Condition("owner", None, is_equal=False)),
    )
    return layout(
        table("racks", text("racks/{rack:text(bytes_max=9)}")),
        table(
            "blades", text("rack/{rack:text(bytes_max=9)}/blades/{blade:decimal(width=4)}"), lease=True, place=("rack",)
        ),
        index("by_serial", text("by-serial/{serial:hex_uuid}"), "blades", unique=True),
        by_tag,
        counter("port", text("next-port")),
        name="Site",
        root=text("/site/{area:text(bytes_max=3)}/"),
        parameters={"area": "eu"},
        waivers=(Waiver("L4", "blades, racks", "read with keyplan only"),),
    )


MAP = """\
layout   Site, version 1, text keys
root     /site/{area}/, unless told area = 'eu'
    field    area: text(bytes_max=3)

by-serial/{serial}
    unique   by_serial
    of       blades
    key      test
    from     serial = record serial
    lease    that of the record
    field    serial: hex_uuid
    longest  52 bytes

by-tag/{tag}/{rack}
    index    by_tag
    of       blades
    key      test
    from     tag = each of tags
    from     rack = key rack
    from     only when state = 'on'
    from     only when owner is not None
    lease    that of the record
    field    tag: text(bytes_max=9)
    field    rack: text(bytes_max=9)
    longest  36 bytes

next-port
    counter  port
    value    decimal text, first 1
    longest  19 bytes

rack/{rack}/blades/{blade}
    table    blades
    key      test
    value    utf8
    lease    records end with their lease
    place    rack
    field    rack: text(bytes_max=9)
    field    blade: decimal(width=4)
    longest  36 bytes

racks/{rack}
    table    racks
    key      test
    value    utf8
    field    rack: text(bytes_max=9)
    longest  25 bytes

codecs
    decimal(width=4)   int, 4 bytes, in order
    hex_uuid           UUID, 32 bytes, in order
    text(bytes_max=3)  str, 1 to 3 bytes, in order
    text(bytes_max=9)  str, 1 to 9 bytes, in order

waivers
    L4 blades, racks: read with keyplan only
"""


def test_the_map_shows_every_template_in_key_order() -> None:
    assert render_map(site()) == MAP


def test_the_map_does_not_depend_on_the_order_of_declaration() -> None:
    spec = site()
    assert render_map(replace(spec, items=tuple(reversed(spec.items)))) == MAP


def test_another_codec_changes_the_map_at_its_item() -> None:
    one = layout(table("a", text("{a:text}")), table("b", text("b/{b:text}/{c:hex_uuid}")))
    other = layout(table("a", text("{a:hex_uuid}")), table("b", text("b/{b:text}/{c:hex_uuid}")))
    assert render_map(one) != render_map(other)


def test_codecs_that_trade_places_change_the_map() -> None:
    one = layout(table("a", text("{a:text(bytes_max=9)}/{b:text(bytes_max=8)}")))
    other = layout(table("a", text("{a:text(bytes_max=8)}/{b:text(bytes_max=9)}")))
    assert render_map(one) != render_map(other)


def test_a_binary_layouts_literals_are_escaped() -> None:
    spec = layout(table("runs", binary(r"\x02r{run:u64}")))
    assert "\n\\x02r{run}\n    table    runs\n" in render_map(spec)


def test_the_reference_lists_keys_fields_indexes_lists_and_findings() -> None:
    lines = render_docs(site()).splitlines()
    remarks = "records hang on leases; placed by rack"
    assert lines[0] == "# Site"
    assert "- Keys are text; every key begins with `/site/{area}/`, unless told area = 'eu'." in lines
    assert f"| `rack/{{rack}}/blades/{{blade}}` | table | `blades` | utf8 | 36 bytes | {remarks} |" in lines
    assert "| `blades` | `blade` | `decimal(width=4)` | int, 4 bytes, in order |" in lines
    assert "| the root | `area` | `text(bytes_max=3)` | str, 1 to 3 bytes, in order |" in lines
    assert "| `by_serial` | `blades` | unique | serial = record serial |" in lines
    assert "| `blades.list()` | `rack/` |" in lines
    assert "| `blades.list(rack)` | `rack/{rack}/blades/` |" in lines
    assert (
        "| L4 | note | blades, racks | a raw scan of the prefix that lists blades without its last separator also returns "
        "racks; keyplan's lists return their own alone | "
        "`/site/eu/racks/a`, `/site/eu/rack` | read with keyplan only |"
    ) in lines


def test_a_reference_without_findings_says_so() -> None:
    assert render_docs(layout(table("a", text("a/{a:text}")))).endswith("## Findings\n\nThe lint finds nothing.\n")


def test_a_bar_in_a_template_does_not_break_the_tables() -> None:
    assert "| `a\\|{a}` | table | `a` |" in render_docs(layout(table("a", text("a|{a:text}"))))
