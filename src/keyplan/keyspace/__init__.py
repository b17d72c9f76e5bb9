"""Registered prefixes: who owns what. Start at registry.py; rules and rulings: README.md."""

from keyplan.keyspace.allocation import PROFILES
from keyplan.keyspace.answers import (
    AuditItem,
    Ensured,
    KeySpace,
    KeySpaceIdentity,
    KeySpacePage,
    Owner,
    OwnerKind,
    Usage,
)
from keyplan.keyspace.audit import AuditVerdict, verified
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
from keyplan.keyspace.generations import GENERATION_MAX, NO_PAST, JoinedWrites, Past
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
from keyplan.keyspace.listing import AUDIT_LIMIT_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from keyplan.keyspace.opening import (
    SESSION_SECONDS_DEFAULT,
    open_for_care,
    open_key_space,
    open_keyspace_url,
    open_restoring,
    share_on,
)
from keyplan.keyspace.operations import RegistryOperations
from keyplan.keyspace.prefixes import PREFIX_CODECS, PrefixCodec, prefix_codec
from keyplan.keyspace.records import (
    AuditEntry,
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
from keyplan.keyspace.removal import Stage, SweepProgress
from keyplan.keyspace.roles import Registry, Role
from keyplan.keyspace.share import KeySpaceEngine
from keyplan.keyspace.soundness import Fault, FaultKind
from keyplan.keyspace.sweeper import Sweeper
from keyplan.keyspace.unmanaged import Unmanaged, unmanaged

__all__ = [
    "AUDIT_LIMIT_MAX",
    "GENERATION_MAX",
    "LIST_LIMIT_DEFAULT",
    "LIST_LIMIT_MAX",
    "NAME_BYTES_MAX",
    "NO_PAST",
    "PREFIX_BYTES_MAX",
    "PREFIX_CODECS",
    "PROFILES",
    "SESSION_SECONDS_DEFAULT",
    "Applied",
    "AuditEntry",
    "AuditItem",
    "AuditVerdict",
    "Configuration",
    "DataKey",
    "Declaration",
    "DeclaredKeySpace",
    "Deletion",
    "Diagnosis",
    "Ensured",
    "Fault",
    "FaultKind",
    "Fence",
    "FenceForm",
    "Founding",
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
    "Registry",
    "RegistryOperations",
    "Role",
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
    "open_for_care",
    "open_key_space",
    "open_keyspace_url",
    "open_restoring",
    "plan_for",
    "plan_steps",
    "prefix_codec",
    "read_declaration",
    "share_on",
    "unmanaged",
    "verified",
]
