"""The commands `keyplan keyspace ...` about key spaces of a registry, one or all."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Annotated, Any, Final

import msgspec
import typer

from keyplan.cli.failures import agreed, end_with_findings, print_hint
from keyplan.cli.jobs import stopped_by_signals, words_of
from keyplan.cli.keyspace_files import apply, backup, restore
from keyplan.cli.options import YesOption, command_group, spread
from keyplan.cli.output import (
    Bar,
    print_answer,
    print_grid,
    print_json,
    print_record,
    print_text,
    printable,
    progress_bar,
    with_progress,
)
from keyplan.cli.registries import (
    ApplicationOption,
    DescriptionOption,
    ExpectedOption,
    NameArgument,
    RegistryOptions,
    configure,
    expected_identity,
    init,
    print_key_space,
)
from keyplan.errors import InvalidInputError
from keyplan.jobs import Stop, StopCheck
from keyplan.keyspace import (
    KeySpace,
    KeySpaces,
    RegistryOperations,
    Stage,
    State,
    Sweeper,
    SweepProgress,
)

__all__ = ["keyspace_app"]

# ---- make ----------------------------------------------------------------------------------------------------------------


def create(
    name: NameArgument,
    *,
    application: ApplicationOption,
    description: DescriptionOption = "",
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="HEX", help="This prefix, rather than the next free one.")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Print the one of this name and application, when there is one.")
    ] = False,
    at: RegistryOptions,
) -> None:
    """Make a key space, and print it."""

    def made(registry: RegistryOperations) -> KeySpace:
        return registry.create(name, application, description=description, prefix=prefix, if_not_exists=if_not_exists)

    with at.opened(create=made) as registry:
        keyspace = made(registry)
    print_key_space(keyspace, json=at.json)


def adopt(
    name: NameArgument,
    *,
    application: ApplicationOption,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="HEX", help="The prefix that its keys have already.", show_default=False)
    ],
    description: DescriptionOption = "",
    legacy: Annotated[
        bool, typer.Option("--legacy", help="The prefix is no number, as in 2f72756e6d2f for /runm/.")
    ] = False,
    at: RegistryOptions,
) -> None:
    """Register a prefix that is in use, with the keys below it, which are not touched."""
    with at.opened() as registry:
        keyspace = registry.adopt(name, application, prefix, description=description, allow_legacy_prefix=legacy)
    print_key_space(keyspace, json=at.json)


# ---- change, delete ------------------------------------------------------------------------------------------------------


_LOOK_SECONDS: Final = 0.5


def update(
    name: NameArgument,
    *,
    description: DescriptionOption,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Change the description of a key space; all else stays for ever."""
    with at.opened() as registry:
        meant = expected_identity(expected)
        print_key_space(registry.update(name, description, expected=meant), json=at.json)


def quota(
    name: NameArgument,
    *,
    keys: Annotated[int | None, typer.Option("--keys", metavar="N", min=0, help="At most so many keys.")] = None,
    bytes_max: Annotated[int | None, typer.Option("--bytes", metavar="N", min=0, help="At most so many bytes.")] = None,
    unbounded: Annotated[bool, typer.Option("--unbounded", help="Remove the bounds that are not given.")] = False,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Change the bounds of a key space, and print them."""
    with at.opened() as registry:
        # Why the identity: the bounds that are kept are those of this key space, and of no later one of its name.
        meant = expected_identity(expected) or registry.get(name).identity
        now = registry.quota(name)
        if keys is not None or bytes_max is not None or unbounded:
            kept = (None, None) if unbounded else (now.keys, now.bytes)
            now = registry.set_quota(
                name,
                keys=kept[0] if keys is None else keys,
                bytes=kept[1] if bytes_max is None else bytes_max,
                expected=meant,
            )
    if at.json:
        print_record(msgspec.to_builtins(now))
    else:
        bounds = (("keys", now.keys), ("bytes", now.bytes))
        print_text("\n".join(f"{unit:<6} {'unbounded' if bound is None else bound}" for unit, bound in bounds))


def _printing(operation: Callable[..., KeySpace]) -> Callable[..., None]:
    """Return the command of an operation that takes a key space's name alone: it performs it, and prints the key space.

    Its line of help is the operation's, as in the description of the HTTP service.
    """

    def command(name: NameArgument, *, expected: ExpectedOption = None, at: RegistryOptions) -> None:
        with at.opened() as registry:
            perform = getattr(registry, operation.__name__)
            print_key_space(perform(name, expected=expected_identity(expected)), json=at.json)

    command.__doc__ = operation.__doc__
    return command


# ---- delete, sweep ---------------------------------------------------------------------------------------------------


def delete(
    context: typer.Context,
    name: NameArgument,
    *,
    yes: YesOption = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Remove every key too, or wait until the server has."),
    ] = False,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Begin to delete a key space: nobody can open it or write to it any more; then its keys are removed."""
    with at.opened() as registry:
        before = registry.get(name)
        meant = expected_identity(expected) or before.identity  # the one that the question is about
        question = f"Delete {before.name} of {before.application}, and every key below {before.prefix}?"
        if not agreed(question, is_agreed=yes or before.state is State.DELETING, instead=" to delete it"):
            raise typer.Abort
        keyspace = registry.delete(name, expected=meant)
        if wait:
            with stopped_by_signals(_again(context, at)) as stop:
                keyspace = _completed(registry, name, StopCheck(stop, f"the removal of what {name} held"))
    print_key_space(keyspace, json=at.json)


def _again(context: typer.Context, at: RegistryOptions) -> Callable[[], Sequence[str]]:
    """What gives the words of the running command, about the same registry whatever the environment names."""
    return partial(words_of, context, leaves_out=at.passed_over, with_store=True)


def _completed(registry: RegistryOperations, name: str, stops: StopCheck) -> KeySpace:
    """Carry a deletion out to its end, and wait where it waits. Raises StoppedError."""
    pause = Event()
    with progress_bar(f"delete {name}") as shown:
        while (progress := registry.sweep(name)).stage in {Stage.SWEEPING, Stage.WAITING}:
            shown(progress.deleted_keys)
            stops.check()
            if progress.stage is Stage.WAITING:
                pause.wait(_LOOK_SECONDS)
    return registry.get(name)


def sweep(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Key spaces; all without one.")] = None,
    *,
    keys_per_second: Annotated[
        float | None,
        typer.Option("--keys-per-second", metavar="N", help="At most so many; a server has a bound of its own."),
    ] = None,
    at: RegistryOptions,
) -> None:
    """Remove the keys of deleted key spaces, as far as possible now. The same command resumes a sweep that was interrupted.

    A server of the store does this by itself, unless its setting keyspaces.sweep is off.
    """
    with at.opened() as registry:
        for name in names or []:
            registry.get(name)  # Why: a mistyped name is an error, before anything is removed.
        wanted = names or [keyspace.name for keyspace in registry.all(state=State.DELETING)]
        with stopped_by_signals(_again(context, at)) as stop, progress_bar("sweep") as shown:
            step = _step(registry, keys_per_second, stop)
            results = [
                _swept(step, name, shown, StopCheck(stop, f"the removal of what {name} held")) for name in wanted
            ]
    for result in results:
        _print_swept(result, json=at.json)


def _step(registry: RegistryOperations, keys_per_second: float | None, stop: Stop) -> Callable[[str], SweepProgress]:
    if keys_per_second is None:
        return registry.sweep
    if not isinstance(registry, KeySpaces):
        problem = "a server takes its setting keyspaces.sweep-keys-per-second instead"
        raise InvalidInputError(source="--keys-per-second", problem=problem)
    return partial(Sweeper(registry, by="keyplan", keys_per_second=keys_per_second).step, stop=stop)


def _swept(step: Callable[[str], SweepProgress], name: str, shown: Bar, stops: StopCheck) -> SweepProgress:
    while True:
        stops.check()
        progress = step(name)
        shown(progress.deleted_keys)
        if progress.stage is not Stage.SWEEPING:
            return progress


def _print_swept(progress: SweepProgress, *, json: bool) -> None:
    facts = progress.to_json()
    del facts["removed_keys"]  # Why: it counts the last step alone.
    words = f"{progress.name}: {str(progress.stage).replace('_', ' ')}, {progress.deleted_keys} keys removed"
    waits = f"; it waits for {progress.waits_for}" if progress.waits_for else ""
    print_answer(facts, words + waits, json=json)


# ---- see -----------------------------------------------------------------------------------------------------------------


def list_all(
    *,
    application: Annotated[
        str | None, typer.Option("--application", "-a", metavar="NAME", help="Those of this application.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help=f"Those in this state: {', '.join(State)}.")
    ] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", metavar="HEX", help="The one with this prefix.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="HEX", help="The one that owns this raw key.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Also deleted ones.")] = False,
    at: RegistryOptions,
) -> None:
    """Print key spaces in the order of their creation: name, state, prefix, application, description."""
    if state is not None and state.upper() not in set(State):
        raise InvalidInputError(source="--state", problem=f"{state!r} is not one of {', '.join(State)}")
    wanted = None if state is None else State(state.upper())
    with at.opened(readonly=True) as registry:
        damaged: list[str] = []
        found = registry.all(
            application=application,
            prefix=prefix,
            key=key,
            state=wanted,
            include_deleted=deleted,
            on_damaged=damaged.append,
        )
        if at.json:
            for keyspace in found:
                print_json(keyspace.to_json())
        else:
            rows = (
                (keyspace.name, str(keyspace.state), keyspace.prefix, keyspace.application, keyspace.description)
                for keyspace in found
            )
            print_grid(("name", "state", "prefix", "application", "description"), rows)
    for name in damaged:
        print_hint(printable(f"{name} is not listed, its record cannot be read: see `keyplan doctor`"))
    end_with_findings(damaged)


def show(
    name: NameArgument,
    *,
    at: RegistryOptions,
) -> None:
    """Print one key space, or its last tombstone."""
    with at.opened(readonly=True) as registry:
        keyspace = registry.get(name)
    print_key_space(keyspace, json=at.json)


def describe(
    name: NameArgument,
    *,
    at: RegistryOptions,
) -> None:
    """Print one key space with its quota and history; from a store also its sessions, and how far its deletion is."""
    with at.opened(readonly=True) as registry:
        keyspace = registry.get(name)
        more: dict[str, Any] = {
            "quota": msgspec.to_builtins(registry.quota(name)),
            "past_generations": [past.generation for past in registry.history(name)],
        }
        if isinstance(registry, KeySpaces):
            more |= _seen_in_store(registry, name)
    print_key_space(keyspace, json=at.json, more=more)


def _seen_in_store(registry: KeySpaces, name: str) -> dict[str, Any]:
    deletion = registry.deletion(name)
    return {
        "sessions": [{"lease": lease, **msgspec.to_builtins(session)} for lease, session in registry.sessions(name)],
        "deletion": None if deletion is None else msgspec.to_builtins(deletion),
    }


def history(
    name: NameArgument,
    *,
    at: RegistryOptions,
) -> None:
    """Print the deleted key spaces of a name, the oldest first."""
    with at.opened(readonly=True) as registry:
        found = registry.history(name)
    if at.json:
        for keyspace in found:
            print_json(keyspace.to_json())
        return
    rows = (
        (
            str(keyspace.generation),
            keyspace.prefix,
            keyspace.application,
            keyspace.created_at,
            keyspace.delete_completed_at,
        )
        for keyspace in found
    )
    print_grid(("generation", "prefix", "application", "created", "deleted"), [[*map(str, row)] for row in rows])


def usage(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Key spaces; all without one.")] = None,
    *,
    at: RegistryOptions,
) -> None:
    """Count the keys of key spaces and their bytes, and print them with the quotas. Every key is read."""
    with at.opened() as registry:
        wanted = names or [keyspace.name for keyspace in registry.all()]
        rows: list[list[str]] = []
        for name in with_progress(wanted, total=len(wanted), title="usage"):
            found = registry.usage(name)
            if at.json:
                print_json({"name": name, **found.to_json()})
            bounds = ["" if bound is None else str(bound) for bound in (found.quota.keys, found.quota.bytes)]
            rows.append([name, str(found.keys), str(found.bytes), *bounds])
    if not at.json:
        print_grid(("name", "keys", "bytes", "keys allowed", "bytes allowed"), rows)


# ---- the group -----------------------------------------------------------------------------------------------------------


keyspace_app: Final = command_group("Make, see, change and delete key spaces.")

for _name, _command in (
    ("init", init),
    ("config", configure),
    ("create", create),
    ("adopt", adopt),
    ("apply", apply),
    ("list", list_all),
    ("show", show),
    ("describe", describe),
    ("history", history),
    ("usage", usage),
    ("update", update),
    ("quota", quota),
    ("disable", _printing(RegistryOperations.disable)),
    ("enable", _printing(RegistryOperations.enable)),
    ("delete", delete),
    ("undelete", _printing(RegistryOperations.undelete)),
    ("sweep", sweep),
    ("backup", backup),
    ("restore", restore),
):
    keyspace_app.command(_name)(spread(_command))
