"""The commands `keyplan keyspace update|quota|disable|enable|delete|undelete|sweep`."""

import sys
from collections.abc import Callable
from threading import Event
from typing import Annotated, Final

import msgspec
import typer

from keyplan.cli.bar import Progressed, progress_bar
from keyplan.cli.output import print_json, print_record, print_text, printable
from keyplan.cli.registries import ExpectedOption, NameArgument, RegistryOptions, expected_identity, print_key_space
from keyplan.errors import InvalidInputError
from keyplan.keyspace import KeySpace, KeySpaces, RegistryOperations, Stage, State, Sweeper, SweepProgress

__all__ = ["delete", "disable", "enable", "quota", "sweep", "undelete", "update"]

_LOOK_SECONDS: Final = 0.5

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def update(
    name: NameArgument,
    *,
    description: Annotated[
        str, typer.Option("--description", "-d", metavar="TEXT", help="What it is for.", show_default=False)
    ],
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Change the description of a key space; nothing else can be changed."""
    with at.opened() as registry:
        meant = expected_identity(expected)
        print_key_space(registry.update(name, description, expected=meant), json=at.json)


def quota(
    name: NameArgument,
    *,
    keys: Annotated[int | None, typer.Option("--keys", metavar="N", min=0, help="At most so many keys.")] = None,
    bytes_max: Annotated[int | None, typer.Option("--bytes", metavar="N", min=0, help="At most so many bytes.")] = None,
    unbounded: Annotated[bool, typer.Option("--unbounded", help="No bound on what is not given.")] = False,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Print what a key space may hold, after changing it."""
    with at.opened() as registry:
        # Why of what was found: the bounds that are kept are of that key space, and of no other that has its name since.
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


def disable(
    name: NameArgument,
    *,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Refuse opens and writes from now on; reads go on."""
    with at.opened() as registry:
        print_key_space(registry.disable(name, expected=expected_identity(expected)), json=at.json)


def enable(
    name: NameArgument,
    *,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Allow opens and writes again."""
    with at.opened() as registry:
        print_key_space(registry.enable(name, expected=expected_identity(expected)), json=at.json)


def undelete(
    name: NameArgument,
    *,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Take a deletion back, which is possible until the first key was removed."""
    with at.opened() as registry:
        print_key_space(registry.undelete(name, expected=expected_identity(expected)), json=at.json)


# ---- delete, sweep ---------------------------------------------------------------------------------------------------


def delete(
    name: NameArgument,
    *,
    yes: YesOption = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Until everything is removed, which this command does or has the server do."),
    ] = False,
    expected: ExpectedOption = None,
    at: RegistryOptions,
) -> None:
    """Begin to delete a key space: from now on it cannot be opened or written to, and then what it holds is removed."""
    with at.opened() as registry:
        before = registry.get(name)
        meant = expected_identity(expected) or before.identity  # what the question is about
        if not yes and before.state is not State.DELETING:
            _confirm(before)
        keyspace = registry.delete(name, expected=meant)
        if wait:
            keyspace = _completed(registry, name)
    print_key_space(keyspace, json=at.json)


def _confirm(keyspace: KeySpace) -> None:
    if not sys.stdin.isatty():
        raise InvalidInputError(source="--yes", problem="there is nobody to ask: add --yes to delete it")
    question = f"Delete {keyspace.name} of {keyspace.application}, and every key below {keyspace.prefix}?"
    if not typer.confirm(question, err=True):
        raise typer.Abort


def _completed(registry: RegistryOperations, name: str) -> KeySpace:
    """Take a deletion to its end; wait where it waits."""
    pause = Event()
    with progress_bar(f"delete {name}") as told:
        while (progress := registry.sweep(name)).stage in {Stage.SWEEPING, Stage.WAITING}:
            told(progress.deleted_keys)
            if progress.stage is Stage.WAITING:
                pause.wait(_LOOK_SECONDS)
    return registry.get(name)


def sweep(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Key spaces; all without one.")] = None,
    *,
    keys_per_second: Annotated[
        float | None,
        typer.Option("--keys-per-second", metavar="N", help="Go no faster than this; a server has a speed of its own."),
    ] = None,
    at: RegistryOptions,
) -> None:
    """Remove what deleted key spaces hold, as far as it goes now. An interrupted sweep goes on where it was.

    A server of the store does this by itself, unless its setting keyspaces.sweep is off.
    """
    with at.opened() as registry:
        step = _step(registry, keys_per_second)
        for name in names or []:
            registry.get(name)  # Why: a mistyped name is an error, before anything is removed.
        wanted = names or [keyspace.name for keyspace in registry.all(state=State.DELETING)]
        with progress_bar("sweep") as told:
            results = [_swept(step, name, told) for name in wanted]
    for result in results:
        _print_swept(result, json=at.json)


def _step(registry: RegistryOperations, keys_per_second: float | None) -> Callable[[str], SweepProgress]:
    if keys_per_second is None:
        return registry.sweep
    if not isinstance(registry, KeySpaces):
        problem = "a server goes as fast as its setting keyspaces.sweep-keys-per-second says"
        raise InvalidInputError(source="--keys-per-second", problem=problem)
    return Sweeper(registry, by="keyplan", keys_per_second=keys_per_second).step


def _swept(step: Callable[[str], SweepProgress], name: str, told: Progressed) -> SweepProgress:
    while True:
        progress = step(name)
        told(progress.deleted_keys)
        if progress.stage is not Stage.SWEEPING:
            return progress


def _print_swept(progress: SweepProgress, *, json: bool) -> None:
    if json:
        facts = progress.to_json()
        del facts["removed_keys"]  # Why: of the last step alone.
        print_json(facts)
        return
    words = f"{progress.name}: {str(progress.stage).replace('_', ' ')}, {progress.deleted_keys} keys removed"
    print_text(printable(f"{words}; it waits for {progress.waits_for}" if progress.waits_for else words))
