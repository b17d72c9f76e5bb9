"""Promise: any sequence of commits leaves what a plain dict would hold, and refuses exactly what a dict would."""

from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keyplan.engine import (
    Capability,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.errors import CommitConflictError, InvalidInputError
from keyplan.testing.engine_suite.promise import Promise, everything

__all__ = ["ModelPromises"]

_numbers = count()

_tails = st.lists(st.sampled_from([b"", b"\x00", b"a", b"b", b"\xff"]), min_size=1, max_size=3).map(b"".join)
_ranges = st.one_of(_tails.map(lambda tail: ("prefix", tail, b"")), st.tuples(st.just("between"), _tails, _tails))
_mutations = st.one_of(
    st.tuples(st.just("put"), _tails, st.binary(max_size=3)),
    st.tuples(st.just("delete"), _tails),
    st.tuples(st.just("delete range"), _ranges),
)
_guards = st.one_of(
    st.tuples(st.just("absent"), _tails),
    st.tuples(st.just("unchanged"), _tails, st.booleans()),
    st.tuples(st.just("range empty"), _ranges),
    st.tuples(st.just("range unchanged"), _ranges, st.booleans()),
)
_Drawn = tuple[object, ...]
_DrawnCommit = tuple[list[_Drawn], list[_Drawn]]
_commits = st.tuples(st.lists(_guards, max_size=2), st.lists(_mutations, max_size=4))


class Model:
    """A dict of key to (value, mod revision), and the rules of the contract in their plainest form."""

    def __init__(self, prefix: bytes, *, has_revisions: bool) -> None:
        self.prefix = prefix
        self.has_revisions = has_revisions
        self.entries: dict[bytes, tuple[bytes, int]] = {}

    def range_of(self, drawn: tuple[str, bytes, bytes]) -> KeyRange:
        kind, start, end = drawn
        return KeyRange.of_prefix(self.prefix + start) if kind == "prefix" else self._between(start, end)

    def _between(self, start: bytes, end: bytes) -> KeyRange:
        return KeyRange(self.prefix + start, self.prefix + end)

    def keys_in(self, drawn: tuple[str, bytes, bytes]) -> list[bytes]:
        kind, start, end = drawn
        if kind == "prefix":
            return sorted(key for key in self.entries if key.startswith(self.prefix + start))
        return sorted(key for key in self.entries if self.prefix + start <= key < self.prefix + end)

    def mutation(self, drawn: _Drawn) -> Mutation:
        match drawn:
            case ("put", bytes(tail), bytes(value)):
                return Put(self.prefix + tail, value)
            case ("delete", bytes(tail)):
                return Delete(self.prefix + tail)
            case (_, (str(kind), bytes(start), bytes(end))):
                return DeleteRange(self.range_of((kind, start, end)))
            case _:
                raise AssertionError(drawn)

    def guard(self, drawn: _Drawn, revision: int) -> tuple[Guard, bool] | None:
        """Return a guard and whether it holds; None where the engine could not be asked."""
        match drawn:
            case ("absent", bytes(tail)):
                return KeyAbsent(self.prefix + tail), self.prefix + tail not in self.entries
            case ("unchanged", bytes(tail), bool(is_right)):
                _, mod_revision = self.entries.get(self.prefix + tail, (b"", 0))
                claimed = mod_revision if is_right else mod_revision + 1
                return KeyUnchanged(self.prefix + tail, claimed), is_right and mod_revision != 0
            case ("range empty", (str(kind), bytes(start), bytes(end))):
                drawn_range = (kind, start, end)
                return RangeEmpty(self.range_of(drawn_range)), not self.keys_in(drawn_range)
            case ("range unchanged", (str(kind), bytes(start), bytes(end)), bool(is_fresh)):
                if not self.has_revisions:
                    return None
                drawn_range = (kind, start, end)
                keys = tuple(self.keys_in(drawn_range))
                known = revision if is_fresh else 0
                return RangeUnchanged(self.range_of(drawn_range), known, keys), is_fresh or not keys
            case _:
                raise AssertionError(drawn)

    def writes_twice(self, mutations: list[_Drawn]) -> bool:
        """Tell whether two mutations could touch one key, by comparing each with each."""
        made = [as_range(self.mutation(drawn)) for drawn in mutations]
        made = [key_range for key_range in made if not key_range.is_empty]
        return any(
            (one.end is None or other.start < one.end) and (other.end is None or one.start < other.end)
            for position, one in enumerate(made)
            for other in made[position + 1 :]
        )

    def apply(self, mutations: list[_Drawn]) -> set[bytes]:
        """Write; return the keys that were put. Their mod revisions are read from the engine."""
        written: set[bytes] = set()
        for drawn in mutations:
            match drawn:
                case ("put", bytes(tail), bytes(value)):
                    self.entries[self.prefix + tail] = (value, -1)
                    written.add(self.prefix + tail)
                case ("delete", bytes(tail)):
                    self.entries.pop(self.prefix + tail, None)
                case (_, (str(kind), bytes(start), bytes(end))):
                    for key in self.keys_in((kind, start, end)):
                        del self.entries[key]
                case _:
                    raise AssertionError(drawn)
        return written


class ModelPromises(Promise):
    """Random commits."""

    def test_random_commits_agree_with_a_dict(self, engine: Engine) -> None:
        # Why: a function of this call, because Hypothesis takes one test run by several engines' classes for a mistake.
        @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None, database=None)
        @given(commits=st.lists(_commits, max_size=8))
        def check(commits: list[_DrawnCommit]) -> None:
            self.compare(engine, commits)

        check()

    def compare(self, engine: Engine, commits: list[_DrawnCommit]) -> None:
        """Carry out the commits on the engine and on a dict, and compare after each."""
        prefix = b"model %06d " % next(_numbers)  # each example in a place of its own
        whole = KeyRange.of_prefix(prefix)
        model = Model(prefix, has_revisions=engine.profile.claims(Capability.REVISIONS))
        for drawn_guards, drawn_mutations in commits:
            with engine.snapshot() as snapshot:
                revision = snapshot.revision
            asked = [guard for drawn in drawn_guards if (guard := model.guard(drawn, revision)) is not None]
            planned = Commit(tuple(guard for guard, _ in asked), tuple(map(model.mutation, drawn_mutations)))
            expected = (
                InvalidInputError
                if model.writes_twice(drawn_mutations)
                else CommitConflictError
                if not all(holds for _, holds in asked)
                else None
            )
            caught: type[Exception] | None = None
            after = revision
            try:
                after = engine.commit(planned)
            except (InvalidInputError, CommitConflictError) as error:
                caught = type(error)
            assert caught is expected
            if expected is None:
                has_changed = self.apply_and_adopt(engine, model, drawn_mutations)
                assert after == revision + (1 if has_changed and model.has_revisions else 0)
            found = {entry.key: (entry.value, entry.mod_revision) for entry in everything(engine, whole)}
            assert found == model.entries

    def apply_and_adopt(self, engine: Engine, model: Model, mutations: list[_Drawn]) -> bool:
        """Carry the mutations out on the model; take the new mod revisions over from the engine. Tell if anything changed."""
        before = dict(model.entries)
        written = model.apply(mutations)
        with engine.snapshot() as snapshot:
            for key in written:
                entry = snapshot.get(key)
                assert entry is not None
                assert entry.mod_revision == (snapshot.revision or entry.mod_revision)
                model.entries[key] = (model.entries[key][0], entry.mod_revision)
        return bool(written) or before.keys() != model.entries.keys()


def as_range(mutation: Mutation) -> KeyRange:
    """Return the keys that a mutation can touch."""
    return mutation.range if isinstance(mutation, DeleteRange) else KeyRange(mutation.key, mutation.key + b"\x00")
