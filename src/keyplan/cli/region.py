"""The commands `keyplan region plan|apply|verify|import`."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.cli.failures import end_with_findings, print_hint
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    OutputOption,
    StoreOption,
    command_group,
    is_store_named,
    read_bytes,
    spread,
    store_of_option,
)
from keyplan.cli.output import print_json, print_lines, print_text
from keyplan.engine import Engine
from keyplan.errors import InvalidInputError, KeySpaceNotFoundError
from keyplan.files import write_over
from keyplan.keyspace import KeySpaces
from keyplan.regions import (
    PlacementDriver,
    Proof,
    Region,
    RegionPlan,
    RegisteredSpace,
    Rule,
    Space,
    StoreMode,
    apply_plan,
    import_spaces,
    parse_regions,
    parse_rules,
    parse_spaces,
    plan_regions,
    rule_data,
    tls_context,
)

__all__ = ["region_app"]

region_app: Final = command_group("Keep the regions of a TiKV cluster within key spaces.")

_MODES: Final = {
    "txn": (StoreMode.TRANSACTIONAL,),
    "raw": (StoreMode.RAW,),
    "both": (StoreMode.RAW, StoreMode.TRANSACTIONAL),
}

_CLUSTER_LETTERS: Final = 8
"""Why: enough of a registry's id to tell two registries of one TiKV cluster apart, in the id of every rule."""

PdOption = Annotated[str | None, typer.Option("--pd", metavar="URL", help="PD's address, as in http://127.0.0.1:2379.")]
PdAuthorityOption = Annotated[
    str, typer.Option("--pd-ca", metavar="FILE", help="The authority of PD's certificate.", show_default=False)
]
PdCertificateOption = Annotated[
    str, typer.Option("--pd-cert", metavar="FILE", help="This client's certificate.", show_default=False)
]
PdKeyOption = Annotated[str, typer.Option("--pd-key", metavar="FILE", help="Its key.", show_default=False)]
RegionsOption = Annotated[
    Path | None,
    typer.Option("--regions", metavar="FILE", help="Captured regions instead, as PD's /regions answers."),
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Captured rules; without them no guard is judged.")
]
SpacesOption = Annotated[
    Path | None,
    typer.Option("--key-spaces", metavar="FILE", help="Key spaces from a file instead of the store's registry."),
]
FromPdOption = Annotated[bool, typer.Option("--from-pd", help="Key spaces of PD itself (API V2), asked over HTTP.")]
ModeOption = Annotated[
    str, typer.Option("--mode", metavar="MODE", help="How TiKV is used: txn, raw, or both (API V2).")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help="The owner of the rules; by default the registry's id, or the file's."
    ),
]
SkipEmptyOption = Annotated[
    bool, typer.Option("--skip-empty", help="Neither split nor guard around key spaces without a key.")
]


class Inputs(NamedTuple):
    """The options, read: key spaces, the owner of their rules, the modes of TiKV."""

    spaces: list[Space]
    cluster: str
    modes: tuple[StoreMode, ...]


class PdOptions(NamedTuple):
    """The PD and its certificates: a record of options, for `spread`."""

    pd: PdOption = None
    pd_ca: PdAuthorityOption = ""
    pd_cert: PdCertificateOption = ""
    pd_key: PdKeyOption = ""

    @contextmanager
    def driver(self) -> Iterator[PlacementDriver | None]:
        """Yield the conversation with PD; None where none is named."""
        if self.pd is None:
            yield None
            return
        has_tls = self.pd_ca or self.pd_cert
        tls = tls_context(self.pd_ca, self.pd_cert, self.pd_key) if has_tls else None
        with PlacementDriver(self.pd, tls=tls) as driver:
            yield driver


class CapturedOptions(NamedTuple):
    """Regions and rules from files: a record of options, for `spread`."""

    regions: RegionsOption = None
    rules: RulesOption = None

    def known(self, driver: PlacementDriver | None) -> tuple[list[Region], list[Rule] | None]:
        """Return the regions and the rules, of the PD or of the files; no rules: guards are not judged."""
        if driver is not None:
            if self.regions is not None or self.rules is not None:
                raise InvalidInputError(
                    source="--pd", problem="it excludes --regions and --rules: pass one or the other"
                )
            return driver.regions(), driver.rules()
        if self.regions is None:
            raise InvalidInputError(source="--regions", problem="name regions: --pd URL, or --regions FILE")
        regions = parse_regions(read_bytes(self.regions), source=str(self.regions))
        return regions, None if self.rules is None else parse_rules(read_bytes(self.rules), source=str(self.rules))


class SpaceOptions(NamedTuple):
    """The key spaces, and how they are kept apart: a record of options, for `spread`."""

    store: StoreOption = None
    key_spaces: SpacesOption = None
    from_pd: FromPdOption = False
    mode: ModeOption = "txn"
    cluster: ClusterOption = None
    skip_empty: SkipEmptyOption = False
    config: ConfigOption = None

    def inputs(self, driver: PlacementDriver | None) -> Inputs:
        """Read the key spaces: of PD, of the file, or of the store's registry."""
        modes = _MODES.get(self.mode)
        if modes is None:
            raise InvalidInputError(source="--mode", problem=f"it is one of {', '.join(_MODES)}")
        if self.from_pd:
            if driver is None or self.key_spaces is not None:
                raise InvalidInputError(source="--from-pd", problem="it needs --pd, and goes without --key-spaces")
            return Inputs(list(driver.spaces()), self.cluster or "pd", modes)
        if self.key_spaces is not None:
            content = read_bytes(self.key_spaces)
            spaces = parse_spaces(content, source=str(self.key_spaces))
            return Inputs(spaces, self.cluster or _cluster_of(content), modes)
        if not is_store_named(self.store, self.config):
            problem = "name key spaces: --store URL with a registry, --key-spaces FILE, or --from-pd"
            raise InvalidInputError(source="--store", problem=problem)
        with store_of_option(self.store, self.config, readonly=True) as opened:
            registered, registry = _registered(opened.engine)
        return Inputs(registered, self.cluster or registry[:_CLUSTER_LETTERS], modes)


@region_app.command("plan")
@spread
def plan_command(
    *, driver: PdOptions, captured: CapturedOptions, spaces: SpaceOptions, json: JsonOption = False
) -> None:
    """Print the missing splits and label rules, and write nothing."""
    plan = _planned(driver, captured, spaces)
    if json:
        print_json(plan.data())
    else:
        _print_plan(plan)


@region_app.command("apply")
@spread
def apply_command(*, driver: PdOptions, spaces: SpaceOptions, json: JsonOption = False) -> None:
    """Set the rules and split the regions on PD, then verify all anew. Exit code 1 when a region spans key spaces."""
    with driver.driver() as pd:
        if pd is None:
            raise InvalidInputError(source="--pd", problem="name the PD to change: --pd URL")
        wanted = spaces.inputs(pd)
        guards_empty = not spaces.skip_empty
        applied = apply_plan(pd, wanted.spaces, cluster=wanted.cluster, modes=wanted.modes, guards_empty=guards_empty)
    if json:
        print_json(applied.data())
    else:
        _print_plan(applied.plan)
        print_text(f"{applied.split_requests} requests to split were sent; afterwards:")
        _print_proof(applied.after.proof)
    end_with_findings(not applied.is_proven)


@region_app.command("verify")
@spread
def verify_command(
    *, driver: PdOptions, captured: CapturedOptions, spaces: SpaceOptions, json: JsonOption = False
) -> None:
    """Verify that no region spans key spaces; print every violation. Exit code 1 when one does."""
    proof = _planned(driver, captured, spaces).proof
    if json:
        print_json(proof.data())
    else:
        _print_proof(proof)
    end_with_findings(not proof.is_proven)


def _planned(driver: PdOptions, captured: CapturedOptions, spaces: SpaceOptions) -> RegionPlan:
    with driver.driver() as pd:
        wanted = spaces.inputs(pd)
        regions, rules = captured.known(pd)
    guards_empty = not spaces.skip_empty
    return plan_regions(
        wanted.spaces, regions, rules, cluster=wanted.cluster, modes=wanted.modes, guards_empty=guards_empty
    )


@region_app.command("import")
def import_command(
    *,
    store: StoreOption = None,
    pd_cluster: Annotated[
        int | None, typer.Option("--pd-cluster", metavar="ID", help="PD's cluster id; needed when there are several.")
    ] = None,
    output: OutputOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the key spaces that PD keeps in its etcd, as JSON that --key-spaces reads. Exit code 1 when not all fits."""
    with store_of_option(store, config, readonly=True) as opened:
        imported = import_spaces(opened.engine, pd_cluster)
    if output is None:
        print_json(imported.data())
    else:
        write_over(output, dumps(imported.data(), indent=2) + "\n")
        print_text(f"wrote {output}: {len(imported.spaces)} key spaces of cluster {imported.cluster}")
    for problem in imported.problems:
        print_hint(problem)
    end_with_findings(imported.problems)


# ---- key spaces ------------------------------------------------------------------------------------------------------------


def _registered(engine: Engine) -> tuple[list[Space], str]:
    """Return the key spaces of a store's registry, and its id. Raises KeySpaceNotFoundError where there is no registry."""
    registry = KeySpaces(engine)
    header = registry.header()
    if header is None:
        raise KeySpaceNotFoundError(problem="this store has no registry")
    spaces: list[Space] = []
    with engine.snapshot() as snapshot:
        for space in registry.all(include_deleted=True):
            first = next(snapshot.scan(space.key_range, limit=1, keys_only=True), None)
            spaces.append(RegisteredSpace(space.name, space.raw_prefix, space.state, is_empty=first is None))
    return spaces, header.cluster


def _cluster_of(content: bytes) -> str:
    """Return the cluster that `keyplan region import` wrote into the file."""
    described: Any = loads(content)
    named = described.get("cluster") if isinstance(described, dict) else None
    if not isinstance(named, str):
        # Why no default: nobody would find rules again under a name of chance.
        raise InvalidInputError(source="--cluster", problem="the file names no cluster: pass --cluster NAME")
    return named


# ---- printing --------------------------------------------------------------------------------------------------------------


def _print_plan(plan: RegionPlan) -> None:
    print_lines(*(f"split   {key.hex().upper()}" for key in plan.split_keys))
    for rule in plan.rules_to_set:
        ranges = ", ".join(f"{pair['start_key']} to {pair['end_key'] or 'the end'}" for pair in rule_data(rule)["data"])
        print_lines(f"set     {rule.id}  {ranges}")
    print_lines(*(f"delete  {rule_id}" for rule_id in plan.rules_to_delete))
    for rule_id in plan.rules_unknown:
        print_lines(f"keep    {rule_id}  its key space is not in the list: delete it in PD if it is gone")
    print_text(
        f"{len(plan.split_keys)} splits, {len(plan.rules_to_set)} rules to set, {len(plan.rules_to_delete)} to delete"
    )


def _print_proof(proof: Proof) -> None:
    data: dict[str, Any] = proof.data()
    for violation in data["violations"]:
        place = f"region {violation['region_id']}" if violation["region_id"] is not None else "no rule"
        names = ", ".join(violation["keyspaces"])
        print_lines(f"{violation['kind']}  {place}  {names}  {' '.join(violation['split_keys'])}")
    print_lines(*(f"hole  {_range_text(hole)}" for hole in data["holes"]))
    for overlap in data["overlaps"]:
        one, other = overlap["region_ids"]
        print_text(f"overlap  regions {one} and {other}  {_range_text(overlap['range'])}")
    if proof.is_proven:
        guards = "guards are not judged" if proof.guards is None else "each is guarded"
        print_text(f"no region spans key spaces: {len(proof.boundaries)} boundaries, {guards}")
    print_text(f"sha256 of the inputs  {proof.inputs_sha256}")


def _range_text(ends: list[str]) -> str:
    return f"{ends[0] or 'the start'} to {ends[1] or 'the end'}"
