"""What the branches of known kinds of files mean: which collection and column each is, and which columns refer to others.

Rules are data; who reads by them is `collection.py`. A branch is known by its path: `Muon/pt` is the column pt of the table
Muon, `Muon_pt` a table of its own or a single value of an event. The first rule that matches a whole path counts; a path
that none matches is a collection of its own.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["PLAIN", "SCHEMAS", "Branch", "Place", "Reference", "Schema", "placed", "schema_named", "schema_of"]


class Branch(NamedTuple):
    """Paths that match `path`, and where they belong: templates of its groups.

    With a group `joined` the collection ends at the underscore that the longest known collection ends at, or else at the
    first or the last one, as `cut` says.
    """

    path: str
    collection: str = ""
    column: str = ""
    cut: str = "first"


class Reference(NamedTuple):
    """A column that refers to rows of another collection of the same event; several with one `name` are a list.

    `collection` and `column` are patterns, `name` and `target` templates of their groups. Forms: "index", the number of a row
    in the event, less than 0 for none; "link", a record of a key and an index, an ElementLink of ATLAS; "slice", the first of
    the columns NAME_begin and NAME_end, rows of the target, which are podio's ObjectIDs or values; "object", rows of the
    target are the ObjectIDs of this one's; "self", rows of this collection are ObjectIDs; "count", how many of the target's
    rows, which stand one after the other, belong to each.
    """

    collection: str
    column: str
    name: str
    target: str
    form: str = "index"


class Schema(NamedTuple):
    """A kind of files. It is recognised when each of `marks` matches one of its paths."""

    name: str
    marks: tuple[str, ...]
    branches: tuple[Branch, ...]
    references: tuple[Reference, ...] = ()
    single_rows: frozenset[str] = frozenset()
    """Collections that have one row in each event, which is given in place of a list of one."""
    link_keys: tuple[tuple[int, str], ...] = ()
    """The collections of links whose key tells the collection, by that key."""
    counted: str = ""
    """What is behind the path of a list that lists of each row are in, in the path of their lengths."""
    counters: str = ""
    """Single values that count the rows of the table or collection that the group names; they are no collections."""
    branch_names: tuple[str, str] = ("{table}/{table}.{column}", "")
    """How a file calls a column of a table, and the number of its rows."""
    numbers: tuple[str, str, str] = ("run", "subrun", "event")
    """How it calls run, subrun and event."""


class Place(NamedTuple):
    """Where a branch belongs; no column: it is the whole collection."""

    collection: str
    column: str


_TABLE: Final = Branch(r"(?P<table>[^/]+)/(?P<column>.+)", r"\g<table>", r"\g<column>")
"""A table's columns are a collection's."""

PLAIN: Final = Schema("plain", (), (_TABLE,))
"""Of files of no known kind: each table is a collection, and each single value."""

# ---- NanoAOD of CMS, versions 5 to 15, with PFNano and ScoutingNano ------------------------------------------------------

_NANOAOD_INDEXES: Final = {
    "electron": "Electron",
    "fsrPhoton": "FsrPhoton",
    "genJet": "GenJet",
    "genJetAK8": "GenJetAK8",
    "genVisTau": "GenVisTau",
    "jet": "Jet",
    "muon": "Muon",
    "pfCand": "PFCand",
    "photon": "Photon",
    "subGenJetAK8": "SubGenJetAK8",
    "sv": "SV",
    "tau": "Tau",
}
"""What the columns jetIdx, jetIdx1 and so on are numbers of."""

_NANOAOD: Final = Schema(
    "NanoAOD",
    (r"(Muon|Electron|Jet|GenPart|ScoutingMuon\w*|ScoutingPFJet|SV)[/_](pt|eta|phi)",),
    (_TABLE, Branch(r"(?P<joined>[^_/]+_.+)", cut="first")),
    (
        Reference("FatJet(PFCands|SVs)", "jetIdx", "jet", "FatJet"),
        Reference("GenFatJet(Cands|SVs)", "jetIdx", "jet", "GenJetAK8"),
        Reference("GenJet(Cands|SVs)", "jetIdx", "jet", "GenJet"),
        Reference("Jet(PFCands|SVs)", "jetIdx", "jet", "Jet"),
        Reference("Gen(Fat)?JetCands", "pFCandsIdx", "pf", "GenCands"),
        Reference(".*", "pFCandsIdx", "pf", "PFCands"),
        Reference(".*SVs", "sVIdx", "sv", "SV"),
        Reference("GenPart|GenVisTau", "genPartIdxMother", "parent", "GenPart"),
        Reference(".*", "genPartIdx", "matched_gen", "GenPart"),
        Reference("Jet", "genJetIdx", "matched_gen", "GenJet"),
        Reference("FatJet", "genJetAK8Idx", "matched_gen", "GenJetAK8"),
        Reference("FatJet", "subJetIdx[12]", "subjets", "SubJet"),
        *(Reference(".*", f"{stem}Idx", f"matched_{stem}", target) for stem, target in _NANOAOD_INDEXES.items()),
        *(Reference(".*", rf"{stem}Idx\d", f"matched_{stem}s", target) for stem, target in _NANOAOD_INDEXES.items()),
    ),
    counters="n(.+)",
    branch_names=("{table}_{column}", "n{table}"),
    numbers=("run", "luminosityBlock", "event"),
)

# ---- DAOD_PHYSLITE of ATLAS ---------------------------------------------------------------------------------------------

_XAOD: Final = r"(?:(?P<before>[^/.:]*?)Analysis)?(?P<name>[^/.:]+?)Aux(?:Dyn)?[.:]"
"""Why a colon: in an RNTuple no name holds a dot."""
_XAOD_NAME: Final = r"\g<before>\g<name>"

_PHYSLITE: Final = Schema(
    "PHYSLITE",
    (r"\w+AuxDyn[.:]\w+.*",),
    (
        Branch(_XAOD + r"/\w+\.(?P<column>\w+)/(?P<field>.+)", _XAOD_NAME, r"\g<column>.\g<field>"),
        Branch(_XAOD + r"/\w+\.(?P<column>.+)", _XAOD_NAME, r"\g<column>"),
        Branch(_XAOD + r"(?P<column>[^/]+)/(?P<field>.+)", _XAOD_NAME, r"\g<column>.\g<field>"),
        Branch(_XAOD + r"(?P<column>.+)", _XAOD_NAME, r"\g<column>"),
        _TABLE,
    ),
    (
        Reference("Muons", "(combinedTrackParticle)Link", r"\g<1>", "CombinedMuonTrackParticles", "link"),
        Reference("Muons", "(inDetTrackParticle)Link", r"\g<1>", "InDetTrackParticles", "link"),
        Reference("Muons", "(muonSpectrometerTrackParticle)Link", r"\g<1>", "MuonSpectrometerTrackParticles", "link"),
        Reference(
            *("Muons", "(extrapolatedMuonSpectrometerTrackParticle)Link", r"\g<1>", "ExtrapolatedMuonTrackParticles"),
            "link",
        ),
        Reference(".*Electrons", "(trackParticle)Links", r"\g<1>s", "GSFTrackParticles", "link"),
        Reference(".*Electrons|Photons", "(caloCluster)Links", r"\g<1>s", "egammaClusters", "link"),
        Reference("TauTracks", "(track)Links", r"\g<1>s", "InDetTrackParticles", "link"),
        Reference("TauJets", "(tauTrack)Links", r"\g<1>s", "TauTracks", "link"),
        Reference("Jets", "Ghost(Track)", r"ghost_tracks", "InDetTrackParticles", "link"),
        Reference("PrimaryVertices", "(trackParticle)Links", r"\g<1>s", "InDetTrackParticles", "link"),
        Reference("METAssoc_.*", "(jet)Link", r"\g<1>", "Jets", "link"),
        Reference("Truth.*", "(parent|child)Links", r"truth_\g<1>s", "", "link"),
        Reference(".*", "(truthParticle)Link", r"\g<1>", "", "link"),
    ),
    link_keys=(
        (13267281, "TruthPhotons"),
        (342174277, "TruthMuons"),
        (368360608, "TruthNeutrinos"),
        (375408000, "TruthTaus"),
        (394100163, "TruthElectrons"),
        (614719239, "TruthBoson"),
        (660928181, "TruthTop"),
        (779635413, "TruthBottom"),
    ),
    numbers=("EventInfoAuxDyn.runNumber", "EventInfoAuxDyn.lumiBlock", "EventInfoAuxDyn.eventNumber"),
)

# ---- edm4hep, as podio writes it since its version 1 -----------------------------------------------------------------------

_EDM4HEP: Final = Schema(
    "edm4hep",
    (r"[^_/][^/]*/\w+_begin", r"_[^/]+/collectionID"),
    (_TABLE,),
    (
        Reference("(?!_).+", "(.+)_begin", r"\g<1>", r"_{collection}_\g<1>", "slice"),
        Reference("(?!_).+", "", r"\g<1>", r"_{collection}_(.+)", "object"),
        Reference(".+_objIdx", "collectionID", "objects", "", "self"),
    ),
    numbers=("EventHeader/EventHeader.runNumber", "", "EventHeader/EventHeader.eventNumber"),
)

# ---- Delphes -------------------------------------------------------------------------------------------------------------

_DELPHES: Final = Schema(
    "Delphes",
    (r"\w+/fUniqueID", r"\w+_size"),
    # Why by themselves: of an object that is referred to uproot reads two bytes more than its fBits, as elements.
    (
        Branch(r"(?P<bits>\w+/\w+\.fBits)", r"\g<bits>"),
        Branch(r"(?P<table>\w+)/(?P<column>\w+)\[(?P<size>\d+)\]", r"\g<table>", r"\g<column>_\g<size>"),
        _TABLE,
    ),
    (
        Reference("Particle", "M([12])", r"parents", "Particle"),
        Reference("Particle", "D1", r"first_child", "Particle"),
        Reference("Particle", "D2", r"last_child", "Particle"),
    ),
    single_rows=frozenset({"Event", "EventLHEF", "HepMCEvent", "LHCOEvent", "Rho", "ScalarHT", "MissingET"}),
    counters="(.+)_size",
    branch_names=("{table}/{table}.{column}", "{table}_size"),
    numbers=("Event/Event.ProcessID", "", "Event/Event.Number"),
)

# ---- TreeMaker -----------------------------------------------------------------------------------------------------------

_COORDINATES: Final = {
    "fPt": "pt",
    "fEta": "eta",
    "fPhi": "phi",
    "fE": "energy",
    "fX": "x",
    "fY": "y",
    "fZ": "z",
}
"""What the fields of ROOT's vectors are called."""

_TREEMAKER: Final = Schema(
    "TreeMaker",
    (r"\w+/fCoordinates\.fPt", r"\w+_\w+"),
    (
        *(
            Branch(rf"(?P<table>\w+)_referencePoint_?/fCoordinates\.{field}", r"\g<table>", f"referencePoint.{column}")
            for field, column in _COORDINATES.items()
        ),
        *(
            Branch(rf"(?P<table>\w+?)_?/fCoordinates\.{field}", r"\g<table>", column)
            for field, column in _COORDINATES.items()
        ),
        _TABLE,
        # Why not these: they are single values for each event, of jets of another size.
        Branch(r"(?P<joined>(?!.+_AK8$)\w+_[^_]+)", cut="last"),
    ),
    (
        Reference("GenParticles", "ParentIdx", "parent", "GenParticles"),
        Reference("GenParticles", "vertexIdx", "vertex", "GenVertices"),
        Reference(".+", "(.+)Counts", r"\g<1>", r"{collection}_\g<1>", "count"),
    ),
    counted="Counts",
    numbers=("RunNum", "LumiBlockNum", "EvtNum"),
)

SCHEMAS: Final = (_PHYSLITE, _EDM4HEP, _DELPHES, _TREEMAKER, _NANOAOD)
"""The known kinds, in the order in which they are looked for: NanoAOD's marks are the least its own."""


def schema_of(paths: Sequence[str]) -> Schema:
    """Return the schema that the paths are of, PLAIN where they are of none."""
    for schema in SCHEMAS:
        if all(any(re.fullmatch(mark, path) for path in paths) for mark in schema.marks):
            return schema
    return PLAIN


def schema_named(name: str) -> Schema | None:
    """Return the schema of a name, None for none."""
    return next((schema for schema in (*SCHEMAS, PLAIN) if schema.name == name), None)


def placed(schema: Schema, paths: Iterable[str]) -> dict[str, Place]:
    """Return where each path belongs."""
    found: dict[str, Place] = {}
    joined: list[tuple[str, Branch]] = []
    for path in paths:
        found[path] = Place(path, "")
        for branch in schema.branches:
            match = re.fullmatch(branch.path, path)
            if match is None:
                continue
            if branch.collection:
                found[path] = Place(match.expand(branch.collection), match.expand(branch.column))
            else:
                joined.append((path, branch))
            break
    # Why last: what is joined is told apart by the collections that the others are.
    known = {place.collection for place in found.values() if place.column}
    alone = set(found) - {path for path, _ in joined}
    for path, branch in joined:
        if not schema.counted or path + schema.counted not in found:
            end = _end(path, branch, known)
            # Why: what is one array has no columns.
            if end and path[:end] not in alone:
                found[path] = Place(path[:end], path[end + 1 :])
    return {path: place for path, place in found.items() if not _is_counter(schema, path, found)}


def _end(path: str, branch: Branch, known: set[str]) -> int:
    """Return where the collection ends in a path, 0 where there is no underscore to end it."""
    ends = [at for at, letter in enumerate(path) if letter == "_" and 0 < at < len(path) - 1]
    longest = max((at for at in ends if path[:at] in known), default=0)
    return longest or (0 if not ends else ends[0] if branch.cut == "first" else ends[-1])


def _is_counter(schema: Schema, path: str, places: dict[str, Place]) -> bool:
    match = re.fullmatch(schema.counters, path) if schema.counters else None
    return match is not None and (match[1] in places or any(place.collection == match[1] for place in places.values()))
