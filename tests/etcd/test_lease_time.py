"""The time that a lease has left, as etcd tells it."""

from types import SimpleNamespace
from typing import cast

import pytest

from keyplan.engine.etcd import lease
from keyplan.engine.etcd.client import EtcdClient
from keyplan.engine.etcd.lease import EtcdLease

FOR_EVER = (2**63 - 1) // 10**9
"""What a member answers that has just lost or won the leadership."""


@pytest.mark.parametrize(("told", "left"), [(4, 4.0), (600, 600.0), (FOR_EVER, 600.0)])
def test_a_lease_has_no_more_left_than_it_was_granted(monkeypatch: pytest.MonkeyPatch, told: int, left: float) -> None:
    answer = SimpleNamespace(TTL=told, grantedTTL=600)
    monkeypatch.setattr(lease, "_time_to_live", lambda _client, _lease: answer)
    assert EtcdLease.seconds_left(cast("EtcdLease", SimpleNamespace(_client=cast("EtcdClient", None), _id=7))) == left
