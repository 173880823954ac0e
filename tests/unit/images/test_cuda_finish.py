"""images/cuda/finish: what it removes of NVIDIA's wheels and what it adds, and that all stays that a rank may load."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FINISH = Path(__file__).parents[3] / "images/cuda/finish"
# As the wheels of CUDA 12 for TensorFlow have them, but for most of cuDNN.
LOADED = (
    "cublas/lib/libcublas.so.12", "cublas/lib/libcublasLt.so.12", "cuda_cupti/lib/libcupti.so.12",
    "cuda_nvcc/bin/ptxas", "cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "cuda_nvrtc/lib/libnvrtc.so.12",
    "cuda_nvrtc/lib/libnvrtc-builtins.so.12.2", "cuda_runtime/lib/libcudart.so.12", "cudnn/lib/libcudnn.so.8",
    "cudnn/lib/libcudnn_adv_train.so.8", "cufft/lib/libcufft.so.11", "curand/lib/libcurand.so.10",
    "cusolver/lib/libcusolver.so.11", "cusparse/lib/libcusparse.so.12", "nccl/lib/libnccl.so.2",
    "nvjitlink/lib/libnvJitLink.so.12",
)  # fmt: skip
CUT_AWAY = (
    "cublas/lib/libnvblas.so.12", "cuda_nvcc/nvvm/lib64/libnvvm.so", "cuda_runtime/include/cuda.h",
    "cufft/lib/libcufftw.so.11", "cusolver/lib/libcusolverMg.so.11", "cudnn/lib/libcudnn_static.a",
)  # fmt: skip
COUNTERS = ("cuda_cupti/lib/libnvperf_host.so", "cuda_cupti/lib/libnvperf_target.so", "cuda_cupti/lib/libcheckpoint.so")


@pytest.mark.parametrize(("framework", "kept"), [("tensorflow", ()), ("mxnet", ()), ("pytorch", COUNTERS)])
def test_what_a_rank_may_load_stays(framework: str, kept: tuple[str, ...], tmp_path: Path) -> None:
    for name in (*LOADED, *CUT_AWAY, *COUNTERS):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    subprocess.run(["sh", str(FINISH), str(tmp_path), framework], check=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*LOADED, *kept, "cuda_nvrtc/lib/libnvrtc.so"}
    assert (tmp_path / "cuda_nvrtc/lib/libnvrtc.so").readlink() == Path("libnvrtc.so.12")
