"""What a node is given for an upgrade, beside its home, where its user alone reads it."""

from pathlib import Path

from keyplan.apps.patroni.node_config import NodePlan
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.upgrades.script import MAKING_FILE, Versions, making_script
from keyplan.files import write_whole

__all__ = ["write_making_script"]


def write_making_script(plan: NodePlan, host: Host, folder: Path) -> None:
    """Write what makes its data, where its cluster begins with those of another version. Raises InvalidInputError.

    `host` is that of its user, and `folder` lies beside that of the node whose data they are.
    """
    upgrade = plan.upgrade
    if upgrade is None:
        return
    versions = Versions(
        host.programs_for(upgrade.former_version), host.programs_for(upgrade.version), version=upgrade.version
    )
    former_data = folder.parent / upgrade.node / "home" / "data"
    text = making_script(versions, former_data=former_data, home=folder / "home")
    write_whole(folder / MAKING_FILE, text, owner=host.owner)
