"""The commands that carry a store elsewhere and bring it back: `keyplan backup|restore|copy`."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Annotated, TypeVar

import typer

from keyplan.cli.failures import FINDINGS, print_hint
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    Unfinished,
    is_layout_named,
    layout_of_option,
    named_file,
    raw_key_of_option,
    root_parameters,
    store_of_option,
    store_url_of_option,
)
from keyplan.cli.output import print_json, print_text, printable, progress_bar
from keyplan.engine import (
    MEMORY_PROFILE,
    Commit,
    Engine,
    EngineUrl,
    KeyRange,
    MemoryEngine,
    default_profile,
    open_engine,
)
from keyplan.errors import EngineOpenError, InvalidInputError, StoreMissingError
from keyplan.files import new_file
from keyplan.maintenance import (
    BackupReport,
    CopyProgress,
    CopyReport,
    RestoreReport,
    back_up_store,
    copy_store,
    read_backup,
    restore_store,
)
from keyplan.signals import call_from_signal

__all__ = [
    "FileArgument",
    "KeepLeasedOption",
    "PlainOption",
    "UnfinishedOption",
    "backup_command",
    "brought_into",
    "copy_command",
    "print_backup",
    "print_restored",
    "refuse_itself",
    "restore_command",
    "restored_data",
]

R = TypeVar("R")

# ---- backup --------------------------------------------------------------------------------------------------------------


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The backup.", show_default=False, callback=named_file)
]
KeepLeasedOption = Annotated[
    bool, typer.Option("--keep-leased", help="Entries on a lease too, as if they hung on none.")
]
UnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="What a restore or a copy has brought so far, although it has not ended.")
]
PlainOption = Annotated[bool, typer.Option("--uncompressed", help="Do not compress.")]


def backup_command(
    file: FileArgument,
    *,
    store: StoreOption = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.")
    ] = "",
    keep_leased: KeepLeasedOption = False,
    uncompressed: PlainOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Write every key and value, as of one snapshot, to a new file with checksums. `keyplan restore` brings it back.

    Key spaces with their registry entries: `keyplan keyspace backup`.
    """
    raw_prefix = raw_key_of_option(prefix, source="--prefix")
    with store_of_option(store, config, readonly=True, unfinished=Unfinished.PASSED) as opened:
        engine = opened.engine

        def total() -> int:
            with engine.snapshot() as snapshot:
                return snapshot.count(KeyRange.of_prefix(raw_prefix))

        with progress_bar("backup", total) as progress, new_file(file) as output:
            report = back_up_store(
                engine,
                output,
                prefix=raw_prefix,
                keeps_leased=keep_leased,
                is_compressed=not uncompressed,
                takes_unfinished=unfinished,
                progress=progress,
            )
    print_backup(file, report, json=json)


def print_backup(file: Path, report: BackupReport, *, json: bool, verb: str = "wrote") -> None:
    """Print what a backup holds: a line for the whole and one for each section."""
    if json:
        print_json(
            {
                "id": report.header.id,
                "kind": report.header.kind,
                "created_at": report.header.created_at,
                "revision": report.header.revision,
                "sections": [
                    {
                        "name": section.name,
                        "prefix": section.prefix.hex(),
                        "has_data": section.has_data,
                        "count": section.trailer.count,
                        "bytes": section.trailer.bytes,
                        "sha256": section.trailer.sha256,
                        "leased": section.trailer.leased,
                    }
                    for section in report.sections
                ],
                "left_out": list(report.left_out),
                "damaged": list(report.damaged),
            }
        )
        return
    for section in report.sections:
        name = f"{section.name}  {section.prefix.hex()}  " if section.name else ""
        held = f"{section.trailer.count} pairs  {section.trailer.bytes} bytes  sha256 {section.trailer.sha256}"
        print_text(name + (held if section.has_data else "deleted: its record alone"))
    print_text(f"{verb} {file}: {report.count} pairs as of revision {report.header.revision}")
    if report.leased:
        print_hint(f"{report.leased} entries hang on leases and were left out; --keep-leased takes them along")
    for name in report.left_out:
        print_hint(f"{name} is being restored and was left out")
    for damage in report.damaged:
        print_hint(f"damaged: {damage}")


# ---- restore -------------------------------------------------------------------------------------------------------------


def restore_command(
    file: FileArgument,
    *,
    store: StoreOption = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PREFIX", help="Below this prefix instead of the backup's own.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there; keys that the backup does not have are removed.")
    ] = False,
    look: Annotated[
        bool, typer.Option("--look", help="Verify the file, print what it holds, and write nothing.")
    ] = False,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a backup into a store, and verify it by reading it back.

    Everything is checked before the first write. A restore that was interrupted is finished by the same command.

    With a layout its indexes are checked afterwards and put right, and keys in values are rewritten when the prefix changes.
    Exit code 1 when findings remain.
    """
    if look:
        print_backup(file, read_backup(file), json=json, verb="verified")
        return
    bound = None
    if is_layout_named(layout, config):
        kind = layout_of_option(layout, config)
        bound = kind.bound(**root_parameters(kind, parameter, config))
    below = None if prefix is None else raw_key_of_option(prefix, source="--prefix")
    with progress_bar("restore") as progress:

        def bring(engine: Engine) -> RestoreReport:
            return restore_store(engine, file, prefix=below, is_overwriting=overwrite, layout=bound, progress=progress)

        report = brought_into(store, config, bring)
    if json:
        print_json(restored_data(report))
    else:
        print_restored(report)
    if bound is None and prefix is not None:
        print_hint("without --layout no value is known to hold keys: none was rewritten, and no index was checked")
    if report.indexes is not None and report.indexes.remaining:
        raise typer.Exit(FINDINGS)


def restored_data(report: RestoreReport) -> dict[str, object]:
    """What was restored, as JSON data."""
    return {
        "name": report.name,
        "prefix": report.prefix.hex(),
        "count": report.tally.count,
        "bytes": report.tally.bytes,
        "sha256": report.tally.sha256,
        "written": report.written.puts,
        "removed": report.written.deletes,
        "unchanged": report.written.unchanged,
        "keys_rewritten": report.keys_rewritten,
        "indexes": None
        if report.indexes is None
        else {"repaired": report.indexes.repaired, "remaining": list(report.indexes.remaining)},
    }


def print_restored(report: RestoreReport) -> None:
    """Print what was restored."""
    name = f"{report.name}  {report.prefix.hex()}  " if report.name else ""
    print_text(f"{name}{report.tally.count} pairs  {report.tally.bytes} bytes  sha256 {report.tally.sha256}")
    counts = f"{report.written.puts} written, {report.written.deletes} removed, {report.written.unchanged} unchanged"
    print_text(f"verified: {counts}")
    if report.keys_rewritten:
        print_text(f"{report.keys_rewritten} values hold keys and were rewritten")
    if report.indexes is not None:
        for finding in report.indexes.remaining:
            print_text(printable(finding))
        print_text(
            f"indexes: {report.indexes.repaired} entries put right, {len(report.indexes.remaining)} findings remain"
        )


# ---- copy ----------------------------------------------------------------------------------------------------------------


def copy_command(
    *,
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The store to read.", show_default=False)],
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The store to write.", show_default=False)],
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.")
    ] = "",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there; keys that the source does not have are removed.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then apply every change as it comes, until Ctrl-C or SIGTERM.")
    ] = False,
    keep_leased: KeepLeasedOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Copy a store, or a prefix of it, into another one, whatever their engines, and verify it by reading it back.

    What the target cannot hold is told before the first write. A copy that was interrupted is finished by the same command:
    only what differs is written.
    """
    names = [EngineUrl.parse(url).text for url in (source, target)]
    if names[0] == names[1]:
        raise InvalidInputError(source="--to", problem="a store is not copied into itself")
    raw_prefix = raw_key_of_option(prefix, source="--prefix")
    refuse_itself(source, target)
    with (
        store_of_option(source, config, readonly=True, unfinished=Unfinished.PASSED) as source_store,
        _stop(is_followed=follow) as stop,
    ):

        def total() -> int:
            with source_store.engine.snapshot() as snapshot:
                return snapshot.count(KeyRange.of_prefix(raw_prefix))

        with progress_bar("copy", total) as told:
            following = Event()

            def progress(now: CopyProgress) -> None:
                if now.stage == "copying":
                    told(now.pairs)
                elif now.stage == "following" and not following.is_set():
                    following.set()
                    print_hint("copied and verified; following changes until Ctrl-C")

            def bring(engine: Engine) -> CopyReport:
                return copy_store(
                    source_store.engine,
                    engine,
                    source_name=names[0],
                    prefix=raw_prefix,
                    is_overwriting=overwrite,
                    keeps_leased=keep_leased,
                    takes_unfinished=unfinished,
                    follow_until=stop,
                    progress=progress,
                )

            report = brought_into(target, config, bring)
    _print_copied(report, json=json)


def _print_copied(report: CopyReport, *, json: bool) -> None:
    if json:
        print_json(
            {
                "revision": report.revision,
                "count": report.tally.count,
                "bytes": report.tally.bytes,
                "sha256": report.tally.sha256,
                "written": report.written.puts,
                "removed": report.written.deletes,
                "unchanged": report.written.unchanged,
                "leased": report.leased,
                "followed": report.followed,
                "is_resumed": report.is_resumed,
            }
        )
        return
    print_text(f"{report.tally.count} pairs  {report.tally.bytes} bytes  sha256 {report.tally.sha256}")
    counts = f"{report.written.puts} written, {report.written.deletes} removed, {report.written.unchanged} unchanged"
    print_text(f"verified as of revision {report.revision} of the source: {counts}")
    if report.followed:
        print_text(f"{report.followed} revisions were followed")
    if report.leased:
        print_hint(f"{report.leased} entries hang on leases and were left out; --keep-leased takes them along")


@contextmanager
def _stop(*, is_followed: bool) -> Iterator[Event | None]:
    """An event that the first Ctrl-C or SIGTERM sets; the second ends the command as ever. None when nothing is followed."""
    if not is_followed:
        yield None
        return
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: object) -> None:
        call_from_signal(stop.set)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- the store that is written -------------------------------------------------------------------------------------------


def brought_into(url: str | None, config: Path | None, bring: Callable[[Engine], R]) -> R:
    """Open the store that `bring` writes into, and call it. A store that is not there is made when `bring` would write to it.

    Raises InvalidInputError, EngineOpenError, and what `bring` raises: before a new store is made, all that it refuses.
    """
    try:
        store = store_of_option(url, config, unfinished=Unfinished.PASSED)
    except StoreMissingError:
        _rehearse(EngineUrl.parse(store_url_of_option(url, config)).scheme, bring)
        store = store_of_option(url, config, create=True, unfinished=Unfinished.PASSED)
    with store:
        return bring(store.engine)


def _rehearse(scheme: str, bring: Callable[[Engine], object]) -> None:
    """Call `bring` with an empty engine that has the limits of the scheme's, up to its first write."""
    try:
        profile = default_profile(scheme)
    except EngineOpenError:  # an installed package's engine
        profile = MEMORY_PROFILE
    with _Unwritten(profile=profile) as engine, suppress(_FirstWrite):
        bring(engine)


class _FirstWrite(BaseException):
    """A rehearsal has come to its first write. No error: nothing on the way takes it for one."""


class _Unwritten(MemoryEngine):
    """An empty engine that ends whoever would write."""

    def commit(self, commit: Commit) -> int:
        raise _FirstWrite

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        raise _FirstWrite


def refuse_itself(source: str, target: str) -> None:
    """Refuse to copy a store into itself, by whatever other address, path or link. Raises InvalidInputError."""
    try:
        with open_engine(source, create=False, readonly=True) as engine:
            read = engine.lineage()
        with open_engine(target, create=False, readonly=True) as engine:
            written = engine.lineage()
    except EngineOpenError:
        return  # Why: whoever opens it for the copy is told what is wrong, or makes it.
    if read == written:
        raise InvalidInputError(source="--to", problem="a store is not copied into itself")
