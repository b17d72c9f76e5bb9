"""Layouts on an engine: typed records, indexes kept in the commit of their record, transactions. Read plan.py first."""

from keyplan.engine import Backoff
from keyplan.store.access import KeyRef, raw_keys_of
from keyplan.store.commits import Explanation
from keyplan.store.decoding import entries_pointing_at
from keyplan.store.index_state import (
    TRANSFER_AREA,
    IndexStage,
    IndexState,
    IndexStateKey,
    IndexStates,
    index_state_key,
    index_state_of,
    index_state_value,
)
from keyplan.store.layout_check import LAYOUT_CHECKS, LayoutCheck, LayoutChecker, LayoutWarning, checked_reaction
from keyplan.store.lease import STORE_CLOSED, Keeper, Lease, LeaseSchedule
from keyplan.store.levels import ItemKeyPage, Level, LevelPage, item_key_page, level_page, levels
from keyplan.store.named_layouts import LAYOUT_GROUP, installed_layouts, layout_named, root_values
from keyplan.store.noted import NotedState, entries_in, holds_in
from keyplan.store.plan import (
    IndexEntry,
    Plan,
    RecordState,
    Write,
    index_entries_of,
    keys_to_observe,
    plan_insertion,
    plan_writes,
    stored_state,
)
from keyplan.store.root_layouts import LeftLayout, NotedLayout, RootLayouts, RootNotes, layouts_at, root_key, root_note
from keyplan.store.store import Store, open_store, url_with_options
from keyplan.store.transaction import PinnedState, Transaction

__all__ = [
    "LAYOUT_CHECKS",
    "LAYOUT_GROUP",
    "STORE_CLOSED",
    "TRANSFER_AREA",
    "Backoff",
    "Explanation",
    "IndexEntry",
    "IndexStage",
    "IndexState",
    "IndexStateKey",
    "IndexStates",
    "ItemKeyPage",
    "Keeper",
    "KeyRef",
    "LayoutCheck",
    "LayoutChecker",
    "LayoutWarning",
    "Lease",
    "LeaseSchedule",
    "LeftLayout",
    "Level",
    "LevelPage",
    "NotedLayout",
    "NotedState",
    "PinnedState",
    "Plan",
    "RecordState",
    "RootLayouts",
    "RootNotes",
    "Store",
    "Transaction",
    "Write",
    "checked_reaction",
    "entries_in",
    "entries_pointing_at",
    "holds_in",
    "index_entries_of",
    "index_state_key",
    "index_state_of",
    "index_state_value",
    "installed_layouts",
    "item_key_page",
    "keys_to_observe",
    "layout_named",
    "layouts_at",
    "level_page",
    "levels",
    "open_store",
    "plan_insertion",
    "plan_writes",
    "raw_keys_of",
    "root_key",
    "root_note",
    "root_values",
    "stored_state",
    "url_with_options",
]
