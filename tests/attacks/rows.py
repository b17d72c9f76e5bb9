"""The protocols that are attacked."""

from typing import Final

from tests.attacks import etcd_v2, etcd_v3, explorer, registry

__all__ = ["ROWS"]

ROWS: Final = (etcd_v3.ROW, etcd_v2.ROW, explorer.ROW, registry.ROW)
