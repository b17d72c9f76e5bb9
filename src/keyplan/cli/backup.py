"""The command `keyplan backup`."""

from pathlib import Path
from typing import Annotated

import typer

from keyplan.cli.bar import progress_bar
from keyplan.cli.failures import print_hint
from keyplan.cli.files import named_file
from keyplan.cli.options import ConfigOption, JsonOption, StoreOption, store_of_option
from keyplan.cli.output import print_json, print_text
from keyplan.cli.unfinished import Unfinished
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.files import new_file
from keyplan.layout import raw_key_of
from keyplan.maintenance import BackupReport, back_up_store

__all__ = [
    "FileArgument",
    "KeepLeasedOption",
    "PlainOption",
    "UnfinishedOption",
    "prefix_of_option",
    "print_backup",
    "run",
]

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The backup.", show_default=False, callback=named_file)
]
KeepLeasedOption = Annotated[
    bool, typer.Option("--keep-leased", help="Entries on a lease too, as if they hung on none.")
]
UnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="What a restore or a copy has brought so far, although it has not ended.")
]
PlainOption = Annotated[bool, typer.Option("--uncompressed", help="Do not compress.")]


def run(
    file: FileArgument,
    *,
    store: StoreOption = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.")
    ] = "",
    keep_leased: KeepLeasedOption = False,
    uncompressed: PlainOption = False,
    unfinished: UnfinishedOption = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Write every key and value, as of one snapshot, to a new file with checksums. `keyplan restore` brings it back.

    Key spaces with their registry entries: `keyplan keyspace backup`.
    """
    raw_prefix = prefix_of_option(prefix)
    with store_of_option(store, config, readonly=True, unfinished=Unfinished.PASSED) as opened:
        engine = opened.engine

        def total() -> int:
            with engine.snapshot() as snapshot:
                return snapshot.count(KeyRange.of_prefix(raw_prefix))

        with progress_bar("backup", total) as progress, new_file(file) as output:
            report = back_up_store(
                engine,
                output,
                prefix=raw_prefix,
                keeps_leased=keep_leased,
                is_compressed=not uncompressed,
                takes_unfinished=unfinished,
                progress=progress,
            )
    print_backup(file, report, json=json)


def prefix_of_option(text: str, source: str = "--prefix") -> bytes:
    r"""Return the prefix that an option spells, with \xNN for bytes that are no text. Raises InvalidInputError."""
    try:
        return raw_key_of(text)
    except ValueError as error:
        raise InvalidInputError(source=source, problem=str(error)) from error


def print_backup(file: Path, report: BackupReport, *, json: bool, verb: str = "wrote") -> None:
    """Print what a backup holds: a line for the whole and one for each section."""
    if json:
        print_json(
            {
                "id": report.header.id,
                "kind": report.header.kind,
                "created_at": report.header.created_at,
                "revision": report.header.revision,
                "sections": [
                    {
                        "name": section.name,
                        "prefix": section.prefix.hex(),
                        "has_data": section.has_data,
                        "count": section.trailer.count,
                        "bytes": section.trailer.bytes,
                        "sha256": section.trailer.sha256,
                        "leased": section.trailer.leased,
                    }
                    for section in report.sections
                ],
                "left_out": list(report.left_out),
                "damaged": list(report.damaged),
            }
        )
        return
    for section in report.sections:
        name = f"{section.name}  {section.prefix.hex()}  " if section.name else ""
        held = f"{section.trailer.count} pairs  {section.trailer.bytes} bytes  sha256 {section.trailer.sha256}"
        print_text(name + (held if section.has_data else "deleted: its record alone"))
    print_text(f"{verb} {file}: {report.count} pairs as of revision {report.header.revision}")
    if report.leased:
        print_hint(f"{report.leased} entries hang on leases and were left out; --keep-leased takes them along")
    for name in report.left_out:
        print_hint(f"{name} is being restored and was left out")
    for damage in report.damaged:
        print_hint(f"damaged: {damage}")
