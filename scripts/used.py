"""Prints which Python, engines, servers and input files a test run uses, so that nothing is left out silently."""

import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version_of(distribution: str) -> str:
    """The installed version, or the word `missing`."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def lmdb_version() -> str:
    """The LMDB release that py-lmdb carries; its own version says nothing about it."""
    try:
        lmdb = importlib.import_module("lmdb")
    except ImportError:
        return "missing"
    return ".".join(str(number) for number in lmdb.version())


def server_version(program: str, *arguments: str) -> str:
    """The last word of the first line that a program says about its version, or why there is none."""
    if shutil.which(program) is None:
        return "missing: its tests are skipped"
    said = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)  # noqa: S603  # Why: the words are below.
    words = said.stdout.split("\n", 1)[0].split()
    return words[-1] if words else "of unknown version"


def postgresql_version() -> str:
    """The major versions in Debian's place, which `initdb` need not be on the path for."""
    found = sorted(path.parent.parent.name for path in Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return ", ".join(found) or "missing: its tests are skipped"


def said_version(program: str, option: str, place: int) -> str:
    """The version, which a program says as a word of its first line, counted from 0."""
    if shutil.which(program) is None:
        return "missing: its tests are skipped"
    said = subprocess.run([program, option], capture_output=True, text=True, check=False)  # noqa: S603
    words = said.stdout.split()
    return words[place] if len(words) > place else "of unknown version"


def shared_data() -> Path | None:
    """The folder with real input files: KEYPLAN_SHARED, else `shared` beside the repository; None when neither is there."""
    folder = Path(os.environ.get("KEYPLAN_SHARED") or ROOT.parent / "shared")
    return folder.resolve() if folder.is_dir() else None


def lines() -> list[str]:
    """One line for each thing that a run may or may not have."""
    found = shared_data()
    etcd_driver = f"grpcio {version_of('grpcio')}, protobuf {version_of('protobuf')}"
    return [
        f"python   {platform.python_version()} on {platform.system()} {platform.machine()}, msgspec {version_of('msgspec')}",
        f"engines  memory; lmdb (LMDB {lmdb_version()}, py-lmdb {version_of('lmdb')}); etcd ({etcd_driver})",
        f"servers  etcd {server_version('etcd', '--version')}, etcdctl {server_version('etcdctl', 'version')}",
        f"         PostgreSQL {postgresql_version()}, Patroni {version_of('patroni')}",
        f"         HAProxy {said_version('haproxy', '-v', 2)}, pgBackRest {said_version('pgbackrest', 'version', 1)}",
        "inputs   real input files are found" if found else "inputs   no shared input files: their tests are skipped",
    ]


if __name__ == "__main__":
    print("\n".join(lines()))
