"""The document's scenarios as data: keyspaces.md 4.4."""

import json
from itertools import pairwise

from keyplan.regions import NumberedSpace, Region, RegisteredSpace, parse_regions

S1_SPACES = [
    RegisteredSpace("orders", b"\x01"),
    RegisteredSpace("users", b"\x02"),
    RegisteredSpace("tidb-meta", b"\x6d"),
    RegisteredSpace("tidb-data", b"\x74"),
]

S1_BOUNDS = [
    "",
    "0100000000000000F8",
    "0175736572732F30FF3030303030310000FD",
    "0261000000000000F9",
    "0300000000000000F8",
    "6D00000000000000F8",
    "7480000000000000FF0500000000000000F8",
    "",
]

DEFAULT = NumberedSpace("DEFAULT", 0)

F1_RULE = {
    "id": "keyspaces/0",
    "index": 0,
    "labels": [{"key": "id", "value": "0"}],
    "rule_type": "key-range",
    "data": [
        {"start_key": "7200000000000000fb", "end_key": "7200000100000000fb"},
        {"start_key": "7800000000000000fb", "end_key": "7800000100000000fb"},
    ],
}

F3 = """{"id":46253,"start_key":"7480000000000002FF3400000000000000F8","end_key":"7480000000000002FF3C00000000000000F8",
"epoch":{"conf_ver":5,"version":3175},"peers":[{"id":46254,"store_id":1},{"id":46255,"store_id":4},
{"id":46256,"store_id":5}],"leader":{"id":46254,"store_id":1},"written_bytes":337,"approximate_size":1,
"approximate_keys":2662654}"""

F5 = """{"id":4824,"start_key":"7480000000000000FF4C5F728000000094FFFFC3460000000000FA",
"end_key":"7480000000000000FF4C5F728000000095FF06C0E00000000000FA","epoch":{"conf_ver":2,"version":817},
"peers":[{"id":4825,"store_id":1,"role_name":"Voter"},{"id":4826,"store_id":68,"role":1,"role_name":"Learner",
"is_learner":true}],"leader":{"id":4825,"store_id":1,"role_name":"Voter"},"approximate_size":105,
"approximate_keys":503161}"""


def regions_between(*bounds: str, first: int = 10) -> list[Region]:
    """Regions from each bound to the next, in hexadecimal digits."""
    pairs = pairwise(bounds)
    described = [{"id": first + n, "start_key": start, "end_key": end} for n, (start, end) in enumerate(pairs)]
    return parse_regions(json.dumps({"count": len(described), "regions": described}).encode())
