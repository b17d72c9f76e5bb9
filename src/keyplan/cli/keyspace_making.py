"""The commands `keyplan keyspace init|config|create|adopt|apply`."""

import json as json_text
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_failure, print_hint
from keyplan.cli.files import read_text
from keyplan.cli.output import print_json, print_record, print_text, printable
from keyplan.cli.registries import (
    ApplicationOption,
    DescriptionOption,
    NameArgument,
    RegistryOptions,
    print_key_space,
)
from keyplan.errors import InvalidInputError
from keyplan.keyspace import (
    PREFIX_CODECS,
    PROFILES,
    Applied,
    RegistryOperations,
    Step,
    StepKind,
    apply_steps,
    plan_for,
    read_declaration,
)

__all__ = ["adopt", "apply", "configure", "create", "init"]

_SIGNS: Final = {StepKind.CREATE: "+", StepKind.ADOPT: "+", StepKind.DELETE: "-", StepKind.REFUSED: "!"}


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
            help=f"Prefixes that are not given out unasked: {', '.join(PROFILES)}. By default the engine's.",
            show_default=False,
        ),
    ] = None,
    skip_printable: Annotated[
        bool | None,
        typer.Option(
            "--skip-printable/--no-skip-printable",
            help="Give out no prefix that text begins with; by default where the store holds keys already.",
        ),
    ] = None,
) -> None:
    """Make the registry of a store, and decide what is decided once: how numbers become prefixes. `create` does it too.

    Where there is one it is printed, unless it was made otherwise than the options say.
    """
    with at.opened(create=True) as registry:
        header = registry.init(prefix_codec=prefix_codec, profile=profile, skip_printable=skip_printable)
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
    with at.opened(create=bool(changes), readonly=not changes) as registry:
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
    with at.opened(create=True) as registry:
        keyspace = registry.create(
            name, application, description=description, prefix=prefix, if_not_exists=if_not_exists
        )
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


# ---- apply -----------------------------------------------------------------------------------------------------------


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
    with at.opened(create=yes, readonly=not yes) as registry:
        steps = plan_for(registry, declaration)
        if not yes or any(step.kind is StepKind.REFUSED for step in steps):
            _print_plan(steps, is_asked=yes, json=at.json)
            if steps:
                raise typer.Exit(FINDINGS)
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
        # Why: what follows may need what failed; planning again goes on where this ended.
        raise taken[-1].error
    if not json and not steps:
        print_text("nothing to do")


def _print_plan(steps: list[Step], *, is_asked: bool, json: bool) -> None:
    for step in steps:
        if json:
            print_json(step.to_json())
        else:
            print_text(_line(step))
    if any(step.kind is StepKind.REFUSED for step in steps):
        print_hint("nothing was written: a step that is refused (!) has to be declared otherwise")
    elif steps and not is_asked:
        print_hint("nothing was written: --yes takes these steps")
    elif not json:
        print_text("nothing to do")


def _print_applied(applied: Applied, *, json: bool) -> None:
    if json:
        error = applied.error
        print_json({**applied.step.to_json(), "error": None if error is None else error.code})
    elif applied.error is None:
        print_text(f"{_line(applied.step)}: done")
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
    return printable(f"{_SIGNS.get(step.kind, '~')} {words}{facts}{': ' + step.problem if step.problem else ''}")


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
    # Why: the extra is needed for such files alone.
    try:
        import yaml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        problem = "YAML needs the package 'pyyaml': pip install 'keyplan[yaml]'"
        raise InvalidInputError(source=str(path), problem=problem) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
