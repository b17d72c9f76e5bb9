"""A layout's items as commands name them, opened on a store; the options that narrow their records; a commit to them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from keyplan.cli.failures import print_hint
from keyplan.cli.layout_checks import LayoutCheckOption, layout_check_of_option, look_at_layout
from keyplan.cli.options import (
    ConfigOption,
    KeySpaceOption,
    LayoutOption,
    ParameterOption,
    SecretsOption,
    StoreOption,
    Unfinished,
    bound_of_options,
    bound_where_named,
    layout_of_option,
    root_parameters,
    secrets_of_option,
    store_of_option,
)
from keyplan.cli.output import print_answer
from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.errors import InvalidInputError, KeyplanError, StoreMissingError
from keyplan.layout import BoundIndex, BoundLayout, BoundTable, Layout, prefix_of_words, shown_key, value_of_text
from keyplan.store import Store

__all__ = [
    "AtLeastOption",
    "BelowOption",
    "FieldsArgument",
    "ItemArgument",
    "LayoutOptions",
    "OpenLayout",
    "StartsWithOption",
    "item_names",
    "narrowed",
    "print_commit",
    "table_named",
]


def item_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the items of the command line's layout that begin so; none where it has no layout: completion never fails."""
    try:
        spec = layout_of_option(context.params.get("layout"), context.params.get("config")).spec
    except KeyplanError:
        return []
    return [item.name for item in spec.items if item.name.startswith(incomplete)]


ItemArgument = Annotated[
    str,
    typer.Argument(
        metavar="ITEM",
        help="A table, index or counter of the layout; `keyplan ls` lists them.",
        show_default=False,
        autocompletion=item_names,
    ),
]
FieldsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="FIELD", help="Values of the key's fields, in key order.")
]


@dataclass(frozen=True)
class OpenLayout:
    """A layout on a store."""

    store: Store
    layout: Layout
    bound: BoundLayout

    def listable(self, name: str) -> BoundTable | BoundIndex:
        """Return the table or index of that name. Raises UnknownNameError, InvalidInputError for a counter."""
        item = self.bound.tables.get(name) or self.bound.indexes.get(name)
        if item is None:
            self.bound.spec.item(name)
            raise InvalidInputError(source="ITEM", problem=f"{name} is a counter; use `keyplan get {name}`")
        return item

    def table_of(self, name: str) -> BoundTable:
        """Return the table of that name, or the one that the index of that name points at."""
        return self.bound.tables.get(name) or self.bound.indexes[name].table

    def table(self, name: str) -> tuple[BoundTable, Any]:
        """Return a table and its operations. Raises UnknownNameError, InvalidInputError for anything else."""
        return table_named(self.bound, name), self.layout.view(name)

    def print_commit(self, write: Callable[[Layout], object], *, json: bool) -> None:
        """Print the commit that `write`, called with the layout, would make now."""
        print_commit(self.store, self.layout, write, json=json)

    def hint_when_foreign(self) -> None:
        """Print a hint where the store holds keys, and none that this layout knows. Call it when nothing was found."""
        with self.store.engine.snapshot() as snapshot:
            first = next(snapshot.scan(ALL_KEYS, limit=1, keys_only=True), None)
            if first is None:
                return
            items: list[BoundTable | BoundIndex] = [*self.bound.tables.values(), *self.bound.indexes.values()]
            for item in items:
                entries = snapshot.scan(KeyRange(*item.keys.range(())), keys_only=True)
                if any(item.keys.decode(entry.key) is not None for entry in entries):
                    return
            if any(snapshot.get(counter.raw_key) for counter in self.bound.counters.values()):
                return
        # Why the byte: a registry of key spaces begins with it, and then the layout's keys are most likely in one of them.
        wrong = "wrong --layout or --parameter" + (", or no --keyspace" if first.key.startswith(b"\x00") else "")
        print_hint(
            f"the store holds keys, none of which {self.bound.name} knows: {wrong}?"
            f" The first is {shown_key(first.key)}; `keyplan explain` tries every installed layout on it."
        )


def table_named(bound: BoundLayout, name: str) -> BoundTable:
    """Return the table of that name. Raises UnknownNameError, InvalidInputError for anything else."""
    bound.spec.item(name)
    if name not in bound.tables:
        tables = ", ".join(bound.tables)
        raise InvalidInputError(source="ITEM", problem=f"{name} is not a table; the tables are {tables}")
    return bound.tables[name]


class LayoutOptions(NamedTuple):
    """Which layout, on which store or key space of it: a record of options, for `spread`."""

    store: StoreOption = None
    layout: LayoutOption = None
    parameter: ParameterOption = None
    keyspace: KeySpaceOption = None
    config: ConfigOption = None
    secrets: SecretsOption = None
    layout_check: LayoutCheckOption = None

    def bound(self) -> BoundLayout:
        """Return the layout with its parameters' values, without a store. Raises the errors of `bound_of_options`."""
        return bound_of_options(self.layout, self.parameter, self.config)

    def bound_where_named(self) -> BoundLayout | None:
        """Return the layout as `bound` does; None where neither the option nor the settings name one."""
        return bound_where_named(self.layout, self.parameter, self.config)

    @contextmanager
    def opened(
        self,
        *,
        create: Callable[[Layout], object] | None = None,
        readonly: bool = False,
        unfinished: Unfinished | None = None,
    ) -> Iterator[OpenLayout]:
        """Open the layout on the store, or on the key space; close it at the end.

        With `create`, which is what will be written, a missing store is made when the write is none that it would refuse.

        Where a restore or a copy below the root has not ended, readers get a hint and writers an error, unless `unfinished`
        decides otherwise; and where the layout is not the one that the store notes, as `--layout-check` says. Raises the errors
        of `layout_of_option`, `root_parameters`, `store_of_option` and `look_at_layout`.
        """
        kind = layout_of_option(self.layout, self.config)
        values = root_parameters(kind, self.parameter, self.config)
        bound = kind.bound(**values)
        check = layout_check_of_option(self.layout_check, self.config)
        opened = partial(
            store_of_option,
            self.store,
            self.config,
            readonly=readonly,
            keyspace=self.keyspace,
            root=bound.root,
            unfinished=unfinished or (Unfinished.TOLD if readonly else Unfinished.REFUSED),
            secrets=self.secrets,
            has_secrets=bound.has_secrets or self.secrets is not None,
        )
        try:
            store = opened()
        except StoreMissingError:
            if create is None or self.keyspace is not None:
                raise
            write = create
            # Why here: only a new store needs these modules.
            from keyplan.cli.transfer import rehearse  # noqa: PLC0415

            keys = secrets_of_option(self.secrets, self.config)

            def rehearsed(engine: Engine) -> object:
                return write(kind(Store(engine, secrets=keys), **values))

            rehearse(self.store, self.config, rehearsed, is_whole=True)
            store = opened(create=True)
        with store:
            look_at_layout(store, bound, check)
            yield OpenLayout(store, kind(store, **values), bound)


# ---- secrets in clear ----------------------------------------------------------------------------------------------------


class RevealOptions(NamedTuple):
    """Whether secrets are printed in clear, and where that is noted: a record of options, for `spread`."""

    reveal: Annotated[bool, typer.Option("--reveal", help="With its secrets in clear; sealed ones need --secrets.")] = (
        False
    )
    audit_log: Annotated[
        Path | None,
        typer.Option("--audit-log", metavar="FILE", help="Note in this audit log who is shown the secrets."),
    ] = None

    def noted(self, subject: str) -> AbstractContextManager[None]:
        """Surround the read of a record with its lines in the log, if one is named: the outcome is there before it is printed.

        Raises InvalidInputError for a log that cannot be written, and without --reveal; AuditLogError.
        """
        if self.audit_log is None:
            return nullcontext()
        if not self.reveal:
            raise InvalidInputError(
                source="--audit-log", problem="nothing is noted of masked records: give --reveal too"
            )
        # Why here: a command that notes nothing starts sooner without it.
        from keyplan.cli.audit_log import noting  # noqa: PLC0415

        return noting(self.audit_log, operation="get", act="reveal", subject=subject)


# ---- which records of an item --------------------------------------------------------------------------------------------


StartsWithOption = Annotated[
    str | None,
    typer.Option("--starts-with", metavar="TEXT", help="Only where the next key field begins with TEXT."),
]
AtLeastOption = Annotated[
    str | None,
    typer.Option("--at-least", metavar="VALUE", help="Only where the next key field is VALUE or more; of tables."),
]
BelowOption = Annotated[
    str | None,
    typer.Option("--below", metavar="VALUE", help="Only where the next key field is less than VALUE; of tables."),
]


def narrowed(
    item: BoundTable | BoundIndex,
    words: list[str] | None,
    *,
    starts_with: str | None,
    at_least: str | None,
    below: str | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the prefix and the keywords that an item's `list` and `count` take. Raises InvalidKeyError, InvalidInputError."""
    prefix = prefix_of_words(item.keys, words or [])
    given = {"starts_with": starts_with, "at_least": at_least, "below": below}
    bounds = {name: text for name, text in given.items() if text is not None}
    fields = item.keys.template.fields
    if bounds and len(prefix) == len(fields):
        raise InvalidInputError(source="FIELD", problem="the key is whole: it has no next field to narrow")
    for name in ("at_least", "below"):
        if name in bounds and isinstance(item, BoundIndex):
            option = "--" + name.replace("_", "-")
            raise InvalidInputError(source=option, problem=f"{item.name} is an index; only a table's list has bounds")
    return prefix, {name: value_of_text(fields[len(prefix)].element, text) for name, text in bounds.items()}


# ---- a commit that would be made -----------------------------------------------------------------------------------------


def print_commit(store: Store, layout: Layout, write: Callable[[Layout], object], *, json: bool) -> None:
    """Print the commit that `write`, called with the layout, would make now. Nothing is written; no record is printed."""
    explanation = store.explain(lambda transaction: write(layout.over(transaction)))
    print_answer(_plain_commit(explanation.commit), *str(explanation).split("\n"), json=json)


def _plain_commit(commit: Commit) -> dict[str, Any]:
    return {
        "guards": [_plain_guard(guard) for guard in commit.guards],
        "mutations": [_plain_mutation(mutation) for mutation in commit.mutations],
    }


def _plain_guard(guard: Guard) -> dict[str, Any]:
    match guard:
        case KeyAbsent(key):
            return {"guard": "key absent", "key": shown_key(key)}
        case KeyUnchanged(key, revision):
            return {"guard": "key unchanged", "key": shown_key(key), "revision": revision}
        case RangeEmpty(key_range):
            return {"guard": "range empty", **_plain_range(key_range)}
        case RangeUnchanged(key_range, revision, keys):
            shown = [shown_key(key) for key in keys]
            return {"guard": "range unchanged", **_plain_range(key_range), "revision": revision, "keys": shown}


def _plain_mutation(mutation: Mutation) -> dict[str, Any]:
    match mutation:
        case Put(key, value, lease):
            return {"mutation": "put", "key": shown_key(key), "bytes": len(value), "lease": lease}
        case Delete(key):
            return {"mutation": "delete", "key": shown_key(key)}
        case DeleteRange(key_range):
            return {"mutation": "delete range", **_plain_range(key_range)}


def _plain_range(key_range: KeyRange) -> dict[str, Any]:
    return {"start": shown_key(key_range.start), "end": None if key_range.end is None else shown_key(key_range.end)}
