"""How the runs of `keyplan migrate` print what they did: lines for people, or one JSON document."""

from collections.abc import Sequence
from typing import Any, Final

from keyplan.cli.output import document_of, print_json, print_lines, print_text
from keyplan.layout import shown_key
from keyplan.maintenance import CleanUpReport, MigrationReport, RollbackReport, Trial, Verification

__all__ = ["print_clean_up", "print_report", "print_rollback", "print_trial"]


def print_report(report: MigrationReport, *, is_switched: bool, is_over: bool, json: bool) -> None:
    """Print what `run` or `switch` did. `is_over`: nothing is left for `finish` once it is settled."""
    if json:
        print_json(_plain_report(report))
        return
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()))
    if counts:
        print_text(f"records: {counts}")
    for name in report.built:
        print_text(f"{name} is readable")
    for verification in report.verified:
        print_text(_verified(verification))
    print_lines(*(f"left: {one}" for one in (*report.contested, *report.entries_contested)))
    if report.is_settled and is_over:
        print_text("over: nothing of the old layout is left")
    elif report.is_settled:
        print_text("switched: `keyplan migrate finish` follows when no program needs the old layout any more")
    elif is_switched:
        print_text("not switched: decide about the records left, and give the command again")
    else:
        print_text("filled: upgrade the programs, then `keyplan migrate switch`")


def print_clean_up(report: CleanUpReport, *, json: bool) -> None:
    """Print what `finish` did."""
    if json:
        print_json(_plain_clean_up(report))
        return
    for verification in report.verified:
        print_text(_verified(verification))
    print_lines(*(f"left: {contest}" for contest in report.left))
    print_text(f"removed {report.records} records, {report.entries} index entries, {report.numbers} numbers")


def print_rollback(report: RollbackReport, *, json: bool) -> None:
    """Print what `rollback` did."""
    left = [*report.left, *report.entries_contested]
    if json:
        document = {
            "is_rolled_back": report.is_rolled_back,
            "returned": report.returned,
            "records": report.records,
            "entries": report.entries,
            "left": [str(one) for one in left],
        }
        print_json(document)
        return
    print_lines(*(f"left: {one}" for one in left))
    print_text(
        f"{report.returned} records taken back; removed {report.records} records, {report.entries} index entries"
    )
    print_text(
        "rolled back: the old layout has everything"
        if report.is_rolled_back
        else "not rolled back: decide about the records left, and give the command again"
    )


def print_trial(titles: Sequence[str], trial: Trial, obstacles: Sequence[str], *, json: bool) -> None:
    """Print what `try` found."""
    if json:
        print_json({**document_of(trial), "obstacles": list(obstacles)})
        return
    print_lines(*titles)
    for table in trial.tables:
        counts = [f"{getattr(table, kind)} {word}" for kind, word in _KINDS.items() if getattr(table, kind)]
        print_lines(f"{table.name}: {table.tried} tried{''.join(f', {count}' for count in counts)}")
        for kind, examples in table.examples.items():
            for one in examples:
                to = f" -> {', '.join(one.new_keys)}" if one.new_keys and one.new_keys != (one.key,) else ""
                print_lines(f"  {_KINDS[kind]}: {one.key}{to}", *(f"    {line}" for line in one.lines))
    print_lines(*(f"{name}: {count} dropped" for name, count in trial.dropped.items()))
    print_lines(*(f"{name}: contested: {claim}" for name, claims in trial.contested.items() for claim in claims))
    print_lines(*(f"in the way: {obstacle}" for obstacle in obstacles))
    print_text("nothing was written")


_KINDS: Final = {
    "converted": "converted",
    "losing": "losing a field",
    "refused": "refused",
    "lost": "lost",
    "collided": "collided",
}


def _verified(found: Verification) -> str:
    verdict = "verified" if found.is_equal else "NOT EQUAL"
    count, digest = found.found
    sums = f", digest {digest[:16]}, {found.ahead} ahead, {found.missing} missing" if digest else ""
    return f"{found.table}: {verdict}, {count} {found.what}{sums}{': ' if found.advice else ''}{found.advice}"


def _plain_report(report: MigrationReport) -> dict[str, Any]:
    return {
        "is_settled": report.is_settled,
        "counts": report.counts,
        "built": report.built,
        "verified": [_plain_verification(found) for found in report.verified],
        "contested": [
            {"old": shown_key(contest.old_key), "new": shown_key(contest.new_key or b""), "reason": contest.reason}
            for contest in report.contested
        ],
        "entries_contested": [str(finding) for finding in report.entries_contested],
    }


def _plain_clean_up(report: CleanUpReport) -> dict[str, Any]:
    return {
        "is_cleaned": report.is_cleaned,
        "records": report.records,
        "entries": report.entries,
        "numbers": report.numbers,
        "verified": [_plain_verification(found) for found in report.verified],
        "left": [{"old": shown_key(contest.old_key), "reason": contest.reason} for contest in report.left],
    }


def _plain_verification(found: Verification) -> dict[str, Any]:
    return {
        "table": found.table,
        "what": found.what,
        "is_equal": found.is_equal,
        "expected": list(found.expected),
        "found": list(found.found),
        "ahead": found.ahead,
        "missing": found.missing,
    }
