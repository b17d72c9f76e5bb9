"""What the gateways say of themselves: a member of an etcd cluster with an identity; and how they follow the store."""

from keyplan.server.etcd_member.follower import Follower
from keyplan.server.etcd_member.identity import CLUSTER_VERSION, SERVER_VERSION, Identity, load_identity
from keyplan.server.etcd_member.members import Member, Membership
from keyplan.server.etcd_member.reserved import RESERVED, is_reserved
from keyplan.server.etcd_member.routes import plain_not_found, version_route

__all__ = [
    "CLUSTER_VERSION",
    "RESERVED",
    "SERVER_VERSION",
    "Follower",
    "Identity",
    "Member",
    "Membership",
    "is_reserved",
    "load_identity",
    "plain_not_found",
    "version_route",
]
