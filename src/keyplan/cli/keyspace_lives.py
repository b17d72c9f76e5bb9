"""The commands `keyplan keyspace update|quota|disable|enable|delete|undelete|sweep`."""

import sys
from threading import Event
from typing import Annotated, Final

import msgspec
import typer

from keyplan.cli.bar import Progressed, progress_bar
from keyplan.cli.options import ConfigOption, JsonOption, StoreOption
from keyplan.cli.output import print_json, print_record, print_text, printable
from keyplan.cli.registries import (
    NameArgument,
    ServerOption,
    TokenFileOption,
    opened_registry,
    opened_registry_in_store,
    print_key_space,
)
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
    store: StoreOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Change the description of a key space; nothing else can be changed."""
    with opened_registry(store, server, token_file, config) as registry:
        print_key_space(registry.update(name, description), json=json)


def quota(
    name: NameArgument,
    *,
    keys: Annotated[int | None, typer.Option("--keys", metavar="N", min=0, help="At most so many keys.")] = None,
    bytes_max: Annotated[int | None, typer.Option("--bytes", metavar="N", min=0, help="At most so many bytes.")] = None,
    unbounded: Annotated[bool, typer.Option("--unbounded", help="No bound on what is not given.")] = False,
    store: StoreOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Print what a key space may hold, after changing it."""
    with opened_registry(store, server, token_file, config) as registry:
        registry.get(name)
        now = registry.quota(name)
        if keys is not None or bytes_max is not None or unbounded:
            kept = (None, None) if unbounded else (now.keys, now.bytes)
            now = registry.set_quota(
                name,
                keys=kept[0] if keys is None else keys,
                bytes=kept[1] if bytes_max is None else bytes_max,
            )
    if json:
        print_record(msgspec.to_builtins(now))
    else:
        bounds = (("keys", now.keys), ("bytes", now.bytes))
        print_text("\n".join(f"{unit:<6} {'unbounded' if bound is None else bound}" for unit, bound in bounds))


def disable(
    name: NameArgument,
    *,
    store: StoreOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Refuse opens and writes from now on; reads go on."""
    with opened_registry(store, server, token_file, config) as registry:
        print_key_space(registry.disable(name), json=json)


def enable(
    name: NameArgument,
    *,
    store: StoreOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Allow opens and writes again."""
    with opened_registry(store, server, token_file, config) as registry:
        print_key_space(registry.enable(name), json=json)


def undelete(
    name: NameArgument,
    *,
    store: StoreOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Take a deletion back, which is possible until the first key was removed."""
    with opened_registry(store, server, token_file, config) as registry:
        print_key_space(registry.undelete(name), json=json)


# ---- delete, sweep ---------------------------------------------------------------------------------------------------


def delete(
    name: NameArgument,
    *,
    yes: YesOption = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Until everything is removed: by this command in a store, else by the server."),
    ] = False,
    store: StoreOption = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Begin to delete a key space: from now on it cannot be opened or written to, and then what it holds is removed."""
    with opened_registry(store, server, token_file, config) as registry:
        before = registry.get(name)
        if not yes and before.state is not State.DELETING:
            _confirm(before)
        keyspace = registry.delete(name)
        if wait:
            keyspace = _completed(registry, name)
    print_key_space(keyspace, json=json)


def _confirm(keyspace: KeySpace) -> None:
    if not sys.stdin.isatty():
        raise InvalidInputError(source="--yes", problem="there is nobody to ask: add --yes to delete it")
    question = f"Delete {keyspace.name} of {keyspace.application}, and every key below {keyspace.prefix}?"
    if not typer.confirm(question, err=True):
        raise typer.Abort


def _completed(registry: RegistryOperations, name: str) -> KeySpace:
    """Wait for the end of a deletion; in a store, do the work."""
    sweeper = Sweeper(registry, by="keyplan") if isinstance(registry, KeySpaces) else None
    pause = Event()
    with progress_bar(f"delete {name}") as told:
        while (keyspace := registry.get(name)).state is State.DELETING:
            progress = None if sweeper is None else sweeper.step(name)
            if progress is not None:
                told(progress.deleted_keys)
            if progress is None or progress.stage is Stage.WAITING:
                pause.wait(_LOOK_SECONDS)
    return keyspace


def sweep(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Key spaces; all without one.")] = None,
    *,
    keys_per_second: Annotated[
        float | None, typer.Option("--keys-per-second", metavar="N", help="Go no faster than this.")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Remove what deleted key spaces hold, as far as it goes now. An interrupted sweep goes on where it was.

    A server of the store does this by itself; this command is for stores without one.
    """
    with opened_registry_in_store(store, config) as registry:
        sweeper = Sweeper(registry, by="keyplan", keys_per_second=keys_per_second)
        deleting = [keyspace.name for keyspace in registry.all() if keyspace.state is State.DELETING]
        for name in names or []:
            registry.get(name)  # Why: a mistyped name is an error, rather than nothing to do.
        with progress_bar("sweep") as told:
            results = [_swept(sweeper, name, told) for name in names or deleting]
    for result in results:
        _print_swept(result, json=json)


def _swept(sweeper: Sweeper, name: str, told: Progressed) -> SweepProgress:
    while True:
        progress = sweeper.step(name)
        told(progress.deleted_keys)
        if progress.stage is not Stage.SWEEPING:
            return progress


def _print_swept(progress: SweepProgress, *, json: bool) -> None:
    if json:
        facts = {"deleted_keys": progress.deleted_keys, "waits_for": progress.waits_for}
        print_json({"name": progress.name, "stage": str(progress.stage), **facts})
        return
    words = f"{progress.name}: {str(progress.stage).replace('_', ' ')}, {progress.deleted_keys} keys removed"
    print_text(printable(f"{words}; it waits for {progress.waits_for}" if progress.waits_for else words))
