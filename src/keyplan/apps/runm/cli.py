"""The commands of `keyplan runm`: serve the metadata, and look after a store that holds it. The client is `runm`."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from keyplan.apps.runm.cli_options import ObjectTypeOption, ServeOptions, code_and_text, decisions_of, object_type_of
from keyplan.apps.runm.migrate import migrate as migrated
from keyplan.apps.runm.partition_file import Line, ObjectTypeLine, lines_read, lines_written
from keyplan.apps.runm.partition_removal import (
    partition_to_remove,
    plan_removal,
    remove_partition,
    rename_partition,
)
from keyplan.apps.runm.records import ProviderType
from keyplan.apps.runm.reindex import reindex as reindexed
from keyplan.apps.runm.settings import ROOT_CONSTANT, RootSettings, ServeSettings
from keyplan.apps.runm.transfer import exported, import_partition
from keyplan.apps.runm.verify import verify as verified
from keyplan.cli import (
    AuditOptions,
    ConfigOption,
    JsonOption,
    StoreOption,
    absolute_url,
    print_json,
    print_text,
    progress_bar,
    spread,
    stopped_by_signals,
    store_url_of_option,
)
from keyplan.cli import store_of_option as opened_store
from keyplan.files import new_file
from keyplan.settings import Source

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

_FOUND = 1
"""The exit code when something remains to be done."""


@app.callback()
def _group() -> None:
    """runm-metadata: names, types, definitions, tags and properties of a runmachine deployment, over gRPC."""


@app.command()
@spread
def serve(
    *, store: StoreOption = None, flags: Annotated[Source, ServeSettings], own: ServeOptions, audit: AuditOptions
) -> None:
    """Serve `runm.RunmMetadata` and `runm.RunmAPI`, with health and reflection, until SIGTERM or SIGINT.

    Flags come before the environment variables named in brackets. Without --store the original's etcd settings say where the
    data are. The addresses are printed on standard output, one a line, once calls are answered there; that of the figures last.
    """
    # Why here: grpc, protobuf and the server take half a second, which the other commands do without.
    from keyplan.apps.runm.process import ServeChoices, ended_in_time, run_server  # noqa: PLC0415
    from keyplan.apps.runm.process_group import run_group  # noqa: PLC0415

    choices = ServeChoices(
        access=own.access,
        audit_log=audit.audit_log,
        audit_syncs=audit.syncs(),
        audit_rotation=audit.rotation(),
        tokens=own.tokens,
        tls_client_authority=own.tls_client_ca,
        is_open_to_anyone=own.allow_anyone,
        has_enforced_definitions=own.enforce_definitions,
        is_isolated=own.isolate,
        is_registered=own.register,
        deleted_kept_seconds=own.keep_deleted,
        metrics_listen=own.metrics_listen,
        object_types=tuple(object_type_of(text) for text in own.object_type or ()),
        provider_types=tuple(ProviderType(*code_and_text(text)) for text in own.provider_type or ()),
    )
    settings = ServeSettings.of(flags, os.environ, store=store)
    stop = Event()
    with ended_in_time(stop):
        if own.processes == 1:
            run_server(settings, choices, stop, announce=_announce)
        elif not run_group(settings, choices, own.processes, stop, announce=_announce):
            raise typer.Exit(_FOUND)


@app.command()
@spread
def verify(
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Examine every key: records and index entries in both directions, pointers, definitions, and what the rulings ask for.

    Nothing is written. Exit code 1 when something is wrong, or an index is not to be trusted.
    """
    url = absolute_url(store_url_of_option(store, config))
    with opened_store(store, config, readonly=True) as opened, progress_bar("verify") as shown:
        wrong = 0
        for finding in verified(opened, _prefix(place), shown.told, url=url):
            wrong += 1
            print_json(finding._asdict()) if as_json else print_text(str(finding))
    if as_json:
        print_json({"findings": wrong})
    else:
        print_text(_counted(wrong, "finding"))
    if wrong:
        raise typer.Exit(_FOUND)


@app.command()
@spread
def reindex(
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build the property and tag indexes, while the service runs or not, and let searches trust them.

    For a store that the original wrote, which has none. Exit code 1 when objects are in the way, which are printed.
    """
    prefix, url = _prefix(place), absolute_url(store_url_of_option(store, config))
    command = ("runm", "reindex", "--root", prefix + ROOT_CONSTANT)

    def again() -> tuple[str, ...]:
        return (*command, "--store", url)

    with opened_store(store, config) as opened, stopped_by_signals(again) as stop, progress_bar("reindex") as shown:
        report = reindexed(opened, prefix, shown.told, stop=stop, command=command, url=url)
    if as_json:
        print_json(report._asdict())
    else:
        for key in report.in_the_way:
            print_text(f"cannot be indexed: {key}")
        state = "can be searched by property and tag" if report.is_readable else "is searched without these indexes"
        entries = "1 entry" if report.entries_written == 1 else f"{report.entries_written} entries"
        print_text(f"{entries} written; the store {state}")
    if not report.is_readable:
        raise typer.Exit(_FOUND)


@app.command()
@spread
def migrate(
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only say what would be done.")] = False,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="UUID=NAME", help="Give a record another name; repeated.")
    ] = None,
    project: Annotated[
        list[str] | None,
        typer.Option(
            "--project",
            metavar="[UUID=]PROJECT",
            help="Give an object, or all that have none and must have one, a project; repeated.",
        ),
    ] = None,
    uuid: Annotated[
        list[str] | None,
        typer.Option("--uuid", metavar="TEXT=UUID", help="What a text in a UUID's place stands for; repeated."),
    ] = None,
    object_type: ObjectTypeOption = None,
) -> None:
    """Rewrite what the original spelled or left otherwise: raw names, odd UUIDs, lost names, orphans, keys that end in /.

    Each step is one guarded commit. What takes a decision is left and named, with the option that decides it. Exit code 1 when
    something is left.
    """
    decisions = decisions_of(rename or (), project or (), uuid or ())
    types = [object_type_of(text) for text in object_type or ()]
    with opened_store(store, config, readonly=not yes) as opened:
        steps = left = 0
        found = migrated(opened, _prefix(place), is_dry_run=not yes, decisions=decisions, object_types=types)
        for step in found:
            steps += not step.is_left
            left += step.is_left
            print_json(step._asdict()) if as_json else print_text(str(step))
    if not as_json:
        decide = f"; {left} left to decide" if left else ""
        print_text(f"{_counted(steps, 'step')}{decide}" + ("" if yes else "; nothing was written: add --yes"))
    if left:
        raise typer.Exit(_FOUND)


@app.command()
@spread
def rename(
    partition: Annotated[str, typer.Argument(help="The partition's UUID or name.")],
    name: Annotated[str, typer.Argument(help="Its new name.")],
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a partition another name, in one commit. The service may run meanwhile.

    Sessions and labels of an access file that say the old name find nothing any more; those that say the UUID go on.
    """
    with opened_store(store, config) as opened:
        renamed = rename_partition(opened, _prefix(place), partition, name)
    print_json({"uuid": renamed.uuid.hex, "name": renamed.name}) if as_json else print_text(renamed.uuid.hex)


@app.command()
@spread
def remove(
    partition: Annotated[str, typer.Argument(help="The partition's UUID or name.")],
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only say what would go.")] = False,
) -> None:
    """Remove a partition with all that it holds: objects, definitions and their earlier versions, what could be restored.

    The service may run meanwhile: the partition is gone for it at once. Interrupted, it goes on when it is given again.
    """
    prefix = _prefix(place)
    url = absolute_url(store_url_of_option(store, config))
    if not yes:
        with opened_store(store, config, readonly=True) as opened:
            removal = plan_removal(opened, prefix, partition)
    else:
        with opened_store(store, config) as opened:
            uuid = partition_to_remove(opened, prefix, partition).uuid.hex
            command = ("runm", "remove", uuid, "--yes", "--root", prefix + ROOT_CONSTANT)
            with stopped_by_signals(lambda: (*command, "--store", url)) as stop, progress_bar("remove") as shown:
                removal = remove_partition(opened, prefix, uuid, stop=stop, command=command, progress=shown.told)
    if as_json:
        print_json(removal._asdict() | {"partition": removal.partition.uuid.hex, "is_removed": yes})
        return
    for line in removal.lines():
        print_text(line)
    print_text("removed" if yes else "nothing was written: add --yes")


@app.command("export")
@spread
def export_partition(
    partition: Annotated[str, typer.Argument(help="The partition's UUID or name.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="The file to write; it must not be there yet.")],
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a partition to a file: its own definitions and its objects, as of one state, with their UUIDs.

    The service may run meanwhile. The file is JSON, a line for each record, with a digest at its end. The object types that a
    reader must know stand in it too; they are no records of the partition, and counted by themselves.
    """
    kinds: Counter[type[Line]] = Counter()
    url = absolute_url(store_url_of_option(store, config))

    def counted(records: Iterable[Line]) -> Iterator[Line]:
        for record in records:
            kinds[type(record)] += 1
            yield record

    with opened_store(store, config, readonly=True) as opened, progress_bar("export") as progress:
        lines = lines_written(counted(exported(opened, _prefix(place), partition, url=url)))
        first = next(lines)  # Why: no file is made for a partition that is not there.
        with new_file(file) as out:
            for count, line in enumerate(chain((first,), lines)):
                out.write(line)
                progress(count)
    types = kinds.pop(ObjectTypeLine, 0)
    records = kinds.total()
    if as_json:
        print_json({"records": records, "object_types": types})
    else:
        print_text(f"{_counted(records, 'record')}, with the {_counted(types, 'object type')} of the store")


@app.command("import")
@spread
def import_file(
    file: Annotated[Path, typer.Option("--file", "-f", help="A file of `keyplan runm export`.", exists=True)],
    *,
    store: StoreOption = None,
    place: Annotated[Source, RootSettings],
    config: ConfigOption = None,
    as_json: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only say what would be done.")] = False,
) -> None:
    """Bring a partition in from a file, with its UUIDs kept. Nothing is written while anything is in the way of it.

    What is there already, just as in the file, is passed over: an import that was interrupted is run again. Exit code 1 when
    something is in the way, each of which is printed.
    """

    def lines() -> Iterator[Line]:
        with file.open("rb") as given:
            yield from lines_read(given, str(file))

    with opened_store(store, config, create=yes, readonly=not yes) as opened, progress_bar("import") as progress:
        report = import_partition(opened, _prefix(place), lines, is_dry_run=not yes, progress=progress)
    if as_json:
        print_json(report._asdict())
    else:
        for conflict in report.conflicts:
            print_text(f"in the way: {conflict}")
        done = "written" if yes and not report.conflicts else "to write; nothing was written"
        print_text(f"{_counted(report.written, 'record')} {done}, {report.present} there already")
    if report.conflicts:
        raise typer.Exit(_FOUND)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _announce(address: str) -> None:
    print_text(address)
    sys.stdout.flush()


def _prefix(flags: Source) -> str:
    return RootSettings.of_flags(flags, os.environ).prefix
