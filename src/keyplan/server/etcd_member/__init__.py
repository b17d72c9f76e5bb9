"""What the gateways say of themselves: a member of an etcd cluster with an identity; and how they follow the store."""

from keyplan.server.etcd_member.follower import Follower
from keyplan.server.etcd_member.identity import CLUSTER_VERSION, SERVER_VERSION, Identity, load_identity
from keyplan.server.etcd_member.members import Member, Membership
from keyplan.server.etcd_member.reserved import RESERVED, is_reserved
from keyplan.server.etcd_member.routes import (
    CORS_HEADERS,
    EtcdRoute,
    answer_unknown,
    cleaned_path,
    has_caller,
    not_found_route,
    redirect_to,
    version_route,
)

__all__ = [
    "CLUSTER_VERSION",
    "CORS_HEADERS",
    "RESERVED",
    "SERVER_VERSION",
    "EtcdRoute",
    "Follower",
    "Identity",
    "Member",
    "Membership",
    "answer_unknown",
    "cleaned_path",
    "has_caller",
    "is_reserved",
    "load_identity",
    "not_found_route",
    "redirect_to",
    "version_route",
]
