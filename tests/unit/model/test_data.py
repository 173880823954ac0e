from __future__ import annotations

import pytest

from kit.model.data import DataSource, DataSpec, data_folder, is_data_folder

IN_A_STORE = DataSource(kind="store", text="s3://bucket/web", scheme="s3", place="bucket", path="web")


@pytest.mark.parametrize(
    ("data", "folder"),
    [
        (DataSpec(name="web", source=IN_A_STORE, to="/data"), "/opt/kit/.data/lab/web"),
        (DataSpec(name="web", source=IN_A_STORE, to="/data", dir="/nvme/"), "/nvme/kit-data/lab/web"),
        (DataSpec(name="web", source=IN_A_STORE, to="/data", dir="/"), "/kit-data/lab/web"),
        (DataSpec(name="web", source=IN_A_STORE, to="/data", stage="ram", size="2gb"), "/dev/shm/kit-data/lab/web"),
    ],
)
def test_the_folder_follows_the_stage_and_its_dir(data: DataSpec, folder: str) -> None:
    assert data_folder("lab", data) == folder
    assert is_data_folder("lab", folder)
    # Those of another cluster, and whatever else a host may name.
    assert not is_data_folder("other", folder)
    assert not is_data_folder("lab", f"{folder}/files")
    assert not is_data_folder("lab", folder.replace("kit-data", "home").replace(".data", "lab"))


def test_a_size_is_in_bytes_and_only_a_mount_is_not_staged() -> None:
    in_memory = DataSpec(name="web", source=IN_A_STORE, to="/data", stage="ram", size="2gb")
    mounted = DataSpec(name="web", source=IN_A_STORE, to="/data", stage="none")
    assert in_memory.size_bytes == 2 << 30
    assert mounted.size_bytes is None
    assert (in_memory.staged, mounted.staged) == (True, False)
