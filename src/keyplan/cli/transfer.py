"""The commands that carry a store elsewhere and bring it back: `keyplan backup|restore|copy`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from keyplan.cli.failures import end_with_findings, print_hint
from keyplan.cli.jobs import stopped_by_signals, words_of
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    PrefixOption,
    StoreOption,
    Unfinished,
    absolute_url,
    bound_where_named,
    count_below,
    named_file,
    raw_key_of_option,
    store_of_option,
    store_url_of_option,
)
from keyplan.cli.output import document_of, print_json, print_lines, print_text, progress_bar
from keyplan.engine import (
    MEMORY_PROFILE,
    Commit,
    Engine,
    EngineUrl,
    MemoryEngine,
    admit_commit,
    default_profile,
    open_engine,
)
from keyplan.errors import EngineOpenError, InvalidInputError, StoreMissingError
from keyplan.files import new_file
from keyplan.jobs import Progress, Stop
from keyplan.maintenance import (
    BackupReport,
    BackupTrailer,
    CopyReport,
    RestoreReport,
    Tally,
    Written,
    back_up_store,
    copy_store,
    read_backup,
    restore_store,
)

__all__ = [
    "FileArgument",
    "KeepLeasedOption",
    "LookOption",
    "PlainOption",
    "UnfinishedOption",
    "backup_command",
    "brought_into",
    "copy_command",
    "print_backup",
    "print_restored",
    "refuse_itself",
    "rehearse",
    "restore_command",
    "restored_data",
]

R = TypeVar("R")

# ---- backup --------------------------------------------------------------------------------------------------------------


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The backup.", show_default=False, callback=named_file)
]
KeepLeasedOption = Annotated[bool, typer.Option("--keep-leased", help="Entries on a lease too, as if they had none.")]
UnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="Also the part that an unfinished restore or copy has brought so far.")
]
PlainOption = Annotated[bool, typer.Option("--uncompressed", help="Do not compress.")]
LookOption = Annotated[bool, typer.Option("--look", help="Verify the file, print its contents, and write nothing.")]


def backup_command(
    file: FileArgument,
    *,
    store: StoreOption = None,
    prefix: PrefixOption = "",
    keep_leased: KeepLeasedOption = False,
    uncompressed: PlainOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Write every key and value, as of one snapshot, to a new file with checksums. `keyplan restore` brings it back.

    `keyplan keyspace backup` writes key spaces with their registry entries.
    """
    raw_prefix = raw_key_of_option(prefix, source="--prefix")
    with (
        store_of_option(store, config, readonly=True, unfinished=Unfinished.PASSED) as opened,
        progress_bar("backup", lambda: count_below(opened.engine, raw_prefix)) as progress,
        new_file(file) as output,
    ):
        report = back_up_store(
            opened.engine,
            output,
            prefix=raw_prefix,
            keeps_leased=keep_leased,
            is_compressed=not uncompressed,
            takes_unfinished=unfinished,
            progress=progress,
        )
    print_backup(file, report, json=json)


def print_backup(file: Path, report: BackupReport, *, json: bool, verb: str = "wrote") -> None:
    """Print the contents of a backup: a line for each section and one for the whole."""
    if json:
        header = report.header
        print_json(
            {
                "id": header.id,
                "kind": header.kind,
                "created_at": header.created_at,
                "revision": header.revision,
                "sections": [
                    {
                        "name": section.name,
                        "prefix": section.prefix.hex(),
                        "has_data": section.has_data,
                        **document_of(section.trailer),
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
        print_text(name + (_sum(section.trailer) if section.has_data else "deleted: its record alone"))
    print_text(f"{verb} {file}: {report.count} pairs as of revision {report.header.revision}")
    _hint_leased(report.leased)
    for name in report.left_out:
        print_hint(f"{name} is being restored and was left out")
    for damage in report.damaged:
        print_hint(f"damaged: {damage}")


# ---- restore -------------------------------------------------------------------------------------------------------------


def restore_command(
    context: typer.Context,
    file: FileArgument,
    *,
    store: StoreOption = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PREFIX", help="Below this prefix instead of the backup's own.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace all keys there; those that the backup lacks are removed.")
    ] = False,
    look: LookOption = False,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a backup into a store, and verify it by reading it back.

    Everything is checked before the first write. The same command finishes a restore that was interrupted.

    With a layout, its indexes are checked and repaired afterwards, and keys in values are rewritten when the prefix changes.
    Exit code 1 when findings remain.
    """
    if look:
        print_backup(file, read_backup(file), json=json, verb="verified")
        return
    bound = bound_where_named(layout, parameter, config)
    below = None if prefix is None else raw_key_of_option(prefix, source="--prefix")
    with stopped_by_signals(partial(words_of, context, with_store=True)) as stop, progress_bar("restore") as shown:

        def bring(engine: Engine) -> RestoreReport:
            return restore_store(
                engine,
                file,
                prefix=below,
                is_overwriting=overwrite,
                layout=bound,
                stop=stop,
                command=words_of(context),
                progress=shown.told,
            )

        report = brought_into(store, config, bring)
    if json:
        print_json(restored_data(report))
    else:
        print_restored(report)
    if bound is None and prefix is not None:
        print_hint("no key in a value was rewritten, and no index was checked: that takes --layout")
    end_with_findings(report.indexes is not None and report.indexes.remaining)


def restored_data(report: RestoreReport) -> dict[str, object]:
    """Return a restore's report as JSON data."""
    return {
        "name": report.name,
        "prefix": report.prefix.hex(),
        **document_of(report.tally),
        **_changes(report.written),
        "keys_rewritten": report.keys_rewritten,
        "was_complete": report.was_complete,
        "indexes": None
        if report.indexes is None
        else {"repaired": report.indexes.repaired, "remaining": list(report.indexes.remaining)},
    }


def print_restored(report: RestoreReport) -> None:
    """Print a restore's report."""
    name = f"{report.name}  {report.prefix.hex()}  " if report.name else ""
    print_text(f"{name}{_sum(report.tally)}")
    print_text(f"verified: {_COMPLETE if report.was_complete else _counts(report.written)}")
    if report.keys_rewritten:
        print_text(f"{report.keys_rewritten} values hold keys and were rewritten")
    if report.indexes is not None:
        print_lines(*report.indexes.remaining)
        print_text(
            f"indexes: {report.indexes.repaired} entries put right, {len(report.indexes.remaining)} findings remain"
        )


_COMPLETE: Final = "already complete, nothing was written"


def _changes(written: Written) -> dict[str, int]:
    return {"written": written.puts, "removed": written.deletes, "unchanged": written.unchanged}


def _counts(written: Written) -> str:
    return ", ".join(f"{count} {name}" for name, count in _changes(written).items())


def _sum(tally: Tally | BackupTrailer) -> str:
    return f"{tally.count} pairs  {tally.bytes} bytes  sha256 {tally.sha256}"


# ---- copy ----------------------------------------------------------------------------------------------------------------


_ITSELF: Final = "a store is not copied into itself"


def copy_command(
    context: typer.Context,
    *,
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The store to read.", show_default=False)],
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The store to write.", show_default=False)],
    prefix: PrefixOption = "",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace all keys there; those that the source lacks are removed.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Then apply every change until Ctrl-C or SIGTERM.")] = False,
    keep_leased: KeepLeasedOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Copy a store, or a prefix of it, into another one, whatever their engines, and verify it by reading it back.

    Pairs that the target cannot hold are an error before the first write. The same command finishes a copy that was
    interrupted, and writes only the differences.
    """
    names = [absolute_url(url) for url in (source, target)]
    command = words_of(context, leaves_out=("target",), replaced={"source": names[0]})
    if names[0] == names[1]:
        raise InvalidInputError(source="--to", problem=_ITSELF)
    raw_prefix = raw_key_of_option(prefix, source="--prefix")
    refuse_itself(source, target)
    with (
        store_of_option(source, config, readonly=True, unfinished=Unfinished.PASSED) as source_store,
        stopped_by_signals(lambda: (*command, "--to", names[1])) as stop,
        progress_bar("copy", lambda: count_below(source_store.engine, raw_prefix)) as shown,
    ):
        unfollowed = _Unfollowed(stop)

        def progress(now: Progress) -> None:
            if now.stage == "copying":
                shown(now.done)
            elif now.stage == "following" and not unfollowed.is_over:
                unfollowed.is_over = True
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
                follow_until=stop if follow else None,
                stop=unfollowed,
                command=command,
                progress=progress,
            )

        report = brought_into(target, config, bring)
    _print_copied(report, json=json)


def _print_copied(report: CopyReport, *, json: bool) -> None:
    if json:
        print_json(
            {
                "revision": report.revision,
                **document_of(report.tally),
                **_changes(report.written),
                "leased": report.leased,
                "followed": report.followed,
                "is_resumed": report.is_resumed,
                "was_complete": report.was_complete,
            }
        )
        return
    print_text(_sum(report.tally))
    verdict = _COMPLETE if report.was_complete else _counts(report.written)
    print_text(f"verified as of revision {report.revision} of the source: {verdict}")
    if report.followed:
        print_text(f"{report.followed} revisions were followed")
    _hint_leased(report.leased)


def _hint_leased(leased: int) -> None:
    if leased:
        print_hint(f"{leased} entries have leases and were left out; --keep-leased takes them along")


class _Unfollowed:
    """Stops a copy until it follows: from then on the same signal ends the following, and the copy is completed."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.is_over = False

    def is_set(self) -> bool:
        return not self.is_over and self._stop.is_set()


# ---- the store that is written -------------------------------------------------------------------------------------------


def brought_into(
    url: str | None, config: Path | None, bring: Callable[[Engine], R], *, unfinished: Unfinished = Unfinished.PASSED
) -> R:
    """Open the store that `bring` writes into, and call it. A store that is not there is made when `bring` would write to it.

    Raises InvalidInputError, EngineOpenError, and what `bring` raises: before a new store is made, all that it refuses.
    """
    try:
        store = store_of_option(url, config, unfinished=unfinished)
    except StoreMissingError:
        rehearse(url, config, bring)
        store = store_of_option(url, config, create=True, unfinished=unfinished)
    with store:
        return bring(store.engine)


def rehearse(
    url: str | None, config: Path | None, bring: Callable[[Engine], object], *, is_whole: bool = False
) -> None:
    """Call `bring` with an empty engine that has the limits of the store's, up to its first write, which it may refuse.

    With `is_whole` to its end: for what writes little.
    """
    try:
        profile = default_profile(EngineUrl.parse(store_url_of_option(url, config)).scheme)
    except EngineOpenError:  # an installed package's engine
        profile = MEMORY_PROFILE
    kind = MemoryEngine if is_whole else _Unwritten
    with kind(profile=profile) as engine, suppress(_FirstWrite):
        bring(engine)


class _FirstWrite(BaseException):
    """A rehearsal has come to its first write. No error: nothing on the way takes it for one."""


class _Unwritten(MemoryEngine):
    """An empty engine that ends whoever would write."""

    def commit(self, commit: Commit) -> int:
        admit_commit(self.profile, commit)
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
        return  # Why: opening it for the copy raises the same, or makes it.
    if read == written:
        raise InvalidInputError(source="--to", problem=_ITSELF)
