"""`lmdb:PATH`, the embedded default: several processes, durable commits, history and leases on top of plain LMDB."""

from keyplan.engine.lmdb.engine import LmdbEngine, open_lmdb
from keyplan.engine.lmdb.options import LMDB_PROFILE, Durability, LmdbOptions

__all__ = ["LMDB_PROFILE", "Durability", "LmdbEngine", "LmdbOptions", "open_lmdb"]
