"""Stores as the original writes them: key by key and byte by byte, with what it lets through and what its races leave.

Written from what was observed of the original's service, without any code of keyplan but the messages.
"""

from random import Random
from typing import Any, Final

from keyplan.apps.runm.wire_table import messages

__all__ = ["KINDS", "PROJECT_KINDS", "PROVIDER_KINDS", "GoStore", "hyphenated", "odd_store"]

KINDS: Final = {
    "runm.provider": "A provider of some resources, e.g. a compute node or an SR-IOV NIC",
    "runm.provider_group": "A group of providers",
    "runm.image": "A bootable bunch of bits",
    "runm.machine": "Created by a user, a machine consumes compute resources from one of more providers",
}
PROJECT_KINDS: Final = frozenset({"runm.image", "runm.machine"})
PROVIDER_KINDS: Final = ("runm.compute", "runm.storage.block")


class GoStore:
    """The keys below the root. Each method does what the original's call of that name does to them."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}

    def start(self) -> None:
        for code, description in KINDS.items():
            message = messages.ObjectType(code=code, description=description, scope=int(code in PROJECT_KINDS))
            self.keys[f"types/object/{code}"] = message.SerializeToString()
        for code in PROVIDER_KINDS:
            self.keys[f"types/runm.provider/{code}"] = messages.ProviderType(code=code).SerializeToString()
        self.definition_set("", "0" * 31 + "d")

    def partition_create(self, name: str, uuid: str) -> bool:
        uuid = normalised(uuid)
        return self._create(
            {
                f"partitions/by-name/{name}": uuid.encode(),
                f"partitions/by-uuid/{uuid}": messages.Partition(uuid=uuid, name=name).SerializeToString(),
            }
        )

    def object_create(self, **fields: Any) -> bool:
        """Everything but partition and UUID is stored as it comes."""
        record = messages.Object(**fields)
        record.partition, record.uuid = normalised(record.partition), normalised(record.uuid)
        return self._create(
            {name_key(record): record.uuid.encode(), f"objects/by-uuid/{record.uuid}": record.SerializeToString()}
        )

    def late_delete(self, record: Any) -> None:
        """A delete that read the record before somebody made its name anew: it takes the new one's entry away."""
        self.keys.pop(name_key(record), None)

    def definition_set(self, partition: str, uuid: str, **fields: Any) -> None:
        """The partition stands in the key as the request spells it, and the record of before stays."""
        pointer = "definitions/by-type/runm.provider/default"
        self.keys[f"partitions/{partition}/{pointer}" if partition else pointer] = uuid.encode()
        definition = messages.ObjectDefinition(uuid=uuid, schema="{}", **fields)
        self.keys[f"definitions/by-uuid/{uuid}"] = definition.SerializeToString()

    def records(self, kind: str) -> list[Any]:
        """Every stored message of a kind, "objects" or "partitions": all raw records, one after the other."""
        make = {"objects": messages.Object, "partitions": messages.Partition}[kind]
        return [
            make.FromString(value) for key, value in self.keys.items() if key.startswith(f"{kind}/by-uuid/") and value
        ]

    def _create(self, writes: dict[str, bytes]) -> bool:
        is_new = not self.keys.keys() & writes.keys()
        if is_new:
            self.keys |= writes
        return is_new


def normalised(uuid: str) -> str:
    return uuid.replace("-", "").lower()


def name_key(record: Any) -> str:
    scope = f"by-project/{record.project}/" if record.object_type in PROJECT_KINDS else ""
    return f"partitions/{record.partition}/objects/by-type/{record.object_type}/{scope}by-name/{record.name}"


def hyphenated(uuid: str) -> str:
    return "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))


def odd_store(random: Random) -> GoStore:
    """A store of the original's with a few partitions and objects: a third of them sound, the others odd in several ways."""
    store = GoStore()
    store.start()
    is_odd = random.random() < 2 / 3

    def among(sound: list[str], odd: list[str]) -> str:
        return random.choice(sound + odd if is_odd else sound)

    uuids = [f"{random.getrandbits(128):032x}" for _ in range(3)]
    for name, uuid in zip(("part0", among(["ab"], ["a/b"]), among(["cd"], ["c%2Fd"])), uuids, strict=True):
        store.partition_create(name, uuid)
    if is_odd and random.random() < 0.3:
        store.partition_create("odd", "Not-A-UUID")
    partitions = [one.uuid for one in store.records("partitions")]
    tenant = f"{random.getrandbits(128):032x}"
    tenants = [hyphenated(tenant).upper(), ""]
    for _ in range(random.randrange(1, 14)):
        kind = random.choice(sorted(KINDS))
        has_project = kind in PROJECT_KINDS or (is_odd and random.random() < 0.15)
        made = {
            "partition": random.choice(partitions),
            "object_type": kind,
            "project": among(["p", "p", tenant], ["q/r", *tenants]) if has_project else "",
            "uuid": among([f"{random.getrandbits(128):032x}"] * 9, ["No-UUID-at-all"]),
            "name": among(["n", "n", "nn", "\u00fc"], ["n/n", "n%2Fn", "n\tn", "", "x/by-name/y", "z" * 300]),
            "tags": [among(["t", "tt"], ["t/t", ""]) for _ in range(random.randrange(3))],
            "properties": [
                {"key": random.choice(["k", "kk", "k/k"]), "value": among(["v", "vv"], ["v/v", ""])}
                for _ in range(random.randrange(3))
            ],
        }
        if store.object_create(**made) and is_odd and random.random() < 0.15:
            store.late_delete(messages.Object(**made))
    for partition in (uuids[0], *((hyphenated(uuids[0]), uuids[1].upper()) if is_odd else ())):
        if random.random() < 0.3:
            permissions = [{"permission": random.choice([0, 3]), "project": among(["p"], tenants)}]
            named = [{"key": "k", "permissions": permissions}]
            store.definition_set(partition, f"{random.getrandbits(128):032x}", property_permissions=named)
    if is_odd and random.random() < 0.3:
        store.keys["partitions/"] = b""
    return store
