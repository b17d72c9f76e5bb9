"""The commands of `keyplan hepnos` that look at a store and keep it in order; cli_files.py has those that load and export."""

from pathlib import Path
from typing import Annotated

import typer

from keyplan.apps.hepnos.cli_files import export, load_h5, load_parquet, load_root, show_tables
from keyplan.apps.hepnos.cli_grants import show_grants
from keyplan.apps.hepnos.cli_jobs import check, process, rebalance, sweep_store
from keyplan.apps.hepnos.cli_store import container_named, opened
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.extent import Extent, extents, unevenness
from keyplan.apps.hepnos.keys import ITEM_BYTES, Kind, dataset_key, split_product
from keyplan.apps.hepnos.numbered import Numbered, Run, SubRun
from keyplan.apps.hepnos.products import Container
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_grid, print_json, print_text
from keyplan.errors import InvalidInputError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

PathArgument = Annotated[str, typer.Argument(help="A data set's full name; the root without it.", show_default=False)]
NumbersArgument = Annotated[
    list[int] | None, typer.Argument(help="Numbers of a run, subrun and event in it.", show_default=False)
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="At most so many children of each container.")]


@app.callback()
def _group() -> None:
    """HEPnOS: runs, subruns and events by the million, and their products."""


app.command("load-root")(load_root)
app.command("load-h5")(load_h5)
app.command("load-parquet")(load_parquet)
app.command("export")(export)
app.command("tables")(show_tables)
app.command("grants")(show_grants)
app.command("process")(process)
app.command("check")(check)
app.command("rebalance")(rebalance)
app.command("sweep")(sweep_store)


@app.command("ls")
def list_children(
    path: PathArgument = "",
    numbers: NumbersArgument = None,
    store: StoreOption = None,
    products: Annotated[bool, typer.Option("--products", "-p", help="List its own products, too.")] = False,
    limit: LimitOption = 1_000,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List what is in a data set, run, subrun or event: a line for each, with its kind."""
    with opened(store, config) as data:
        rows = _listed(container_named(data, path, numbers), limit, has_products=products)
    if as_json:
        for kind, name, detail in rows:
            print_json({"kind": kind, "name": name, **({"type": detail} if kind == "product" else {})})
    else:
        print_grid(("KIND", "NAME", ""), rows)


def _listed(container: Container, limit: int, *, has_products: bool) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    if isinstance(container, DataSet):
        rows += [("dataset", each.name, str(each.uuid)) for each in container.datasets.range(limit=limit)]
    rows += [(_kind_name(each), str(each.number), "") for each in _numbered_children(container, limit)]
    if has_products:
        rows += [("product", label, kind) for label, kind in _products(container)]
    return rows


def _kind_name(container: Numbered) -> str:
    return container.kind.value.removesuffix("s")


def _numbered_children(container: Container, limit: int) -> list[Numbered]:
    if isinstance(container, DataSet):
        return [] if container.is_root else list(container.runs.range(limit=limit))
    if isinstance(container, Run):
        return list(container.subruns.range(limit=limit))
    return list(container.events.range(limit=limit)) if isinstance(container, SubRun) else []


def _products(container: Container) -> list[tuple[str, str]]:
    if isinstance(container, DataSet) and container.is_root:
        return []
    return [(each.label, each.type) for each in container.products()]


@app.command("tree")
def show_tree(
    path: PathArgument = "",
    numbers: NumbersArgument = None,
    store: StoreOption = None,
    depth: Annotated[int, typer.Option("--depth", min=1, help="So many levels.")] = 3,
    products: Annotated[bool, typer.Option("--products", "-p", help="Show products, too.")] = False,
    limit: LimitOption = 20,
    config: ConfigOption = None,
) -> None:
    """Show data sets, runs, subruns and events as a tree: [D], [R], [S], [E], and products as LABEL -> TYPE."""
    with opened(store, config) as data:
        for line in _branch(container_named(data, path, numbers), "", depth, limit, has_products=products):
            print_text(line)


def _branch(container: Container, indent: str, depth: int, limit: int, *, has_products: bool) -> list[str]:
    lines = [f"{indent}{label} -> {kind}" for label, kind in _products(container)] if has_products else []
    if depth == 0:
        return lines
    children: list[Container] = (
        list(container.datasets.range(limit=limit + 1)) if isinstance(container, DataSet) else []
    )
    children += _numbered_children(container, limit + 1)
    for child in children[:limit]:
        lines.append(f"{indent}{_head(child)}")
        lines += _branch(child, f"{indent}  ", depth - 1, limit, has_products=has_products)
    if len(children) > limit:
        lines.append(f"{indent}... more than {limit:,}; --limit shows more")
    return lines


def _head(container: Container) -> str:
    if isinstance(container, Numbered):
        return f"[{_kind_name(container)[0].upper()}] {container.number}"
    assert isinstance(container, DataSet)
    return f"[D] {container.name}"


@app.command("stat")
def show_extents(
    store: StoreOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: PNG, SVG or PDF.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Print how many keys each database has, what it takes on disk, and how far the fullest of a kind is above the mean."""
    with opened(store, config) as data:
        found = extents(data)
        name = data.address.url.partition("?")[0]
    if plot is not None:
        # Why here: matplotlib takes longer to import than the command needs.
        from keyplan.apps.hepnos.plots import plot_extents  # noqa: PLC0415

        plot_extents(found, plot, title=f"The databases of {name}")
    if as_json:
        for extent in found:
            print_json(extent._asdict())
        return
    rows = [(each.kind, str(each.database), f"{each.keys:,}", _size(each), _evenness(each, found)) for each in found]
    print_grid(("KIND", "DATABASE", "KEYS", "ON DISK", "FULLEST OVER MEAN"), rows)


def _size(extent: Extent) -> str:
    return "-" if extent.disk_bytes is None else f"{extent.disk_bytes / 1e6:,.1f} MB"


def _evenness(extent: Extent, found: list[Extent]) -> str:
    keys = [each.keys for each in found if each.kind == extent.kind]
    return f"{unevenness(keys):.1%}" if extent.database == 0 and len(keys) > 1 else ""


@app.command("where")
def show_place(
    path: Annotated[str, typer.Argument(help="A data set's full name, or with --raw a key in hex.")],
    numbers: NumbersArgument = None,
    store: StoreOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="PATH is a raw key in hex.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Print which database keeps a data set, run, subrun, event or product, its raw key, and whether it is there."""
    with opened(store, config) as data:
        if raw:
            kind, key = _kind_of(path)
        else:
            container = container_named(data, path, numbers, is_checked=False)
            kind, key = _key_of(container)
        place = data.databases.place(kind, key)
        is_there = data.raw_value(kind, key) is not None
    if as_json:
        print_json({"kind": kind.value, "database": place, "raw_key": key.hex(), "exists": is_there})
    else:
        print_grid(
            ("KIND", "DATABASE", "KEY", ""), [(kind.value, str(place), key.hex(), "" if is_there else "is not there")]
        )


def _key_of(container: Container) -> tuple[Kind, bytes]:
    if isinstance(container, Numbered):
        return container.kind, container.raw_key
    assert isinstance(container, DataSet)
    return Kind.DATASET, dataset_key(container.path)


def _kind_of(text: str) -> tuple[Kind, bytes]:
    """Return what a raw key is: its length says it, or for a data set its first byte does."""
    try:
        key = bytes.fromhex(text)
    except ValueError as error:
        raise InvalidInputError(source="--raw", problem="a raw key is given in hex") from error
    kind = {24: Kind.RUN, 32: Kind.SUBRUN, ITEM_BYTES: Kind.EVENT}.get(len(key))
    if _is_dataset_key(key):
        return Kind.DATASET, key
    if kind is None and split_product(key) is not None:
        kind = Kind.PRODUCT
    if kind is None:
        raise InvalidInputError(source="--raw", problem="it is no key of a data set, run, subrun, event or product")
    return kind, key


def _is_dataset_key(key: bytes) -> bool:
    try:
        return dataset_key(key[1:].decode()) == key
    except ValueError:
        return False
