"""The root of the command line: finds commands without importing them, and turns errors into exit codes."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, metadata, version
from threading import current_thread, main_thread
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from keyplan.cli.failures import (
    INTERRUPTED,
    NOT_INSTALLED,
    OUTPUT_FAILED,
    TERMINATED,
    USAGE,
    print_failure,
    print_usage_error,
)
from keyplan.cli.output import ReaderGone, standard_streams
from keyplan.errors import InvalidInputError, KeyplanError

__all__ = [
    "COMMANDS",
    "COMPLETION_VARIABLE",
    "Command",
    "Shell",
    "application_groups",
    "completion_command",
    "main",
    "register_shells",
    "root",
]

# ---- the commands --------------------------------------------------------------------------------------------------------


APPLICATION_GROUP: Final = "keyplan.apps"
"""Entry points of command groups: a name and a typer.Typer."""


class Command(NamedTuple):
    """A command NAME: the module with its function NAME_command, or its group NAME_app; and its line of help."""

    module: str
    help: str


COMMANDS: Final = {
    "ls": Command("keyplan.cli.read", "Show the records of a store, level by level of meaning."),
    "tree": Command("keyplan.cli.read", "Show records as a tree of their keys' fields."),
    "get": Command("keyplan.cli.read", "Print one record."),
    "list": Command("keyplan.cli.read", "Print records: of a table, or by an index."),
    "watch": Command("keyplan.cli.read", "Print changes as they are committed."),
    "count": Command("keyplan.cli.read", "Count records or index entries."),
    "put": Command("keyplan.cli.write", "Write one record with its index entries."),
    "delete": Command("keyplan.cli.write", "Delete one record with its index entries."),
    "explain": Command("keyplan.cli.keys", "Explain a raw key: its meaning, and its record."),
    "check": Command("keyplan.cli.maintenance", "Examine every key: records against indexes; --repair mends them."),
    "raw": Command("keyplan.cli.write", "Read, write, delete and set aside single keys, by hand."),
    "extract": Command("keyplan.cli.keys", "Take single records out of a backup, and put them back."),
    "index": Command("keyplan.cli.maintenance", "See, build and drop indexes of a store in use."),
    "diff": Command("keyplan.cli.diff", "Compare a layout with its earlier self: each change, and the remedy."),
    "lock": Command("keyplan.cli.diff", "Print a layout's lock, or check that a stored one is current."),
    "migrate": Command(
        "keyplan.cli.migrate", "Bring a store from one layout to another beside its programs, by files; resumable."
    ),
    "dump": Command("keyplan.cli.keys", "Print every key and value as JSON lines."),
    "backup": Command("keyplan.cli.transfer", "Write a store, or a prefix of it, to a file with checksums."),
    "restore": Command("keyplan.cli.transfer", "Bring a backup into a store, verified."),
    "copy": Command(
        "keyplan.cli.transfer", "Copy a store into another one, verified; --follow applies later changes too."
    ),
    "keyspace": Command("keyplan.cli.keyspace", "Make, see, change and delete key spaces: prefixes with owners."),
    "doctor": Command("keyplan.cli.maintenance", "Examine the registry of key spaces; find keys without an owner."),
    "jobs": Command("keyplan.cli.jobs", "Show unfinished work in a store, and the command that resumes it."),
    "secrets": Command("keyplan.cli.secrets", "Seal the secrets of records: keys, status, rotation."),
    "who": Command("keyplan.cli.maintenance", "Show the processes that have a store open, and the writer."),
    "region": Command(
        "keyplan.cli.region", "Keep the regions of a TiKV cluster within key spaces: plan, apply, verify."
    ),
    "lint": Command(
        "keyplan.cli.layout", "Judge a layout: collisions, leaks, ambiguous keys, ..., with a key that shows each."
    ),
    "infer": Command("keyplan.cli.layout", "Infer a layout from the keys of a store, with the evidence."),
    "audit": Command("keyplan.cli.layout", "Count the keys of a store that a layout explains; group the others."),
    "map": Command("keyplan.cli.layout", "Print a layout's map, or check that a stored one is current."),
    "docs": Command("keyplan.cli.layout", "Print a layout's documentation as Markdown."),
    "serve": Command(
        "keyplan.cli.serve", "Serve a store over HTTP: the key space registry, and applications' protocols."
    ),
    "access": Command(
        "keyplan.cli.access", "Say who may do what: principals, their tokens and grants, in an access file."
    ),
    "audit-log": Command("keyplan.cli.audit_log", "Read and verify who changed what: a server's log, or a registry's."),
    "completion": Command("keyplan.cli.main", "Print the script that completes keyplan's commands in a shell."),
}


def application_groups() -> dict[str, EntryPoint]:
    """Return the command groups of installed applications, by name. Imports none."""
    return {entry.name: entry for entry in sorted(entry_points(group=APPLICATION_GROUP), key=lambda entry: entry.name)}


# ---- completion ----------------------------------------------------------------------------------------------------------


COMPLETION_VARIABLE: Final = "_KEYPLAN_COMPLETE"
"""The variable that a shell sets to ask for completions."""


class Shell(Enum):
    """The shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register_shells() -> None:
    """Register the shells with typer."""
    # Why: this is typer's only public function that does so; its answer, two options of a root, is not needed here.
    get_completion_inspect_parameters()


def completion_command(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)],
) -> None:
    """Print the script that completes keyplan's commands, options and a layout's items in a shell.

    Put this line into ~/.bashrc: eval "$(keyplan completion bash)". For fish, into ~/.config/fish/config.fish: keyplan
    completion fish | source. For zsh, into ~/.zshrc after compinit: eval "$(keyplan completion zsh)".
    """
    register_shells()
    shell_complete(context.find_root().command, {}, "keyplan", COMPLETION_VARIABLE, f"source_{shell.value}")


# ---- the root ------------------------------------------------------------------------------------------------------------


PROGRAM: Final = "keyplan"

EXTRAS: Final = {
    **dict.fromkeys(("starlette", "uvicorn", "prometheus_client", "httpx", "jinja2"), "server"),
    "lmdb": "lmdb",
    "yaml": "yaml",
    "google": "protobuf",
    "grpc": "etcd",
    "psycopg": "postgres",
    "greenlet": "aio",
    "bcrypt": "cloudchamber",
    "numpy": "hepnos",
    "patroni": "patroni-node",
    **dict.fromkeys(("uproot", "awkward", "h5py", "pyarrow", "matplotlib"), "hepnos-files"),
    **dict.fromkeys(("grpc_health", "grpc_reflection", "jsonschema", "re2"), "runm"),
}
"""Packages that keyplan imports without depending on them, and the extra that brings them."""

ANYWHERE: Final = frozenset(
    {
        "--store",
        "-s",
        "--layout",
        "-l",
        "--parameter",
        "-p",
        "--keyspace",
        "-k",
        "--config",
        "--secrets",
        "--layout-check",
        "--json",
    }
)
"""Options that may stand before the command, too: people type the store first. All but --json have a value."""

NUMBER_MAX: Final = 2**62
"""Why: revisions, leases and counts have 63 bits at most, and one more than the largest is still a number of the machine."""

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


class LazyCommand(TyperCommand):
    """A command that is imported when it is called or completed, not when it is listed."""

    def __init__(self, name: str, text: str, load: Callable[[], Any]) -> None:
        super().__init__(name, help=text, short_help=text, rich_markup_mode=None)
        self._load = load

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self._load().make_context(info_name, args, parent, **extra)


class LazyGroup(TyperGroup):
    """The root, with the catalog's commands and the groups of installed applications."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            self.add_command(LazyCommand(name, command.help, partial(_command, name)))
        self._applications = application_groups()
        for name, entry in self._applications.items():
            self.add_command(LazyCommand(name, f"Commands of the application {name}.", partial(_group, entry)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, is_application in (("Commands", False), ("Applications", True)):
            rows = [
                (name, command.help)
                for name, command in self.commands.items()
                if (name in self._applications) == is_application
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _command(name: str) -> Any:
    module = import_module(COMMANDS[name].module)
    group = getattr(module, f"{name}_app", None)
    if group is not None:
        return _with_settings(get_command(group))
    # Why: `keyplan --help` is printed without the modules of the options; every command has imported them.
    from keyplan.cli.options import spread  # noqa: PLC0415

    command = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
    command.command(name)(spread(getattr(module, f"{name.replace('-', '_')}_command")))
    return _with_bounded_numbers(get_command(command))


def _group(entry: EntryPoint) -> Any:
    return _with_settings(get_command(entry.load()))


def _with_settings(group: Any) -> Any:
    group.context_settings = {**_SETTINGS, **group.context_settings}
    return _with_bounded_numbers(group)


def _with_bounded_numbers(command: Any) -> Any:
    """Give each whole number of a command's options, and of its subcommands', an upper bound where it has none."""
    for parameter in command.params:
        described = getattr(parameter, "type_descriptor", None)
        if described is not None and described.annotation in (int, list[int]):
            bounds = described.parameter_info
            bounds.min = -NUMBER_MAX if bounds.min is None else bounds.min
            bounds.max = NUMBER_MAX if bounds.max is None else bounds.max
    for subcommand in getattr(command, "commands", {}).values():
        _with_bounded_numbers(subcommand)
    return command


_application = typer.Typer(
    name=PROGRAM, cls=LazyGroup, add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS
)


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


@_application.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=lambda value: _print_version(is_asked=value)
        ),
    ] = False,
) -> None:
    """Typed records, indexes and proofs on an ordered key-value store, from one declared layout.

    A store is given by --store URL, KEYPLAN_STORE, or `store` in keyplan.toml; a layout by --layout, KEYPLAN_LAYOUT, or
    `layout` in keyplan.toml: the name of an installed one, module:Class, or a JSON description. These options may also
    stand before the command.
    """
    if context.invoked_subcommand is None and not context.resilient_parsing:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


root: Final = get_command(_application)
"""The root as typer calls it."""


def main(arguments: Sequence[str]) -> int:
    """Run keyplan with these arguments and return the exit code. Errors are printed on standard error."""
    with standard_streams() as output, _ended_by_sigterm():
        try:
            code = _exit_code(_options_behind(arguments))
            sys.stdout.flush()
        except ReaderGone:
            return 0  # as in `keyplan dump | head`: who reads has had enough, and nothing is wrong
        except _Terminated:
            return TERMINATED
        except OSError as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return OUTPUT_FAILED
        if output is not None and output.failure is not None and output.failure.errno != errno.EPIPE:
            print(f"{PROGRAM}: {output.failure}", file=sys.stderr)
            return code or OUTPUT_FAILED
        return code


class _Terminated(BaseException):
    """SIGTERM: the command ends as with Ctrl-C, so that it closes its store and removes half-written files."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a block by an exception. A command that handles the signal itself does so instead."""

    def end(_number: int, _frame: object) -> None:
        raise _Terminated

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _options_behind(arguments: Sequence[str]) -> list[str]:
    """Move the options that stand before the command behind its words, where it reads them: `keyplan --store URL ls`."""
    words = list(arguments)
    number = 0
    while number < len(words) and (option := words[number].partition("="))[0] in ANYWHERE:
        number += 1 if option[1] or option[0] == "--json" else 2
    moved, rest = words[:number], words[number:]
    if not rest:
        return words
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]]


def _exit_code(arguments: list[str]) -> int:
    if COMPLETION_VARIABLE in os.environ:
        register_shells()
        root.main(arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)  # ends the process
    # Why: a command line that cannot be read has no options yet, and its error is printed as JSON too.
    is_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        with root.make_context(PROGRAM, arguments) as context:
            root.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except (typer.Abort, KeyboardInterrupt):
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except typer.TyperException as error:
        print_usage_error(error, is_json=is_json)
        return error.exit_code
    except KeyplanError as error:
        print_failure(error, is_json=is_json)
        return error.exit_code
    except SystemExit as error:
        # Why: a layout's module, or a function of it, that ends the program would be taken for a command that succeeded.
        failure = InvalidInputError(
            source=_caller(error), problem=f"it ended the program by SystemExit({error.code!r})"
        )
        print_failure(failure, is_json=is_json)
        return failure.exit_code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = _extra(package, arguments)
        # Why: the modules of the package protobuf are below `google`, as those of others are.
        shown = "protobuf" if package == "google" else package
        print(f"{PROGRAM}: the package {shown!r} is not installed: pip install 'keyplan[{extra}]'", file=sys.stderr)
        return NOT_INSTALLED
    return 0


def _caller(error: BaseException) -> str:
    """The file and the line that an exception comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


def _extra(package: str, arguments: list[str]) -> str:
    """Return the extra to install: the application's whose command it is, which brings all that it needs."""
    extra = EXTRAS[package]
    application = next(iter(arguments), "")
    known = metadata(PROGRAM).get_all("Provides-Extra") or []
    is_own = application in application_groups() and application in known
    return application if is_own and not extra.startswith(f"{application}-") else extra
