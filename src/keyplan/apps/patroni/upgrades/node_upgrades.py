"""What a cell does on a node before an upgrade and after it: whether it can be made is tried, and statistics are made anew."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.backups.node_files import write_password_file
from keyplan.apps.patroni.backups.node_programs import TEXT_MAX, NodePrograms, TaskFailedError
from keyplan.apps.patroni.node_config import tls_parameters
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.upgrades.script import PROBLEM_WORD, Asked, Versions, checking_script, settings_text
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["analyze", "problem_of_upgrade"]

_SCRIPT_FILE: Final = "upgrade-check.sh"
_SETTINGS_FILE: Final = "upgrade-check.conf"
_MARGIN: Final = 0.1
_SPARE_BYTES: Final = 256 << 20
"""What is left on the disk. Why: PostgreSQL stops where it is full."""
_PATH: Final = re.compile(r"[\w ./@:+,=~-]+")
"""What `pg_upgrade` hands on to a shell unharmed."""


def problem_of_upgrade(programs: NodePrograms, version: str, parameters: Mapping[str, str], *, has_schema: bool) -> str:
    """Return what keeps a cluster from another version on this node's machine; empty: nothing.

    With `has_schema` the new version is given the schemas of all databases, as they are now. Raises TaskFailedError where it
    could not be found out.
    """
    node = programs.node
    try:
        versions = Versions(node.host.programs_for(node.data_version), node.host.programs_for(version), version)
    except InvalidInputError as error:
        return str(error)
    if problem := _shortage(node.folder / "home", node.data_bytes()) or _unfit(node.folder, versions):
        return problem
    plan, owner = node.plan, node.host.owner
    settings, script = node.folder / _SETTINGS_FILE, node.folder / _SCRIPT_FILE
    write_password_file(plan, node.host, node.folder)
    write_whole(settings, settings_text({**parameters, **plan.parameters, **_tls(node)}), owner=owner)
    text = checking_script(
        versions,
        Asked(plan.address, plan.port, plan.superuser.username),
        home=node.folder / "home",
        settings=settings,
        has_schema=has_schema,
        has_archive=plan.archive is not None,
    )
    write_whole(script, text, owner=owner)
    try:
        result = programs.run("/bin/sh", str(script))
    finally:
        script.unlink(missing_ok=True)
        settings.unlink(missing_ok=True)
    if result.code:
        raise TaskFailedError(result.problem)
    told = result.output.decode(errors="replace").splitlines()
    return "; ".join(line.removeprefix(PROBLEM_WORD) for line in told if line.startswith(PROBLEM_WORD))[:TEXT_MAX]


def analyze(programs: NodePrograms) -> None:
    """Make the statistics of all databases anew, coarse ones first. Raises TaskFailedError."""
    node = programs.node
    plan, folder = node.plan, node.host.programs_for(node.data_version)
    write_password_file(plan, node.host, node.folder)
    result = programs.run(
        *(str(folder / "vacuumdb"), "--all", "--analyze-in-stages", "--no-password", "--maintenance-db=postgres"),
        *("-h", plan.address, "-p", str(plan.port), "-U", plan.superuser.username),
    )
    if result.code:
        raise TaskFailedError(f"vacuumdb: {result.problem}")


def _shortage(home: Path, data_bytes: int) -> str:
    found = os.statvfs(home)
    free, needed = found.f_bavail * found.f_frsize, int(data_bytes * (1 + _MARGIN)) + _SPARE_BYTES
    if free >= needed:
        return ""
    return f"there is no room for another copy of its data: {needed} bytes are needed, and {free} are free"


def _unfit(folder: Path, versions: Versions) -> str:
    for path in (folder, versions.former_programs, versions.programs):
        if _PATH.fullmatch(str(path)) is None:
            return f"pg_upgrade cannot be given {path}: it has characters that are a shell's own"
    needed = (
        *((versions.programs, name) for name in ("initdb", "pg_ctl", "pg_dumpall", "pg_upgrade", "psql", "vacuumdb")),
        *((versions.former_programs, name) for name in ("pg_controldata", "pg_ctl", "psql")),
    )
    missing = [str(folder / name) for folder, name in needed if not (folder / name).exists()]
    return f"{', '.join(missing)}: not there; install the whole version, its clients too" if missing else ""


def _tls(node: Node) -> dict[str, str]:
    """Return what is set of TLS. Why tried: programs may have been built without it."""
    return tls_parameters(node.folder) if node.plan.has_tls else {"ssl": "off"}
