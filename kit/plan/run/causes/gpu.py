"""Rules for GPUs: their memory, driver, hardware and CUDA's libraries."""

from __future__ import annotations

from kit.plan.run.causes.rule import BUILD, Rule

GPU = (
    Rule(
        name="gpu-memory",
        text="the GPU is out of memory",
        hint="use a smaller batch; if the program does not choose its GPU by its local rank, add --gpu-per-rank; see "
        "what uses the memory: kit ssh {host} -- nvidia-smi",
        says=(
            "OOM when allocating tensor with …device:GPU",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "cudaMalloc failed: out of memory",
            "cudaMalloc retry failed: out of memory",
            "CUDA out of memory. Tried to allocate",
            "CUDA error: out of memory",
            "Cuda failure 'out of memory'",
            "Cuda failure 2 'out of memory'",
            "CUDNN_STATUS_ALLOC_FAILED",
            "CUBLAS_STATUS_ALLOC_FAILED",
            # TensorFlow's words for a copy to a GPU whose memory is full (tensorflow/tensorflow#7025).
            "Dst tensor is not initialized",
        ),
        raised=(
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate ",
            "ResourceExhaustedError: …Out of memory while trying to allocate ",
            "RESOURCE_EXHAUSTED: Failed to allocate request for ",
        ),
    ),
    Rule(
        name="driver-old",
        text="the VM's NVIDIA driver is too old for the image's CUDA",
        hint="install a newer driver on the VM, or use an image.base with an older CUDA; see the driver's "
        "version: kit exec {host} -- nvidia-smi",
        says=(
            "CUDA driver version is insufficient",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "compiled with an unsupported toolchain",
            "forward compatibility was attempted on non supported HW",
        ),
        raised=("The NVIDIA driver on your system is too old (found version ",),
    ),
    Rule(
        name="driver-libcuda",
        text="the container's libcuda and the VM's NVIDIA kernel module have different versions: the driver was "
        "updated without a reboot, or the image has another libcuda (CUDA's compat folder)",
        hint="remove that libcuda from the image, from volumes: and from LD_LIBRARY_PATH; without one, reboot the "
        "VM; then run: kit deploy",
        says=("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "(803 vs. 0) : system has unsupported display driver"),
        raised=("Error 803: system has unsupported display driver",),
    ),
    Rule(
        name="driver-mismatch",
        text="the NVIDIA driver on the VM was updated, but its old kernel module is still loaded",
        hint="reboot the VM, then run: kit deploy",
        says=(
            "Failed to initialize NVML: Driver/library version mismatch",
            "NVRM: API mismatch",
        ),
    ),
    Rule(
        name="fabric",
        text="the NVSwitch between the GPUs is not ready: nvidia-fabricmanager does not run on the VM, or has another "
        "version than the driver",
        hint="install nvidia-fabricmanager in exactly the version of the driver, and start it; see its state: "
        "kit ssh {host} -- systemctl status nvidia-fabricmanager",
        says=(
            "Error 802: system not yet initialized",
            "(802) : system not yet initialized",
            "CUDA_ERROR_SYSTEM_NOT_READY",
        ),
        raised=("CUDA error: system not yet initialized",),
    ),
    Rule(
        name="gpu-broken",
        text="a GPU of the host is broken, or fell off the bus",
        hint="leave out the host (-H), and reboot or replace it; look at the kernel log: kit ssh {host} -- sudo dmesg",
        says=(
            "uncorrectable ECC error",
            "CUDA_ERROR_ECC_UNCORRECTABLE",
            "GPU has fallen off the bus",
            "GPU is lost",
            "NVRM: Xid",
            "uncorrectable NVLink error",
            "CUDA_ERROR_NVLINK_UNCORRECTABLE",
            "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        ),
    ),
    Rule(
        name="gpu-busy",
        text="the GPU refused the rank: it is in exclusive mode and another process uses it, or it needs a reset",
        hint="start one rank per GPU and end other processes on it, or let it take several: "
        "kit ssh {host} -- sudo nvidia-smi -c DEFAULT",
        says=(
            "CUDA-capable device(s) is/are busy or unavailable",
            "all CUDA-capable devices are busy or unavailable",
            "CUDA_ERROR_DEVICE_UNAVAILABLE",
        ),
    ),
    Rule(
        name="gpu-shared",
        text="ranks {first} and {second} use the same GPU, but NCCL needs one for each rank",
        hint="choose the GPU in the program by hvd.local_rank() or LOCAL_RANK, or let kit give each rank its own: "
        "kit run --again {run} --gpu-per-rank",
        says=("Duplicate GPU detected : rank {first} and rank {second} both on CUDA device",),
    ),
    Rule(
        name="gpu-number",
        text="the rank used a GPU that the host does not have: there are more ranks than GPUs, or the rank "
        "used another rank's GPU",
        hint="use hvd.local_rank() in the program, or GPU 0 with --gpu-per-rank; check slots= in the hosts file; "
        "list the GPUs: kit exec {host} -- nvidia-smi -L",
        says=(
            "invalid device ordinal",
            "CUDA_ERROR_INVALID_DEVICE",
            "is out of range. Please use a device index less than the number of accelerators available",
            "no supported devices found for platform CUDA",
        ),
    ),
    Rule(
        name="gpu-none",
        text="the container has no GPU, or lost it",
        hint="systemctl daemon-reload takes the GPUs of a running node; recreate it with: kit deploy",
        says=(
            "Failed to initialize NVML: Unknown Error",
            "cudaErrorNoDevice",
            "Cuda failure 'no CUDA-capable device is detected'",
            "Check failed: …: no CUDA-capable device is detected",
        ),
        raised=(
            "No CUDA GPUs are available",
            "Found no NVIDIA driver on your system",
            "CUDA unknown error - this may be due to an incorrectly set up environment",
            "no CUDA-capable device is detected",
            "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "Could not satisfy device specification '…device:GPU:",
        ),
    ),
    Rule(
        name="gpu-model",
        text="the program, or a library that it uses, was not built for this model of GPU",
        hint="for a library in image.pip, pin a version that supports the GPU; for a framework, whose version kit "
        "locks, use image.flavour ssh-layer with an image.base that supports it; see the model: "
        "kit exec {host} -- nvidia-smi -L",
        says=("no kernel image is available for execution on the device", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    ),
    Rule(
        name="cudnn-version",
        text="the image has another version of cuDNN than the framework was built for",
        hint="remove cuDNN from image.pip and volumes: in kit.yaml; with image.flavour ssh-layer, pin in image.pip the "
        f"version that the output names; then {BUILD}",
        says=(
            "Loaded runtime CuDNN library: ",
            "CUDNN_STATUS_VERSION_MISMATCH",
            "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
            "cuDNN version incompatibility: PyTorch was compiled ",
        ),
    ),
    Rule(
        name="cudnn-start",
        text="cuDNN or cuBLAS could not start on the GPU; usually other processes use its memory",
        hint="if the program does not choose its GPU by its local rank, add --gpu-per-rank; for TensorFlow, set "
        "TF_FORCE_GPU_ALLOW_GROWTH: 'true' in env: of kit.yaml; see what uses the memory: kit ssh {host} -- nvidia-smi",
        says=(
            "Could not create cudnn handle: CUDNN_STATUS_",
            "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
            "(CUDNN_STATUS_SUCCESS) CUDNN_STATUS_NOT_INITIALIZED",
            "cuDNN: CUDNN_STATUS_NOT_INITIALIZED",
            "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
            "CUBLAS_STATUS_NOT_INITIALIZED when calling ",
        ),
    ),
    Rule(
        name="cuda-assert",
        text="a check inside a CUDA kernel failed, usually because a label or an index is out of range",
        hint="find the line in the program: kit run --again {run} -x CUDA_LAUNCH_BLOCKING=1",
        says=("device-side assert triggered", "CUDA_ERROR_ASSERT"),
    ),
    Rule(
        name="cuda-memory",
        text="a CUDA kernel accessed invalid memory: a bug of the program, or of a library that it uses",
        hint="find the line in the program: kit run --again {run} -x CUDA_LAUNCH_BLOCKING=1",
        says=(
            "an illegal memory access was encountered",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "CUDA error: unspecified launch failure",
            "CUDA_ERROR_LAUNCH_FAILED",
        ),
    ),
    Rule(
        name="gpu-build",
        text="the image's MXNet is built for CPUs only",
        hint=f"set image.flavour in kit.yaml to cuda-mxnet, then {BUILD}",
        says=("Compile MXNet with USE_CUDA=1",),
        raised=(" is not implemented for GPU.",),
    ),
    Rule(
        name="gpu-build-torch",
        text="the image's PyTorch is built for CPUs only",
        hint="on hosts without GPUs, call init_process_group() without a backend, or with gloo, and leave out .cuda(); "
        f"with GPUs, set image.flavour in kit.yaml to cuda-pytorch, then {BUILD}",
        raised=("Distributed package doesn't have NCCL built in", "Torch not compiled with CUDA enabled"),
    ),
    Rule(
        name="gpu-checkpoint",
        text="the file was saved on a GPU, and the container has no GPU, or its PyTorch is built for CPUs only",
        hint='load it with torch.load(FILE, map_location="cpu"); if the host has a GPU, recreate its node, which may '
        "have lost it: kit deploy",
        raised=("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",),
    ),
    Rule(
        name="gpu-jax",
        text="JAX has no GPU: it is installed for CPUs only, or the container has no GPU that it can use",
        hint="write jax[cuda12] or jax[cuda13], as the driver allows, in image.pip in kit.yaml and deploy again; list "
        "the GPUs: kit exec {host} -- nvidia-smi",
        raised=(
            "Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present",
            "Unable to initialize backend 'cuda': ",
        ),
    ),
    Rule(
        name="avx",
        text="the CPU lacks instructions that TensorFlow was built for (AVX)",
        hint="leave out the host (-H): it needs a newer CPU, or a VM type that exposes AVX",
        says=("but these aren't available on your machine",),
    ),
)
