"""The commands for archives, backups and restores. Each that does something writes an operation, and follows it."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import typer

from keyplan.apps.patroni.backups.books import newest_book, shown_time
from keyplan.apps.patroni.backups.plans import BackupKind, BackupPlans
from keyplan.apps.patroni.backups.records import Backup, BackupBook, BackupPolicy, Repository, S3Store
from keyplan.apps.patroni.backups.restore_plans import RestorePlans
from keyplan.apps.patroni.backups.view import archive_view, lost_by_way_back
from keyplan.apps.patroni.cli_actions import ActionOptions, Consent, begin_and_follow
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.records import Operation
from keyplan.cli import (
    ConfigOption,
    JsonOption,
    StoreOption,
    print_grid,
    print_hint,
    print_json,
    print_text,
    spread,
    store_of_option,
)
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.store import Store

__all__ = ["add_backups", "go_back", "remove_former", "time_of"]

_KINDS: Final[dict[str, BackupKind]] = {"full": "full", "differential": "diff", "incremental": "incr"}
_Instance = Annotated[str, typer.Argument(help="The instance.")]


def add_backups(app: typer.Typer) -> None:
    """Add the commands to those of `keyplan patroni`."""
    for name, command in (
        ("archive", _archive),
        ("backup", _back_up),
        ("verify-backup", _verify),
        ("backups", _list),
        ("restore", _restore),
    ):
        app.command(name)(command)


class _PolicyOptions(NamedTuple):
    """Where a cluster is backed up, and when."""

    folder: Annotated[
        str, typer.Option("--folder", metavar="PATH", help="The folder, in the bucket where there is one.")
    ]
    bucket: Annotated[
        str, typer.Option("--bucket", metavar="NAME", help="A bucket of S3, in place of the machine.")
    ] = ""
    endpoint: Annotated[str, typer.Option("--endpoint", metavar="HOST[:PORT]", help="Who has the bucket.")] = ""
    region: Annotated[str, typer.Option("--region", metavar="NAME", help="The bucket's region.")] = "us-east-1"
    authority: Annotated[
        str, typer.Option("--authority", metavar="FILE", help="Who signs the endpoint's certificate.")
    ] = ""
    is_path_style: Annotated[
        bool, typer.Option("--path-style", help="The bucket is a part of the path, and not of the endpoint's name.")
    ] = False
    keep: Annotated[int, typer.Option("--keep", metavar="N", help="How many full backups are kept.")] = 2
    every_hours: Annotated[
        float, typer.Option("--every-hours", metavar="N", help="How often a backup is made; 0: when it is asked for.")
    ] = 24.0
    full_every_hours: Annotated[
        float, typer.Option("--full-every-hours", metavar="N", help="How often it is a full one, and not of changes.")
    ] = 168.0
    archive_seconds: Annotated[
        int, typer.Option("--archive-seconds", metavar="N", help="What is written is archived after so long.")
    ] = 60
    verify_every: Annotated[
        int, typer.Option("--verify-every", metavar="N", help="Each Nth backup is verified; 1: every one, 0: none.")
    ] = 7

    def policy(self) -> BackupPolicy:
        """Return what they say. Raises InvalidInputError."""
        if bool(self.bucket) is not bool(self.endpoint):
            raise InvalidInputError(source="--bucket", problem="belongs with --endpoint")
        try:
            store = (
                S3Store(
                    bucket=self.bucket,
                    endpoint=self.endpoint,
                    region=self.region,
                    authority=self.authority and str(Path(self.authority).absolute()),
                    is_path_style=self.is_path_style,
                )
                if self.bucket
                else None
            )
            repository = Repository(folder=self.folder, s3=store)
            made = BackupPolicy(
                repository=repository,
                keep=self.keep,
                every_hours=self.every_hours,
                full_every_hours=self.full_every_hours,
                archive_seconds=self.archive_seconds,
                verify_every=self.verify_every,
            )
            # Why back and forth: bounds are looked at when a record is read.
            return msgspec.convert(msgspec.to_builtins(made), BackupPolicy)
        except ValueError as error:
            raise InvalidInputError(source="archive", problem=str(error)) from error


@spread
def _archive(instance: _Instance, policy: _PolicyOptions, options: ActionOptions) -> None:
    """Have a cluster archive its log, and back it up. Nodes that archived nothing are restarted once, the leader last.

    Asked again with other numbers, it is kept so from now on.
    """
    wanted = policy.policy()
    begin_and_follow(
        instance,
        options,
        lambda store: BackupPlans(store, SYSTEM_CLOCK).archive(instance, wanted, is_trial=options.is_trial),
    )


@spread
def _back_up(
    instance: _Instance,
    options: ActionOptions,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="full, differential (since a full one) or incremental (since any).",
        ),
    ] = "full",
) -> None:
    """Back up a cluster now, from its leader."""
    if kind not in _KINDS:
        raise InvalidInputError(source="--kind", problem=f"{kind} is none of {', '.join(_KINDS)}")
    begin_and_follow(
        instance,
        options,
        lambda store: BackupPlans(store, SYSTEM_CLOCK).back_up(instance, _KINDS[kind], is_trial=options.is_trial),
    )


@spread
def _verify(
    instance: _Instance,
    options: ActionOptions,
    label: Annotated[
        str,
        typer.Option("--backup", metavar="BACKUP", help="Which, as `backups` lists it; the last without it."),
    ] = "",
) -> None:
    """Verify a backup: restore it on a cell of the cluster's, ask each of its databases, and remove what was restored."""
    begin_and_follow(
        instance,
        options,
        lambda store: BackupPlans(store, SYSTEM_CLOCK).verify(instance, label, is_trial=options.is_trial),
    )


class _RestoreOptions(NamedTuple):
    """What is made of the backups: another instance, or the same one, there and back."""

    new: Annotated[str, typer.Option("--as", metavar="NEW", help="Make another instance, beside this one.")] = ""
    is_in_place: Annotated[
        bool, typer.Option("--in-place", help="Make this one again; what it is now is halted, and kept.")
    ] = False
    is_back: Annotated[bool, typer.Option("--back", help="Return to what was there before a restore in place.")] = False
    is_final: Annotated[bool, typer.Option("--finish", help="Remove what was there before, with its data.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False

    def require_one(self, to: str) -> None:
        """Raise InvalidInputError where it is not one thing that is asked for."""
        if sum([bool(self.new), self.is_in_place, self.is_back, self.is_final]) != 1:
            raise InvalidInputError(source="restore", problem="pass one of --as NEW, --in-place, --back and --finish")
        if to and (self.is_back or self.is_final):
            raise InvalidInputError(source="--to", problem="belongs to --as and --in-place")


@spread
def _restore(
    instance: Annotated[str, typer.Argument(help="Whose backups; with --as it need not be there any more.")],
    chosen: _RestoreOptions,
    options: ActionOptions,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME", help="As 2026-11-24T02:13:05Z or +01:00; without it, all that is archived."
        ),
    ] = "",
) -> None:
    """Make a cluster of what one was at a time: its newest backup of before, and the log from there on.

    Another instance has users, passwords, a port and backups of its own; the roles in the database are those of then. In place,
    port, bindings and configuration stay, and the nodes are new; those that were there are halted until --finish, and --back
    returns to them.
    """
    chosen.require_one(to)
    target = time_of(to) if to else None
    if chosen.new:
        begin_and_follow(
            chosen.new,
            options,
            lambda store: BackupPlans(store, SYSTEM_CLOCK).restore_as(
                instance, chosen.new, target, is_trial=options.is_trial
            ),
        )
        return
    if chosen.is_back:
        go_back(instance, options, is_agreed=chosen.yes)
        return
    if chosen.is_final:
        remove_former(instance, options, is_agreed=chosen.yes)
        return
    question = f"Halt {instance}, and make it again as it was {f'at {to}' if to else 'when its log was last archived'}?"
    _begin(instance, options, question, chosen.yes, partial(_restored, instance=instance, target=target))


def go_back(instance: str, options: ActionOptions, *, is_agreed: bool) -> None:
    """Return to an instance's former cluster; with `is_agreed` nobody is asked. The command for it, and that of an upgrade."""
    question = f"Halt {instance}, and return to what was there before?"
    _begin(instance, options, question, is_agreed, partial(_gone_back, instance=instance))


def remove_former(instance: str, options: ActionOptions, *, is_agreed: bool) -> None:
    """Remove an instance's former cluster; with `is_agreed` nobody is asked. The command for it, and that of an upgrade."""
    question = f"Remove what was there before {instance} became what it is, with its data?"
    _begin(instance, options, question, is_agreed, partial(_finished, instance=instance))


def _begin(
    instance: str, options: ActionOptions, question: str, is_agreed: bool, begin: Callable[..., Operation]
) -> None:
    begin_and_follow(
        instance,
        options,
        lambda store: begin(store, is_trial=options.is_trial),
        Consent(question, is_agreed, lambda store: begin(store, is_trial=True).steps),
    )


def _restored(store: Store, *, instance: str, target: datetime | None, is_trial: bool) -> Operation:
    begun = RestorePlans(store, SYSTEM_CLOCK).restore(instance, target, is_trial=is_trial)
    if is_trial and begun.recovery is not None:
        until = f"the log up to {begun.recovery.target}" if begun.recovery.target else "all of its log"
        print_text(f"made from backup {begun.recovery.label} of archive {begun.recovery.archive.stanza}, and {until}")
    return begun


def _gone_back(store: Store, *, instance: str, is_trial: bool) -> Operation:
    begun = RestorePlans(store, SYSTEM_CLOCK).go_back(instance, is_trial=is_trial)
    if is_trial and (lost := lost_by_way_back(Broker(store), instance)):
        print_text(lost)
    return begun


def _finished(store: Store, *, instance: str, is_trial: bool) -> Operation:
    return RestorePlans(store, SYSTEM_CLOCK).finish(instance, is_trial=is_trial)


def time_of(text: str) -> datetime:
    """Read a time with its zone. Raises InvalidInputError, also for one without: nobody knows whose clock is meant."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(source=text, problem="is no time: give one as 2026-11-24T02:13:05Z") from error
    if found.tzinfo is None:
        raise InvalidInputError(source=text, problem="has no time zone: add Z for UTC, or as +01:00")
    return found


def _list(
    instance: _Instance, store: StoreOption = None, as_json: JsonOption = False, config: ConfigOption = None
) -> None:
    """List the backups of a cluster, and say what a restore would lose now. They are listed also when the cluster is gone."""
    with store_of_option(store, config, create=False) as opened, opened.snapshot() as state:
        broker = Broker(state)
        book = newest_book(broker, instance)
        if book is None:
            raise InvalidInputError(source=instance, problem="nothing is known of backups of it")
        text = archive_view(broker, instance, book.archive, SYSTEM_CLOCK.wall()).text
        others = [other for _, other in broker.backup_books.list(instance) if other.archive != book.archive]
    if as_json:
        told = {"backups": book.backups, "verifications": book.verifications}
        print_json({**msgspec.to_builtins(told), "stanza": book.archive.stanza, "archive": text})
        return
    print_grid(["backup", "kind", "ended", "bytes", "stored", "state"], [_row(book, backup) for backup in book.backups])
    print_hint(f"as of {shown_time(book.looked_at)}; {text}" if book.looked_at else text)
    for other in others:
        # Why told: a time of then is restored from there.
        until = f" until {shown_time(other.spans[-1].until)}" if other.spans and other.spans[-1].until else ""
        print_hint(f"archive {other.archive.stanza}, which it had{until}, has {len(other.backups)} backups")


def _row(book: BackupBook, backup: Backup) -> list[str]:
    sizes = [str(backup.size_bytes), str(backup.stored_bytes)]
    found = book.verifications.get(backup.label)
    if backup.has_errors:
        state = "damaged"
    elif found is None:
        state = "not verified"
    else:
        state = f"not restored: {found.problem}" if found.problem else f"verified {shown_time(found.verified_at)}"
    return [backup.label, backup.kind, shown_time(backup.ended_at), *sizes, state]
