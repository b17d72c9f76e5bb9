"""A registry of key spaces as commands name it, in a store or behind a server; `keyplan keyspace init|config`."""

import getpass
import json as json_text
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from keyplan.cli.failures import print_hint
from keyplan.cli.options import (
    STORE_VARIABLE,
    ConfigOption,
    JsonOption,
    StoreOption,
    Unfinished,
    read_text,
    store_of_option,
)
from keyplan.cli.output import print_lines, print_record, print_text
from keyplan.errors import InvalidInputError, StoreMissingError
from keyplan.keyspace import (
    PREFIX_CODECS,
    PROFILES,
    KeySpace,
    KeySpaceIdentity,
    KeySpaceRegistry,
    KeySpaces,
    RegistryOperations,
)

__all__ = [
    "ApplicationOption",
    "DescriptionOption",
    "ExpectedOption",
    "NameArgument",
    "RegistryOptions",
    "authority",
    "configure",
    "expected_identity",
    "init",
    "print_key_space",
    "token_of",
    "user_name",
]

SERVER_VARIABLE: Final = "KEYPLAN_SERVER"
TOKEN_VARIABLE: Final = "KEYPLAN_TOKEN"  # noqa: S105  # Why: the name of a variable.
AUTHORITY_VARIABLE: Final = "KEYPLAN_SERVER_CA"

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A key space.", show_default=False)]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", envvar=SERVER_VARIABLE, metavar="URL", help="Ask this server instead of a store."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help=f"With --server: a file with the token; {TOKEN_VARIABLE} otherwise."
    ),
]
ApplicationOption = Annotated[
    str, typer.Option("--application", "-a", metavar="NAME", help="Its owner.", show_default=False)
]
DescriptionOption = Annotated[
    str, typer.Option("--description", "-d", metavar="TEXT", help="Its purpose, for people.", show_default=False)
]


ExpectedOption = Annotated[
    str | None,
    typer.Option(
        "--expected",
        metavar="GENERATION/APPLICATION",
        help="Only while NAME is still this key space, as in 3/orders.",
    ),
]


class RegistryOptions(NamedTuple):
    """Which registry a command is about, and how it prints: a record of options, for `spread`."""

    store: StoreOption = None
    server: ServerOption = None
    token_file: TokenFileOption = None
    config: ConfigOption = None
    json: JsonOption = False

    @contextmanager
    def opened(
        self, *, create: Callable[[RegistryOperations], object] | None = None, readonly: bool = False
    ) -> Iterator[RegistryOperations]:
        """Open the registry that the options name, and close it at the end.

        With `create`, which is what will be done, a missing store is made where that is nothing that it would refuse.

        A server comes before a store; but a typed store comes before a server that only the environment names. Raises
        InvalidInputError, EngineOpenError.
        """
        server = None if self._is_store_meant() else self.server
        if server is None:
            if self.token_file is not None:
                raise InvalidInputError(source="--token-file", problem="--token-file belongs to --server: pass both")
            opening = partial(
                store_of_option,
                self.store,
                self.config,
                readonly=readonly,
                root=b"" if readonly else KeySpaceRegistry.bound().root,
                unfinished=Unfinished.TOLD if readonly else Unfinished.REFUSED,
            )
            try:
                store = opening()
            except StoreMissingError:
                if create is None:
                    raise
                act = create
                # Why here: only a new store needs these modules.
                from keyplan.cli.transfer import rehearse  # noqa: PLC0415

                rehearse(self.store, self.config, lambda engine: act(KeySpaces(engine)), is_whole=True)
                store = opening(create=True)
            with store as opened:
                yield KeySpaces(opened.engine, actor=user_name())
            return
        # Why here: importing httpx takes as long as all the rest.
        from keyplan.client import HttpKeySpaces  # noqa: PLC0415

        with HttpKeySpaces(server, token=token_of(self.token_file), verify=authority()) as behind_http:
            yield behind_http

    @property
    def passed_over(self) -> tuple[str, ...]:
        """The options that say nothing here: those of a server where a store is meant, and the other way round."""
        return ("store",) if self.server is not None and not self._is_store_meant() else ("server", "token_file")

    @property
    def is_store_typed(self) -> bool:
        """True when a store is named, and not only by the environment, which is meant for every command."""
        return self.store is not None and self.store != os.environ.get(STORE_VARIABLE)

    def _is_store_meant(self) -> bool:
        return self.is_store_typed and self.server == os.environ.get(SERVER_VARIABLE)


def expected_identity(text: str | None) -> KeySpaceIdentity | None:
    """Return the key space that --expected names; None without the option. Raises InvalidInputError."""
    if text is None:
        return None
    identity = KeySpaceIdentity.parsed(text)
    if identity is None:
        problem = "it is GENERATION/APPLICATION, as in 3/orders: `keyplan keyspace show` prints both"
        raise InvalidInputError(source="--expected", problem=problem)
    return identity


def user_name() -> str:
    """Return the name of the user, for the audit log; empty where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def token_of(path: Path | None) -> str | None:
    """Return the token that a server is asked with: of a file, or of KEYPLAN_TOKEN; None without one."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    return read_text(path).strip()


def authority() -> ssl.SSLContext | bool:
    """Return the authorities that are trusted: those in the file of KEYPLAN_SERVER_CA, or the public ones."""
    path = os.environ.get(AUTHORITY_VARIABLE)
    if not path:
        return True
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError(source=AUTHORITY_VARIABLE, problem=f"{path}: no certificates in PEM") from error


def print_key_space(keyspace: KeySpace, *, json: bool, more: dict[str, Any] | None = None) -> None:
    """Print a key space: a line for each field, or its JSON object; `more` fields follow its own."""
    shown = {**keyspace.to_json(), **(more or {})}
    if json:
        print_record(shown)
        return
    facts = {
        "name": keyspace.name,
        "application": keyspace.application,
        "description": keyspace.description,
        "state": str(keyspace.state),
        "prefix": _prefix_words(keyspace),
        "range": f"{keyspace.range.start} to {keyspace.range.end}",
        "generation": str(keyspace.generation),
        "created": keyspace.created_at,
        "deleted": keyspace.deleted_at or "",
        "delete completed": keyspace.delete_completed_at or "",
        **{name.replace("_", " "): _words(fact) for name, fact in (more or {}).items()},
    }
    print_lines(*(f"{name:<17} {fact}" for name, fact in facts.items() if fact))
    if keyspace.state == "DELETING":
        print_hint("a server of the store removes its keys, or `keyplan keyspace sweep`")


def _prefix_words(keyspace: KeySpace) -> str:
    """Return a prefix in hex, with its number, and as text where it is text."""
    words = [] if keyspace.prefix_number is None else [str(keyspace.prefix_number)]
    raw = keyspace.raw_prefix
    if raw.isascii() and raw.decode("ascii").isprintable():
        words.append(repr(raw.decode("ascii")))
    return f"{keyspace.prefix} ({', '.join(words)})" if words else keyspace.prefix


def _words(fact: object) -> str:
    match fact:
        case None:
            return ""
        case dict():
            return ", ".join(f"{name} {_words(value) or 'unbounded'}" for name, value in fact.items())
        case list():
            return "; ".join(map(_words, fact))
        case _:
            return str(fact)


# ---- the commands about the registry itself --------------------------------------------------------------------------------


def init(
    *,
    at: RegistryOptions,
    prefix_codec: Annotated[
        str | None,
        typer.Option(
            "--prefix-codec",
            metavar="CODEC",
            help=f"{' or '.join(PREFIX_CODECS)}; for ever. By default the first.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help=f"Reserved prefixes: {', '.join(PROFILES)}. By default the engine's.",
            show_default=False,
        ),
    ] = None,
    skip_printable: Annotated[
        bool | None,
        typer.Option(
            "--skip-printable/--no-skip-printable",
            help="Give out no printable prefix; by default where the store holds keys already.",
        ),
    ] = None,
) -> None:
    """Make the registry of a store, and choose its prefix codec for ever. `create` makes a missing registry too.

    A registry that is there is printed; options that contradict it are an error.
    """

    def made(registry: RegistryOperations) -> Any:
        return registry.init(prefix_codec=prefix_codec, profile=profile, skip_printable=skip_printable)

    with at.opened(create=made) as registry:
        header = made(registry)
    if at.json:
        print_record(msgspec.to_builtins(header))
    else:
        print_text(f"registry {header.cluster}: prefixes {header.prefix_codec}, profile {header.profile}")


def configure(
    switches: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Switches to change; the value is JSON.")
    ] = None,
    *,
    at: RegistryOptions,
) -> None:
    """Print the registry's switches, after changing some: `config keyspace-api-enabled=true`."""
    changes = dict(map(_switch, switches or []))
    create = (lambda registry: registry.configure(changes)) if changes else None
    with at.opened(create=create, readonly=not changes) as registry:
        after = registry.configure(changes) if changes else registry.configuration()
    plain: dict[str, Any] = msgspec.to_builtins(after)
    if at.json:
        print_record(plain)
    else:
        print_text("\n".join(f"{name}={json_text.dumps(value)}" for name, value in plain.items()))


def _switch(assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise InvalidInputError(source="NAME=VALUE", problem=f"{assignment!r} has no value")
    try:
        return name, json_text.loads(value)
    except (ValueError, RecursionError) as error:
        problem = f"the value of {name} is not JSON, as in true, 60 or '[\"6d\"]'"
        raise InvalidInputError(source="NAME=VALUE", problem=problem) from error
