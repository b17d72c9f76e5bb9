"""What can be read of a store or a transaction, compared with what the dictionary says; and what its raw keys should be."""

from keyplan.engine import ALL_KEYS
from keyplan.store import Store
from tests.model.dictionary import Dictionary
from tests.store.layouts import Site

__all__ = ["MEMBERS", "RACKS", "SERIALS", "SLOTS", "TAGS", "check_reads", "raw_keys"]

# Why: names that are one another's beginnings and literals of the templates find what leaks.
RACKS = ["a", "ab", "rack"]
SLOTS = ["1", "11"]
MEMBERS = ["m", "m1", "blades"]
SERIALS = ["s", "s2", "by-serial"]
TAGS = ["x", "xy", "blades"]


def check_reads(site: Site, expected: Dictionary) -> None:
    """Everything that can be read says what the dictionary says."""
    _check_blades(site, expected)
    _check_members(site, expected)
    assert site.ports.peek() == expected.next_number


def _check_blades(site: Site, expected: Dictionary) -> None:
    listed = expected.blades()
    blades = dict(listed)
    assert list(site.blades.list()) == listed
    assert list(site.blades.keys(reverse=True)) == [key for key, _ in reversed(listed)]
    assert [site.blades.get(key) for key, _ in listed] == [blade for _, blade in listed]
    for rack in RACKS:
        of_rack = [key for key, _ in listed if key.rack == rack]
        assert list(site.blades.keys(rack)) == of_rack
        assert list(site.blades.keys(rack, limit=1, reverse=True)) == of_rack[-1:]
        assert site.blades.count(starts_with=rack) == sum(1 for key, _ in listed if key.rack.startswith(rack))
    for tag in TAGS:
        tagged = sorted((key for key, blade in listed if tag in blade.tags), key=lambda key: f"{key.rack}/{key.slot}")
        assert list(site.by_tag.keys(tag)) == tagged
        assert list(site.by_tag.list(tag)) == [(key, blades[key]) for key in tagged]
    for serial in SERIALS:
        holder = next((key for key, blade in listed if blade.serial == serial), None)
        assert site.by_serial.key_of(serial) == holder
        assert site.by_serial.one(serial) == (None if holder is None else blades[holder])


def _check_members(site: Site, expected: Dictionary) -> None:
    members = dict(expected.members())
    found = [(entry.key, entry.record, entry.lease) for entry in site.members.entries()]
    assert found == [(key, stored.blade, stored.lease) for key, stored in members.items()]
    for tag in TAGS:
        tagged = [(key, stored.blade) for key, stored in members.items() if tag in stored.blade.tags]
        assert list(site.member_by_tag.list(tag)) == tagged
    for serial in SERIALS:
        holder = next((key for key, stored in members.items() if stored.blade.serial == serial), None)
        assert site.member_by_serial.key_of(serial) == holder


def raw_keys(store: Store) -> dict[bytes, int]:
    """Every raw key that the store holds, and the lease it hangs on."""
    with store.engine.snapshot() as snapshot:
        return {entry.key: entry.lease for entry in snapshot.scan(ALL_KEYS)}
