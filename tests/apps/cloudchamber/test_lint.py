"""What the lint finds in CloudChamber's keys: exactly this, each with a key that shows it."""

from typing import Final

import pytest

from keyplan.apps.cloudchamber import CloudChamber, CloudChamberGo, InstanceKey
from keyplan.layout import Layout, Table, template_of_source
from keyplan.layout.rules import EngineLimits, Severity, lint, lint_prefix

NAME: Final = "text(dots=false)"


LMDB: Final = EngineLimits(key_bytes_max=511)


def graver_than_notes(layout: type[Layout], limits: EngineLimits | None = None) -> dict[tuple[str, str], bool]:
    """Rule and subject of every error and warning, and whether it is waived."""
    return {
        (finding.rule, finding.subject): finding.is_waived
        for finding in lint(layout.spec, limits=limits).findings
        if finding.severity is not Severity.NOTE
    }


PLACEMENTS = {
    ("L7", f"{item}.{field}"): True
    for item in ("instances_by_blade", "blade_guards")
    for field in ("rackid", "bladeid")
}
"""What is looked up whole, and whose order means nothing."""


def test_the_documents_keys_have_no_other_defects_than_the_waived_ones() -> None:
    assert graver_than_notes(CloudChamber) == {
        ("L3", "tor, part_actual"): True,
        ("L3", "pdu, part_actual"): True,
        ("L6", "CloudChamber"): True,
        ("L7", "blades.blade"): True,
        ("L7", "part_actual.number"): True,
        **PLACEMENTS,
    }


def test_the_go_programs_keys_have_no_other_defects_than_the_waived_ones() -> None:
    inside = {"regions": "zones racks pdus tors blades", "zones": "racks pdus tors blades", "racks": "pdus tors blades"}
    assert graver_than_notes(CloudChamberGo) == {
        **{("L3", f"{outer}, {inner}"): True for outer, inners in inside.items() for inner in inners.split()},
        ("L6", "CloudChamberGo"): True,
        ("L7", "blades.blade"): True,
        ("L7", "listed_blades.blade"): True,
        ("L7", "part_actual.number"): True,
        **PLACEMENTS,
    }


def test_only_keys_of_several_names_can_exceed_a_key_of_lmdb() -> None:
    exceeding = {subject for rule, subject in graver_than_notes(CloudChamber, LMDB) if rule == "L10"}
    assert exceeding == {"instances", "instance_actual", "instance_target", "instances_by_blade"}
    lint(CloudChamber.spec, limits=LMDB).check()


def test_every_key_of_the_go_program_with_two_names_can_exceed_a_key_of_lmdb() -> None:
    exceeding = {subject for rule, subject in graver_than_notes(CloudChamberGo, LMDB) if rule == "L10"}
    of_one_name = {"users", "regions", "listed_regions", "workloads", "blade_guards", "part_actual"}
    assert exceeding == {*CloudChamberGo.spec.tables, "instances_by_blade"} - of_one_name
    lint(CloudChamberGo.spec, limits=LMDB).check()


def test_the_production_root_contains_the_tests() -> None:
    [nested] = lint(CloudChamber.spec).of_rule("L6")
    assert nested.witness is not None
    assert nested.witness.startswith(b"/CloudChamber/V0.1/Test/a/")
    assert nested.second == b"/CloudChamber/V0.1/"


def test_the_document_and_the_go_program_can_share_a_store() -> None:
    report = lint(CloudChamber.spec, others=[CloudChamberGo.spec])
    assert report.failures() == ()


@pytest.mark.parametrize(
    ("prefix", "returned"),
    [
        ("/CloudChamber/V0.1/rack", b"/CloudChamber/V0.1/racks/a"),
        ("/CloudChamber/V0.1/workload", b"/CloudChamber/V0.1/workloads/a"),
        (f"/CloudChamber/V0.1/workload/{{w:{NAME}}}/instance", b"/CloudChamber/V0.1/workload/a/instances/a"),
    ],
    ids=["rack", "workload", "instance"],
)
def test_a_singular_without_its_slash_also_returns_the_plural(prefix: str, returned: bytes) -> None:
    findings = lint_prefix(CloudChamber.spec, template_of_source(prefix, is_text=True))
    assert returned in {finding.witness for finding in findings if finding.rule == "L4"}


@pytest.mark.parametrize(
    ("prefix", "table"),
    [
        ("/CloudChamber/V0.1/users/", "users"),
        ("/CloudChamber/V0.1/racks/", "racks"),
        (f"/CloudChamber/V0.1/rack/{{r:{NAME}}}/blades/", "blades"),
        ("/CloudChamber/V0.1/workloads/", "workloads"),
        (f"/CloudChamber/V0.1/workload/{{w:{NAME}}}/instances/", "instances"),
    ],
    ids=lambda value: value.rsplit("/", 2)[-2] if "/" in value else "",
)
def test_a_printed_prefix_with_its_slash_returns_its_list_and_nothing_else(prefix: str, table: str) -> None:
    assert lint_prefix(CloudChamber.spec, template_of_source(prefix, is_text=True), returns=[table]) == ()


class AsPrinted(Layout, root="/CloudChamber/V0.1/"):
    """The workloads of the document without ruling R1: instances have states, but no key that the list's prefix finds."""

    workloads = Table("workloads/{workload}", key=str, value=bytes)
    actual = Table("workload/{workload}/instance/{instance}/actual", key=InstanceKey, value=bytes)
    target = Table("workload/{workload}/instance/{instance}/target", key=InstanceKey, value=bytes)


def test_nothing_can_exist_below_the_printed_prefix_of_instances() -> None:
    prefix = template_of_source(f"/CloudChamber/V0.1/workload/{{w:{NAME}}}/instances", is_text=True)
    assert "L5" in {finding.rule for finding in lint_prefix(AsPrinted.spec, prefix)}
    assert "L5" not in {finding.rule for finding in lint_prefix(CloudChamber.spec, prefix)}
