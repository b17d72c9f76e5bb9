"""A key of a table that begins with another key of the same table misleads no list: why L3 leaves that in binary layouts.

A list binds fewer fields than a key has. What goes on behind a whole key is on the lists that the key is on, or its values show
where it differs; where its bytes alone do not, a raw reader is misled by the list's prefix, and L4 says so.
"""

from random import Random

import pytest

from keyplan.layout import Template, layout_class_of, lint
from tests.small_keys import KeysByBytes, layout_of, random_template, small_keys

SEEDS = 240


def nested(seed: int) -> tuple[Template, KeysByBytes] | None:
    """A random template with a key that begins with another one; None when what was drawn is none, or is ambiguous."""
    made = random_template(Random(seed), is_text=False)
    keys = small_keys(made) if made is not None else {}
    if made is None or any(len(readings) > 1 for readings in keys.values()):
        return None
    is_nested = any(raw[:cut] in keys for raw in keys for cut in range(len(raw)))
    return (made, keys) if is_nested else None


def test_there_are_such_templates() -> None:
    assert sum(nested(seed) is not None for seed in range(SEEDS)) >= 24


@pytest.mark.parametrize("seed", range(SEEDS))
def test_keys_within_keys_mislead_no_list_and_no_raw_reader_of_one_without_l4(seed: int) -> None:
    case = nested(seed)
    if case is None:
        return
    template, keys = case
    spec = layout_of(template)
    table = layout_class_of(spec).bound().tables["t0"].keys
    is_astray = False
    for bound in range(len(template.fields)):
        for prefix in sorted({values[:bound] for (values,) in keys.values()}, key=repr)[:40]:
            listed = table.listed(prefix)
            within = [raw for raw in keys if listed.start <= raw and (listed.end is None or raw < listed.end)]
            wanted = {raw for raw, (values,) in keys.items() if values[:bound] == prefix}
            assert {raw for raw in within if listed.read(raw) is not None} == wanted, (template.source, prefix)
            is_astray |= set(within) != wanted
    report = lint(spec)
    assert not is_astray or report.of_rule("L4") or report.of_rule("L2"), template.source
    assert report.of_rule("L3") == ()
