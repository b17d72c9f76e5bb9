"""The command `keyplan who`."""

from keyplan.cli.options import ConfigOption, JsonOption, StoreOption, store_url_of_option
from keyplan.cli.output import print_record, print_text, printable
from keyplan.engine import StoreUser, exposed_files, store_users, utc_time

__all__ = ["run"]


def run(*, store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show which processes have a store open: who writes and since when, who waits for its turn, and who reads.

    Of an LMDB store. Nothing is written, and nobody is waited for.
    """
    url = store_url_of_option(store, config)
    users, exposed = store_users(url), exposed_files(url)
    if json:
        users_json = [
            {**user._asdict(), "since": None if user.since is None else utc_time(user.since)} for user in users
        ]
        exposed_json = [{"path": one.path, "mode": f"{one.mode:04o}", "remedy": one.remedy} for one in exposed]
        print_record({"users": users_json, "exposed": exposed_json})
        return
    lines = [_line(user) for user in users] or ["nobody has the store open"]
    lines += [f"open to others: {one.path} has mode {one.mode:04o}; run: {one.remedy}" for one in exposed]
    print_text("\n".join(map(printable, lines)))


def _line(user: StoreUser) -> str:
    process = f"process {user.process}" if user.process else "a process of another container"
    since = "" if user.since is None else f" since {utc_time(user.since)}"
    command = f": {user.command}" if user.command else ""
    dead = "" if user.is_alive else " (dead: its snapshot is let go of when the store is opened again)"
    return f"{process}, {user.activity}{since}{command}{dead}"
