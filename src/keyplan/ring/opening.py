"""From URLs to an open ring: new databases are given their descriptions, others must agree with what is asked for."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from keyplan.codec import SecretCipher
from keyplan.engine import ALL_KEYS, Commit, Engine, EngineUrl, KeyAbsent, PrefixedEngine, Put, open_engine
from keyplan.errors import CommitConflictError, LayoutError, RingMismatchError
from keyplan.layout import BoundLayout, Layout
from keyplan.ring.description import RING_KEY, RingDescription, read_description
from keyplan.ring.engine import RingEngine
from keyplan.ring.placement import Placement, described_placement, placement_of, read_placement
from keyplan.store import Store

__all__ = ["database_engine", "join_ring", "open_ring", "open_ring_url", "remembered", "ring_of"]


def open_ring(
    urls: Sequence[str],
    layout: type[Layout] | BoundLayout,
    *,
    create: bool = True,
    secrets: SecretCipher | None = None,
) -> Store:
    """Open the databases that the URLs name as one store for the records of `layout`, placed by its `place=`.

    New databases become a ring of this number and order, which they remember. `create` False asks for one that exists.
    `secrets` are the keys of sealed secrets; see `Store`.

    Raises RingMismatchError when they are not this ring, LayoutError when the layout cannot be placed, EngineOpenError.
    """
    with ExitStack() as stack:
        engines = [stack.enter_context(open_engine(url, create=create)) for url in urls]
        ring = ring_of(engines, layout, create=create)
        stack.pop_all()
    return Store(ring, secrets=secrets)


def ring_of(engines: Sequence[Engine], layout: type[Layout] | BoundLayout, *, create: bool = True) -> RingEngine:
    """Return open databases as one engine, which then owns them; see `open_ring`."""
    bound = layout if isinstance(layout, BoundLayout) else layout.bound()
    placement = placement_of(bound, len(engines))
    if bound.meanings(RING_KEY):
        raise LayoutError(layout=bound.name, problem="it has a record at the key of the ring's description")
    return _joined(engines, described_placement(bound), placement, create=create)


def join_ring(engines: Sequence[Engine]) -> RingEngine:
    """Return databases that are a ring already as one engine, by what they remember; no layout is needed."""
    descriptions = [description for description in map(remembered, engines) if description is not None]
    if not descriptions:
        raise _mismatch(0, "it is no part of a ring")
    placed = descriptions[0].placed
    return _joined(engines, placed, read_placement(placed, len(engines)), create=False)


def open_ring_url(url: EngineUrl) -> Engine:
    """Open `ring:FILE`: the URLs of a ring's databases, one in a line and in their order; # begins a comment."""
    url.check_options({"create", "readonly"})
    try:
        text = Path(url.address).read_text(encoding="utf-8")
    except OSError as error:
        raise url.refuse(f"the file of URLs cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise url.refuse("the file of URLs is not text") from error
    lines = [line.strip() for line in text.splitlines()]
    urls = [line for line in lines if line and not line.startswith("#")]
    if not urls:
        raise url.refuse("the file names no database")
    is_readonly = url.flag("readonly", default=False)
    with ExitStack() as stack:
        engines = [stack.enter_context(open_engine(each, create=False, readonly=is_readonly)) for each in urls]
        ring = join_ring(engines)
        stack.pop_all()
    return ring


def database_engine(url: str, name: str, *, create: bool = True, readonly: bool = False) -> Engine:
    """Open one of several databases that share a URL: a folder below `lmdb:PATH`, a memory of its own, else a prefix.

    The prefix is the name and a slash; a store that is shared like this has one writer, whatever number of databases it has.
    """
    parsed = EngineUrl.parse(url)
    spell = _ADDRESSES.get(parsed.scheme)
    if spell is None:
        return PrefixedEngine(open_engine(url, create=create, readonly=readonly), f"{name}/".encode())
    address, question_mark, options = url.partition("?")
    return open_engine(f"{spell(address, name)}{question_mark}{options}", create=create, readonly=readonly)


def _folder_below(address: str, name: str) -> str:
    return f"{address.rstrip('/')}/{name}"


def _memory_beside(address: str, name: str) -> str:
    # Why: `memory:` alone is a new memory each time, and stays one.
    return address if address.endswith(":") else f"{address}.{name}"


_ADDRESSES: dict[str, Callable[[str, str], str]] = {"lmdb": _folder_below, "memory": _memory_beside}


# ---- agreeing -----------------------------------------------------------------------------------------------------------


def remembered(engine: Engine) -> RingDescription | None:
    """Return what a database remembers of its ring."""
    with engine.snapshot() as snapshot:
        return read_description(snapshot)


def _joined(
    engines: Sequence[Engine], placed: dict[str, list[str]], placement: Placement, *, create: bool
) -> RingEngine:
    found = [remembered(engine) for engine in engines]
    if create and any(description is None for description in found):
        found = _described(engines, found, placed)
    descriptions: list[RingDescription] = []
    for index, description in enumerate(found):
        descriptions.append(_agreeing(index, description, len(engines), placed))
        if descriptions[index].ring != descriptions[0].ring:
            raise _mismatch(index, "it belongs to another ring than database 0")
    return RingEngine(engines, placement, [description.encoded() for description in descriptions])


def _described(
    engines: Sequence[Engine], found: Sequence[RingDescription | None], placed: dict[str, list[str]]
) -> list[RingDescription | None]:
    """Describe the databases that are new. Begun again by the next who opens them, when it is interrupted."""
    for index, (engine, description) in enumerate(zip(engines, found, strict=True)):
        if description is None:
            with engine.snapshot() as snapshot:
                # Why in this snapshot: another process may describe the ring, and write to it, since it was looked at.
                if read_description(snapshot) is None and snapshot.count(ALL_KEYS):
                    raise _mismatch(index, "it holds keys, and was not written as part of a ring")
        else:
            _agreeing(index, description, len(engines), placed)
    # Why in order: who describes database 0 gives the ring its id, and others that come at the same time take it over.
    ring = uuid4().hex
    for index, engine in enumerate(engines):
        description = RingDescription(ring=ring, index=index, databases=len(engines), placed=placed)
        with suppress(CommitConflictError):
            engine.commit(Commit((KeyAbsent(RING_KEY),), (Put(RING_KEY, description.encoded()),)))
        ring = _known(index, remembered(engine)).ring
    return [remembered(engine) for engine in engines]


def _agreeing(
    index: int, description: RingDescription | None, databases: int, placed: dict[str, list[str]]
) -> RingDescription:
    """Return the description when it says what is asked for."""
    known = _known(index, description)
    if known.growing_to is not None:
        raise _mismatch(index, f"it is growing from {known.databases} to {known.growing_to} databases: rebalance it")
    if known.databases != databases:
        raise _mismatch(index, f"its data was written with {known.databases} databases, not {databases}: rebalance it")
    if known.index != index:
        raise _mismatch(index, f"it is database {known.index} of its ring, and was given as number {index}")
    if msgspec.json.encode(known.placed) != msgspec.json.encode(placed):
        raise _mismatch(index, "its records were placed by another layout")
    return known


def _known(index: int, description: RingDescription | None) -> RingDescription:
    if description is None:
        raise _mismatch(index, "it is no part of a ring")
    return description


def _mismatch(index: int, problem: str) -> RingMismatchError:
    return RingMismatchError(url="ring:", database=index, problem=problem)
