"""The commands `keyplan keyspace apply|backup|restore`: key spaces that a file declares or holds."""

import json as json_text
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import end_with_findings, print_failure, print_hint
from keyplan.cli.jobs import stopped_by_signals, words_of
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    Unfinished,
    bound_of_options,
    read_text,
    store_of_option,
)
from keyplan.cli.output import print_answer, print_json, print_lines, print_text, progress_bar
from keyplan.cli.registries import RegistryOptions, user_name
from keyplan.cli.transfer import (
    FileArgument,
    KeepLeasedOption,
    LookOption,
    PlainOption,
    UnfinishedOption,
    brought_into,
    print_backup,
    print_restored,
    restored_data,
)
from keyplan.engine import Engine
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.files import new_file
from keyplan.keyspace import (
    Applied,
    KeySpaceIdentity,
    RegistryOperations,
    Step,
    StepKind,
    apply_steps,
    plan_for,
    read_declaration,
)
from keyplan.maintenance import (
    KeySpacesRestored,
    OnConflict,
    RestoreAction,
    RestorePolicy,
    back_up_key_spaces,
    read_backup,
    restore_key_spaces,
)

__all__ = ["apply", "backup", "restore"]

# ---- apply ---------------------------------------------------------------------------------------------------------------


_SIGNS: Final = {StepKind.CREATE: "+", StepKind.ADOPT: "+", StepKind.DELETE: "-", StepKind.REFUSED: "!"}


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The declaration: YAML, TOML or JSON.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the steps; without it they are only printed.")] = False,
    at: RegistryOptions,
) -> None:
    """Print the steps from the registry as it is to the key spaces that a file declares; with --yes take them.

    Exit code 1 when there are steps that were not taken.
    """
    declaration = read_declaration(_document(file))
    create = (lambda registry: plan_for(registry, declaration)) if yes else None
    with at.opened(create=create, readonly=not yes) as registry:
        steps = plan_for(registry, declaration)
        if not yes or any(step.kind is StepKind.REFUSED for step in steps):
            _print_plan(steps, is_asked=yes, json=at.json)
            end_with_findings(steps)
            return
        _take_all(registry, steps, json=at.json)


def _take_all(registry: RegistryOperations, steps: list[Step], *, json: bool) -> None:
    with progress_bar("apply", total=lambda: len(steps)) as progress:
        done = 0

        def on_applied(applied: Applied) -> None:
            nonlocal done
            done += 1
            _print_applied(applied, json=json)
            progress(done)

        taken = apply_steps(registry, steps, on_applied=on_applied)
    if taken and taken[-1].error is not None:
        # Why: later steps may need the one that failed; a new plan begins with it.
        raise taken[-1].error
    if not json and not steps:
        print_text("nothing to do")


def _print_plan(steps: list[Step], *, is_asked: bool, json: bool) -> None:
    for step in steps:
        print_answer(step.to_json(), _line(step), json=json)
    if any(step.kind is StepKind.REFUSED for step in steps):
        print_hint("nothing was written: declare the steps otherwise that are refused (!)")
    elif steps and not is_asked:
        print_hint("nothing was written: --yes takes these steps")
    elif not json:
        print_text("nothing to do")


def _print_applied(applied: Applied, *, json: bool) -> None:
    if json:
        error = applied.error
        print_json({**applied.step.to_json(), "error": None if error is None else error.code})
    elif applied.error is None:
        print_lines(f"{_line(applied.step)}: done")
    else:
        print_failure(applied.error, is_json=False)


def _line(step: Step) -> str:
    changes = {
        name: value
        for name, value in step.change.items()
        if step.kind is StepKind.CONFIGURE or not (value is None or value is False or value == "")
    }
    facts = "".join(f" {name}={_shown(value)}" for name, value in changes.items())
    words = " ".join(part for part in (str(step.kind), step.name) if part)
    return f"{_SIGNS.get(step.kind, '~')} {words}{facts}{': ' + step.problem if step.problem else ''}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else json_text.dumps(value, ensure_ascii=False)


def _document(path: Path) -> Any:
    """Read a file by its ending. Raises InvalidInputError."""
    text = read_text(path)
    try:
        match path.suffix:
            case ".json":
                return json_text.loads(text)
            case ".toml":
                return tomllib.loads(text)
            case ".yaml" | ".yml":
                return _yaml(text, path)
            case _:
                problem = "a declaration is a file *.yaml, *.toml or *.json"
    except (ValueError, RecursionError) as error:
        problem = f"it cannot be read: {error}"
    raise InvalidInputError(source=str(path), problem=problem)


def _yaml(text: str, path: Path) -> Any:
    # Why: only such files need the extra.
    try:
        import yaml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        problem = "YAML needs the package 'pyyaml': pip install 'keyplan[yaml]'"
        raise InvalidInputError(source=str(path), problem=problem) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


# ---- backup, restore -----------------------------------------------------------------------------------------------------


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

    Registry entries that cannot be read are reported and left out; the exit code is then 8.
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
    context: typer.Context,
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
        bool, typer.Option("--take-ownership", help="Also overwrite another application's key space.")
    ] = False,
    expected: Annotated[
        list[str] | None,
        typer.Option(
            "--expected",
            metavar="NAME=GENERATION/APPLICATION",
            help="Overwrite or delete the key space NAME only while it is still this one.",
        ),
    ] = None,
    look: LookOption = False,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Bring key spaces back from a backup. All conflicts are printed before anything is written.

    The same command finishes a restore that was interrupted; until then nobody can open the key space. With a layout, keys in
    values are rewritten when a prefix changes, and indexes are checked and repaired.
    """
    if look:
        print_backup(file, read_backup(file), json=json, verb="verified")
        return
    renamed = _renamed(rename_to or [], names or [], [section.name for section in read_backup(file).sections])
    policy = RestorePolicy(on_conflict, overwrite_holder or (), renamed, take_ownership, _expected(expected or []))
    # Why not the settings' layout: that is the store's, and key spaces hold the keys of their applications.
    bound = None if layout is None else bound_of_options(layout, parameter)
    with stopped_by_signals(partial(words_of, context, with_store=True)) as stop, progress_bar("restore") as shown:

        def bring(engine: Engine) -> KeySpacesRestored:
            actor = user_name() or "restore"
            return restore_key_spaces(
                engine,
                file,
                names=names or (),
                policy=policy,
                layout=bound,
                actor=actor,
                stop=stop,
                command=words_of(context),
                progress=shown.told,
            )

        restored = brought_into(store, config, bring)
    _print(restored, json=json)
    reports = [space.report for space in restored.spaces if space.report]
    end_with_findings(any(report.indexes and report.indexes.remaining for report in reports))


def _renamed(given: list[str], names: list[str], held: list[str]) -> dict[str, str]:
    """Read NEW, for the only key space, and OLD=NEW. Raises InvalidInputError."""
    renamed: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals:
            chosen = names or held
            if len(chosen) != 1:
                raise InvalidInputError(source="--rename-to", problem="there are several key spaces: pass OLD=NEW")
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
            problem = (
                f"{text} is not NAME=GENERATION/APPLICATION, as in old=3/orders: `keyplan keyspace show` prints both"
            )
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
