"""What the lint says about the layouts of runm-metadata: exactly what is known, and what the rulings mended."""

from typing import Final, NamedTuple
from uuid import UUID

import pytest

from keyplan.apps.runm import ObjectType, Partition, ProviderType, Runm, RunmRegistry
from keyplan.layout import Layout, Table
from keyplan.layout.rules import EngineLimits, Finding, LintReport, lint

LMDB: Final = EngineLimits(key_bytes_max=511)


class AnySubType(NamedTuple):
    """A sub-type whose codes are any text."""

    object_type: str
    sub_type: str


class AnyPartition(NamedTuple):
    """A partition that is named by any text."""

    partition: str
    rest: str


@pytest.fixture(scope="module")
def report() -> LintReport:
    return lint(Runm.spec, others=[RunmRegistry.spec], limits=LMDB)


def subjects(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.subject for finding in findings]


@pytest.mark.parametrize("rule", ["L1", "L2", "L3", "L5", "L8", "L9", "L11", "L12"])
def test_there_is_no_finding_of(report: LintReport, rule: str) -> None:
    assert subjects(report.of_rule(rule)) == []


def test_both_layouts_pass() -> None:
    lint(Runm.spec, others=[RunmRegistry.spec]).check()
    lint(RunmRegistry.spec, others=[Runm.spec]).check()


def test_escaped_names_do_not_sort_as_they_read(report: LintReport) -> None:
    assert subjects(report.of_rule("L7")) == [
        "partitions_by_name.name",
        "objects_by_name.name",
        "objects_by_project_and_name.project",
        "objects_by_project_and_name.name",
        "objects_by_property.key",
        "objects_by_property.value",
        "objects_by_tag.tag",
    ]
    assert all(finding.is_waived for finding in report.of_rule("L7"))


def test_one_prefix_can_lie_inside_another(report: LintReport) -> None:
    (nested,) = report.of_rule("L6")
    assert nested.second == b"runm/metadata/"
    assert nested.is_waived


def test_only_two_long_names_together_exceed_a_key_of_lmdb(report: LintReport) -> None:
    assert subjects(report.of_rule("L10")) == ["objects_by_project_and_name", "objects_by_property"]


def test_a_type_without_the_rulings_collides_with_the_pseudo_type() -> None:
    """Anchors 1.3: `types/object/{code}` and `types/{object_type}/{sub_type}`, before S8 reserves the word object."""

    class Unruled(Layout, root="runm/metadata/"):
        object_types = Table("types/object/{code}", key=str, value=ObjectType)
        sub_types = Table("types/{object_type}/{sub_type}", key=AnySubType, value=ProviderType)

    (collision,) = lint(Unruled.spec).of_rule("L1")
    assert collision.subject == "object_types, sub_types"
    assert collision.witness == b"runm/metadata/types/object/a"


def test_a_partition_that_is_any_text_collides_with_the_indexes_of_partitions() -> None:
    """Anchors 1.3: safe only because the segment is 32 hexadecimal digits."""

    class Untyped(Layout, root=""):
        partitions = Table("partitions/by-uuid/{uuid}", key=UUID, value=Partition)
        names = Table("partitions/by-name/{name}", key=str, value=UUID)
        anything = Table("partitions/{partition}/{rest}", key=AnyPartition, value=UUID)
        typed = Table("partitions/{uuid}/x", key=UUID, value=UUID)

    assert subjects(lint(Untyped.spec).of_rule("L1")) == [
        "partitions, anything",
        "names, anything",
        "anything, typed",
    ]
