"""The commands `keyplan keyspace ...`: the group. Each family of commands is in a module of its own."""

from typing import Final

import typer

from keyplan.cli import keyspace_backup, keyspace_lives, keyspace_making, keyspace_reading
from keyplan.cli.spread import spread

__all__ = ["app"]

app: Final = typer.Typer(add_completion=False, rich_markup_mode=None, help="Make, see, change and delete key spaces.")

for _name, _command in (
    ("init", keyspace_making.init),
    ("config", keyspace_making.configure),
    ("create", keyspace_making.create),
    ("adopt", keyspace_making.adopt),
    ("apply", keyspace_making.apply),
    ("list", keyspace_reading.list_all),
    ("show", keyspace_reading.show),
    ("describe", keyspace_reading.describe),
    ("history", keyspace_reading.history),
    ("usage", keyspace_reading.usage),
    ("audit", keyspace_reading.audit),
    ("update", keyspace_lives.update),
    ("quota", keyspace_lives.quota),
    ("disable", keyspace_lives.disable),
    ("enable", keyspace_lives.enable),
    ("delete", keyspace_lives.delete),
    ("undelete", keyspace_lives.undelete),
    ("sweep", keyspace_lives.sweep),
    ("backup", keyspace_backup.backup),
    ("restore", keyspace_backup.restore),
):
    app.command(_name)(spread(_command))
