"""Reads of one revision: gets, batched gets, and lists in pages whose size follows that of the values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from keyplan.engine.etcd.client import FIRST_KEY, EtcdClient
from keyplan.engine.etcd.failures import COMPACTED, FUTURE, NAME, WENT_BACK, says
from keyplan.engine.etcd.horizon import Horizon
from keyplan.engine.etcd.options import EtcdOptions
from keyplan.engine.etcd.ranges import etcd_range
from keyplan.engine.etcd.transactions import entry_of
from keyplan.engine.etcd.transport import RANGE, TRANSACTION, Message, Method, messages
from keyplan.engine.etcd.watch import compacted_revision
from keyplan.engine.interface import Entry, KeyRange, Snapshot
from keyplan.errors import EngineRefusedError, EngineUnavailableError, HistoryCompactedError

__all__ = ["EtcdSnapshot"]

_PAGE_ENTRIES_FIRST: Final = 100
"""Why: nothing is known of the values yet, and each may have 1.5 MiB."""
_PAGE_ENTRIES_MAX: Final = 20_000
_PAGE_BYTES: Final = 4 << 20
"""What a page should hold. Why so much: the server counts the rest of the range for each page, so that a list of 100,000
records takes half as long again in pages of 1 MiB. Why no more: a list shall not take more memory than a few pages."""
_PAGE_GROWTH_MAX: Final = 10
_BATCH_BYTES_MAX: Final = 1 << 20
_REVERSED_ENTRIES_MAX: Final = 10_000
"""A range of at most so many keys is sorted by the server. Why: it reads all values of the range for each such request."""
_STRETCH_ENTRIES: Final = 250
"""A longer range is read backward in stretches of so many keys, each read forward and turned."""


class EtcdSnapshot(Snapshot):
    """The store at one revision, which is that of the first answer, or what a commit of this engine has fixed before."""

    def __init__(self, client: EtcdClient, options: EtcdOptions, horizon: Horizon) -> None:
        self._client = client
        self._options = options
        self._horizon = horizon
        self._revision = 0  # until something was read
        self._epoch = client.sightings.epoch
        self._is_closed = False
        self._along: tuple[bytes, ...] = ()  # what the next read brings along
        self._brought: dict[bytes, Entry | None] = {}

    @property
    def revision(self) -> int:
        self._check_open()
        if not self._known_revision():
            self._answer(RANGE, request := messages.RangeRequest(key=FIRST_KEY, limit=1, count_only=True), [request])
        return self._revision

    @property
    def epoch(self) -> str:
        return self._epoch

    def read_along(self, keys: Sequence[bytes]) -> None:
        self._along = tuple(key for key in keys if self._can_hold(key))

    def get(self, key: bytes) -> Entry | None:
        if key in self._brought:
            self._check_open()
            return self._brought[key]
        if not self._can_hold(key):
            self._check_open()
            return None
        pairs = self._read(messages.RangeRequest(key=key)).kvs
        return entry_of(pairs[0]) if pairs else None

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self._check_open()
        found: dict[bytes, Entry | None] = dict(self._brought)
        for batch in self._batches([key for key in (*self._along, *keys) if key not in found]):
            found |= dict.fromkeys(batch)
            request = messages.TxnRequest()
            for key in batch:
                request.success.add().request_range.key = key
            for answer in self._read_batch(request).responses:
                for pair in answer.response_range.kvs:
                    found[pair.key] = entry_of(pair)
        self._bring(found)
        return [found.get(key) for key in keys]

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        self._check_open()
        limits = etcd_range(key_range)
        if limits is None or limit == 0:
            return iter(())
        pages = self._backward if reverse else self._forward
        return map(entry_of, pages(*limits, limit, keys_only=keys_only))

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        self._check_open()
        limits = etcd_range(key_range)
        if limits is None or limit == 0:
            return iter(())
        pages = self._backward if reverse else self._forward
        return (pair.key for pair in pages(*limits, limit, keys_only=True))

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        limits = etcd_range(key_range)
        if limits is None or limit == 0:
            return iter(())
        pages = self._backward if reverse else self._forward
        return ((pair.key, pair.value) for pair in pages(*limits, limit, keys_only=False))

    def count(self, key_range: KeyRange) -> int:
        self._check_open()
        limits = etcd_range(key_range)
        return 0 if limits is None else self._count(*limits)

    def close(self) -> None:
        self._is_closed = True

    # ---- pages -----------------------------------------------------------------------------------------------------------

    def _forward(self, start: bytes, end: bytes, limit: int | None, *, keys_only: bool) -> Iterator[Message]:
        crowds, page_entries = self._client.crowds, _PAGE_ENTRIES_FIRST
        begin, stops = start, [*crowds.stops(start, end), end]
        is_known = False
        while True:
            stop = stops.pop(0)
            wanted = page_entries if limit is None else min(page_entries, limit)
            page = self._read(messages.RangeRequest(key=start, range_end=stop, limit=wanted, keys_only=keys_only))
            pairs = page.kvs
            if stop == end and not is_known:
                crowds.learn(begin, end, [pair.key for pair in pairs], page.count)
                is_known = True
            yield from pairs
            if limit is not None:
                limit -= len(pairs)
            if limit == 0 or (stop == end and not page.more):
                return
            start = pairs[-1].key + b"\x00" if page.more else stop
            if len(pairs) < page_entries and not page.more:
                # Why only what the first page still lacks: whoever takes little shall not be sent much.
                page_entries -= len(pairs)
                continue
            stops = [end]
            fitting = _PAGE_BYTES * len(pairs) // max(page.ByteSize(), 1)
            page_entries = max(1, min(fitting, page_entries * _PAGE_GROWTH_MAX, _PAGE_ENTRIES_MAX))

    def _backward(self, start: bytes, end: bytes, limit: int | None, *, keys_only: bool) -> Iterator[Message]:
        count = self._count(start, end)
        wanted = count if limit is None else min(limit, count)
        if wanted == 0:
            return
        if count <= _REVERSED_ENTRIES_MAX and wanted <= _PAGE_ENTRIES_FIRST:
            yield from self._read(
                messages.RangeRequest(
                    key=start, range_end=end, limit=wanted, keys_only=keys_only, sort_order=_DESCENDING
                )
            ).kvs
            return
        # Why not page by page from the end: etcd would read and sort the whole range for each page.
        starts = [
            pair.key
            for number, pair in enumerate(self._forward(start, end, None, keys_only=True))
            if number % _STRETCH_ENTRIES == 0
        ]
        for stretch_start in reversed(starts):
            stretch = list(self._forward(stretch_start, end, None, keys_only=keys_only))[::-1]
            yield from stretch[:wanted]
            wanted -= len(stretch)
            if wanted <= 0:
                return
            end = stretch_start

    def _count(self, start: bytes, end: bytes) -> int:
        return int(self._read(messages.RangeRequest(key=start, range_end=end, count_only=True)).count)

    # ---- one read --------------------------------------------------------------------------------------------------------

    def _known_revision(self) -> int:
        if not self._revision and self._horizon.fixed is not None:
            self._revision = self._horizon.fixed
        return self._revision

    def _read(self, request: Message) -> Message:
        self._check_open()
        revision = self._known_revision()
        if revision:
            request.revision = revision
            # Why: what a known revision holds, any server that has come so far can tell by itself.
            request.serializable = True
        if self._along:
            return self._read_with_along(request)
        return self._answer(RANGE, request, [request])

    def _read_with_along(self, request: Message) -> Message:
        """Read what was asked for, and in the same call what comes along."""
        batch = messages.TxnRequest()
        batch.success.add().request_range.CopyFrom(request)
        for key in self._along:
            batch.success.add().request_range.key = key
        asked, *brought = self._read_batch(batch).responses
        self._bring({pair.key: entry_of(pair) for answer in brought for pair in answer.response_range.kvs})
        return asked.response_range

    def _bring(self, found: Mapping[bytes, Entry | None]) -> None:
        self._brought |= {key: found.get(key) for key in self._along}
        self._along = ()

    def _read_batch(self, request: Message) -> Message:
        self._check_open()
        revision = self._known_revision()
        reads = [operation.request_range for operation in request.success]
        if revision:
            for read in reads:
                read.revision, read.serializable = revision, True
        return self._answer(TRANSACTION, request, reads)

    def _answer(self, method: Method, request: Message, reads: Sequence[Message]) -> Message:
        try:
            response = self._client.call(method, request)
        except EngineRefusedError as error:
            if says(error, COMPACTED):
                compacted = compacted_revision(self._client)
                raise HistoryCompactedError(revision=self._revision, compacted_revision=compacted) from error
            if not says(error, FUTURE):
                raise
            if not reads[0].serializable:
                raise self._went_back() from error
            # Why: this server is behind the one that told the revision; let it first ask how far the cluster is.
            for read in reads:
                read.serializable = False
            return self._answer(method, request, reads)
        epoch = self._client.sightings.epoch
        if epoch != self._epoch:
            if self._known_revision():
                raise self._went_back()
            # Why again: whether the answer was given before or after the change, nobody can tell.
            self._epoch = epoch
            return self._answer(method, request, reads)
        if not self._revision:
            self._revision = int(response.header.revision)
        return response

    def _went_back(self) -> EngineUnavailableError:
        return EngineUnavailableError(engine=NAME, problem=WENT_BACK)

    def _batches(self, keys: Sequence[bytes]) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        batch_bytes = 0
        for key in keys:
            if not self._can_hold(key):
                continue
            if batch and (len(batch) >= self._options.operations_max or batch_bytes + len(key) > _BATCH_BYTES_MAX):
                yield batch
                batch, batch_bytes = [], 0
            batch.append(key)
            batch_bytes += len(key)
        if batch:
            yield batch

    def _can_hold(self, key: bytes) -> bool:
        """False for a key that no request could have written: it need not be asked for, and could not be."""
        return 0 < len(key) <= self._options.request_bytes_max

    def _check_open(self) -> None:
        self._client.check_open()
        if self._is_closed:
            raise EngineUnavailableError(engine=NAME, problem="the snapshot was closed")


_DESCENDING: Final = 2
"""etcd's number for the descending order of keys."""
