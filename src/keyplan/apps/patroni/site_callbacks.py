"""Callbacks by which a site keeps what clusters are made of: programs that the broker runs, with JSON in and out.

They keep the *data about* clusters (ids, users, port), by which an instance that was lost is made again with its users and its
port; and they copy one cluster's backups for another, which is made from them. How the backups themselves come to be, and how a
node is made from one (`keyplan patroni cell --restore`), is the site's own.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from keyplan.apps.patroni.records import Credentials, InstanceState
from keyplan.codec import JsonForm
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = [
    "Callback",
    "CallbackFailedError",
    "Callbacks",
    "ClusterData",
    "SiteCallbacks",
    "cluster_data_of",
    "read_callbacks",
]

SECONDS_MAX: Final = 120.0
"""How long one callback may take. Why: an operation's step has 300 s, and platforms wait for that."""


class Callback(Struct, frozen=True, forbid_unknown_fields=True):
    """A program and its arguments."""

    cmd: str
    args: list[str] = field(default_factory=list)


class Callbacks(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file of the setting `callbacks`. Clusters are made from backups below `base_uri`, each at its instance's id."""

    clusterdata_backup: Callback
    clusterdata_restore: Callback
    clusterdata_find_by_name: Callback | None = None
    backups_copy: Callback | None = None
    base_uri: str = ""


class ClusterData(Struct, kw_only=True):
    """What is kept of an instance beside its database."""

    instance_id: str
    service_id: str
    plan_id: str
    organization_guid: str = ""
    space_guid: str = ""
    service_instance_name: str = ""
    allocated_port: int | None = None
    admin_credentials: Credentials = field(default_factory=Credentials)
    superuser_credentials: Credentials = field(default_factory=Credentials)
    replication_credentials: Credentials = field(default_factory=Credentials)


_DATA: Final[JsonForm[ClusterData]] = JsonForm(ClusterData)


class CallbackFailedError(Exception):
    """A callback did not do what it should. The text names it, and holds nothing of what it said."""


def cluster_data_of(state: InstanceState) -> ClusterData:
    """Return what is kept of an instance, its passwords in clear. Raises SecretKeyError, CorruptionError."""
    data = ClusterData(**{name: getattr(state, name) for name in ClusterData.__struct_fields__})
    data.admin_credentials = data.admin_credentials.opened()
    data.superuser_credentials = data.superuser_credentials.opened()
    data.replication_credentials = data.replication_credentials.opened()
    return data


def read_callbacks(path: Path) -> Callbacks:
    """Read the callbacks from a JSON file: `{"clusterdata_backup": {"cmd": "...", "args": []}, ...}`.

    Raises InvalidInputError.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Callbacks)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInputError(source=str(path), problem=f"the callbacks cannot be read: {error}") from error


class SiteCallbacks:
    """The callbacks of a site. Each call blocks until its program has ended, and raises CallbackFailedError."""

    def __init__(self, callbacks: Callbacks, *, seconds_max: float = SECONDS_MAX) -> None:
        self._callbacks = callbacks
        self._seconds_max = seconds_max

    def place(self, instance: str) -> str:
        """Where the backups of an instance are."""
        return f"{self._callbacks.base_uri.rstrip('/')}/{instance}"

    def save(self, data: ClusterData) -> None:
        """Keep the data of an instance; read them back, and compare."""
        self._run("clusterdata_backup", self._callbacks.clusterdata_backup, _DATA.encode(data))
        if self.restore(data.instance_id) != data:
            raise CallbackFailedError("clusterdata_restore does not give back what clusterdata_backup was given")

    def restore(self, instance: str) -> ClusterData | None:
        """Return the data of an instance, None when nothing is kept of it."""
        return self._data("clusterdata_restore", self._callbacks.clusterdata_restore, instance.encode())

    def find(self, space: str, name: str) -> ClusterData | None:
        """Return the data of the instance of that name in a space, None when there is none."""
        asked = msgspec.json.encode({"space_guid": space, "service_instance_name": name})
        return self._data("clusterdata_find_by_name", self._callbacks.clusterdata_find_by_name, asked)

    def copy(self, source: str, target: str) -> None:
        """Copy the backups of one instance, for another to be made from."""
        asked = {
            "from_instance_id": source,
            "to_instance_id": target,
            "from_uri": self.place(source),
            "to_uri": self.place(target),
        }
        self._run("backups_copy", self._callbacks.backups_copy, msgspec.json.encode(asked))

    def _data(self, name: str, callback: Callback | None, given: bytes) -> ClusterData | None:
        printed = self._run(name, callback, given)
        if not printed.strip():
            return None
        try:
            return _DATA.decode(printed)
        except CorruptionError:
            # Why not the cause: its text may hold a part of what was read, and that are passwords.
            raise CallbackFailedError(f"{name} prints no data of a cluster") from None

    def _run(self, name: str, callback: Callback | None, given: bytes) -> bytes:
        if callback is None:
            raise CallbackFailedError(f"the site has no callback {name}")
        # Why without: tokens are the server's, and no business of a program that copies files.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KEYPLAN_")}
        try:
            done = subprocess.run(  # noqa: S603  # Why: the site's own words, from its own file.
                [callback.cmd, *callback.args],
                input=given,
                stdout=subprocess.PIPE,
                check=False,
                env=environment,
                timeout=self._seconds_max,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CallbackFailedError(f"{name} failed: {type(error).__name__}") from error
        if done.returncode != 0:
            raise CallbackFailedError(f"{name} ended with {done.returncode}")
        return done.stdout
