"""L12 and waivers; what a report lets pass; how findings print."""

import pytest

from keyplan.errors import LintError
from keyplan.layout import LayoutSpec, Waiver
from keyplan.layout.rules import RULES, EngineLimits, Finding, Severity, lint
from tests.layout.rules.builders import layout, table, text


def colliding(*waivers: Waiver) -> LayoutSpec:
    return layout(table("names", text("{name:text}")), table("port", text("port")), waivers=waivers)


def test_a_waiver_marks_the_finding_that_it_names() -> None:
    (finding,) = lint(colliding(Waiver("L1", "names, port", "nobody is called port"))).findings
    assert finding.is_waived
    assert finding.reason == "nobody is called port"
    assert str(finding).endswith("[port] (waived: nobody is called port)")


def test_a_layout_whose_findings_are_waived_passes() -> None:
    lint(colliding(Waiver("L1", "names,port", "nobody is called port"))).check(strict=True)


def test_a_waiver_names_the_items_in_order_and_nothing_else() -> None:
    report = lint(colliding(Waiver("L1", "port, names", "the wrong way round")))
    assert [(finding.rule, finding.items, finding.is_waived) for finding in report.findings] == [
        ("L1", ("names", "port"), False),
        ("L12", ("L1 port, names",), False),
    ]


def test_a_stale_waiver_is_an_error() -> None:
    spec = layout(table("names", text("n/{name:text}")), waivers=(Waiver("L1", "names, port", "gone"),))
    with pytest.raises(LintError) as error:
        lint(spec).check()
    assert error.value.layout == "Test"
    assert error.value.findings == (
        "L12 error L1 names, port: the waiver names a finding that does not exist; remove it",
    )


def test_a_waiver_of_a_limit_is_not_stale_for_an_engine_without_that_limit() -> None:
    spec = layout(
        table("names", text("n/{name:text}")), waivers=(Waiver("L10", "names", "refused when it is written"),)
    )
    (exceeded,) = lint(spec, limits=EngineLimits(key_bytes_max=100)).findings
    assert (exceeded.rule, exceeded.is_waived) == ("L10", True)
    assert lint(spec, limits=EngineLimits()).findings == ()
    assert lint(spec).findings == ()


def test_notes_fail_only_a_strict_check() -> None:
    spec = layout(table("tor", text("rack/{rack:text}/tor")), table("pdu", text("rack/{rack:text}/pdu")))
    report = lint(spec)
    assert {finding.severity for finding in report.findings} == {Severity.NOTE}
    report.check()
    with pytest.raises(LintError):
        report.check(strict=True)


def test_a_clean_layout_says_so() -> None:
    report = lint(layout(table("names", text("n/{name:text}"))))
    assert (report.findings, str(report)) == ((), "Test: no findings")


def test_findings_come_in_the_order_of_the_rules() -> None:
    spec = layout(
        table("a", text("{name:text}:{number:decimal}")),
        table("b", text("{name:text}")),
        waivers=(Waiver("L3", "a, b", "stale"),),
    )
    rules = [finding.rule for finding in lint(spec).findings]
    assert rules == sorted(rules, key=list(RULES).index)
    assert {"L1", "L7", "L12"} <= set(rules)


@pytest.mark.parametrize(
    ("key", "shown"),
    [(b"a/b", "a/b"), (b"\x02a\xff", r"\x02a\xff"), (b"", "''"), ("\u00e9".encode(), "\u00e9"), (b"a\\", r"a\\")],
)
def test_a_witness_prints_as_text_or_with_escapes(key: bytes, shown: str) -> None:
    assert str(Finding("L1", ("a",), "m", key)) == f"L1 warning a: m [{shown}]"


def test_a_long_witness_is_abridged() -> None:
    assert str(Finding("L1", ("a",), "m", b"x" * 512)) == f"L1 warning a: m [{'x' * 120}... 512 bytes]"


def test_a_report_is_the_same_every_time() -> None:
    assert (
        str(lint(colliding()))
        == str(lint(colliding()))
        == "L1 error names, port: names and port can produce one key [port]"
    )
