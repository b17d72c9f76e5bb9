"""What the lint says about the layout of the Patroni broker: exactly what is known, and what the rulings mended."""

from typing import Final, NamedTuple

import pytest

from keyplan.apps.patroni import Broker
from keyplan.apps.runm import Runm, RunmRegistry
from keyplan.layout import Layout, Table
from keyplan.layout.rules import EngineLimits, Finding, LintReport, lint

LMDB: Final = EngineLimits(key_bytes_max=511)


class AnyRegistration(NamedTuple):
    """A registration whose parts may hold colons, as the document allows."""

    image: str
    host: str
    container: str
    port: int


@pytest.fixture(scope="module")
def report() -> LintReport:
    return lint(Broker.spec, others=[Runm.spec, RunmRegistry.spec], limits=LMDB)


def subjects(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.subject for finding in findings]


@pytest.mark.parametrize("rule", ["L1", "L2", "L3", "L5", "L6", "L8", "L9", "L11", "L12"])
def test_there_is_no_finding_of(report: LintReport, rule: str) -> None:
    assert subjects(report.of_rule(rule)) == []


def test_the_layout_passes() -> None:
    lint(Broker.spec).check()


def test_ports_in_keys_do_not_sort_as_numbers(report: LintReport) -> None:
    assert subjects(report.of_rule("L7")) == ["registrations.port", "instance_by_port.port"]
    assert all(finding.is_waived for finding in report.of_rule("L7"))


def test_keys_of_others_can_exceed_a_key_of_lmdb(report: LintReport) -> None:
    assert subjects(report.of_rule("L10")) == [
        "members",
        "registrations",
        "nodes",
        "members_by_address",
        "node_intents",
        "orders",
        "reports",
        "tasks",
        "task_answers",
        "backup_books",
        "operations_by_status",
        "bindings",
    ]


def test_a_prefix_without_its_slash_takes_service_instances_with_services(report: LintReport) -> None:
    """The list of /service, as a careless raw read spells it, returns keys below /serviceinstances."""
    (found,) = [finding for finding in report.of_rule("L4") if finding.second == b"/service"]
    assert {"members", "nodes", "instances"} <= set(found.items)
    assert found.witness == b"/servicea/a:a:1"


def test_a_registration_without_the_rulings_can_be_read_in_two_ways() -> None:
    """Anchors 1.3: `<hostname>:<internal-id>:<internal-port>` when the parts may hold a colon."""

    class Unruled(Layout, root="/"):
        registrations = Table("{image}/{host}:{container}:{port}", key=AnyRegistration, value=str)

    (ambiguity,) = lint(Unruled.spec).of_rule("L2")
    assert ambiguity.subject == "registrations"
    assert ambiguity.witness is not None
    assert ambiguity.witness.count(b":") == 3
