"""pgBackRest that stands still on a cell is ended: what waits for a folder that does not answer would wait for days.

Whoever has begun it is meant: a task of the cell's, Patroni at its bootstrap, PostgreSQL that archives or recovers. Each then
finds that it has failed, as where pgBackRest itself gives up.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from keyplan.apps.patroni.backups.archive import ARCHIVE_FILE, SOURCE_FILE
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_log import add_failure
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.node_users import owner_of
from keyplan.apps.patroni.processes import Running, processes_of_program
from keyplan.engine import Clock

__all__ = ["StillPrograms"]

_LOOK_SECONDS: Final = 30.0
_STILL_SECONDS_MAX: Final = 600.0
"""Why so long: a bucket that does not answer is tried four times by pgBackRest itself, a minute each."""
_BACKUP_SECONDS_MAX: Final = 2_700.0
"""Why longer: before a backup PostgreSQL makes a checkpoint, for which pgBackRest waits half an hour."""


class _Found(NamedTuple):
    """A program of a node's that no other one of them has begun, and what it was asked for."""

    program: Running
    node: Node
    action: str

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

    def look(self, nodes: Iterable[Node]) -> None:
        """End what has read and written nothing for too long, and say so in the log of its node."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        before, self._seen = self._seen, {}
        for found in _programs(nodes):
            tree = list(found.program.tree())
            transferred = frozenset((one, told) for one in tree if (told := one.transferred) is not None)
            seen = before.get(found.program)
            if seen is None or seen.transferred != transferred:
                seen = _Seen(transferred, now)
            self._seen[found.program] = seen
            # Why not without figures: a machine that does not tell them says nothing of what stands still.
            if transferred and now - seen.since >= found.seconds_max:
                _end(found, tree, now - seen.since)


def _programs(nodes: Iterable[Node]) -> Iterator[_Found]:
    """Yield what works for nodes now."""
    by_word = {f"--config={node.folder / name}": node for node in nodes for name in (ARCHIVE_FILE, SOURCE_FILE)}
    ours: list[_Found] = []
    for process in processes_of_program("pgbackrest") if by_word else ():
        words = process.command
        node = next((by_word[word] for word in words if word in by_word), None)
        # Trap: whoever has a cluster may call a process anything. Its user is the node's.
        if node is not None and process.user == _user_of(node):
            ours.append(_Found(process, node, next((word for word in words[1:] if not word.startswith("-")), "")))
    begun = {below for found in ours for below in found.program.tree() if below != found.program}
    return (found for found in ours if found.program not in begun)


def _user_of(node: Node) -> int:
    owner = owner_of(node.folder / "home")
    return os.geteuid() if owner is None else owner


def _end(found: _Found, tree: Iterable[Running], seconds: float) -> None:
    text = f"pgbackrest {found.action} has read and written nothing for {seconds:.0f} seconds, and is ended"
    LOGGER.error("node %s: %s: see whether its repository answers", found.node.plan.node, text)
    add_failure(found.node.folder / "log", text)
    for process in tree:
        # Why no request: what waits for a folder hears none.
        process.send(signal.SIGKILL)
