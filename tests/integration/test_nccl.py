"""A run that requires a network of NCCL. The ranks write NCCL's lines where NCCL would: no GPU is here."""

from __future__ import annotations

from tests.integration.rig import Cluster

# Rank 2 falls back to TCP; the others have InfiniBand.
FALLS_BACK = (
    'network=IB; [ "$RANK" = 2 ] && network=Socket; '
    'printf "h:1:1 [0] NCCL INFO NET/IB : No device found.\\nh:1:1 [0] NCCL INFO Using network %s\\n" $network '
    '>"$NCCL_DEBUG_FILE"; sleep 60'
)


def test_a_silent_fall_back_ends_the_run(cluster: Cluster) -> None:
    done = cluster.kit("run", "--npernode", "1", "--nccl-require", "IB", "--", "sh", "-c", FALLS_BACK)
    assert done.returncode == 5, done.stderr
    said = done.stdout + done.stderr
    host = cluster.hosts[2].name
    assert f"{host}: NCCL uses the network Socket, and nccl.require is IB; NCCL says: NET/IB : No device found." in said
    assert "kit run --nccl-require any" in said
    cluster.wait_for_none()


def test_a_run_without_nccl_is_not_checked_and_says_so(cluster: Cluster) -> None:
    done = cluster.kit("run", "--npernode", "1", "--nccl-require", "IB", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "NCCL chose no network in this run" in done.stdout + done.stderr
