"""Registered prefixes: who owns what. Start at registry.py; rules and rulings: README.md."""

from keyplan.keyspace.allocation import PROFILES
from keyplan.keyspace.answers import (
    AuditItem,
    DeleteProgress,
    Ensured,
    KeySpace,
    KeySpaceIdentity,
    KeySpacePage,
    Owner,
    OwnerKind,
    Usage,
)
from keyplan.keyspace.audit import Acts, AuditVerdict, verified
from keyplan.keyspace.books import BOOK_OF_DIRECTORIES, BOOK_OF_FILES
from keyplan.keyspace.creation import Founding
from keyplan.keyspace.desired import (
    Applied,
    Declaration,
    DeclaredKeySpace,
    Step,
    StepKind,
    apply_steps,
    plan_for,
    plan_steps,
    read_declaration,
)
from keyplan.keyspace.doctor import Diagnosis
from keyplan.keyspace.generations import NO_PAST, JoinedWrites, Past
from keyplan.keyspace.handle import KeySpaceStore, Mode
from keyplan.keyspace.layout import (
    NAME_BYTES_MAX,
    PREFIX_BYTES_MAX,
    DataKey,
    HistoryKey,
    KeySpaceRegistry,
    OrderedDataKey,
    OrderedKeySpaces,
    SessionKey,
    UvarintKeySpaces,
)
from keyplan.keyspace.listing import AUDIT_LIMIT_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, Sees
from keyplan.keyspace.opening import (
    SESSION_SECONDS_DEFAULT,
    open_for_care,
    open_key_space,
    open_keyspace_url,
    open_restoring,
    share_for_care,
    share_on,
)
from keyplan.keyspace.operations import RegistryOperations
from keyplan.keyspace.prefixes import PREFIX_CODECS, PrefixCodec, bytes_of_hex, prefix_codec
from keyplan.keyspace.quota_engine import QuotaEngine
from keyplan.keyspace.reach import DATA_KEYS, GrantedReach, reach_of
from keyplan.keyspace.records import (
    GENERATION_MAX,
    AuditEntry,
    AuditHead,
    Configuration,
    Deletion,
    Fence,
    FenceForm,
    Header,
    KeySpaceRange,
    KeySpaceRecord,
    Mark,
    MarkKind,
    PrefixHolder,
    Quota,
    Session,
    State,
    Sweeping,
    UsageCount,
)
from keyplan.keyspace.registry import KeySpaces
from keyplan.keyspace.removal import BATCH_KEYS_DEFAULT, Stage, SweepProgress
from keyplan.keyspace.roles import Registry, Role
from keyplan.keyspace.rows import Row, has_entries, rows_of, value_of
from keyplan.keyspace.share import KeySpaceEngine
from keyplan.keyspace.soundness import Fault, FaultKind
from keyplan.keyspace.sweeper import Sweeper
from keyplan.keyspace.transactions import RegistryTransaction
from keyplan.keyspace.unmanaged import Unmanaged, unmanaged

__all__ = [
    "AUDIT_LIMIT_MAX",
    "BATCH_KEYS_DEFAULT",
    "BOOK_OF_DIRECTORIES",
    "BOOK_OF_FILES",
    "DATA_KEYS",
    "GENERATION_MAX",
    "LIST_LIMIT_DEFAULT",
    "LIST_LIMIT_MAX",
    "NAME_BYTES_MAX",
    "NO_PAST",
    "PREFIX_BYTES_MAX",
    "PREFIX_CODECS",
    "PROFILES",
    "SESSION_SECONDS_DEFAULT",
    "Acts",
    "Applied",
    "AuditEntry",
    "AuditHead",
    "AuditItem",
    "AuditVerdict",
    "Configuration",
    "DataKey",
    "Declaration",
    "DeclaredKeySpace",
    "DeleteProgress",
    "Deletion",
    "Diagnosis",
    "Ensured",
    "Fault",
    "FaultKind",
    "Fence",
    "FenceForm",
    "Founding",
    "GrantedReach",
    "Header",
    "HistoryKey",
    "JoinedWrites",
    "KeySpace",
    "KeySpaceEngine",
    "KeySpaceIdentity",
    "KeySpacePage",
    "KeySpaceRange",
    "KeySpaceRecord",
    "KeySpaceRegistry",
    "KeySpaceStore",
    "KeySpaces",
    "Mark",
    "MarkKind",
    "Mode",
    "OrderedDataKey",
    "OrderedKeySpaces",
    "Owner",
    "OwnerKind",
    "Past",
    "PrefixCodec",
    "PrefixHolder",
    "Quota",
    "QuotaEngine",
    "Registry",
    "RegistryOperations",
    "RegistryTransaction",
    "Role",
    "Row",
    "Sees",
    "Session",
    "SessionKey",
    "Stage",
    "State",
    "Step",
    "StepKind",
    "SweepProgress",
    "Sweeper",
    "Sweeping",
    "Unmanaged",
    "Usage",
    "UsageCount",
    "UvarintKeySpaces",
    "apply_steps",
    "bytes_of_hex",
    "has_entries",
    "open_for_care",
    "open_key_space",
    "open_keyspace_url",
    "open_restoring",
    "plan_for",
    "plan_steps",
    "prefix_codec",
    "reach_of",
    "read_declaration",
    "rows_of",
    "share_for_care",
    "share_on",
    "unmanaged",
    "value_of",
    "verified",
]
