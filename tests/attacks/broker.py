"""The attacks on the service broker: a place is an instance of its name, with what its platform keeps there."""

from typing import Any, Final

from msgspec import json

from keyplan.apps.patroni import BindingKey, Broker, Cell, InstanceState
from keyplan.apps.patroni.records import Binding, Credentials
from keyplan.apps.patroni.service import build
from keyplan.codec import Secret
from keyplan.store import Store
from tests.apps.patroni.osb_platform import SERVICE, SOLO
from tests.attacks.form import Answer, Attacker, Row
from tests.attacks.world import BANK, VALUE, World

__all__ = ["ROW"]

_SECONDS: Final = 3_600.0

READS: Final = (
    "operation:getInstance operation:describeInstance operation:listInstances operation:getBinding"
    " operation:getLastOperation operation:getLastBindingOperation"
)
WRITES: Final = "operation:provision operation:updateInstance operation:deprovision operation:bind operation:unbind"
IDS: Final[dict[str, Any]] = {"service_id": SERVICE, "plan_id": SOLO}


class BrokerRow(Row):
    """The bank is a platform; a cell has the raw keys, which are no way in; the shop may see the catalog."""

    def settle(self, world: World) -> None:
        store = Store(world.engine)
        broker = Broker(store)
        state = InstanceState(instance_id=BANK.keyspace, **IDS, service_instance_name=VALUE, parameters={"x": VALUE})
        broker.instances.put(BANK.keyspace, state)
        credentials = Credentials(username="u", password=Secret(VALUE))
        binding = Binding(**IDS, credentials=credentials, state="ready")
        broker.bindings.put(BindingKey(BANK.keyspace, "b"), binding)
        broker.cells.put("c", Cell(), lease=store.lease(_SECONDS, keep_alive=False))
        world.grants |= {
            "bank": {"read": READS, "write": WRITES},
            "reader": {"read": READS},
            "shop": {"read": "operation:getCatalog keyspace:ledger", "write": "application:bank"},
            "cell": dict.fromkeys(("read", "write"), "prefix:/service prefix:/_broker prefix:/"),
        }
        world.write_file()


ROW: Final = BrokerRow(
    "patroni-broker",
    {"patroni-broker": build},
    has_data=False,
    has_places=False,
    without={
        "list across": "instances are listed all together",
        "count": "a list is its own count",
        "watch": "there are no watches",
        "watch all": "there are no watches",
        "watch past": "there are no watches",
        "write beside": "a request is on one instance",
        "delete all": "a request deletes one instance",
        "lease take-up": "no operation names a lease",
        "lease revoke": "no operation names a lease",
        "compaction": "nobody can ask for it",
        "page token": "lists have no pages",
        "registry": "no operation names a key",
        "long": "ids have the bounds of keys, for everybody",
    },
)


def ask(attacker: Attacker, method: str, path: str, body: object = None) -> Answer:
    headers = {"X-Broker-API-Version": "2.17", "Content-Type": "application/json"}
    return attacker.ask(method, path, None if body is None else json.encode(body), **headers)


def path_of(attacker: Attacker, rest: str = "") -> str:
    return f"/v2/service_instances/{attacker.place.keyspace}{rest}"


@ROW.attack("read")
def read(attacker: Attacker) -> Answer:
    return ask(attacker, "GET", path_of(attacker))


@ROW.attack("list")
def list_place(attacker: Attacker) -> Answer:
    """See all that there is of it: its record, and the password of its binding."""
    paths = (
        f"/admin/service_instances/{attacker.place.keyspace}",
        *(
            path_of(attacker, rest)
            for rest in ("/service_bindings/b", "/last_operation", "/service_bindings/b/last_operation")
        ),
    )
    told = [ask(attacker, "GET", path) for path in paths]
    return Answer(told[0].status, "".join(one.text for one in told))


# Why without /admin/findings: they are for whoever may audit, and name instances.
@ROW.attack("list all")
def list_all(attacker: Attacker) -> Answer:
    told = [ask(attacker, "GET", path) for path in ("/admin/service_instances", "/admin/cells")]
    text = "".join(one.text for one in told)
    return Answer(told[0].status, text, is_reached=f'"{attacker.place.keyspace}"' in text)


@ROW.attack("write", writes=True)
def write(attacker: Attacker) -> Answer:
    path = path_of(attacker, "-more?accepts_incomplete=true")
    return ask(attacker, "PUT", path, {**IDS, "organization_guid": "o", "space_guid": "s"})


@ROW.attack("delete", writes=True)
def delete(attacker: Attacker) -> Answer:
    query = f"?accepts_incomplete=true&service_id={SERVICE}&plan_id={SOLO}"
    unbound = ask(attacker, "DELETE", path_of(attacker, f"/service_bindings/none{query}"))
    told = ask(attacker, "DELETE", path_of(attacker, query))
    return Answer(told.status, told.text + unbound.text)


@ROW.attack("condition", writes=True)
def condition(attacker: Attacker) -> Answer:
    """Make one of the name: that there is another one would be told."""
    path = path_of(attacker, "?accepts_incomplete=true")
    told = ask(attacker, "PUT", path, {**IDS, "organization_guid": "o", "space_guid": "s"})
    return told._replace(is_reached="other attributes" in told.text)


@ROW.attack("encodings")
def encodings(attacker: Attacker) -> Answer:
    name = attacker.place.keyspace
    found = (
        f"%{ord(name[0]):02X}{name[1:]}", f"./{name}", f"{name}/", f"x/../{name}", f"{name}%2F..%2F{name}", f"{name}%00",
        f"..%2f..%2fserviceinstances%2f{name}%2fstate", f"{name}?x=1", f"{name};a", f"{name}/service_bindings/%62",
    )  # fmt: skip
    told = [ask(attacker, "GET", f"/v2/service_instances/{one}") for one in found]
    assert all(one.status < 500 for one in told), list(zip(found, told, strict=True))
    return Answer(told[0].status, "".join(one.text for one in told))
