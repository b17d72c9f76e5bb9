"""Where a migration's plan comes from: the files of a folder that are due in a store, or the options --from and --to."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.cli.diff import DropOption, RenameOption, renames_of_option
from keyplan.cli.options import layout_of_option, root_parameters
from keyplan.engine import Engine, MemoryEngine
from keyplan.errors import InvalidInputError
from keyplan.layout import BoundLayout, Layout, layout_class_of
from keyplan.maintenance import (
    Conversion,
    MigrationFolder,
    MigrationPlace,
    MigrationPlan,
    place_in,
    plan_leg,
    plan_migration,
    read_migrations,
    remember_passed,
)

__all__ = [
    "FOLDER",
    "AcceptOption",
    "FileSource",
    "FolderOption",
    "PlanOptions",
    "PlanSource",
    "Planned",
    "bound_at",
]

FOLDER: Final = Path("migrations")

_DIGITS_MAX: Final = 18
"""Why: Python reads no number of thousands of digits."""

AcceptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="NAME",
        help="E17, E19 or E22; or from:, gone:, none:, keys:, lease:, lose:, old: or new:TABLE; may be repeated.",
    ),
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help=f"The migration files; {FOLDER} by default.", show_default=False),
]


class PlanOptions(NamedTuple):
    """What is migrated from which layout to which, with what consents: a record of options, for `spread`."""

    folder: FolderOption = None
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="NAME", help="The last file to take: its name or number.", show_default=False),
    ] = None
    old: Annotated[
        str | None,
        typer.Option("--from", metavar="LAYOUT", help="Without files: the layout as it was.", show_default=False),
    ] = None
    new: Annotated[
        str | None,
        typer.Option("--to", metavar="LAYOUT", help="Without files: the layout as it shall be.", show_default=False),
    ] = None
    rename: RenameOption = None
    drop: DropOption = None
    function: Annotated[
        list[str] | None,
        typer.Option(
            "--function",
            metavar="TABLE=MODULE:NAME@VERSION",
            help="Makes a new record of an old one; may be repeated.",
        ),
    ] = None
    accept: AcceptOption = None
    from_parameter: Annotated[
        list[str] | None,
        typer.Option("--from-parameter", metavar="NAME=VALUE", help="With --from: a parameter of the old root."),
    ] = None

    @property
    def is_by_files(self) -> bool:
        """Whether the plan is made of the files of a folder. Raises InvalidInputError for a mixture."""
        told = [
            name
            for name, value in (
                ("--rename", self.rename),
                ("--drop", self.drop),
                ("--function", self.function),
            )
            if value
        ]
        if self.old is None and self.new is None:
            if told:
                problem = "files say that themselves; it belongs to --from and --to"
                raise InvalidInputError(source=told[0], problem=problem)
            return True
        if self.old is None or self.new is None:
            missing = "--from" if self.old is None else "--to"
            raise InvalidInputError(source=missing, problem="--from and --to go together; without both, files are run")
        if self.folder is not None or self.until is not None:
            problem = "the layouts of --from and --to have no files: leave one or the other out"
            raise InvalidInputError(source="--folder" if self.folder else "--until", problem=problem)
        return False

    def source(self, parameter: list[str] | None, config: Path | None) -> "PlanSource":
        """Read what the options name, before a store is opened. Raises InvalidInputError and the errors of layouts."""
        if self.is_by_files:
            if self.from_parameter:
                raise InvalidInputError(source="--from-parameter", problem="it belongs to --from")
            folder = read_migrations(self.folder or FOLDER)
            if not folder.files:
                problem = "it has no migration files: `keyplan migrate new NAME --from OLD --to NEW` drafts one"
                raise InvalidInputError(source=str(folder.path), problem=problem)
            _require_parameters(folder, parameter)
            return FileSource(folder, self.until, tuple(self.accept or ()), parameter, config)
        before, after = layout_of_option(self.old), layout_of_option(self.new)
        given = self.from_parameter or _known(before, parameter)
        old = before.bound(**root_parameters(before, given, config))
        return OptionSource(self, old, after.bound(**root_parameters(after, parameter, config)))


class Planned(NamedTuple):
    """A plan with its name, or none where nothing is due; and lines for people about where it stands among others."""

    plan: MigrationPlan | None
    name: str
    lines: tuple[str, ...] = ()


class OptionSource(NamedTuple):
    """The plan of --from and --to."""

    options: PlanOptions
    old: BoundLayout
    new: BoundLayout

    @property
    def root(self) -> bytes:
        """The root of the old layout."""
        return self.old.root

    @property
    def roots(self) -> list[bytes]:
        """The roots of all layouts."""
        return [self.old.root, self.new.root]

    @property
    def told(self) -> dict[str, str]:
        """The options that a command needs that is given in another folder."""
        return {}

    def remember(self, engine: Engine) -> None:
        """Nothing: a plan without steps notes its layout when it is carried out."""

    def planned(self, engine: Engine, progress: Callable[[int], None], *, is_drafted: bool = False) -> Planned:
        """Plan the migration; `is_drafted`: as the layouts have it, without a look at records. Raises as `plan_migration`."""
        plan = plan_migration(
            MemoryEngine() if is_drafted else engine,
            self.old,
            self.new,
            renames=renames_of_option(self.options.rename),
            drops=self.options.drop or (),
            conversions=conversions_of_option(self.options.function),
            accepts=self.options.accept or (),
            progress=progress,
        )
        name = f"{self.old.name} to {self.new.name}"
        return Planned(plan, name, (name,))


class FileSource(NamedTuple):
    """The plan of the files that are due."""

    folder: MigrationFolder
    until: str | None
    accepts: tuple[str, ...]
    parameter: list[str] | None
    config: Path | None

    def bind(self, layout: type[Layout]) -> BoundLayout:
        """Bind a layout to the root that the options name. Raises InvalidInputError, InvalidKeyError."""
        return bound_at(layout, self.parameter, self.config)

    @property
    def root(self) -> bytes:
        """The root at which the first layout stands."""
        first = layout_class_of(self.folder.description(self.folder.layouts[0]))
        return self.bind(first).root

    @property
    def roots(self) -> list[bytes]:
        """The roots of all layouts."""
        layouts = (layout_class_of(self.folder.description(layout)) for layout in self.folder.layouts)
        return [self.bind(layout).root for layout in layouts]

    @property
    def told(self) -> dict[str, str]:
        """The options that a command needs that is given in another folder."""
        return {"folder": str(self.folder.path.absolute())}

    def place(self, engine: Engine) -> MigrationPlace:
        """Find where the store stands among the files."""
        return place_in(self.folder, engine, self.bind, until=self.until)

    def remember(self, engine: Engine) -> None:
        """Note layouts of files that need no run: programs may use them."""
        remember_passed(self.folder, self.place(engine), engine, self.bind)

    def planned(self, engine: Engine, progress: Callable[[int], None], *, is_drafted: bool = False) -> Planned:
        """Plan what is due next; `is_drafted`: without a look at records. Raises InvalidInputError, and as `plan_migration`."""
        place = self.place(engine)
        if place.leg is None:
            return Planned(None, "", (f"nothing is due: {place.done} of {len(self.folder.files)} migrations are done",))
        for file in place.leg.files:
            file.require_written()
        plan = plan_leg(
            MemoryEngine() if is_drafted else engine,
            place.leg,
            old=self.bind(self.folder.old_layout(place.leg.files[0])),
            new=self.bind(self.folder.new_layout(place.leg.files[-1])),
            accepts=self.accepts,
            progress=progress,
        )
        number = len(place.leg.files)
        lines = [f"{place.leg.name}{f': {number} migrations, planned as one' if number > 1 else ''}"]
        if place.later and place.why:
            lines.append(f"afterwards {place.later[0].name}: {place.why}")
        return Planned(plan, place.leg.name, tuple(lines))


PlanSource = OptionSource | FileSource


def bound_at(layout: type[Layout], parameter: list[str] | None, config: Path | None) -> BoundLayout:
    """Bind a layout to the root that --parameter names, where its root has them. Raises the errors of `root_parameters`."""
    return layout.bound(**root_parameters(layout, _known(layout, parameter), config))


def conversions_of_option(given: list[str] | None) -> dict[str, Conversion]:
    """Read `--function TABLE=MODULE:NAME@VERSION`; without a version it is 1. Raises InvalidInputError."""
    conversions: dict[str, Conversion] = {}
    for text in given or []:
        table, equals, named = text.partition("=")
        name, at, version = named.partition("@")
        if not (table and equals and ":" in name) or (at and not (version.isdecimal() and len(version) <= _DIGITS_MAX)):
            raise InvalidInputError(source="--function", problem=f"{text!r} is not TABLE=MODULE:NAME@VERSION")
        conversions[table] = Conversion(_imported(name), name, int(version or 1))
    return conversions


def _imported(name: str) -> Callable[[Any], Any]:
    module_name, _, attribute = name.partition(":")
    # Why: a console script's path holds its own folder; people name modules of the folder that they are in.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(source="--function", problem=f"cannot import {name}: {error}") from error
    if not callable(function):
        raise InvalidInputError(source="--function", problem=f"{name} is no function")
    found: Callable[[Any], Any] = function
    return found


def _require_parameters(folder: MigrationFolder, given: list[str] | None) -> None:
    """Refuse a parameter that no root of the folder's layouts has."""
    names = {name for layout in folder.layouts for name in folder.description(layout).root.field_names}
    for text in given or []:
        if text.partition("=")[0] not in names:
            known = ", ".join(sorted(names)) or "none"
            problem = f"{text!r} is not NAME=VALUE with a parameter of a root of the folder's layouts: {known}"
            raise InvalidInputError(source="--parameter", problem=problem)


def _known(layout: type[Layout], given: list[str] | None) -> list[str]:
    """Return those of the parameters that the root has."""
    return [text for text in given or [] if text.partition("=")[0] in layout.spec.root.field_names]
