"""pgBackRest that stands still on a cell is ended: what waits for a folder that does not answer would wait for days.

Whoever has begun it is meant: a task of the cell's, Patroni at its bootstrap, PostgreSQL that archives or recovers. Each then
finds that it has failed, as where pgBackRest itself gives up.
"""

import os
import re
import signal
from collections.abc import Iterable
from typing import Final, NamedTuple

from keyplan.apps.patroni.backups.archive import ARCHIVE_FILE, SOURCE_FILE
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_log import add_failure
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.node_users import owner_of
from keyplan.apps.patroni.processes import ProcessTrees, Running, processes_of_program
from keyplan.engine import Clock

__all__ = ["StillPrograms"]

_LOOK_SECONDS: Final = 30.0
_STILL_SECONDS_MAX: Final = 600.0
"""Why so long: a bucket that does not answer is tried four times by pgBackRest itself, a minute each."""
_BACKUP_SECONDS_MAX: Final = 2_700.0
"""Why longer: before a backup PostgreSQL makes a checkpoint, for which pgBackRest waits half an hour."""
_CONFIGURED: Final = "--config="
_ACTION: Final = re.compile(r"[a-z]+(?:-[a-z]+)*(?::async)?")
"""Why so narrow: it is told in logs, and whoever has a cluster may call a process anything."""


class _Found(NamedTuple):
    """A program of a node's that no other one of them has begun, and what it was asked for."""

    program: Running
    node: Node
    action: str
    tree: tuple[Running, ...]
    """It, and what it has begun."""

    @property
    def seconds_max(self) -> float:
        """How long it may stand still."""
        return _BACKUP_SECONDS_MAX if self.action == "backup" else _STILL_SECONDS_MAX


class _Seen(NamedTuple):
    """What a program and those below it have read and written, and since when it is no more."""

    transferred: frozenset[tuple[Running, int]]
    since: float


class StillPrograms:
    """The programs of one cell's nodes. Call `look` again and again: nothing in it waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._look_at = 0.0
        self._seen: dict[Running, _Seen] = {}
        self._ended: set[Running] = set()

    def look(self, nodes: Iterable[Node]) -> None:
        """End what has read and written nothing for too long, and say so in the log of its node. Raises OSError."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        found_now = _programs(nodes)
        there = {found.program for found in found_now}
        self._seen = {program: seen for program, seen in self._seen.items() if program in there}
        # Why remembered: what waits for a disk may not even be killed before that answers, and is told of once.
        self._ended &= there
        for found in found_now:
            transferred = frozenset((one, told) for one in found.tree if (told := one.transferred) is not None)
            seen = self._seen.get(found.program)
            if seen is None or seen.transferred != transferred:
                seen = self._seen[found.program] = _Seen(transferred, now)
            # Why not without figures: a machine that does not tell them says nothing of what stands still.
            if transferred and now - seen.since >= found.seconds_max and found.program not in self._ended:
                self._ended.add(found.program)
                _end(found, now - seen.since)


def _programs(nodes: Iterable[Node]) -> list[_Found]:
    """Return what works for nodes now."""
    by_file = _by_file(nodes)
    ours: list[tuple[Running, Node, str]] = []
    for process in processes_of_program("pgbackrest") if by_file else ():
        words = process.command
        files = (os.path.normpath(word.removeprefix(_CONFIGURED)) for word in words if word.startswith(_CONFIGURED))
        node = next((by_file[file] for file in files if file in by_file), None)
        # Trap: whoever has a cluster may call a process anything. Its user is the node's.
        if node is not None and process.user == _user_of(node):
            ours.append((process, node, next((word for word in words[1:] if _ACTION.fullmatch(word)), "")))
    if not ours:
        return []
    trees = ProcessTrees()
    found = [_Found(process, node, action, tuple(trees.tree(process))) for process, node, action in ours]
    begun = {below for one in found for below in one.tree[1:]}
    return [one for one in found if one.program not in begun]


def _by_file(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return nodes by the files that their pgBackRest is told of, as it may be told of them.

    Why twice: PostgreSQL's command that archives begins where its data really are, and goes up from there.
    """
    return {
        os.path.join(folder, name): node
        for node in nodes
        for folder in (os.path.normpath(node.folder), os.path.realpath(node.folder))
        for name in (ARCHIVE_FILE, SOURCE_FILE)
    }


def _user_of(node: Node) -> int:
    owner = owner_of(node.folder / "home")
    return os.geteuid() if owner is None else owner


def _end(found: _Found, seconds: float) -> None:
    text = f"pgbackrest {found.action} has read and written nothing for {seconds:.0f} seconds, and is ended"
    LOGGER.error("node %s: %s: see whether its repository answers", found.node.plan.node, text)
    add_failure(found.node.folder / "log", text)
    for process in found.tree:
        # Why no request: what waits for a folder hears none.
        process.send(signal.SIGKILL)
