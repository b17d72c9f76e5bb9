"""One node of a cluster as a process of this machine: Patroni and the PostgreSQL that it runs, in a folder of its own.

    NODE/node.json     what it is, for the agent alone          NODE/patroni.yml   Patroni's, readable by its user alone
    NODE/process       id and start time of Patroni             NODE/home/         all that PostgreSQL writes
    NODE/log           what both say                       NODE/server.*      certificate and key, where it has one
    NODE/upgrade.*     what is run for an upgrade          NODE/pgbackrest.*  where its archive is, where it has one
    NODE/failures      how often Patroni ended by itself

A node lives on without the agent, and the next agent finds it here.
"""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from keyplan.apps.patroni.backups.archive_state import ArchiveLook, archive_state, led_timeline
from keyplan.apps.patroni.backups.node_files import is_archive_told, write_archive_files, write_source_files
from keyplan.apps.patroni.backups.records import Archive, ArchiveState
from keyplan.apps.patroni.certificates import CertificatePair
from keyplan.apps.patroni.node_config import (
    CERTIFICATE_FILE,
    KEY_FILE,
    NodePlan,
    patroni_configuration,
    written,
)
from keyplan.apps.patroni.node_failures import NodeFailures
from keyplan.apps.patroni.node_host import Host, make_passage
from keyplan.apps.patroni.node_log import failure_in
from keyplan.apps.patroni.node_users import owner_of, user_entry
from keyplan.apps.patroni.processes import Running, Spawned, processes_of_user
from keyplan.apps.patroni.records import Credentials
from keyplan.apps.patroni.upgrades.node_files import write_making_script
from keyplan.codec import JsonForm
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.files import make_folder, write_whole

__all__ = ["STOP_SECONDS_MAX", "FoundNodes", "Node", "found_nodes"]

_PLAN: Final[JsonForm[NodePlan]] = JsonForm(NodePlan)

STOP_SECONDS_MAX: Final = 30.0
"""How long Patroni may take to end PostgreSQL in order before both are killed."""

_RESTART_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""How long a node that ended by itself waits before it is started again; the last of them from then on."""

_ARCHIVE_SECONDS: Final = 2.0
"""Why: each look reads a folder, and what it finds new is a commit."""

_PATRONI_FILE: Final = "patroni.yml"

_REMOVED_FILE: Final = "removed.json"
"""What node.json is called once the node is being removed."""

_VERSION: Final = re.compile(r"9\.[0-9]{1,2}|[0-9]{2,3}")
_LOOK_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_POSTMASTER_BYTES_MAX: Final = 4_096
"""Why: eight lines, of which one is a path."""

_MEASURE_SECONDS: Final = 10.0
"""Why: each is a walk through its folder, and a write into the store."""
_FILES_MAX: Final = 500_000
"""Why: about a second's work. What has more files counts by the first of them."""

_STEADY_SECONDS: Final = 60.0
"""A node whose PostgreSQL takes connections, and that was started so long ago, has not failed at its start."""


class Node:
    """A node in its folder. Nothing here waits: `keep` and `end` are called again and again, and do the next step each time."""

    def __init__(self, folder: Path, plan: NodePlan, host: Host, clock: Clock = SYSTEM_CLOCK) -> None:
        self.folder = folder
        self.plan = plan
        self._host = host.of(plan.user)
        self._clock = clock
        self._process = Spawned(folder / "process")
        self._is_meant_to_run = False
        self._failures = NodeFailures(folder / "failures")
        self._started_at = clock.monotonic()
        self._may_start_at = clock.monotonic()
        self._ends_by = 0.0
        self._told_to_end: Running | None = None
        self.certificate: CertificatePair | None = None
        """What it was told to show by this agent; None before that."""
        self._data_bytes = 0
        self._measured_at = -_MEASURE_SECONDS
        self._archive_state: ArchiveState | None = None
        self._archive_looked_at = 0.0
        self.archive_look: ArchiveLook | None = None
        """What was found in its archive itself, since it leads on its timeline."""
        self._refused: tuple[Archive | None, float, InvalidInputError] | None = None
        self._archives_as: Credentials | None = None

    @property
    def host(self) -> Host:
        """What it is run by, as its own user."""
        return self._host

    @property
    def address(self) -> str:
        """The `host:port` of its PostgreSQL, whether it runs or not."""
        return self.plan.place

    @property
    def process(self) -> Running | None:
        """Patroni, while it runs."""
        return self._process.running

    @property
    def postmaster(self) -> Running | None:
        """PostgreSQL's first process, while it runs."""
        # Trap: the file lies in a folder that the cluster's superuser can write to; so the process must be what it should be.
        try:
            pid = int(self._postmaster_lines()[0])
        except (IndexError, ValueError):
            return None
        found = Running.of_pid(pid)
        is_ours = found is not None and found.user == owner_of(self._home)
        command = found.command if found is not None and is_ours else []
        return (
            found if command and Path(command[0]).name == "postgres" and str(self._home / "data") in command else None
        )

    @property
    def is_ready(self) -> bool:
        """Whether Patroni runs, and PostgreSQL takes connections, to read at least."""
        if self.process is None or self.postmaster is None:
            return False
        lines = self._postmaster_lines()
        # Why here: PostgreSQL itself keeps its state in the eighth line, for whoever waits for its start.
        return len(lines) > 7 and lines[7].strip() in {"ready", "standby"}

    def _postmaster_lines(self) -> list[str]:
        return self._lines_of("postmaster.pid")

    @property
    def data_version(self) -> str:
        """The major version that has made its data; empty while there are none."""
        lines = self._lines_of("PG_VERSION")
        # Why looked at: it becomes a part of a path, and whoever has the cluster may write there.
        return lines[0].strip() if lines and _VERSION.fullmatch(lines[0].strip()) else ""

    def _lines_of(self, name: str) -> list[str]:
        """Return the lines of a small file of PostgreSQL's; none where it is no such file."""
        # Trap: whoever has the cluster may put a pipe there, which is never opened, or a link to a file without an end.
        try:
            descriptor = os.open(self._home / "data" / name, _LOOK_FLAGS)
        except OSError:
            return []
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = os.read(descriptor, _POSTMASTER_BYTES_MAX) if is_file else b""
        finally:
            os.close(descriptor)
        return content.decode(errors="replace").splitlines()

    def data_bytes(self) -> int:
        """Return how large its data are, as of some seconds ago: what grows while they are copied from the leader."""
        now = self._clock.monotonic()
        if now - self._measured_at >= _MEASURE_SECONDS:
            self._measured_at, self._data_bytes = now, _bytes_below(self._home / "data")
        return self._data_bytes

    @property
    def archive_state(self) -> ArchiveState | None:
        """How its log is archived, as of a few seconds ago; None where it archives nowhere."""
        now, archive = self._clock.monotonic(), self.plan.archive
        if archive is None:
            return None
        former = self._archive_state
        if former is None or former.stanza != archive.stanza or now - self._archive_looked_at > _ARCHIVE_SECONDS:
            self._archive_looked_at = now
            self._archive_state = archive_state(self._home / "data", archive.stanza, former, self.archive_look)
        return self._archive_state

    @property
    def unknown_timeline(self) -> int:
        """The timeline that it leads on, where it is not known what was archived before it led; 0 where it is."""
        timeline, look, archive = led_timeline(self._home / "data"), self.archive_look, self.plan.archive
        is_known = look is not None and archive is not None and look[:2] == (archive.stanza, timeline)
        return 0 if timeline <= 1 or is_known else timeline

    def last_failure(self) -> str:
        """Return the last line of its log by which PostgreSQL said that it cannot go on; empty where none is near the end."""
        return failure_in(self.folder / "log")

    @property
    def failures(self) -> int:
        """How often Patroni has ended by itself here, one end after the other, without that the node has done its work between.

        That is so once PostgreSQL has taken connections for a while, with all of a backup's log replayed. An agent goes on with
        the count of the one before.
        """
        return self._failures.count

    @property
    def failure(self) -> str:
        """What its log said of the last of them, as `last_failure` tells it; empty where there was none."""
        return self._failures.reason

    @property
    def _is_settled(self) -> bool:
        # Trap: what is made of a backup is a standby that takes connections while it replays the log, and may fail after hours.
        return self.is_ready and not os.path.lexists(self._home / "data" / "recovery.signal")

    @property
    def _home(self) -> Path:
        return self.folder / "home"

    # ---- to be ----------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Write its folder and its configuration. Again is harmless."""
        self._make_folders()
        write_source_files(self.plan, self._host, self.folder)
        write_archive_files(self.plan, self._host, self.folder)
        write_making_script(self.plan, self._host, self.folder)
        self._write_configuration()
        self._note_plan()

    def _make_folders(self) -> None:
        owner = self._host.owner
        make_passage(self.folder, owner)
        make_folder(self._home)
        if owner is not None:
            # Why again: an attempt that failed may have made them for another user.
            os.chown(self.folder, -1, owner[1])
            os.chown(self._home, *owner)

    def _write_configuration(self) -> None:
        write_whole(self.folder / _PATRONI_FILE, self._configuration(), owner=self._host.owner)

    def _configuration(self) -> str:
        # Why by its data: the machine may have been given another version since, and a node's data stay what they are.
        programs = self._host.programs_for(self.data_version or self.plan.version)
        return written(patroni_configuration(self.plan, home=self._home, programs=programs))

    def _note_plan(self) -> None:
        # Invariant: written last. A folder with it is complete, and one without it holds no data.
        write_whole(self.folder / "node.json", _PLAN.encode(self.plan).decode())

    def show_certificate(self, pair: CertificatePair) -> None:
        """Let PostgreSQL show this certificate, and talk to nobody without TLS; a new certificate takes the old one's place.

        What runs is told by `prepare_anew`.
        """
        make_passage(self.folder, self._host.owner)
        for text, name in ((pair.certificate, CERTIFICATE_FILE), (pair.key, KEY_FILE)):
            # Why not in its home: whoever may write there could put a link in the place of what is given to them.
            write_whole(self.folder / name, text, owner=self._host.owner)
        self.plan.has_tls = True
        self.certificate = pair

    def change_to(self, plan: NodePlan) -> None:
        """Be as another plan says from now on: find its store elsewhere, or log in as others. Patroni, if it runs, reads it."""
        if plan == self.plan:
            return
        former, self.plan = self.plan, plan
        try:
            self.prepare_anew()
        except BaseException:
            self.plan = former  # Why: the next call tries again.
            raise

    def archive_to(self, archive: Archive | None) -> None:
        """Let it archive its log there from now on, as whom it logs in. Raises InvalidInputError where it could not.

        It then goes on as it was; called again, it is tried again after a while.
        """
        former = self.plan.archive
        if archive == former and self._is_archive_told:
            return
        if self._refused is not None and self._refused[0] == archive and self._clock.monotonic() < self._refused[1]:
            raise self._refused[2]
        self.plan.archive = archive
        try:
            write_archive_files(self.plan, self._host, self.folder)
            if archive != former:
                self.prepare_anew()
        except BaseException as error:
            self.plan.archive = former
            if isinstance(error, InvalidInputError):
                # Why not at once again: what it takes to look may be a program.
                self._refused = archive, self._clock.monotonic() + _ARCHIVE_SECONDS, error
            raise
        self._archives_as = self.plan.superuser

    @property
    def _is_archive_told(self) -> bool:
        if self._archives_as is None and is_archive_told(self.plan, self.folder):
            self._archives_as = self.plan.superuser  # an earlier agent has told it
        return self.plan.archive is None or self._archives_as == self.plan.superuser

    def prepare_anew(self) -> None:
        """Write its configuration again; Patroni, when it runs, reads it, and PostgreSQL its certificate.

        Why nothing of its archive: other logins and another certificate do not wait for where backups go. `archive_to` does.
        """
        self._make_folders()
        self._write_configuration()
        self._process.send(signal.SIGHUP)
        # Why after the signal: an agent that ends between the two leaves it to the next one, which finds the plan as it was.
        self._note_plan()

    def refresh(self) -> None:
        """Have Patroni read what this agent would tell it, where an earlier one has told it something else."""
        try:
            told = json.loads((self.folder / _PATRONI_FILE).read_bytes())
        except (OSError, ValueError):
            told = None
        # Why the values: their order is another one once the plan was read from its file.
        if told != json.loads(self._configuration()):
            self.prepare_anew()

    def keep(self) -> None:
        """See to it that it runs: start it, again too, later each time when it ends by itself. One that is halted is left."""
        if self.plan.halted:
            return
        now = self._clock.monotonic()
        if self._process.is_alive:
            self._is_meant_to_run = True
            # Why not by the time alone: a bootstrap that is at work for an hour and ends in vain has failed all the same.
            if self.failures and now - self._started_at > _STEADY_SECONDS and self._is_settled:
                self._failures.forget()
            self._may_start_at = now
            return
        if self._is_meant_to_run:
            self._is_meant_to_run = False
            self._failures.add(self.last_failure())
        if now < self._may_start_at or now < self._waits_until:
            return
        self._process.start(
            self._host.patroni(self.folder / _PATRONI_FILE),
            environment=self._host.environment(self._home),
            log=self.folder / "log",
        )
        self._is_meant_to_run = True
        self._ends_by = 0.0
        self._started_at = now

    @property
    def _waits_until(self) -> float:
        if self.failures == 0:
            return 0.0
        return self._started_at + _RESTART_SECONDS[min(self.failures, len(_RESTART_SECONDS)) - 1]

    def halt(self, *, is_halted: bool) -> None:
        """Let it stay ended from now on, for the next agent too; or run again."""
        if self.plan.halted is is_halted:
            return
        former, self.plan = self.plan, replace(self.plan, halted=is_halted)
        try:
            self._note_plan()
        except BaseException:
            self.plan = former  # Why: the next call tries again.
            raise

    # ---- not to be ------------------------------------------------------------------------------------------------------

    def end(self) -> bool:
        """Take the next step towards its end; return whether it has ended, PostgreSQL too."""
        self._is_meant_to_run = False
        now = self._clock.monotonic()
        patroni, postmaster = self.process, self.postmaster
        if patroni is None and postmaster is None:
            self._process.forget()
            return True
        if self._ends_by == 0.0:
            self._ends_by = now + STOP_SECONDS_MAX
        elif now >= self._ends_by:
            self.kill()
        # Why each process once: another than the first may be found, and whoever ends PostgreSQL in order needs no second word.
        if patroni is not None and patroni != self._told_to_end:
            patroni.send(signal.SIGTERM)
            self._told_to_end = patroni
        if patroni is None and postmaster is not None and now < self._ends_by:
            # Why fast: sessions are ended, and what was committed is on the disk.
            postmaster.send(signal.SIGINT)
        return False

    def kill(self) -> None:
        """End both with SIGKILL."""
        postmaster = self.postmaster
        for process in (self.process, postmaster):
            if process is not None:
                process.send(signal.SIGKILL)

    def remove(self) -> bool:
        """Remove its data, once it has ended; return whether they are gone. Not undone by anything."""
        if self.process is not None or self.postmaster is not None or self._has_strays():
            return False
        # Invariant: node.json is renamed first, so that no agent takes a folder with half its data for a node, and the next
        # one knows that its removal was ordered.
        with suppress(FileNotFoundError):
            (self.folder / "node.json").replace(self.folder / _REMOVED_FILE)
        _clear(self.folder)
        return not self.folder.exists()

    def _has_strays(self) -> bool:
        """End what else runs as the node's own user, as what a statement has started; return whether there was something.

        Invariant: nothing of a removed node is left to meet the next one that its user is given to. After an upgrade another
        node of its cluster has the user already, and what runs may be that one's.
        """
        beside = (home for home in self.folder.parent.glob("*/home") if home != self._home)
        owner = owner_of(self._home) if self.plan.user else None
        if owner is not None and owner in {owner_of(home) for home in beside}:
            return False
        # Trap: a home that was not given away yet is the agent's own.
        strays = [] if owner is None or owner in {os.geteuid(), 0} else list(processes_of_user(owner))
        for process in strays:
            process.send(signal.SIGKILL)
        return bool(strays)


def _bytes_below(folder: Path) -> int:
    """Return the sizes of the files below a folder together; links are not followed, and what goes meanwhile has none."""
    total, count, folders = 0, 0, [str(folder)]
    # Trap: what a cluster makes may be nested deeper than Python can call, and may have no end.
    while folders and count < _FILES_MAX:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _clear(folder: Path) -> None:
    """Remove a node's folder, the mark that its removal was ordered last; what is still written to stays for the next call."""
    # Why: PostgreSQL's other processes leave within moments of the first, and may write until then.
    with suppress(OSError):
        home = folder / "home"
        if home.exists():
            # Trap: what a cluster makes may be nested deeper than Python can follow.
            command = ["/bin/rm", "-rf", "--", str(home)]
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)  # noqa: S603  # Why: the folder is ours.
        if not home.exists():
            shutil.rmtree(folder)


class FoundNodes(NamedTuple):
    """What earlier agents left: nodes, running or not; and by name what is wrong with folders that are left as they are."""

    nodes: list[Node]
    damaged: dict[str, str]


def found_nodes(folder: Path, host: Host, clock: Clock = SYSTEM_CLOCK) -> FoundNodes:
    """Return the nodes in a folder of nodes. A removal that was begun goes on; what was left half made, without data, goes.

    What a folder with data and without a readable node.json stood for is not guessed: it is damaged.
    """
    found = FoundNodes([], {})
    for child in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not child.is_dir():
            continue
        try:
            plan = _PLAN.decode((child / "node.json").read_bytes())
            if plan.user:
                user_entry(plan.user)  # Why now: without its user it can neither run nor be looked after.
            found.nodes.append(Node(child, plan, host, clock))
        except FileNotFoundError:
            if (child / _REMOVED_FILE).exists() or not _has_data(child):
                _clear(child)
            else:
                found.damaged[child.name] = (
                    "node.json is missing, and there are data. Put it back, or move the folder away"
                )
        except InvalidInputError as error:
            found.damaged[child.name] = str(error)
        except (OSError, CorruptionError):
            found.damaged[child.name] = "node.json is no description of a node. Put it back, or move the folder away"
    return found


def _has_data(folder: Path) -> bool:
    try:
        return any((folder / "home").iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Why: what cannot be looked at may be data.
