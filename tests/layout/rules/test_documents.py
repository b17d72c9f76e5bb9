"""The defects of the five source documents, each with its witness; layouts and prefixes are as the documents write them."""

from keyplan.layout.rules import lint, lint_prefix
from tests.layout.rules.builders import binary, counter, layout, table, text

RUNM = text("{prefix:text(exclude='',empty=true)}runm/metadata/")

CLOUDCHAMBER = layout(
    table("users", text("/users/{username:text}")),
    table("racks", text("/racks/{rackid:text}")),
    table("tor", text("/rack/{rackid:text}/tor")),
    table("pdu", text("/rack/{rackid:text}/pdu")),
    table("blades", text("/rack/{rackid:text}/blades/{bladeid:text}")),
    table("workloads", text("/workloads/{workloadid:text}")),
    table("actual", text("/workload/{workloadid:text}/instance/{instanceid:text}/actual")),
    table("target", text("/workload/{workloadid:text}/instance/{instanceid:text}/target")),
    name="Production",
    root=text("/CloudChamber/V0.1"),
)


def test_runm_an_object_type_called_object_collides_with_the_object_types() -> None:
    spec = layout(
        table("object_types", text("types/object/{code:text}")),
        table("provider_types", text("types/{object_type:text}/{provider_type:text}")),
        root=RUNM,
        parameters={"prefix": ""},
    )
    assert [finding.witness for finding in lint(spec).of_rule("L1")] == [b"runm/metadata/types/object/a"]


def test_runm_partition_namespaces_are_safe_only_because_a_uuid_is_32_digits() -> None:
    by_name = table("by_name", text("partitions/by-name/{name:text}"))
    typed = table("tags", text("partitions/{partition:hex_uuid}/{tag:text}"))
    untyped = table("tags", text("partitions/{partition:text}/{tag:text}"))
    assert lint(layout(by_name, typed, root=RUNM)).of_rule("L1") == ()
    (finding,) = lint(layout(by_name, untyped, root=RUNM, parameters={"prefix": ""})).of_rule("L1")
    assert finding.witness == b"runm/metadata/partitions/by-name/a"


def test_hepnos_a_product_key_is_not_uniquely_decodable_when_its_parts_may_hold_the_hash() -> None:
    item = "{dataset:raw_uuid}{run:u64}{subrun:u64}{event:u64}"
    free = layout(table("products", binary(item + "{label:text_tail(empty=true)}#{type:text_tail}")))
    assert [finding.witness for finding in lint(free).of_rule("L2")] == [b"a" * 40 + b"##a"]
    declared = layout(table("products", binary(item + "{label:text_tail(empty=true)}#{type:text(exclude='#')}")))
    assert lint(declared).of_rule("L2") == ()


def test_hepnos_the_children_of_a_dataset_come_with_those_of_a_longer_name() -> None:
    datasets = layout(table("datasets", binary("{path.level:u8}{path:path}")))
    (finding,) = lint_prefix(datasets, binary(r"\x02aaa/bbb"))
    assert (finding.rule, finding.witness) == ("L4", b"\x02aaa/bbba/a")
    assert lint_prefix(datasets, binary(r"\x02aaa/bbb/")) == ()


def test_broker_host_and_id_may_hold_the_colon_between_them() -> None:
    spec = layout(
        table("bindings", text("postgresql-patroni/{hostname:text}:{id:text}:{port:decimal}")),
        counter("nextport", text("routing/nextport")),
        root=text("/"),
    )
    assert [finding.witness for finding in lint(spec).of_rule("L2")] == [b"/postgresql-patroni/a::a:0"]


def test_cloudchamber_the_prefix_rack_returns_the_racks() -> None:
    (finding,) = lint_prefix(CLOUDCHAMBER, text("/CloudChamber/V0.1/rack"))
    assert finding.items == ("/CloudChamber/V0.1/rack", "racks")
    assert finding.witness == b"/CloudChamber/V0.1/racks/a"


def test_cloudchamber_the_prefix_workload_returns_the_workloads() -> None:
    (finding,) = lint_prefix(CLOUDCHAMBER, text("/CloudChamber/V0.1/workload"))
    assert finding.witness == b"/CloudChamber/V0.1/workloads/a"


def test_cloudchamber_no_instance_is_below_the_documented_prefix_of_instances() -> None:
    findings = lint_prefix(CLOUDCHAMBER, text("/CloudChamber/V0.1/workload/{workloadid:text}/instances"))
    finding = next(finding for finding in findings if finding.rule == "L5")
    assert finding.witness == b"/CloudChamber/V0.1/workload/a/instances"


def test_cloudchamber_the_production_root_holds_the_test_data() -> None:
    test = layout(
        table("users", text("/users/{username:text}")), name="Standard", root=text("/CloudChamber/V0.1/Test/Standard")
    )
    (finding,) = lint(CLOUDCHAMBER, others=[test]).of_rule("L6")
    assert finding.items == ("Production", "Standard")
    assert finding.witness == b"/CloudChamber/V0.1/Test/Standard/users/a"


def test_cloudchamber_precleaning_the_standard_tests_would_delete_a_second_set() -> None:
    sets = [
        layout(table("users", text("/users/{username:text}")), name=name, root=text(f"/CloudChamber/V0.1/Test/{name}"))
        for name in ("Standard", "Standard2")
    ]
    (finding,) = lint(sets[0], others=sets[1:]).of_rule("L6")
    assert finding.witness == b"/CloudChamber/V0.1/Test/Standard2/users/a"


def test_tikv_the_next_region_does_not_begin_at_the_next_generated_prefix() -> None:
    (finding,) = lint(layout(table("keyspaces", binary("{id:uvarint}")))).of_rule("L7")
    assert (finding.witness, finding.second) == (b"\x80\x02", b"\x81\x01")
