"""The lint of a layout: all rules, in their order."""

from collections.abc import Sequence
from typing import Any

from keyplan.layout.rules.finding import Finding, LintReport
from keyplan.layout.rules.lists import disorders, fan_outs, leaks, lost_range_ends
from keyplan.layout.rules.overlaps import ambiguities, collisions, directories, lease_mismatches, nested_roots
from keyplan.layout.rules.refusals import EngineLimits, exceeded_limits, refused_defaults
from keyplan.layout.rules.subject import subjects_of
from keyplan.layout.spec import LayoutSpec

__all__ = ["collisions_of", "lint"]


def lint(spec: LayoutSpec, *, others: Sequence[LayoutSpec] = (), limits: EngineLimits | None = None) -> LintReport:
    """Judge a layout by the rules L1 to L13; see docs/reference/lint.md.

    `others` are layouts that live in the same store: collisions, leaks and roots are judged between this layout and each of
    them, not among them. Every root is taken with its default parameters (the shortest value where there is none), except
    that L6 and L10 consider all. Without `limits`, L10 finds nothing.

    Findings are exact: none without a verified witness, except the few rules that speak of no key (L10 on commits, L12, L13),
    and none missing unless it is listed as undecided; `decision.py` says when that happens. Pure, and deterministic.
    """
    own, foreign = subjects_of(spec, others)
    leased = frozenset(table.name for table in spec.tables.values() if table.has_lease)
    collided = list(collisions(own, foreign))
    findings = [
        *collided,
        *ambiguities(own),
        *directories(own, foreign),
        *leaks(own, foreign, {finding.items for finding in collided}),
        *nested_roots(spec, others),
        *disorders(own),
        *fan_outs(own),
        *lost_range_ends(own),
        *(exceeded_limits(spec, own, limits) if limits else ()),
        *lease_mismatches(own, leased),
        *refused_defaults(spec),
    ]
    # Why: a description does not carry the defaults that functions make, so that a waiver of one would seem to be stale.
    is_described = any(table.form.value_type is Any for table in spec.tables.values())
    return LintReport.of(spec.name, findings, spec.waivers, unasked=("L10", "L13") if is_described else ("L10",))


def collisions_of(spec: LayoutSpec) -> tuple[Finding, ...]:
    """Judge a layout by the rules L1 and L2 alone, without its waivers: whether every key has one meaning. Soon done."""
    own, foreign = subjects_of(spec, ())
    return (*collisions(own, foreign), *ambiguities(own))
