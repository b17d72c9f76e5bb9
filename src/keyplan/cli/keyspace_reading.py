"""The commands `keyplan keyspace list|show|describe|history|usage|audit`."""

from typing import Annotated, Any

import msgspec
import typer

from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.output import print_grid, print_json, print_text, printable, with_progress
from keyplan.cli.registries import NameArgument, RegistryOptions, print_key_space
from keyplan.errors import InvalidInputError
from keyplan.keyspace import KeySpaces, RegistryOperations, State

__all__ = ["audit", "describe", "history", "list_all", "show", "usage"]


def list_all(
    *,
    application: Annotated[
        str | None, typer.Option("--application", "-a", metavar="NAME", help="Those of this application.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help=f"Those in this state: {', '.join(State)}.")
    ] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", metavar="HEX", help="The one with this prefix.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="HEX", help="The one whose this raw key is.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted ones, too.")] = False,
    at: RegistryOptions,
) -> None:
    """Print key spaces in the order in which they were made: name, state, prefix, application, description."""
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
        print_hint(printable(f"{name}: its record cannot be read and it is not listed: keyplan doctor says more"))
    if damaged:
        raise typer.Exit(FINDINGS)


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
    """Print one key space with its quota and history; from a store also who has it open, and how far its deletion is."""
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
    """Print the key spaces that have had a name and are no more, the oldest first."""
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


def audit(
    *,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Behind the entry of this number.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Print whether the whole log is as it was written; exit code 1 when not.")
    ] = False,
    at: RegistryOptions,
) -> None:
    """Print the log of acts on the registry: number, time, who, what, which key space."""
    with at.opened(readonly=True) as registry:
        if verify:
            _verified(registry, json=at.json)
            return
        rows: list[list[str]] = []
        for item in registry.audit(after=after, limit=limit):
            if at.json:
                print_json(item.to_json())
            entry = item.entry
            facts = " ".join(f"{name}={value}" for name, value in entry.detail.items())
            rows.append([str(item.number), entry.at, entry.actor, entry.act, entry.name, facts])
    if not at.json:
        print_grid(("number", "at", "who", "act", "key space", "detail"), rows)


def _verified(registry: RegistryOperations, *, json: bool) -> None:
    verdict = registry.verify_audit()
    if json:
        print_json(verdict._asdict())
    elif verdict.is_whole:
        print_text(
            f"{verdict.entries} entries, each follows from the one before; the last has the digest {verdict.head}"
        )
    else:
        print_text(printable(f"broken at entry {verdict.broken_at}: {verdict.problem}"))
    if not verdict.is_whole:
        raise typer.Exit(FINDINGS)
