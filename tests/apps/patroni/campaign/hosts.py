"""Machines of the campaign's own: a network and a mount namespace each, on one bridge; and what can be done to them.

Everything here is called inside namespaces that `main` has made: the bridge, the mounts and the processes are in those, and the
system removes them with the last process.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.processes import state_of
from tests.servers.patroni import until

__all__ = ["CENTRE", "Host", "make_centre", "why_no_hosts"]

CENTRE: Final = "10.77.0.1"
"""Where the store, the broker, the router and the clients are."""
_PROGRAMS: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "haproxy": "haproxy",
}
_BRIDGE: Final = "centre"
_SECONDS_MAX: Final = 30.0
_TABLE: Final = "inet campaign"
_RULES: Final = (
    f"add table {_TABLE}",
    f"add chain {_TABLE} arriving {{ type filter hook input priority 0 ; }}",
    f"add chain {_TABLE} leaving {{ type filter hook output priority 0 ; }}",
)


def why_no_hosts() -> str | None:
    """Return why such machines cannot be made here, None when they can."""
    if os.geteuid() != 0:
        return "needs root, to make network and mount namespaces"
    missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        return f"needs {', '.join(missing)}: apt-get install {' '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", "ip link add left type veth peer name right && nft add table inet t"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"this machine permits no virtual network: {tried.stderr.strip()}"


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def make_centre() -> None:
    """Make the bridge, with the address of the centre."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", _BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{CENTRE}/24", "dev", _BRIDGE)
    _run("ip", "link", "set", _BRIDGE, "up")


class Host:
    """One machine, with a disk of its own. `number` is from 1 on."""

    def __init__(self, number: int, disk: Path, *, disk_bytes: int, group: int) -> None:
        self.name = f"cell{number}"
        self.address = f"10.77.0.{10 + number}"
        self.disk = disk
        self._link = f"link{number}"
        disk.mkdir(parents=True)
        options = f"size={disk_bytes},mode=0710,gid={group}"
        _run("mount", "-t", "tmpfs", "-o", options, "campaign", str(disk))
        self._holder = subprocess.Popen(["unshare", "--net", "--mount", "sleep", "infinity"], start_new_session=True)
        until(lambda: self._comm() == "sleep", _SECONDS_MAX, lambda: "the namespaces are not made")
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        _run("ip", "link", "set", self._link, "master", _BRIDGE, "up")
        for words in ("link set lo up", "link set eth0 up", f"address add {self.address}/24 dev eth0"):
            _run(*self.within("ip", *words.split()))
        for rule in _RULES:
            self._firewall(rule)

    def _comm(self) -> str:
        with suppress(OSError):
            return Path(f"/proc/{self._holder.pid}/comm").read_text().strip()
        return ""

    def within(self, *command: str) -> list[str]:
        """Return the command as it is run on this machine; it becomes the command, and keeps its process id."""
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--mount", *command]

    def replace_file(self, path: Path, by: Path) -> None:
        """Have this machine, and no other, see another file in the place of one."""
        _run(*self.within("mount", "--bind", str(by), str(path)))

    # ---- its processes ---------------------------------------------------------------------------------------------------

    def processes(self, *, but: Collection[int] = ()) -> list[int]:
        """The ids of what runs here, but for some."""
        own = os.readlink(f"/proc/{self._holder.pid}/ns/net")
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) not in {self._holder.pid, *but}:
                with suppress(OSError):  # it has ended
                    if os.readlink(entry / "ns" / "net") == own and state_of(int(entry.name)) not in {"Z", "X"}:
                        found.append(int(entry.name))
        return found

    def kill_all(self) -> None:
        """End everything that runs here, as a loss of power would."""
        until(lambda: not _sent(self.processes(), signal.SIGKILL), _SECONDS_MAX, lambda: "something cannot be killed")

    def remove(self) -> None:
        """End everything, and what holds the namespaces."""
        self.kill_all()
        self._holder.kill()
        self._holder.wait()

    @contextmanager
    def stopped(self, chosen: Callable[[], Sequence[int]]) -> Iterator[None]:
        """Halt processes with SIGSTOP for the length of a block; those that come meanwhile too."""
        halted: list[int] = []

        def all_stand() -> bool:
            moving = [pid for pid in chosen() if state_of(pid) not in {"T", "Z", "X", ""}]
            halted.extend(pid for pid in moving if pid not in halted)
            return not _sent(moving, signal.SIGSTOP)

        try:
            until(all_stand, _SECONDS_MAX, lambda: "something does not stand still")
            yield
        finally:
            _sent(reversed(halted), signal.SIGCONT)

    # ---- its network and its disk ----------------------------------------------------------------------------------------

    def _firewall(self, rule: str) -> None:
        _run(*self.within("nft", *rule.split()))

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Take its network away, for the length of a block."""
        _run("ip", "link", "set", self._link, "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", self._link, "up")

    @contextmanager
    def cut_from(self, others: Collection[str], ports: Collection[int] = ()) -> Iterator[None]:
        """Drop all that comes from addresses and goes there, of some ports or of all; connections stall, nobody is told."""
        wanted = f" tcp dport {{ {', '.join(map(str, ports))} }}" if ports else ""
        answered = wanted.replace("dport", "sport")
        addresses = f"{{ {', '.join(others)} }}"
        try:
            self._firewall(f"add rule {_TABLE} leaving ip daddr {addresses}{wanted} drop")
            self._firewall(f"add rule {_TABLE} arriving ip saddr {addresses}{answered} drop")
            yield
        finally:
            self._firewall(f"flush table {_TABLE}")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill its disk to the last byte, for the length of a block."""
        filler = self.disk / "filler"
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                began = time.monotonic()
                while time.monotonic() - began < _SECONDS_MAX:
                    file.write(bytes(1 << 20))
            with suppress(OSError), filler.open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(512))
            yield
        finally:
            filler.unlink(missing_ok=True)


def _sent(pids: Collection[int] | Iterator[int], number: signal.Signals) -> bool:
    """Send a signal to all; return whether there were any."""
    some = False
    for pid in pids:
        some = True
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return some
