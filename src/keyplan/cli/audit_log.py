"""The command `keyplan audit-log`: reads and verifies the log of a server, from its files or of itself, and that of a registry.

The options by which a server is told to write one are here, too, and how a command writes what it discloses itself.
"""

import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import typer

from keyplan.audit_log import (
    AuditLog,
    AuditRecord,
    Event,
    FileVerdict,
    Rotation,
    read_lines,
    verified_files,
    verified_records,
)
from keyplan.cli.failures import end_with_findings
from keyplan.cli.output import print_answer, print_grid, print_json
from keyplan.cli.registries import RegistryOptions, authority, token_of
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.keyspace import AuditItem, RegistryOperations

__all__ = ["AuditOptions", "audit_log_command", "noting"]

T = TypeVar("T")

_REGISTRY: str = "keyspaces"
"""The service whose acts the log of a registry has."""

_SERVERS = ("http://", "https://", "unix:")
"""What the URL of a server begins with."""

_SYNCS = {"always": True, "never": False}
_ENDS = frozenset({Event.DONE, Event.FAILED, Event.UNKNOWN})


class AuditOptions(NamedTuple):
    """Where a server writes its audit log: a record of options, for `spread`."""

    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log", metavar="FILE", help="Write who changes what into this file: see keyplan audit-log."
        ),
    ] = None
    audit_sync: Annotated[
        str,
        typer.Option(
            "--audit-sync",
            metavar="WHEN",
            help="A line is on the disk before the change goes on (always), or when the system writes it (never).",
        ),
    ] = "always"
    audit_bytes: Annotated[
        int | None,
        typer.Option(
            "--audit-bytes",
            metavar="N",
            min=1,
            help="Go on in a new file when this one has so many bytes; by default never.",
        ),
    ] = None
    audit_keep: Annotated[
        int | None,
        typer.Option("--audit-keep", metavar="N", min=0, help="Keep so many older files; by default all."),
    ] = None

    def rotation(self) -> Rotation:
        """Return when the log goes on in a new file, and how many older ones are kept. Raises InvalidInputError."""
        if self.audit_bytes is not None and self.audit_log is None:
            raise InvalidInputError(source="--audit-bytes", problem="there is no audit log: give --audit-log FILE too")
        if self.audit_keep is not None and self.audit_bytes is None:
            problem = "files that another program renames are not removed: give --audit-bytes N too"
            raise InvalidInputError(source="--audit-keep", problem=problem)
        return Rotation(self.audit_bytes, self.audit_keep)

    def syncs(self) -> bool:
        """Return whether lines are flushed to the disk. Raises InvalidInputError."""
        if self.audit_sync not in _SYNCS:
            raise InvalidInputError(source="--audit-sync", problem=f"{self.audit_sync!r} is not always or never")
        if self.audit_log is None and not _SYNCS[self.audit_sync]:
            raise InvalidInputError(source="--audit-sync", problem="there is no audit log: give --audit-log FILE too")
        return _SYNCS[self.audit_sync]


class Filter(NamedTuple):
    """Which entries are shown: a record of options, for `spread`."""

    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Only what this one did.")] = None
    act: Annotated[str | None, typer.Option("--act", metavar="ACT", help="Only this act, as in create.")] = None
    service: Annotated[str | None, typer.Option("--service", metavar="NAME", help="Only this service.")] = None
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="TEXT[*]", help="Only on this; with a star, what begins so.")
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Not before, as in 2026-11-23 or 2026-11-23T09:00Z.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time.")] = None

    def test(self) -> Callable[["Told"], bool]:
        """Return what tells whether an entry is shown. Raises InvalidInputError."""
        since, until = _time("--since", self.since), _time("--until", self.until)

        def is_shown(told: Told) -> bool:
            at = _moment(told.at)
            return (
                self.who in (None, told.who)
                and self.act in (None, told.act)
                and self.service in (None, told.service)
                and _fits(self.subject, told.subject)
                and (since is None or (at is not None and at >= since))
                and (until is None or (at is not None and at < until))
            )

        return is_shown


class Told(NamedTuple):
    """What filters look at, of an entry of any log."""

    at: str
    who: str
    act: str
    service: str
    subject: str


def audit_log_command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|URL...",
            help="The files of a server's log, in any order; or the server that writes it.",
            show_default=False,
        ),
    ] = None,
    *,
    shown: Filter,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only entries after this number.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify that the log is as it was written; exit code 1 when it is not.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="DIGEST", help="With --verify: an entry of this digest has to be there."),
    ] = None,
    behind: Annotated[
        str | None,
        typer.Option(
            "--behind", metavar="DIGEST", help="With --verify: older files, which end with this digest, are left out."
        ),
    ] = None,
    at: RegistryOptions,
) -> None:
    """Print an audit log, or verify that it is whole: a server's, from its files, or from itself; else that of a registry.

    The log of `keyplan serve --audit-log FILE` has a line before each change, and one with its outcome; they are shown as one.
    That of a registry stands in its store. A change is shown where its outcome stands; one without an outcome comes last.
    """
    if (head or behind) and not verify:
        raise InvalidInputError(source="--head" if head else "--behind", problem="it is for --verify: give both")
    if sources:
        if at.is_store_typed:
            raise InvalidInputError(source="--store", problem="FILE is the log of a server: give one of both")
        urls = [one for one in sources if one.startswith(_SERVERS)]
        if urls and len(sources) > 1:
            raise InvalidInputError(source=urls[0], problem="a server tells all of its log: give it alone")
        if at.token_file and not urls:
            raise InvalidInputError(source="--token-file", problem="FILE is read here: leave it out, or give a URL")
        with _opened(sources, at.token_file) as log:
            if verify:
                _show_file_verdict(log.verdict(_digest(behind), _digest(head)), json=at.json)
            else:
                _print_records(_changes(log.records(after), after), shown.test(), limit, json=at.json)
        return
    if behind:
        raise InvalidInputError(source="--behind", problem="the log of a registry is whole in its store: leave it out")
    with at.opened(readonly=True) as registry:
        if verify:
            _verify_registry(registry, _digest(head), json=at.json)
        else:
            _print_items(registry.audit(after=after), shown.test(), limit, json=at.json)


# ---- a server's ------------------------------------------------------------------------------------------------------


class _Log(NamedTuple):
    """A server's log, wherever it is read: what yields its records, at least those behind a number, and what verifies it."""

    records: Callable[[int], Iterable[AuditRecord]]
    verdict: Callable[[str | None, str | None], FileVerdict]


@contextmanager
def _opened(sources: Sequence[str], token_file: Path | None) -> Iterator[_Log]:
    url = sources[0]
    if not url.startswith(_SERVERS):
        files = [Path(one) for one in sources]
        yield _Log(
            lambda _after: (line.record for line in read_lines(files) if line.record is not None),
            lambda behind, head: verified_files(files, after=behind, head=head),
        )
        return
    # Why here: importing httpx takes as long as all the rest.
    from keyplan.client import HttpAuditLog  # noqa: PLC0415

    with HttpAuditLog(url, token=token_of(token_file), verify=authority()) as log:
        yield _Log(
            lambda after: log.records(after=after),
            lambda behind, head: verified_records(log.records(), source=url, after=behind, head=head),
        )


def _changes(records: Iterable[AuditRecord], after: int) -> Iterator[AuditRecord]:
    """Yield the records behind a number; a beginning only where its end is not there, and then last."""
    begun: dict[int, AuditRecord] = {}
    for record in records:
        if record.event is Event.BEGUN:
            begun[record.number] = record
            continue
        if record.event in _ENDS:
            begun.pop(record.of, None)
        if record.number > after:
            yield record
    yield from (record for number, record in begun.items() if number > after)


def _print_records(
    records: Iterable[AuditRecord], test: Callable[[Told], bool], limit: int | None, *, json: bool
) -> None:
    rows = []
    for record in _first(
        (one for one in records if test(Told(one.at, one.who, one.act, one.service, one.subject))), limit
    ):
        if json:
            print_json(msgspec.to_builtins(record))
            continue
        outcome = f"{record.event}: {record.code}" if record.code else str(record.event)
        revisions = " ".join(map(str, record.revisions)) + (f" … {record.commits} commits" if record.commits else "")
        subject = record.subject if record.removed is None else record.removed.file
        asked = (record.who, record.address, record.service, record.act, subject)
        rows.append((str(record.number), record.at, *asked, outcome, revisions))
    if not json:
        print_grid(("number", "at", "who", "from", "service", "act", "subject", "outcome", "revisions"), rows)


def _show_file_verdict(verdict: FileVerdict, *, json: bool) -> None:
    words = [f"broken at line {verdict.broken_at}, in {verdict.file}: {verdict.problem}"]
    if verdict.is_whole:
        lines = f"lines {verdict.first} to {verdict.last}, each follows from the one before"
        words = [f"{lines}; the last has the digest {verdict.head}"]
        if verdict.removed:
            words.append(f"lines 1 to {verdict.removed} were removed by the server that wrote them, and a line says so")
    words += [
        f"line {number} tells of a loss of power: before it stands what was not written whole"
        for number in verdict.torn
    ]
    print_answer(verdict._asdict(), *words, json=json)
    end_with_findings(not verdict.is_whole)


# ---- a registry's ----------------------------------------------------------------------------------------------------


def _print_items(items: Iterable[AuditItem], test: Callable[[Told], bool], limit: int | None, *, json: bool) -> None:
    rows = []
    for item in _first((one for one in items if test(_told(one))), limit):
        if json:
            print_json(item.to_json())
            continue
        entry = item.entry
        facts = " ".join(f"{name}={value}" for name, value in entry.detail.items())
        rows.append((str(item.number), entry.at, entry.actor, entry.act, entry.name, facts, str(item.revision)))
    if not json:
        print_grid(("number", "at", "who", "act", "key space", "detail", "revision"), rows)


def _told(item: AuditItem) -> Told:
    entry = item.entry
    return Told(entry.at, entry.actor, entry.act, _REGISTRY, entry.name)


def _verify_registry(registry: RegistryOperations, head: str | None, *, json: bool) -> None:
    verdict = registry.verify_audit()
    if verdict.is_whole and head is not None and all(item.digest != head for item in registry.audit()):
        problem = "it is missing: no entry has the digest that was kept"
        verdict = verdict._replace(is_whole=False, broken_at=verdict.entries + 1, problem=problem)
    words = f"broken at entry {verdict.broken_at}: {verdict.problem}"
    if verdict.is_whole:
        words = f"{verdict.entries} entries, each follows from the one before; the last has the digest {verdict.head}"
    print_answer(verdict._asdict(), words, json=json)
    end_with_findings(not verdict.is_whole)


# ---- written by a command ----------------------------------------------------------------------------------------------


@contextmanager
def noting(path: Path, *, operation: str, act: str, subject: str) -> Iterator[None]:
    """Surround what the user of this process does with its lines in an audit log, as a server writes them.

    Raises InvalidInputError for a file that cannot be written, as while a server writes it; AuditLogError.
    """
    facts = {"who": _user(), "known_by": "local", "service": "command", "operation": operation, "act": act}
    with AuditLog(path, wall=SYSTEM_CLOCK.wall) as log:
        begun = log.append(Event.BEGUN, **facts, subject=subject).result()
        try:
            yield
        except BaseException as error:
            code = str(getattr(error, "code", "")) or "internal_error"
            log.append(Event.FAILED, **facts, of=begun, subject=subject, code=code).result()
            raise
        log.append(Event.DONE, **facts, of=begun, subject=subject).result()


def _user() -> str:
    """The name of whoever runs this, which no variable of the environment changes; the number of one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# ---- what is given ---------------------------------------------------------------------------------------------------


def _first(items: Iterable[T], limit: int | None) -> Iterator[T]:
    for count, item in enumerate(items, start=1):
        yield item
        if count == limit:
            return


def _fits(wanted: str | None, subject: str) -> bool:
    if wanted is None or not wanted.endswith("*"):
        return wanted in (None, subject)
    return subject.startswith(wanted[:-1])


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    found = _moment(text)
    if found is None:
        raise InvalidInputError(source=option, problem="a time is as 2026-11-23 or 2026-11-23T09:00:00Z, in UTC")
    return found


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _digest(text: str | None) -> str | None:
    if text is not None and (len(text) != 64 or set(text) - set("0123456789abcdef")):
        raise InvalidInputError(source="DIGEST", problem="a digest is the 64 digits that --verify printed")
    return text
