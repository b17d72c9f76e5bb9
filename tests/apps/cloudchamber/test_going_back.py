"""What CloudChamber's deletes expect, when the store went back since it was read."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import keyplan
from keyplan.apps.cloudchamber import Chamber, CloudChamber, DeletePolicy, Rack
from keyplan.errors import StaleRecordError
from keyplan.store import Store
from tests.store.engines import no_waiting
from tests.store.test_lineage import Cluster


@pytest.mark.parametrize("delete_policy", DeletePolicy)
def test_a_rack_that_was_read_before_is_not_deleted_after(delete_policy: DeletePolicy) -> None:
    cluster = Cluster()
    chamber = Chamber(Store(cluster, backoff=no_waiting()))
    racks = chamber.layout.racks
    racks.insert("ada", Rack())
    seen = racks.versioned("ada")
    assert seen is not None
    cluster.restore()
    assert racks.insert("ada", Rack()) == seen.revision
    with pytest.raises(StaleRecordError):
        chamber.delete_rack("ada", delete_policy=delete_policy, expected_revision=seen)
    assert racks.exists("ada")
    chamber.delete_rack("ada", delete_policy=delete_policy, expected_revision=racks.versioned("ada"))
    assert not racks.exists("ada")


@pytest.mark.parametrize("delete_policy", DeletePolicy)
def test_the_number_of_an_etag_means_nothing_else_in_a_folder_that_was_put_back(
    tmp_path: Path, delete_policy: DeletePolicy
) -> None:
    def changed() -> int:
        with keyplan.open(f"lmdb:{tmp_path / 'store'}") as store:
            return CloudChamber(store).racks.put("ada", Rack())

    changed()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    etag: Any = changed()
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "copy").rename(tmp_path / "store")
    assert changed() > etag
    with keyplan.open(f"lmdb:{tmp_path / 'store'}") as store:
        with pytest.raises(StaleRecordError):
            Chamber(store).delete_rack("ada", delete_policy=delete_policy, expected_revision=etag)
        assert CloudChamber(store).racks.exists("ada")
