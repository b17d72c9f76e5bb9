"""What a store holds at a key, as JSON values: maintenance's explanation, spelled for output."""

from typing import Any

from keyplan.cli.plain import plain_value
from keyplan.engine import Engine
from keyplan.layout import BoundLayout, shown_key
from keyplan.maintenance import KeyExplanation, explain_key

__all__ = ["stored_facts"]


def stored_facts(bound: BoundLayout, raw_key: bytes, engine: Engine) -> dict[str, Any] | None:
    """Return what is stored at the key, as JSON values; None when nothing is. Damage is a fact, not an error."""
    explanation = explain_key(engine, bound, raw_key)
    entry = explanation.entry
    if entry is None:
        return None
    stored: dict[str, Any] = {
        "revision": entry.mod_revision,
        "create_revision": entry.create_revision,
        "version": entry.version,
        "lease": entry.lease,
        "bytes": len(entry.value),
    }
    if explanation.lease_ttl_seconds is not None:
        stored["lease_ttl_seconds"] = explanation.lease_ttl_seconds
        stored["lease_seconds_left"] = explanation.lease_seconds_left
    return stored | _contents(explanation)


def _contents(explanation: KeyExplanation) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    if explanation.has_record:
        contents["record"] = plain_value(explanation.record)
        contents["index_entries"] = [
            {"index": due.index, "key": shown_key(due.raw_key), "state": due.state.value} for due in explanation.entries
        ]
    if explanation.points_at is not None:
        contents["points_at"] = shown_key(explanation.points_at)
    if explanation.pointed_at is not None:
        contents["record_state"] = explanation.pointed_at.value
    if explanation.next_number is not None:
        contents["next"] = explanation.next_number
    if explanation.problem:
        contents["damaged"] = explanation.problem
    # Why: what is wrong with a record's entries is said at each of them.
    findings = [finding for finding in explanation.findings if finding.raw_key == explanation.meaning.raw_key]
    if findings:
        contents["findings"] = [str(finding) for finding in findings]
    return contents
