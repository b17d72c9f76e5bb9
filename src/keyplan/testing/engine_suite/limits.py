"""Promise: what is larger than the profile says is refused, by the limit's name, before anything is written."""

from collections.abc import Callable

import pytest

from keyplan.engine import Commit, Delete, Engine, Guard, KeyAbsent, KeyUnchanged, Mutation, Put
from keyplan.errors import EngineLimitError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, put

__all__ = ["LimitPromises"]

_TRIED_BYTES_MAX = 1 << 26
"""Why: a limit beyond 64 MiB is not tried out; the arithmetic is the same, the memory is not."""


class LimitPromises(Promise):
    """The limits of the profile."""

    def test_a_key_of_the_greatest_length_is_stored(self, engine: Engine) -> None:
        size = engine.profile.key_bytes_max or 10_000
        keys = [b"\xff" * size, b"a" * size, b"\x00" * size]
        put(engine, *keys)
        assert [entry.key for entry in everything(engine)] == keys[::-1]
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.get_many(keys) if entry] == keys

    @pytest.mark.parametrize(
        ("guards_of", "mutations_of"),
        [
            (lambda _: (), lambda key: (Put(key, b""),)),
            (lambda _: (), lambda key: (Delete(key),)),
            (lambda key: (KeyAbsent(key),), lambda _: ()),
            (lambda key: (KeyUnchanged(key, 1),), lambda _: ()),
        ],
        ids=["put", "delete", "absent", "unchanged"],
    )
    def test_a_longer_key_is_refused(
        self,
        engine: Engine,
        guards_of: Callable[[bytes], tuple[Guard, ...]],
        mutations_of: Callable[[bytes], tuple[Mutation, ...]],
    ) -> None:
        limit = engine.profile.key_bytes_max
        if limit is None:
            pytest.skip("the engine has no limit for keys")
        key = b"k" * (limit + 1)
        with pytest.raises(EngineLimitError) as caught:
            engine.commit(Commit(guards_of(key), (*mutations_of(key), Put(b"a", b""))))
        assert caught.value.facts == {"limit": "key_bytes_max", "allowed": limit, "actual": limit + 1}
        assert everything(engine) == []

    def test_the_empty_key_is_stored_or_refused_as_the_profile_says(self, engine: Engine) -> None:
        if engine.profile.empty_key:
            put(engine, b"", b"a")
            assert [entry.key for entry in everything(engine)] == [b"", b"a"]
            return
        for refused in (Put(b"", b""), Delete(b"")):
            with pytest.raises(EngineLimitError) as caught:
                commit(engine, Put(b"a", b""), refused)
            assert caught.value.facts == {"limit": "key_bytes_min", "allowed": 1, "actual": 0}
        assert everything(engine) == []

    def test_a_larger_value_is_refused(self, engine: Engine) -> None:
        limit = engine.profile.value_bytes_max
        if limit is None or limit > _TRIED_BYTES_MAX:
            pytest.skip("the engine's limit for values is not worth trying")
        with pytest.raises(EngineLimitError) as caught:
            commit(engine, Put(b"a", b""), Put(b"b", b"v" * (limit + 1)))
        assert caught.value.facts == {"limit": "value_bytes_max", "allowed": limit, "actual": limit + 1}
        assert everything(engine) == []

    def test_more_operations_are_refused(self, engine: Engine) -> None:
        limit = engine.profile.commit_operations_max
        if limit is None:
            pytest.skip("the engine has no limit for operations")
        keys = [b"%06d" % number for number in range(limit + 1)]
        for guards, mutations in (((), tuple(Put(key, b"") for key in keys)), (tuple(map(KeyAbsent, keys)), ())):
            with pytest.raises(EngineLimitError) as caught:
                engine.commit(Commit(guards, mutations))
            assert caught.value.facts == {"limit": "commit_operations_max", "allowed": limit, "actual": limit + 1}
        assert everything(engine) == []
        put(engine, *keys[:limit])
        assert len(everything(engine)) == limit

    def test_a_larger_commit_is_refused(self, engine: Engine) -> None:
        limit = engine.profile.commit_bytes_max
        if limit is None or limit > _TRIED_BYTES_MAX:
            pytest.skip("the engine's limit for commits is not worth trying")
        with pytest.raises(EngineLimitError) as caught:
            commit(engine, Put(b"a", b"v" * (limit // 2)), Put(b"b", b"v" * (limit - limit // 2 - 1)))
        assert caught.value.facts == {"limit": "commit_bytes_max", "allowed": limit, "actual": limit + 1}
        assert everything(engine) == []
