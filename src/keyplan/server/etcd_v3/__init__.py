"""etcd's third protocol over any keyplan store: JSON over HTTP, for Patroni's `etcd3:` mode and clients like it, and gRPC.

Keys, revisions and leases are the engine's own. Start in `service.py` for the calls, `transaction.py` for what a commit is.
"""

from keyplan.server.etcd_v3.service import SERVICE_NAME, build

__all__ = ["SERVICE_NAME", "build"]
