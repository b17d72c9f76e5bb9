"""What this machine has for running PostgreSQL: programs, Patroni, and the user that may run them: PostgreSQL refuses root."""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.node_users import InstanceUsers, user_entry
from keyplan.errors import InvalidInputError
from keyplan.files import FOLDER_MODE, make_folder

__all__ = ["NODE_USER_DEFAULT", "Host", "as_user", "find_host", "make_passage"]

NODE_USER_DEFAULT: Final = "postgres"
"""The user that Debian's packages make."""

_DEBIAN_PROGRAMS: Final = Path("/usr/lib/postgresql")
_VERSION: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")
_TOLD_VERSION: Final = re.compile(r"postgres \(PostgreSQL\) (9\.[0-9]+|[0-9]+)")
_NO_SITE: Final = "-S"
"""Why: the packages are ours, by PYTHONPATH. A machine's own would mix with them: an old OpenSSL breaks on new cryptography."""
_PROBE_SECONDS_MAX: Final = 60
_PROBE: Final = "import etcd, patroni, psycopg, sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Host:
    """How Patroni is started here. `user` is empty where it runs as whoever runs the cell."""

    programs: Path
    python: str
    script: Path
    user: str = ""
    has_instance_users: bool = False
    """Whether nodes have users of their own: then all users of the machine may pass through the folders above them."""
    version: str = ""
    """The major version of the programs, as `15`; empty: not known."""
    others: Path = _DEBIAN_PROGRAMS
    """Where programs of other versions are, each in `VERSION/bin`."""
    further: Mapping[str, Path] = field(default_factory=dict)
    """Where programs of versions are that were named, by version: they come before those of `others`."""
    bucket_keys: Mapping[str, str] = field(default_factory=dict)
    """By buckets of backups, where their keys are: a file, or `command:WORDS`."""

    def of(self, user: str) -> "Host":
        """Return the same for a node of this user; of the common one when it is empty."""
        return replace(self, user=user) if user else self

    @property
    def owner(self) -> tuple[int, int] | None:
        """The ids of the user and its group; None where nothing changes hands."""
        if not self.user:
            return None
        entry = user_entry(self.user)
        return entry.pw_uid, entry.pw_gid

    def programs_for(self, data_version: str) -> Path:
        """Return the programs for data that a version has made; for new data, of no version, those that were chosen.

        Raises InvalidInputError when this machine has none: PostgreSQL starts on data of its own major version alone.
        """
        if data_version in {"", self.version} or not self.version:
            return self.programs
        found = self.further.get(data_version) or self.others / data_version / "bin"
        if not (found / "postgres").exists():
            problem = (
                f"its data are of this version, and there are programs of {self.version}: install them beside these"
            )
            raise InvalidInputError(source=f"PostgreSQL {data_version}", problem=problem)
        return found

    @property
    def versions(self) -> list[str]:
        """The major versions that this machine has programs of: first that of new data, then the others, the newest first."""
        beside = {path.parent.name for path in _numbered(self.others) if (path / "postgres").exists()}
        others = ({*self.further} | beside) - {self.version}
        return [*filter(None, [self.version]), *sorted(others, key=_by_number, reverse=True)]

    def make_passage(self, folder: Path) -> None:
        """Make a folder that nodes lie below, as `make_passage` does."""
        make_passage(folder, self.owner, is_for_all=self.has_instance_users)

    def patroni(self, configuration: Path) -> list[str]:
        """The command that runs a node."""
        # Why the script: Patroni starts itself again by its path, and as a module it would find its own `collections` first.
        return as_user(self.user, self.python, _NO_SITE, str(self.script), str(configuration))

    @property
    def search_path(self) -> str:
        """Where a node's processes look for programs, as in PATH: an agent may have another one."""
        return f"{self.programs}:/usr/bin:/bin"

    def environment(self, home: Path) -> Mapping[str, str]:
        """All that a node's processes see of the environment: nothing of the agent's, which may hold secrets."""
        packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
        return {
            "HOME": str(home),
            "LC_ALL": "C",
            "PATH": self.search_path,
            "PYTHONPATH": packages,
            "PYTHONDONTWRITEBYTECODE": "1",
            # Trap: without a file it may read, libpq would take root's.
            "PGPASSFILE": str(home / "pgpass"),
        }

    def can_reach(self, folder: Path) -> bool:
        """Whether the user can enter the folder: every folder above it lets others through."""
        if not self.user:
            return True
        done = subprocess.run(  # noqa: S603  # Why: the words are this module's own.
            as_user(self.user, "/usr/bin/test", "-x", str(folder)), check=False, timeout=_PROBE_SECONDS_MAX
        )
        return done.returncode == 0


def make_passage(folder: Path, owner: tuple[int, int] | None, *, is_for_all: bool = False) -> None:
    """Make a folder, and the missing ones above it, that nodes lie below: their user may pass through, and nobody else.

    `owner` is the nodes' user and group; None where they run as whoever makes the folder. Where they run as several users,
    it `is_for_all`: everybody may pass through, and see nothing of what is in it. Folders that are there stay.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not os.path.isdir(each)]):
        make_folder(missing)
        if owner is not None:
            os.chown(missing, -1, owner[1])
            missing.chmod(FOLDER_MODE | stat.S_IXGRP | (stat.S_IXOTH if is_for_all else 0))


def as_user(user: str, *command: str) -> list[str]:
    """Return the command as it is run by another user; by this one when `user` is empty."""
    if not user:
        return list(command)
    # Why by number: a user's group need not have its name.
    group = user_entry(user).pw_gid
    # Trap: setpriv finds its command with root's rights still, which the command's children lack; so `env` is between.
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", "env", *command]


def _numbered(folder: Path) -> list[Path]:
    """Return the folders of programs that are below one by version. Why by number: what has none is for who asks for it."""
    return [path for path in folder.glob("*/bin") if _VERSION.fullmatch(path.parent.name)]


def _by_number(version: str) -> list[int]:
    # Why: 9.6 is older than 15.
    return [int(part) for part in version.split(".")]


def find_host(
    *,
    user: str = NODE_USER_DEFAULT,
    programs: Path | None = None,
    further: Sequence[Path] = (),
    instance_users: InstanceUsers | None = None,
    bucket_keys: Mapping[str, str] | None = None,
) -> Host:
    """Find what runs nodes on this machine. Only root changes to `user`; anybody else runs nodes as themselves.

    New clusters are of the version of `programs`; `further` are programs of others, in folders that are not Debian's.
    Raises InvalidInputError, which says what has to be installed; and for users of nodes that only root could change to.
    """
    names = () if instance_users is None else instance_users.names
    if names and os.geteuid() != 0:
        raise InvalidInputError(source="--instance-users", problem="only root runs nodes as other users")
    acting = user if os.geteuid() == 0 else ""
    if names and user_entry(user).pw_uid in {user_entry(name).pw_uid for name in names}:
        # Why: what runs as a node's own user is ended with the node, and here all other nodes may run as it.
        raise InvalidInputError(
            source="--instance-users", problem=f"{user} is the user of all other nodes: leave it out"
        )
    if programs is None:
        versions = sorted(_numbered(_DEBIAN_PROGRAMS), key=lambda path: _by_number(path.parent.name))
        found = shutil.which("postgres")
        programs = versions[-1] if versions else Path(found).parent if found else None
    if programs is None or not (programs / "postgres").exists():
        raise InvalidInputError(source="PostgreSQL", problem="is not installed: apt-get install postgresql-15")
    if importlib.util.find_spec("patroni") is None:
        raise InvalidInputError(source="Patroni", problem="is not installed: pip install 'keyplan[patroni-node]'")
    script = Path(sys.prefix) / "bin" / "patroni"
    if not script.exists():
        raise InvalidInputError(source=str(script), problem="Patroni's script is not beside this Python")
    if acting:
        _require_user(acting)
    # Why also as one of theirs: they are not in the group of `user`, and may not be let in where that is.
    python = _python(names[0] if names else acting)
    return Host(
        programs,
        python,
        script,
        acting,
        has_instance_users=bool(names),
        version=_version_of(programs),
        further={_version_of(folder): folder for folder in further},
        bucket_keys=bucket_keys or {},
    )


def _version_of(programs: Path) -> str:
    """Return the major version of PostgreSQL's programs. Raises InvalidInputError when they do not say it."""
    try:
        asked = subprocess.run(  # noqa: S603  # Why: the words are this module's own.
            [str(programs / "postgres"), "--version"],
            capture_output=True,
            text=True,
            check=False,
            env={"LC_ALL": "C"},
            timeout=_PROBE_SECONDS_MAX,
        )
    except OSError as error:
        problem = "cannot be run: name the folder that has PostgreSQL's programs"
        raise InvalidInputError(source=str(programs / "postgres"), problem=problem) from error
    found = _TOLD_VERSION.match(asked.stdout)
    if found is None:
        raise InvalidInputError(source=str(programs / "postgres"), problem="does not tell its version")
    return found[1]


def _require_user(user: str) -> None:
    if shutil.which("setpriv") is None:
        raise InvalidInputError(source="setpriv", problem="is not installed, and PostgreSQL refuses to run as root")
    if user_entry(user).pw_uid == 0:
        raise InvalidInputError(source=user, problem="PostgreSQL refuses to run as root")


def _python(user: str) -> str:
    """An interpreter that the user may run, of the version that Patroni is installed for."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    host = Host(Path("/usr/bin"), "", Path(), user)
    for candidate in (sys.executable, f"/usr/bin/python{version}", "/usr/bin/python3"):
        try:
            asked = subprocess.run(  # noqa: S603  # Why: the words are this module's own.
                as_user(user, candidate, _NO_SITE, "-c", _PROBE),
                capture_output=True,
                text=True,
                check=False,
                env=dict(host.environment(Path("/nonexistent"))),
                timeout=_PROBE_SECONDS_MAX,
            )
        except OSError:
            continue
        if asked.stdout.strip() == version:
            return candidate
    raise InvalidInputError(
        source=f"Python {version}", problem=f"with Patroni cannot be run by the user {user or 'who asks'}"
    )
