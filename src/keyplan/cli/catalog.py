"""The commands of keyplan by name: where each one's code is, and the line that `keyplan --help` prints.

Why a table: `keyplan --help` and completion must not import what the commands need.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "Command", "application_groups"]

APPLICATION_GROUP: Final = "keyplan.apps"
"""Entry points of command groups: a name and a typer.Typer."""


class Command(NamedTuple):
    """A command: the module with its function `run`, or with the group `app`, and its line of help."""

    module: str
    help: str


COMMANDS: Final = {
    "ls": Command("keyplan.cli.ls", "Show what a store holds, level by level of meaning."),
    "tree": Command("keyplan.cli.tree", "Show records as a tree of their keys' fields."),
    "get": Command("keyplan.cli.get", "Print one record."),
    "list": Command("keyplan.cli.list", "Print records: of a table, or by an index."),
    "watch": Command("keyplan.cli.watch", "Print changes as they are committed."),
    "count": Command("keyplan.cli.count", "Count records or index entries."),
    "put": Command("keyplan.cli.put", "Write one record with its index entries."),
    "delete": Command("keyplan.cli.delete", "Delete one record with its index entries."),
    "explain": Command("keyplan.cli.explain", "Say what a raw key is, and what is stored there."),
    "check": Command("keyplan.cli.check", "Examine every key: records against indexes; --repair to put them right."),
    "raw": Command("keyplan.cli.raw", "Read, write, delete and set aside single keys, by hand."),
    "extract": Command("keyplan.cli.extract", "Take single records out of a backup, and put them back."),
    "index": Command("keyplan.cli.index", "See, build and drop indexes of a store in use."),
    "diff": Command("keyplan.cli.diff", "Say what changed between two layouts, and what is to be done about it."),
    "migrate": Command(
        "keyplan.cli.migrate", "Bring a store from one layout to another beside its programs; resumable."
    ),
    "dump": Command("keyplan.cli.dump", "Print every key and value as JSON lines."),
    "backup": Command("keyplan.cli.backup", "Write a store, or a prefix of it, to a file with checksums."),
    "restore": Command("keyplan.cli.restore", "Bring a backup into a store, verified."),
    "copy": Command("keyplan.cli.copy", "Copy a store into another one, verified; --follow until it is switched."),
    "keyspace": Command("keyplan.cli.keyspace", "Make, see, change and delete key spaces: who owns which prefix."),
    "doctor": Command("keyplan.cli.doctor", "Examine the registry of key spaces, and find keys that are nobody's."),
    "who": Command("keyplan.cli.who", "Show which processes have a store open, and who writes."),
    "region": Command(
        "keyplan.cli.region", "Keep the regions of a TiKV cluster within key spaces: plan, apply, verify."
    ),
    "lint": Command(
        "keyplan.cli.lint", "Judge a layout: collisions, leaks, ambiguous keys, ..., with a key that shows each."
    ),
    "infer": Command("keyplan.cli.infer", "Infer a layout from what a store holds, with the evidence."),
    "audit": Command("keyplan.cli.audit", "Say what share of a store's keys a layout explains, and what not."),
    "map": Command("keyplan.cli.map", "Print a layout's map, or check that a stored one is current."),
    "docs": Command("keyplan.cli.docs", "Print a layout's documentation as Markdown."),
    "serve": Command(
        "keyplan.cli.serve", "Serve a store over HTTP: the key space registry, and applications' protocols."
    ),
    "completion": Command("keyplan.cli.completion", "Print the script that completes keyplan's commands in a shell."),
}


def application_groups() -> dict[str, EntryPoint]:
    """The command groups of installed applications, by name. Nothing is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=APPLICATION_GROUP), key=lambda entry: entry.name)}
