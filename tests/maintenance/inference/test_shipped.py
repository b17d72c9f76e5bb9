"""Stores that the shipped layouts wrote are inferred without the layouts, and what is inferred explains what was held out."""

import pytest

import keyplan
from keyplan.layout import bind_layout
from keyplan.maintenance import AuditReport, Inference, audit, infer
from keyplan.store import Store
from tests.maintenance.inference.shipped_stores import FILLINGS

REGISTRY = b"\x00kp"

# Below its root, each template with its codecs, and how values are stored; `leased` behind what hangs on leases.
EXPECTED = {
    "cloudchamber": (
        "/CloudChamber/V0.1/",
        {
            "rack/{rack:text}/blades/{blade:decimal}": "json",
            "rack/{rack:text}/pdu": "json",
            "rack/{rack:text}/tor": "json",
            "index/instances/by-blade/{blade:text}/{number:decimal}/{name:text}/{name_2:text}": "empty",
            "racks/{rack:text}": "json",
            "users/{user:text}": "json",
            "workload/{workload:text}/instance/{instance:text}/actual": "json",
            "workload/{workload:text}/instance/{instance:text}/target": "json",
            "workload/{workload:text}/instances/{instance:text}": "json",
            "workloads/{workload:text}": "json",
        },
    ),
    "runm": (
        "runm/metadata/",
        {
            "definitions/by-uuid/{uuid:hex_uuid}": "raw",
            "objects/by-uuid/{uuid:hex_uuid}": "raw",
            "partitions/by-name/{name:text}": "element",
            "partitions/by-uuid/{uuid:hex_uuid}": "raw",
            "partitions/{partition:hex_uuid}/definitions/by-type/{type:text}/default": "element",
            # A provider's name is unique in its partition and stands one level higher: its type is a literal.
            "partitions/{partition:hex_uuid}/objects/by-type/runm.provider/by-name/{name:text}": "element",
            "partitions/{partition:hex_uuid}/objects/by-type/{type:text(reserved='runm.provider')}/by-project/{project:text}"
            "/by-name/{name:text}": "element",
            "partitions/{partition:hex_uuid}/properties/by-type/{type:text}/{name:text}/{name_2:percent}"
            "/{uuid:hex_uuid}": "empty",
            "partitions/{partition:hex_uuid}/tags/{tag:text}/{uuid:hex_uuid}": "empty",
            "types/object/{object:text}": "raw",
            "types/runm.provider/{runm_provider:text}": "raw",
        },
    ),
    "patroni": (
        "/",
        {
            "_broker/addresses/{name:text(exclude='/:')}:{number:decimal}/{name_2:text}/{name_3:text}": "empty leased",
            "_broker/nodes/{node:text}": "utf8",
            "_broker/ports/{port:decimal}": "utf8",
            "postgresql-patroni/{name:text(exclude='/:')}:{name_2:text(exclude='/:')}:{number:decimal}": "utf8 leased",
            "routing/allocation/{allocation:text}": "element",
            "routing/nextport": "element",
            "service/{service:text}/config": "json",
            "service/{service:text}/history": "json",
            "service/{service:text}/initialize": "element",
            "service/{service:text}/leader": "utf8 leased",
            "service/{service:text}/members/{member:text}": "json leased",
            "service/{service:text}/status": "json",
            "service/{service:text}/sync": "json",
            "serviceinstances/{serviceinstance:text}/nodes/{node:text}/backend": "utf8",
            "serviceinstances/{serviceinstance:text}/state": "json",
        },
    ),
    "registry": (
        "\\x00kp",
        {
            "\\x00header": "json",
            "\\x01{name:text(exclude='')}\\x00": "json",
            "\\x02{number:u8}": "json",
            "\\x03{name:text(exclude='')}\\x00": "raw",
            "\\x04{number:u64}": "json",
            "\\x09cfg": "json",
            "\\x0a{number:u64}": "json",
            "\\x0eaudit": "json",
        },
    ),
    "hepnos datasets": ("", {"{path.level:u8}{path:path}": "element"}),
    "hepnos runs": ("", {"{uuid:raw_uuid}{number:u64}": "empty"}),
    "hepnos subruns": ("", {"{uuid:raw_uuid}{number:u64}{number_2:u64}": "empty"}),
    "hepnos events": ("", {"{uuid:raw_uuid}{number:u64}{number_2:u64}{number_3:u64}": "empty"}),
    "hepnos products": (
        "",
        {
            "{uuid:raw_uuid}{number:u64}{number_2:u64}{number_3:u64}{name:text(exclude='#')}#{name_2:text_tail}": "raw",
        },
    ),
}

SUGGESTED = {
    "cloudchamber": {("index_instances_by_blade", "index", "workload_instance_actual")},
    "runm": {
        ("partitions_by_name", "unique", "partitions_by_uuid"),
        ("partitions_definitions_by_type_default", "unique", "definitions_by_uuid"),
        ("partitions_objects_by_type_by_project_by_name", "unique", "objects_by_uuid"),
        ("partitions_objects_by_type_runm_provider_by_name", "unique", "objects_by_uuid"),
        ("partitions_properties_by_type", "index", "objects_by_uuid"),
        ("partitions_tags", "index", "objects_by_uuid"),
    },
    "patroni": {
        ("broker_addresses", "index", "service_members"),
        ("broker_nodes", "unique", "serviceinstances_nodes_backend"),
        ("broker_ports", "unique", "routing_allocation"),
        ("routing_allocation", "unique", "broker_ports"),
        ("routing_nextport", "counter", None),
        ("service_leader", "unique", "broker_nodes"),
    },
}


def prefix_of(name: str) -> bytes:
    return REGISTRY if name == "registry" else b""


def inferred(store: Store, name: str) -> Inference:
    with store.engine.snapshot() as snapshot:
        return infer(snapshot, prefix=prefix_of(name))


def audited(store: Store, name: str, found: Inference) -> AuditReport:
    with store.engine.snapshot() as snapshot:
        return audit(snapshot, bind_layout(found.spec), prefix=prefix_of(name))


@pytest.mark.parametrize("name", FILLINGS)
def test_a_store_of_a_shipped_layout_is_inferred(name: str) -> None:
    with keyplan.open("memory:") as store, keyplan.open("memory:") as held_out:
        FILLINGS[name](store, range(40))
        FILLINGS[name](held_out, range(40, 60))
        found = inferred(store, name)
        items = {
            item["template"]: item["value"]["form"] + (" leased" if item["lease"] else "")
            for item in found.description["items"]
        }
        assert (found.description["root"], items) == EXPECTED[name]
        assert (found.left_out, found.errors) == (0, ())
        if name in SUGGESTED:
            assert {(hint.table, hint.kind, hint.of) for hint in found.suggestions} == SUGGESTED[name]
        for part in (store, held_out):
            report = audited(part, name, found)
            assert report.keys > 10
            assert (report.percent, report.departures) == (100.0, ())


def test_the_same_store_gives_the_same_layout_and_a_larger_one_the_same_templates() -> None:
    layouts = []
    for numbers in (range(40), range(40), range(300)):
        with keyplan.open("memory:") as store:
            FILLINGS["cloudchamber"](store, numbers)
            layouts.append(inferred(store, "cloudchamber"))
    assert layouts[0] == layouts[1]
    templates = [[item["template"] for item in layout.description["items"]] for layout in layouts]
    assert templates[0] == templates[2]
