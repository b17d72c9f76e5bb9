"""`lmdb:PATH`, the embedded default: several processes, durable commits, history and leases on top of plain LMDB."""

from keyplan.engine.lmdb.engine import LmdbEngine, open_lmdb
from keyplan.engine.lmdb.options import Durability, LmdbOptions

__all__ = ["Durability", "LmdbEngine", "LmdbOptions", "open_lmdb"]
