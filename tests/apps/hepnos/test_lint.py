"""What the lint finds in HEPnOS's keys: databases of one kind are clean, shared ones are not."""

from typing import Annotated, NamedTuple
from uuid import UUID

import pytest

from keyplan.apps.hepnos import (
    CPP_LAYOUTS,
    LAYOUTS,
    HEPnOSCppDataSets,
    HEPnOSDataSets,
    HEPnOSEvents,
    HEPnOSProducts,
    HEPnOSRuns,
    HEPnOSSubRuns,
)
from keyplan.codec import Text, TextTail
from keyplan.layout import Layout, Table, template_of_source
from keyplan.layout.rules import EngineLimits, Severity, lint, lint_prefix

TOP = b"\x02aaa/bbb"


@pytest.mark.parametrize("layout", [*LAYOUTS, *CPP_LAYOUTS])
def test_a_database_of_one_kind_is_clean(layout: type[Layout]) -> None:
    report = lint(layout.spec)
    report.check()
    waived = [(finding.rule, finding.subject) for finding in report.findings if finding.is_waived]
    assert waived == ([("L7", "datasets.parent")] if layout in (HEPnOSDataSets, HEPnOSCppDataSets) else [])
    notes = [finding.rule for finding in report.findings if finding.severity is Severity.NOTE]
    assert notes == ["L8", "L9"]


@pytest.mark.parametrize("layout", [*LAYOUTS, *CPP_LAYOUTS])
def test_only_keys_with_names_can_exceed_a_key_of_lmdb(layout: type[Layout]) -> None:
    report = lint(layout.spec, limits=EngineLimits(key_bytes_max=511))
    report.check()
    assert [finding.subject for finding in report.of_rule("L10")] == [
        table for table in layout.spec.tables if table in ("datasets", "products")
    ]


@pytest.mark.parametrize(
    ("layout", "fields"),
    [
        (HEPnOSDataSets, "fewer than 2 fields"),
        (HEPnOSRuns, "the list of all"),
        (HEPnOSSubRuns, "fewer than 2 fields"),
        (HEPnOSEvents, "fewer than 3 fields"),
        (HEPnOSProducts, "fewer than 3 fields"),
        (HEPnOSCppDataSets, "the list of all"),
    ],
)
def test_a_list_that_does_not_bind_what_places_a_key_asks_every_database(layout: type[Layout], fields: str) -> None:
    """#4: children of a data set are scattered in the document's layout, and together in that of the C++ program."""
    (fan_out,) = lint(layout.spec).of_rule("L8")
    assert fields in fan_out.message


def test_kinds_in_one_database_are_directories_of_each_other() -> None:
    """#7: a 24-byte key of a run begins 32- and 40-byte keys, and a scan by UUID sees all kinds."""
    report = lint(HEPnOSRuns.spec, others=[HEPnOSSubRuns.spec, HEPnOSEvents.spec, HEPnOSProducts.spec])
    others = ["HEPnOSSubRuns.subruns", "HEPnOSEvents.events", "HEPnOSProducts.products"]
    assert [finding.subject for finding in report.of_rule("L3")] == [f"runs, {other}" for other in others]
    leaks = report.of_rule("L4")
    assert {item for leak in leaks for item in leak.items} == {"runs", *others}
    assert {leak.severity for leak in leaks} == {Severity.WARNING}
    assert [len(finding.second or b"") for finding in report.of_rule("L3")] == [32, 40, 42]
    assert report.of_rule("L1") == ()
    assert len(report.of_rule("L6")) == 3


def test_the_printed_prefix_of_children_also_returns_children_of_names_that_begin_alike() -> None:
    """`we list all the keys that start with [2]aaa/bbb`: a key below aaa/bbba is one of them."""
    printed = lint_prefix(HEPnOSDataSets.spec, template_of_source("\\x02aaa/bbb", is_text=False))
    (leak,) = [finding for finding in printed if finding.rule == "L4"]
    assert leak.witness is not None
    assert leak.witness.startswith(TOP)
    assert not leak.witness.startswith(TOP + b"/")
    assert lint_prefix(HEPnOSDataSets.spec, template_of_source("\\x02aaa/bbb/", is_text=False)) == ()


class LooseProductKey(NamedTuple):
    """A product whose label may hold a hash sign, as the document leaves open."""

    dataset: UUID
    run: int
    subrun: int
    event: int
    label: Annotated[str, Text(exclude="", empty=True)]
    type: Annotated[str, TextTail()]


class LooseProducts(Layout):
    """The document's products without ruling 9."""

    products = Table(b"{dataset}{run}{subrun}{event}{label}#{type}", key=LooseProductKey, value=bytes)


def test_a_label_with_a_hash_sign_could_be_read_in_two_ways() -> None:
    (twice,) = lint(LooseProducts.spec).of_rule("L2")
    assert twice.witness is not None
    assert twice.witness[40:] == b"##a"
    assert lint(HEPnOSProducts.spec).of_rule("L2") == ()
