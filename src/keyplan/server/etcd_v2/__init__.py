"""The keys API of etcd's second version, over any keyplan store: `/v2/keys`, `/v2/machines`, `/v2/members`, `/v2/stats`.

A path is the raw key of the same bytes, so that v2 clients, v3 clients and layouts see the same records. Start in
`operations.py` for what writes do, `ledger.py` for how they are committed, `records.py` for what is kept beside the keys.
"""

from keyplan.server.etcd_v2.service import SERVICE_NAME, build

__all__ = ["SERVICE_NAME", "build"]
