"""Any store at all, sound or not, comes back as it was: by Hypothesis, on the plan alone."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from keyplan.apps.cloudchamber import ExtraDevices, LayoutSide, MigrationOptions, RackIds, planned_migration
from keyplan.errors import InvalidInputError

GO, DOCUMENT = LayoutSide.GO, LayoutSide.DOCUMENT
G: Final = b"/CloudChamber/v0.1/"
D: Final = b"/CloudChamber/V0.1/"

NAMES = st.sampled_from(["a", "b", "rack1", "zoë", "..", "a.b", "x y", "standard", "i\u0307"])
VALUES = st.sampled_from([b"{}", b'{"details":{}}', b'{"x":1}', b"{ }", b"damaged", b"\xff"])
LISTED = st.sampled_from([b"a", b"A", b"RACK1", b"Standard", b"0", b"1", b"01", b"\xff", b"Zo\xc3\xab"])


@st.composite
def go_contents(draw: st.DrawFn) -> dict[bytes, bytes]:
    """Records and list keys in any combination, unknown keys among them: sound stores and very unsound ones."""
    found: dict[bytes, bytes] = {}
    for _ in range(draw(st.integers(0, 12))):
        region, zone, rack = (draw(NAMES) for _ in range(3))
        kind = draw(
            st.sampled_from(["region", "zone", "rack", "pdu", "tor", "blade", "user", "other", "actual", "unknown"])
        )
        number, value, listed = draw(st.integers(0, 2)), draw(VALUES), draw(LISTED)
        z = f"{region}/zone/{zone}"
        part = kind in {"pdu", "tor", "blade"}
        data, index = {
            "region": (f"region/{region}", f"regions/{region}"),
            "zone": (f"region/{z}", f"region/{region}/zones/{zone}"),
            "rack": (f"region/{z}/rack/{rack}", f"region/{z}/racks/{rack}"),
        }.get(kind, (f"region/{z}/rack/{rack}/{kind}/{number}", f"region/{z}/rack/{rack}/{kind}s/{number}"))
        good = str(number).encode() if part else data.rpartition("/")[2].title().encode()
        view = "actual" if kind == "other" else "definition"
        if kind == "user":
            found[G + b"users/" + rack.encode()] = value
        elif kind == "unknown":
            found[G + draw(st.binary(max_size=4))] = value
        elif kind == "actual":
            of, named = draw(st.sampled_from(["pdu", "tor", "blade"])), draw(st.sampled_from([rack, rack.title()]))
            found[G + f"rack/{named}/{of}/{number}/actual".encode()] = value
            found[G + f"inventory/definition/data/region/standard/zone/standard/rack/{rack}/{of}/{number}".encode()] = (
                b"{}"
            )
        elif kind == "other":
            found[G + f"inventory/{view}/data/region/{region}".encode()] = value
        else:
            pair = draw(st.integers(1, 3))
            if pair & 1:
                found[G + f"inventory/{view}/data/{data}".encode()] = value
            if pair & 2:
                found[G + f"inventory/{view}/index/{index}".encode()] = draw(st.sampled_from([good, listed]))
    return dict(sorted(found.items()))


@st.composite
def document_contents(draw: st.DrawFn) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for _ in range(draw(st.integers(0, 12))):
        rack = draw(st.sampled_from(["a", "B", "r.z.k", "R.z.k2", "zoë", "a b"]))
        path = draw(
            st.sampled_from(
                [
                    f"racks/{rack}",
                    f"rack/{rack}/tor",
                    f"rack/{rack}/pdu",
                    f"rack/{rack}/pdus/1",
                    f"rack/{rack}/tors/2",
                    f"rack/{rack}/blades/10",
                    f"rack/{rack}/tor/2/actual",
                    f"rack/{rack}/blade/10/actual",
                    f"users/{rack}",
                    f"workloads/{rack}",
                    f"workload/{rack}/instance/i/target",
                    f"rack/{rack}",
                    f"Users/{rack}",
                ]
            )
        )
        found[D + path.encode()] = draw(VALUES)
    return dict(sorted(found.items()))


OPTIONS = st.builds(
    MigrationOptions,
    view=st.just("definition"),
    rack_ids=st.sampled_from(RackIds),
    extra_devices=st.sampled_from(ExtraDevices),
    namespace=st.just(""),
)


@given(pairs=go_contents(), options=OPTIONS)
def test_any_store_of_the_go_program_comes_back_as_it_was(pairs: dict[bytes, bytes], options: MigrationOptions) -> None:
    assert_comes_back(pairs, GO, options)


@given(pairs=document_contents(), options=OPTIONS)
def test_any_store_of_the_document_comes_back_as_it_was(pairs: dict[bytes, bytes], options: MigrationOptions) -> None:
    assert_comes_back(pairs, DOCUMENT, options)


def assert_comes_back(pairs: dict[bytes, bytes], side: LayoutSide, options: MigrationOptions) -> None:
    try:
        there = planned_migration(pairs, side, options)
    except InvalidInputError:
        return
    assert not any("would not bring it back" in leftover.why for leftover in there.leftovers)
    way_back = options._replace(extra_devices=ExtraDevices.EXTEND)
    back = planned_migration(there.desired, side.other, way_back, there.sidecar)
    assert dict(back.desired) == pairs
    if not there.leftovers:
        bare = planned_migration(there.desired, side.other, way_back)
        assert {key: value for key, value in bare.desired.items() if key in pairs} == pairs
