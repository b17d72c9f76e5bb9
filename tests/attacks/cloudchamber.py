"""The attacks on CloudChamber's REST API by principals: a place is a workload of its name. Its log-in has tests of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from keyplan.apps.cloudchamber import CloudChamber, Workload
from keyplan.apps.cloudchamber.service import build
from keyplan.server import PolicyAccess
from keyplan.store import Store
from tests.attacks.form import Answer, Attacker, Row
from tests.attacks.world import BANK, VALUE, World
from tests.servers.gateways import GatewayServer

__all__ = ["ROW"]

READS: Final = "operation:getWorkloads operation:getWorkloadsName operation:getWatch"
WRITES: Final = "operation:postWorkloadsName operation:putWorkloadsName operation:deleteWorkloadsName"
SETTINGS: Final = "webServer:\n  systemAccount: admin\n  systemAccountPassword: adminPassword\n"


class CloudChamberRow(Row):
    """The bank is granted what concerns workloads; a cell the raw keys, which are no way in; the shop other operations."""

    def settle(self, world: World) -> None:
        CloudChamber(Store(world.engine)).workloads.put(BANK.keyspace, Workload(name=VALUE))
        world.grants |= {
            "bank": {"read": READS, "write": WRITES},
            "reader": {"read": READS},
            "shop": {"read": "operation:getRacks keyspace:ledger", "write": "operation:putStepper application:bank"},
            "cell": dict.fromkeys(("read", "write"), "prefix:/CloudChamber/"),
        }
        world.write_file()

    def served(self, world: World) -> AbstractContextManager[Any]:
        return _served(world)


@contextmanager
def _served(world: World) -> Iterator[GatewayServer]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cloudchamber.yaml").write_text(SETTINGS)
        settings, access = {"cloudchamber.config": folder}, PolicyAccess.of_file(world.file)
        with GatewayServer(world.engine, access=access, builders=ROW.services, settings=settings) as server:
            yield server


ROW: Final = CloudChamberRow(
    "cloudchamber",
    {"cloudchamber": build},
    has_data=False,
    has_places=False,
    without={
        "list": "workloads are listed all together",
        "list across": "workloads are listed all together",
        "count": "a list is its own count",
        "watch": "who waits is told of all records",
        "write beside": "a request changes one record",
        "delete all": "a request deletes one record",
        "lease take-up": "records hang on no leases",
        "lease revoke": "records hang on no leases",
        "compaction": "nobody can ask for it",
        "page token": "lists have no pages",
        "registry": "no operation names a key",
        "long": "names have the bounds of keys, for everybody",
    },
)


def path_of(attacker: Attacker) -> str:
    return f"/api/workloads/{attacker.place.keyspace}"


@ROW.attack("read")
def read(attacker: Attacker) -> Answer:
    return attacker.ask("GET", path_of(attacker))


@ROW.attack("list all")
def list_all(attacker: Attacker) -> Answer:
    told = attacker.ask("GET", "/api/workloads")
    return told._replace(is_reached=f'"{attacker.place.keyspace}"' in told.text)


def changes_after(attacker: Attacker, revision: int) -> Answer:
    told = attacker.ask("GET", f"/api/watch?revision={revision}")
    return told._replace(is_reached=f"workloads/{attacker.place.keyspace}" in told.text)


@ROW.attack("watch all")
def watch_all(attacker: Attacker) -> Answer:
    with attacker.world.engine.snapshot() as state:
        revision = state.revision
    if attacker.place is BANK:
        CloudChamber(Store(attacker.world.engine)).workloads.put(BANK.keyspace, Workload(name=VALUE))
    return changes_after(attacker, revision)


@ROW.attack("watch past")
def watch_past(attacker: Attacker) -> Answer:
    return changes_after(attacker, 1)


@ROW.attack("write", writes=True)
def write(attacker: Attacker) -> Answer:
    with attacker.world.engine.snapshot():
        found = CloudChamber(Store(attacker.world.engine)).workloads.versioned(attacker.place.keyspace)
    # Why told of the revision: it is no secret that must hold.
    match = {"If-Match": f'"{found.revision if found else 1}"', "Content-Type": "application/json"}
    return attacker.ask("PUT", path_of(attacker), b'{"affinity":"Weak_Affinity"}', **match)


@ROW.attack("delete", writes=True)
def delete(attacker: Attacker) -> Answer:
    return attacker.ask("DELETE", path_of(attacker))


@ROW.attack("condition", writes=True)
def condition(attacker: Attacker) -> Answer:
    """Make one of the name: that there is one already would be told."""
    told = attacker.ask("POST", path_of(attacker), b"{}", **{"Content-Type": "application/json"})
    return told._replace(is_reached="already exists" in told.text)


@ROW.attack("encodings")
def encodings(attacker: Attacker) -> Answer:
    name = attacker.place.keyspace
    paths = (
        f"/API/Workloads/{name}", f"/api/workloads/%{ord(name[0]):02X}{name[1:]}", f"/api/workloads/{name.upper()}",
        f"/api/workloads/{name}/", f"/api/workloads/./{name}", f"/api/racks/../workloads/{name}",
        f"/api/racks/%2E%2E%2Fworkloads%2F{name}", f"/api//workloads/{name}", f"/api/workloads/{name}%00",
        f"/api/workloads/{name}/differences", f"/api/workloads/{name}/instances",
    )  # fmt: skip
    told = [attacker.ask("GET", path) for path in paths]
    assert all(one.status < 500 for one in told), list(zip(paths, told, strict=True))
    return Answer(told[0].status, "".join(one.text for one in told))
