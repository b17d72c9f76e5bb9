"""Definitions and permissions over real gRPC: acceptance cases 32 to 34, and what permissions do to calls."""

import json
from typing import Any

import pytest

from keyplan.apps.runm.definition_document import compiled_definition
from keyplan.apps.runm.deployment import Rulings
from keyplan.apps.runm.documents import read_document
from keyplan.apps.runm.json_schema import checked_schema, violations
from keyplan.apps.runm.refusal import RefusedError
from keyplan.store import Store
from tests.apps.runm.client import EAST, PROJECT, SW, WEST, refused
from tests.apps.runm.conftest import Served, served
from tests.apps.runm.golden import GOLDEN

COMPUTE = "runm.compute"


def set_provider(running: Served, schema: str, uuid: str = "", **scope: str) -> Any:
    definition = {"uuid": uuid, "schema": schema}
    return running.client.provider_definition_set(SW, object_definition=definition, **scope).object_definition


def test_the_default_definition_is_there_from_the_start_and_the_others_are_not(west: Served) -> None:
    client = west.client
    default = client.provider_definition_get_global_default(SW)
    schema = json.loads(default.schema)
    assert schema["required"] == ["partition", "provider_type"]
    assert schema["properties"]["properties"]["patternProperties"] == {"^[a-zA-Z0-9]*$": {"type": "string"}}
    assert not default.property_permissions
    with refused("NOT_FOUND"):
        client.provider_definition_get_by_partition(SW, partition_uuid=WEST)
    with refused("NOT_FOUND"):
        client.provider_definition_get_by_type(SW, provider_type_code=COMPUTE)
    with refused("NOT_FOUND"):
        client.provider_definition_get_by_partition_and_type(SW, partition_uuid=WEST, provider_type_code=COMPUTE)


def test_the_gets_and_the_set_check_their_arguments_in_order(west: Served) -> None:
    client = west.client
    both = client.provider_definition_get_by_partition_and_type
    for call, arguments, text in (
        (client.provider_definition_get_by_partition, {}, "partition UUID is required."),
        (client.provider_definition_get_by_partition, {"partition_uuid": "x"}, "Partition x not found"),
        (client.provider_definition_get_by_type, {}, "provider type code is required."),
        (client.provider_definition_get_by_type, {"provider_type_code": "x"}, "Provider type x not found"),
        (both, {}, "partition UUID is required."),
        (both, {"partition_uuid": WEST}, "provider type code is required."),
        (client.provider_definition_set, {"partition_uuid": "x"}, "Partition x not found"),
        (client.provider_definition_set, {}, "object definition is required."),
    ):
        with refused("FAILED_PRECONDITION", text):
            call(SW, **arguments)


def test_a_definition_is_stored_as_the_document_says_and_leaves_no_orphan(west: Served) -> None:
    uuid = "f3823e51dbfd420f807f3a1daac674f0"
    permissions = [{"key": "architecture", "permissions": [{"project": "proj0", "permission": 3}, {"permission": 1}]}]
    definition = {"uuid": uuid, "schema": "{}", "property_permissions": permissions}
    hyphenated = "D79706E0-1FBD-4E48-AAE8-9209061CDB71"
    west.client.provider_definition_set(
        SW, partition_uuid=hyphenated, provider_type_code=COMPUTE, object_definition=definition
    )
    dump = west.dump()
    pointer = f"partitions/{WEST}/definitions/by-type/runm.provider/by-type/runm.compute"
    assert dump[pointer] == uuid.encode()
    assert dump[GOLDEN["H12"][0]] == GOLDEN["H12"][1]
    for schema in ('{"title": "a"}', '{"title": "b"}'):
        again = set_provider(west, schema, partition_uuid=WEST, provider_type_code=COMPUTE)
        assert (again.uuid, again.schema) == (uuid, schema)
    other = "1" * 32
    assert set_provider(west, "{}", other, partition_uuid=WEST, provider_type_code=COMPUTE).uuid == other
    definitions = [key for key in west.dump() if key.startswith("definitions/by-uuid/")]
    assert len(definitions) == 2
    assert f"definitions/by-uuid/{other}" in definitions


def test_a_definition_of_another_scope_is_not_taken_over(west: Served) -> None:
    mine = set_provider(west, '{"title": "mine"}', partition_uuid=WEST)
    before = west.dump()
    with refused("ALREADY_EXISTS"):
        set_provider(west, "{}", mine.uuid, partition_uuid=EAST)
    assert west.dump() == before


@pytest.mark.parametrize(
    "definition",
    [
        {"schema": "not json"},
        {"schema": ""},
        {"schema": '{"type": 7}'},
        {"schema": '{"properties": {"a": {"pattern": "("}}}'},
        {"schema": '{"properties": {"a": {"pattern": "(?=a)b"}}}'},
        {"schema": '{"patternProperties": {"(a)\\\\1": {}}}'},
        {"schema": '{"pattern": "' + "a" * 1001 + '"}'},
        {"schema": "[" * 100_000},
        {"schema": "{}", "uuid": "no uuid"},
        {"schema": "{}", "property_permissions": [{"key": "a", "permissions": [{"permission": 4}]}]},
        {"schema": "{}", "property_permissions": [{"key": "a"}, {"key": "a"}]},
        {"schema": "{}", "property_permissions": [{}]},
    ],
)
def test_a_definition_that_cannot_be_is_refused(west: Served, definition: dict[str, Any]) -> None:
    before = west.dump()
    with refused("INVALID_ARGUMENT"):
        west.client.provider_definition_set(SW, object_definition=definition)
    assert west.dump() == before


def test_the_most_explicit_definition_holds_and_the_next_when_it_goes(west: Served) -> None:
    """AC-33: partition and type, partition, type, global."""
    partition_type = {"partition_uuid": WEST, "object_type_code": "runm.provider", "sub_type_code": COMPUTE}
    partition = {**partition_type, "sub_type_code": ""}
    sub_type = {**partition_type, "partition_uuid": ""}
    everything = {**sub_type, "sub_type_code": ""}
    levels = [partition_type, partition, sub_type, everything]
    for number, scope in enumerate(levels):
        definition = {"schema": f'{{"title": "{number}"}}'}
        west.client.definition_set(SW, scope=scope, object_definition=definition)
    for number, scope in enumerate(levels):
        found = west.client.definition_get(SW, scope=partition_type, resolve=True)
        assert json.loads(found.object_definition.schema) == {"title": str(number)}
        assert found.scope == type(found.scope)(**scope)
        assert west.client.definition_delete(SW, scope=scope).num_deleted == 1
        with refused("NOT_FOUND"):
            west.client.definition_get(SW, scope=scope)
        assert west.client.definition_delete(SW, scope=scope).num_deleted == 0
    implicit = west.client.definition_get(SW, scope={"object_type_code": "runm.image"}, resolve=True)
    assert json.loads(implicit.object_definition.schema) == {"type": "object"}
    assert not any(key.startswith("definitions/") for key in west.dump())


# ---- documents compiled ------------------------------------------------------------------------------------------------

DOCUMENT = r"""
property_definitions:
  vendor: {required: true, schema: {type: string, enum: [netapp, scaleio]}}
  location.row: {schema: {type: [integer, number], minimum: 1, maximum: 64, multiple_of: 2}}
  serial: {schema: {type: string, min_length: 3, maxLength: 5, pattern: '^"\d+"$'}}
  contact: {schema: {type: string, format: email}}
  rack: {schema: {type: integer}}
  free: {}
  secret:
    permissions:
      - {role: admin, permission: rw}
      - {permission: ""}
"""

FITTING = {"vendor": "netapp", "location.row": 4, "serial": '"1"', "contact": "a@b.example", "rack": 7, "other": "text"}

VIOLATING: dict[str, Any] = {
    "vendor": "else",
    "location.row": 65,
    "serial": "123",
    "contact": "nobody",
    "rack": "seven",
    "free": [1],
    "other": 1,
    "not.known": "x",
}


def provider(properties: dict[str, Any]) -> dict[str, Any]:
    return {"partition": "p", "provider_type": "t", "name": "n", "properties": properties}


def test_a_documents_constraints_are_those_of_its_schema() -> None:
    """AC-34."""
    definition = compiled_definition(read_document(DOCUMENT), PROJECT)
    schema = checked_schema(definition.schema)
    assert violations(schema, provider(FITTING)) == []
    for key, value in [*VIOLATING.items(), ("location.row", 0), ("location.row", 3), ("serial", '"1234"')]:
        wrong = violations(schema, provider({**FITTING, key: value}))
        assert wrong
        assert all(f"/properties/{key}:" in line or key in line for line in wrong)
    without = {key: value for key, value in FITTING.items() if key != "vendor"}
    assert violations(schema, provider(without)) == ["/properties: missing vendor"]


def test_an_expression_that_keeps_other_engines_busy_takes_no_time() -> None:
    """Python's own engine would not be done with 60 characters in a lifetime; here there are 50,000."""
    schema = checked_schema('{"properties": {"a": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(b|b)*$": {}}}')
    assert violations(schema, {"a": "a" * 50_000 + "!", "b" * 50_000: 1}) == ['/a: does not fit pattern "^(a+)+$"']


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [(r"\u00e9$", "caf\u00e9", "cafe"), (r"a\/b", "a/b", "ab"), ("^b$", "b", "b\n"), (r"^\d$", "7", "\u0667")],
)
def test_an_expression_means_what_json_schemas_dialect_says(pattern: str, fitting: str, other: str) -> None:
    schema = checked_schema(json.dumps({"pattern": pattern}))
    assert violations(schema, fitting) == []
    assert violations(schema, other) != []


def test_references_that_multiply_are_given_up() -> None:
    """Thirty definitions, each of which refers twice to the next: a thousand million looks."""
    again = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(30)}
    schema = checked_schema(json.dumps({"definitions": {**again, "d30": {}}, "$ref": "#/definitions/d0"}))
    with pytest.raises(RefusedError, match="without end"):
        violations(schema, "x")


def test_a_documents_permissions_are_kept_and_the_sessions_project_may_write() -> None:
    definition = compiled_definition(read_document(DOCUMENT), PROJECT)
    entries = {
        one.key: [(entry.project, entry.role, entry.permission) for entry in one.permissions]
        for one in definition.property_permissions
    }
    assert entries["vendor"] == [(PROJECT, "", 3), ("", "", 1)]
    assert entries["secret"] == [("", "admin", 3), ("", "", 0)]
    reading = "property_definitions: {a: {permissions: [{permission: r}]}}"
    (only,) = compiled_definition(read_document(reading), "p").property_permissions
    assert [(one.project, one.permission) for one in only.permissions] == [("", 1), ("p", 3)]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (
            "a: {permissions: [{permission: x}]}",
            "unknown permission string x. valid choices are [ r rw w] (property a)",
        ),
        (
            "a: {schema: {type: text}}",
            "invalid type 'text'. valid types are [string integer number boolean] (property a)",
        ),
        ("a: {schema: {typ: string}}", None),
        ("a: {schema: {format: postcode}}", None),
        ("a: {schema: {pattern: '('}}", None),
        ("a: {schema: {minimum: x}}", None),
        ("a: {schema: {min_length: -1}}", None),
        ("a: {schema: {enum: []}}", None),
        ("a: {required: 1}", None),
        ("a: [1]", None),
    ],
)
def test_a_document_that_cannot_be_compiled_is_refused(document: str, text: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        compiled_definition(read_document(f"property_definitions: {{{document}}}"), PROJECT)
    if text is not None:
        assert caught.value.text == text


@pytest.mark.parametrize("document", ["a: &a [*a]", "- 1", "a: b: c", "{", "\x00", "1: 2", "x" * (2 << 20)])
def test_what_is_no_document_is_refused(document: str) -> None:
    with pytest.raises(RefusedError):
        read_document(document)


# ---- enforced and evaluated --------------------------------------------------------------------------------------------

IMAGE = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "name": "i"}
SCOPE = {"object_type_code": "runm.image"}


def typed(**properties: Any) -> str:
    return json.dumps({"properties": {"properties": {"properties": properties, "additionalProperties": False}}})


def test_properties_are_held_against_definitions_when_that_is_asked_for(lmdb_store: Store) -> None:
    with served(lmdb_store, Rulings(has_enforced_definitions=True)) as running:
        west = running.with_partitions()
        anything = [{"key": "any.thing", "value": "x"}]
        west.client.object_create(SW, object={**IMAGE, "name": "before", "properties": anything})
        schema = typed(cores={"type": "integer", "minimum": 1}, live={"type": "boolean"})
        west.client.definition_set(SW, scope=SCOPE, object_definition={"schema": schema})
        good = [{"key": "cores", "value": "8"}, {"key": "live", "value": "true"}]
        uuid = west.client.object_create(SW, object={**IMAGE, "properties": good}).object.uuid
        for bad in ([{"key": "cores", "value": "0"}], [{"key": "cores", "value": "many"}], anything):
            with refused("INVALID_ARGUMENT"):
                west.client.object_create(SW, object={**IMAGE, "name": "bad", "properties": bad})
            with refused("INVALID_ARGUMENT"):
                west.client.object_modify(SW, uuid=uuid, set_properties=bad)
        unruled = {**IMAGE, "object_type": "runm.provider", "project": "", "properties": anything}
        west.client.object_create(SW, object=unruled)  # the default that nobody set is not held against anybody


def test_a_change_of_a_provider_is_held_against_the_definition_of_its_type(lmdb_store: Store) -> None:
    with served(lmdb_store, Rulings(has_enforced_definitions=True)) as running:
        west = running.with_partitions()
        given = {"partition": WEST, "provider_type": COMPUTE, "name": "n", "properties": {"cores": "8"}}
        uuid = west.api.provider_create(SW, payload=json.dumps(given).encode()).provider.uuid
        scope = {"object_type_code": "runm.provider", "sub_type_code": COMPUTE}
        west.client.definition_set(SW, scope=scope, object_definition={"schema": typed(cores={"type": "integer"})})
        west.client.object_modify(SW, uuid=uuid, set_properties=[{"key": "cores", "value": "9"}])
        for bad in ({"key": "cores", "value": "many"}, {"key": "other", "value": "9"}):
            with refused("INVALID_ARGUMENT"):
                west.client.object_modify(SW, uuid=uuid, set_properties=[bad])


@pytest.fixture
def guarded(west: Served) -> Served:
    """Images whose property `secret` only the role admin may read and write, and `fixed` nobody may write but project p2."""
    permissions = [
        {"key": "secret", "permissions": [{"permission": 0}, {"role": "admin", "permission": 3}]},
        {"key": "fixed", "permissions": [{"permission": 1}, {"project": "p2", "permission": 3}]},
    ]
    definition = {"schema": "{}", "property_permissions": permissions}
    west.client.definition_set(SW, scope=SCOPE, object_definition=definition)
    secret = [{"key": "secret", "value": "s3"}, {"key": "open", "value": "o"}]
    west.client.object_create({**SW, "roles": ["admin"]}, object={**IMAGE, "uuid": "1" * 32, "properties": secret})
    return west


def test_a_property_that_may_not_be_read_is_not_shown_and_cannot_be_found_out(guarded: Served) -> None:
    admin = {**SW, "roles": ["admin", "other"]}
    find = guarded.client.object_find
    by_value = [{"property_filter": {"require_items": [{"key": "secret", "value": "s3"}]}}]
    by_absence = [{"property_filter": {"forbid_keys": ["secret"]}}]
    assert [one.key for one in guarded.client.object_get_by_uuid(SW, uuid="1" * 32).properties] == ["open"]
    assert [[one.key for one in found.properties] for found in find(SW)] == [["open"]]
    assert (len(find(SW, any=by_value)), len(find(SW, any=by_absence))) == (0, 1)
    assert (len(find(admin, any=by_value)), len(find(admin, any=by_absence))) == (1, 0)


def test_a_property_that_may_not_be_written_stays(guarded: Served) -> None:
    modify = guarded.client.object_modify
    for change in (
        {"set_properties": [{"key": "secret", "value": "x"}]},
        {"set_properties": [{"key": "fixed", "value": "x"}]},
    ):
        with refused("PERMISSION_DENIED"):
            modify(SW, uuid="1" * 32, **change)
    with refused("PERMISSION_DENIED"):
        guarded.client.object_create(SW, object={**IMAGE, "name": "j", "properties": [{"key": "fixed", "value": "x"}]})
    replaced = {"uuid": "1" * 32, "name": "i", "properties": [{"key": "open", "value": "p"}]}
    shown = guarded.client.object_update(SW, object=replaced).object
    assert [(one.key, one.value) for one in shown.properties] == [("open", "p")]
    seen = guarded.client.object_get_by_uuid({**SW, "roles": ["admin"]}, uuid="1" * 32)
    assert {(one.key, one.value) for one in seen.properties} == {("open", "p"), ("secret", "s3")}


# ---- history -----------------------------------------------------------------------------------------------------------


def test_what_a_definition_was_before_stays_readable(west: Served) -> None:
    """S27: versions are numbered in each scope, the latest first, and another scope's are not among them."""
    client, scope = west.client, {"object_type_code": "runm.image", "partition_uuid": WEST}

    def history(of: dict[str, str] = scope) -> list[tuple[int, str, str]]:
        found = client.definition_history(SW, scope=of)
        assert all(one.replaced_at > 1_700_000_000 for one in found)
        return [(one.number, one.object_definition.schema, one.user) for one in found]

    assert history() == []
    for title in "abb":
        client.definition_set(SW, scope=scope, object_definition={"schema": f'{{"title": "{title}"}}'})
    assert history() == [(1, '{"title": "a"}', "admin")]
    client.definition_delete({**SW, "user": "other"}, scope=scope)
    assert history() == [(2, '{"title": "b"}', "other"), (1, '{"title": "a"}', "admin")]
    client.definition_set(SW, scope=scope, object_definition={"schema": "{}"})
    assert len(history()) == 2
    for other in ({"object_type_code": "runm.image"}, {**scope, "partition_uuid": EAST}):
        assert history(other) == []
    with refused("FAILED_PRECONDITION"):
        history({"object_type_code": "runm.none"})


def test_the_provider_default_is_in_its_history_once_it_was_replaced(west: Served) -> None:
    west.client.provider_definition_set(SW, object_definition={"schema": "{}"})
    (first,) = west.client.definition_history(SW, scope={"object_type_code": "runm.provider"})
    assert "A provider of resources" in first.object_definition.schema


@pytest.mark.slow
def test_a_hundred_versions_are_kept(west: Served) -> None:
    scope = {"object_type_code": "runm.image"}
    for number in range(103):
        west.client.definition_set(SW, scope=scope, object_definition={"schema": f'{{"title": "{number}"}}'})
    found = west.client.definition_history(SW, scope=scope)
    assert [one.number for one in found] == list(range(102, 2, -1))
