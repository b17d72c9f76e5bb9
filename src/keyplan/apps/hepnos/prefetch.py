"""Reading ahead: containers of a view a batch at a time, with the products that were asked for."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from keyplan.apps.hepnos.access import ProductSource, StoreAccess
from keyplan.apps.hepnos.keys import Kind, product_suffix
from keyplan.apps.hepnos.types import product_type
from keyplan.errors import InvalidInputError

__all__ = ["PrefetchStatistics", "Prefetcher", "PreloadedProducts"]


class Readable(Protocol):
    """A container, as far as products are read from it; see `Container`."""

    @property
    def item(self) -> bytes: ...

    def load(
        self,
        label: str,
        type: Any,  # noqa: A002  # Why: the document's word.
        default: Any = None,
        *,
        missing: str = "default",
        source: ProductSource | None = None,
    ) -> Any: ...


C = TypeVar("C", bound=Readable)


class PrefetchStatistics(NamedTuple):
    """`hits` were loaded from what was read ahead, `misses` from the store; `evicted` were read and not asked for."""

    batches: int
    products: int
    hits: int
    misses: int
    evicted: int


class PreloadedProducts:
    """The products of a batch of containers, by raw key, with those that are known not to exist."""

    def __init__(self, datastore: StoreAccess, products: Sequence[tuple[str, Any]]) -> None:
        self._datastore = datastore
        self._suffixes = [product_suffix(label, product_type(kind).name) for label, kind in products]
        self._found: dict[bytes, bytes | None] = {}
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._found)

    def preload(self, items: Iterable[bytes]) -> int:
        """Read the products of these items; return how many there are."""
        databases = self._datastore.databases
        count = 0
        for database, own in databases.shares(Kind.PRODUCT, items if self._suffixes else ()).items():
            keys = [item + suffix for item in own for suffix in self._suffixes]
            with databases.snapshot(Kind.PRODUCT, database) as snapshot:
                values = snapshot.values(keys)
            self._found.update(zip(keys, values, strict=True))
            count += len(values) - values.count(None)
        return count

    def raw_products(self, items: Sequence[bytes], suffix: bytes) -> list[bytes | None]:
        """Return the bytes of a product of each item; see `raw_product`."""
        found, keys = self._found, [item + suffix for item in items]
        if not all(map(found.__contains__, keys)):
            return list(map(self.raw_product, keys))
        self.hits += len(keys)
        return list(map(found.pop, keys))

    def raw_product(self, raw_key: bytes) -> bytes | None:
        """Return a product's bytes: what was read ahead, once, else what the store has. It is let go of by this."""
        try:
            raw = self._found.pop(raw_key)
        except KeyError:
            self.misses += 1
            return self._datastore.raw_product(raw_key)
        self.hits += 1
        return raw

    def evict(self, count_max: int) -> int:
        """Let go of the oldest beyond so many; return how many these were."""
        oldest = list(islice(self._found, max(len(self._found) - count_max, 0)))
        for raw_key in oldest:
            del self._found[raw_key]
        return len(oldest)


class Prefetcher:
    """Iterates over any view, reading `batch` containers at a time, and the products of each that are named.

    `load` an event's product through it (or `source=prefetcher`): what was read ahead costs no read. The products of
    at most `cache` containers are kept; the oldest go first. What was not named is loaded from the store.
    """

    def __init__(
        self,
        datastore: StoreAccess,
        *,
        cache: int = 1_024,
        batch: int = 1_024,
        products: Sequence[tuple[str, Any]] = (),
    ) -> None:
        if cache < 1 or batch < 1:
            raise InvalidInputError(source="prefetch", problem="a cache and a batch have room for at least one")
        self._cache = cache
        self._batch = batch
        self._per_container = max(len(products), 1)
        self._has_products = bool(products)
        self._preloaded = PreloadedProducts(datastore, products)
        self._batches = self._products = self._evicted = 0

    @property
    def statistics(self) -> PrefetchStatistics:
        """What was read so far."""
        preloaded = self._preloaded
        return PrefetchStatistics(self._batches, self._products, preloaded.hits, preloaded.misses, self._evicted)

    @property
    def resident(self) -> int:
        """How many products are kept now."""
        return len(self._preloaded)

    def __call__(self, view: Iterable[C]) -> Iterator[C]:
        """Yield the containers of a view, in its order."""
        found = iter(view)
        while batch := list(islice(found, min(self._batch, self._cache))):
            self._batches += 1
            if self._has_products:
                self._products += self._preloaded.preload([container.item for container in batch])
                self._evicted += self._preloaded.evict(self._cache * self._per_container)
            yield from batch

    def load(self, container: Readable, label: str, type: Any, default: Any = None) -> Any:  # noqa: A002  # Why: the document's word.
        """Return a product of a container; see `Container.load`."""
        return container.load(label, type, default, source=self)

    def raw_product(self, raw_key: bytes) -> bytes | None:
        """Return a product's bytes; see `ProductSource`."""
        return self._preloaded.raw_product(raw_key)

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._preloaded.evict(0)
