"""Rules that let time pass, and grant, renew, take up and revoke leases."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from keyplan.errors import LeaseNotFoundError
from keyplan.store import Lease
from tests.model.dictionary import Holder
from tests.model.machine import Stores
from tests.model.operations import Put
from tests.model.record_rules import holders

__all__ = ["LeaseRules"]

ttls = st.integers(1, 12)
# Why: some steps are longer than any time to live, so that several leases end at once.
passing = st.sampled_from([1, 4, 20])


class LeaseRules(Stores):
    """See the module. The leases of the stores are counted alike, so that the model's number is the id."""

    @rule(seconds=passing)
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.pass_time(seconds)

    @rule(holder=holders, ttl_seconds=ttls)
    def a_holder_gets_a_new_lease(self, holder: int, ttl_seconds: int) -> None:
        granted = self.model.grant(ttl_seconds)
        self.model.holders[holder] = granted
        for store, leases in zip(self.stores[:2], self.leases, strict=False):
            leases[holder] = store.lease(ttl_seconds, keep_alive=False)
            assert leases[holder].id == granted.lease

    @rule(holder=holders)
    def a_lease_is_renewed(self, holder: int) -> None:
        expected = self.model.renew(self.model.holders[holder])
        for leases in self.leases[:2]:
            assert _renewed(leases[holder]) == expected
            assert leases[holder].is_over == self.model.holders[holder].is_over

    @rule(holder=holders)
    def a_lease_is_renewed_at_the_last_moment(self, holder: int) -> None:
        self.a_holder_gets_a_new_lease(holder, 5)
        for _ in range(2):
            self.time_passes(4)
            self.a_lease_is_renewed(holder)

    @precondition(lambda self: self.model.members())
    @rule(data=st.data(), holder=holders)
    def a_member_moves_to_another_lease(self, data: st.DataObject, holder: int) -> None:
        key, stored = data.draw(st.sampled_from(self.model.members()))
        put = Put(key, stored.blade, holder)
        expected = self.model.commit(put)
        for place, site in enumerate(self.sites[:2]):
            assert self.outcomes(place, site, [put]) == [expected]

    @rule(holder=holders)
    def a_lease_is_revoked(self, holder: int) -> None:
        self.model.revoke(self.model.holders[holder])
        for leases in self.leases[:2]:
            leases[holder].revoke()

    @rule(holder=holders, earlier=st.integers(0, 3))
    def a_lease_is_taken_up_by_its_id(self, holder: int, earlier: int) -> None:
        lease = max(1, len(self.model.ttls) - earlier)
        is_living = lease in self.model.ends
        for store, leases in zip(self.stores[:2], self.leases, strict=False):
            try:
                leases[holder] = store.resume_lease(lease, keep_alive=False)
            except LeaseNotFoundError:
                assert not is_living
            else:
                assert is_living
        if is_living:
            self.model.holders[holder] = Holder(lease)


def _renewed(lease: Lease) -> str:
    try:
        lease.keep_alive()
    except LeaseNotFoundError:
        return "LeaseNotFoundError"
    return "done"
