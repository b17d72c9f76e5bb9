"""The commands `keyplan keyspace backup|restore`."""

from typing import Annotated

import typer

from keyplan.cli.backup import FileArgument, KeepLeasedOption, PlainOption, UnfinishedOption, print_backup
from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    layout_of_option,
    root_parameters,
    store_of_option,
)
from keyplan.cli.output import print_json, print_text
from keyplan.cli.registries import user_name
from keyplan.cli.restore import print_restored, restored_data
from keyplan.cli.targets import store_for_backup
from keyplan.cli.unfinished import Unfinished
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.files import new_file
from keyplan.keyspace import KeySpaceIdentity
from keyplan.layout import BoundLayout
from keyplan.maintenance import (
    KeySpacesRestored,
    OnConflict,
    RestoreAction,
    RestorePolicy,
    back_up_key_spaces,
    read_backup,
    restore_key_spaces,
)

__all__ = ["backup", "restore"]


def backup(
    file: FileArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A key space; all without it.", show_default=False)
    ] = None,
    *,
    store: StoreOption = None,
    keep_leased: KeepLeasedOption = False,
    uncompressed: PlainOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Write one key space, or all, with their entries in the registry, as of one snapshot, to a new file with checksums.

    What cannot be read of the registry is reported, and all else is in the file; the exit code is then 8.
    """
    with (
        store_of_option(store, config, readonly=True, unfinished=Unfinished.PASSED) as opened,
        progress_bar("backup") as progress,
        new_file(file) as output,
    ):
        report = back_up_key_spaces(
            opened.engine,
            output,
            name=name,
            keeps_leased=keep_leased,
            is_compressed=not uncompressed,
            takes_unfinished=unfinished,
            progress=progress,
        )
    print_backup(file, report, json=json)
    if report.damaged:
        raise typer.Exit(CorruptionError.exit_code)


def restore(
    file: FileArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these key spaces of the backup.")
    ] = None,
    *,
    store: StoreOption = None,
    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", help="When a name or a prefix is in use.")
    ] = OnConflict.ERROR,
    overwrite_holder: Annotated[
        list[str] | None,
        typer.Option("--overwrite-holder", metavar="NAME", help="Delete this key space, which has the prefix."),
    ] = None,
    rename_to: Annotated[
        list[str] | None,
        typer.Option("--rename-to", metavar="NEW", help="Another name; OLD=NEW when there are several."),
    ] = None,
    take_ownership: Annotated[
        bool, typer.Option("--take-ownership", help="Overwrite another application's key space, too.")
    ] = False,
    expected: Annotated[
        list[str] | None,
        typer.Option(
            "--expected",
            metavar="NAME=GENERATION/APPLICATION",
            help="Overwrite or delete the key space of this name only while it is still this one.",
        ),
    ] = None,
    look: Annotated[
        bool, typer.Option("--look", help="Verify the file, print what it holds, and write nothing.")
    ] = False,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Bring key spaces back from a backup. All conflicts are told before anything is written.

    A restore that was interrupted is finished by the same command; until then nobody can open the key space. With a layout
    keys in values are rewritten when a prefix changes, and indexes are checked and put right.
    """
    if look:
        print_backup(file, read_backup(file), json=json, verb="verified")
        return
    renamed = _renamed(rename_to or [], names or [], [section.name for section in read_backup(file).sections])
    policy = RestorePolicy(on_conflict, overwrite_holder or (), renamed, take_ownership, _expected(expected or []))
    target = store_for_backup(file, store, config, has_key_spaces=True, names=names)
    with target as opened, progress_bar("restore") as progress:
        restored = restore_key_spaces(
            opened.engine,
            file,
            names=names or (),
            policy=policy,
            layout=_layout(layout, parameter),
            actor=user_name() or "restore",
            progress=progress,
        )
    _print(restored, json=json)
    if any(space.report and space.report.indexes and space.report.indexes.remaining for space in restored.spaces):
        raise typer.Exit(FINDINGS)


def _layout(name: str | None, parameters: list[str] | None) -> BoundLayout | None:
    # Why not the settings' layout: it is of the store, and key spaces hold what their applications put there.
    if name is None:
        return None
    kind = layout_of_option(name)
    return kind.bound(**root_parameters(kind, parameters))


def _renamed(given: list[str], names: list[str], held: list[str]) -> dict[str, str]:
    """Read NEW, for the only key space, and OLD=NEW. Raises InvalidInputError."""
    renamed: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals:
            chosen = names or held
            if len(chosen) != 1:
                raise InvalidInputError(source="--rename-to", problem="there are several key spaces: say OLD=NEW")
            old, new = chosen[0], text
        if old not in held:
            raise InvalidInputError(source="--rename-to", problem=f"{old} is not in this backup")
        renamed[old] = new
    return renamed


def _expected(given: list[str]) -> dict[str, KeySpaceIdentity]:
    """Read NAME=GENERATION/APPLICATION. Raises InvalidInputError."""
    found: dict[str, KeySpaceIdentity] = {}
    for text in given:
        name, _, words = text.partition("=")
        identity = KeySpaceIdentity.parsed(words)
        if identity is None:
            problem = f"{text} is not NAME=GENERATION/APPLICATION, as in old=3/orders: see `keyplan keyspace show`"
            raise InvalidInputError(source="--expected", problem=problem)
        found[name] = identity
    return found


def _print(restored: KeySpacesRestored, *, json: bool) -> None:
    if restored.is_registry_kept:
        print_hint("this store has a registry: the backup's switches, marks and audit log stay in the file")
    for space in restored.spaces:
        step = space.step
        if json:
            shown: dict[str, object] = {"name": step.name, "action": step.action.value}
            shown |= {"keyspace": None if space.keyspace is None else space.keyspace.to_json()}
            print_json(shown | {"restored": None if space.report is None else restored_data(space.report)})
        elif space.report is not None:
            print_restored(space.report)
        elif step.action is RestoreAction.FINISHED:
            print_text(f"{step.name}: was restored already; --on-conflict overwrite restores it again")
        elif step.action is RestoreAction.TOMBSTONE:
            print_text(f"{step.name}: was deleted; its record is kept")
        else:
            print_text(f"{step.name}: was deleted; the record that is here stays")
