"""An access file with principals of every kind, and a service that it decides for."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from keyplan.access import AccessFile
from keyplan.apps.runm.deployment import Deployment, Rulings
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.start import ensure_started
from keyplan.engine import SYSTEM_CLOCK
from keyplan.store import Store
from tests.apps.runm.client import EAST, WEST, Client

__all__ = ["PRINCIPALS", "Guarded", "access_text", "guarded", "token_of"]

_ALL_OF_RUNM: Final = ("operation:runm.*",)

PRINCIPALS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "acme": {
        "labels": ("user:ann", "project:p1", "partition:us-west.example.com", "role:member"),
        "read": _ALL_OF_RUNM,
        "write": _ALL_OF_RUNM,
    },
    "rival": {
        "labels": ("project:p2", f"partition:{EAST}"),
        "read": _ALL_OF_RUNM,
        "write": _ALL_OF_RUNM,
        "administer": _ALL_OF_RUNM,
    },
    "root": {
        "labels": ("project:*", "partition:*"),
        "read": _ALL_OF_RUNM,
        "write": _ALL_OF_RUNM,
        "administer": _ALL_OF_RUNM,
    },
    "reader": {"read": ("everything",)},
    "auditor": {"labels": ("project:*", "partition:*"), "audit": ("everything",)},
    "founder": {
        "labels": ("project:p1", "partition:*"),
        "administer": ("operation:runm.partition_create",),
        "read": ("operation:runm.partition_find",),
    },
    "tenants": {
        "labels": ("user:t", "project:p1", "project:p2", f"partition:{WEST}", "role:a", "role:b"),
        "read": _ALL_OF_RUNM,
        "write": _ALL_OF_RUNM,
    },
}
"""What each is and may. Two tenants, an administrator, and those of whom each has one kind of grant."""


def token_of(name: str) -> str:
    """The token of a principal of the file."""
    return f"kp_{name}".ljust(43, "0")


def access_text(principals: Mapping[str, Mapping[str, tuple[str, ...]]] = PRINCIPALS) -> str:
    """The text of an access file."""
    lines = []
    for name, lists in principals.items():
        lines += [f"[principals.{name}]", f'tokens = ["sha256:{sha256(token_of(name).encode()).hexdigest()}"]']
        lines += [f"{key} = {json.dumps(words)}" for key, words in lists.items()]
    return "\n".join(lines) + "\n"


class ClockAhead:
    """The system's clock, which can be put forward."""

    seconds = 0.0

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self.seconds

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall()

    def epoch(self) -> bytes:
        return SYSTEM_CLOCK.epoch()


@dataclass
class Guarded:
    """A running service with an access file; `clock` is what the file is looked at by, and what guesses come back by."""

    store: Store
    deployment: Deployment
    address: str
    path: Path
    stack: ExitStack
    clock: ClockAhead

    def by(self, name: str | None, service: str = "RunmMetadata") -> Client:
        """A client with a principal's token; None: without a token."""
        client = Client(self.address, service, token="" if name is None else token_of(name))
        self.stack.callback(client.close)
        return client

    def change(self, principals: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
        """Write the access file anew, and let the service see it."""
        self.path.write_text(access_text(principals))
        self.clock.seconds += 60


@contextmanager
def guarded(store: Store, tmp_path: Path, rulings: Rulings | None = None) -> Iterator[Guarded]:
    """Serve a store with the two partitions of the document, with the access file of PRINCIPALS."""
    path = tmp_path / "access.toml"
    path.touch(mode=0o600)
    path.write_text(access_text())
    clock = ClockAhead()
    deployment = Deployment(store, rulings=rulings or Rulings(), clock=clock)
    ensure_started(deployment)
    with ExitStack() as stack:
        found = Guarded(store, deployment, "", path, stack, clock)
        access = AccessFile(path, monotonic=clock.monotonic)
        running = stack.enter_context(serving(deployment, Listening(("127.0.0.1:0",)), access=access))
        (found.address,) = running.addresses
        root = found.by("root")
        for uuid, name in ((EAST, "us-east.example.com"), (WEST, "us-west.example.com")):
            root.partition_create(partition={"uuid": uuid, "name": name})
        yield found
