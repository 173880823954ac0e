"""Memory, disks, GPUs and limits of a host."""

from __future__ import annotations

from kit.plan.run.causes.rule import BUILD, Rule

GPU = (
    Rule(
        name="gpu-memory",
        text="the GPU's memory is full",
        hint="a smaller batch, or one rank to a GPU; what holds it: kit exec {host} -- nvidia-smi",
        says=(
            "OOM when allocating tensor with …device:GPU",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "cudaMalloc failed: out of memory",
            "cudaMalloc retry failed: out of memory",
            "CUDA out of memory. Tried to allocate",
            "CUDA error: out of memory",
            "NCCL WARN Cuda failure 'out of memory'",
            "NCCL WARN Cuda failure 2 'out of memory'",
        ),
    ),
    Rule(
        name="driver-old",
        text="the VM's NVIDIA driver is too old for the image's CUDA",
        hint="a newer driver on the VM, or an image.base with an older CUDA; "
        "the driver's version: kit exec {host} -- nvidia-smi",
        says=(
            "CUDA driver version is insufficient",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "compiled with an unsupported toolchain",
            "forward compatibility was attempted on non supported HW",
        ),
    ),
    Rule(
        name="driver-mismatch",
        text="the VM's NVIDIA driver was renewed, and its old kernel module still runs",
        hint="start the VM anew, then run: kit deploy",
        says=("Failed to initialize NVML: Driver/library version mismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    ),
    Rule(
        name="gpu-broken",
        text="a GPU of the host is broken, or fell off the bus",
        hint="go on without the host (-H), and start it anew or have it replaced; "
        "what the kernel says: kit ssh {host} -- sudo dmesg",
        says=(
            "uncorrectable ECC error",
            "CUDA_ERROR_ECC_UNCORRECTABLE",
            "GPU has fallen off the bus",
            "GPU is lost",
            "NVRM: Xid",
        ),
    ),
    Rule(
        name="gpu-number",
        text="the rank took a GPU that the host does not have: more ranks than GPUs, or not the local rank's",
        hint="use hvd.local_rank() in the program, and look at slots= in the hosts file; "
        "the GPUs: kit exec {host} -- nvidia-smi -L",
        says=("invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE"),
    ),
    Rule(
        name="gpu-none",
        text="the container has no GPU, or has lost it",
        hint="where systemctl daemon-reload took it, docker restart of the container on the VM gives it back; "
        "what the container sees: kit exec {host} -- nvidia-smi -L",
        says=(
            "Failed to initialize NVML: Unknown Error",
            "cudaErrorNoDevice",
            "NCCL WARN Cuda failure 'no CUDA-capable device is detected'",
            "Check failed: …: no CUDA-capable device is detected",
        ),
        raised=(
            "No CUDA GPUs are available",
            "Found no NVIDIA driver on your system",
            "no CUDA-capable device is detected",
            "Could not satisfy device specification '…device:GPU:",
        ),
    ),
    Rule(
        name="gpu-build",
        text="the image's MXNet is built for the CPU alone",
        hint=f"set image.flavour in kit.yaml to cuda-mxnet, then {BUILD}",
        says=("Compile MXNet with USE_CUDA=1",),
        raised=(" is not implemented for GPU.",),
    ),
    Rule(
        name="avx",
        text="the CPU lacks instructions that TensorFlow was built for (AVX)",
        hint="go on without the host (-H): it needs a newer CPU, or a VM type that passes AVX on",
        says=("but these aren't available on your machine",),
    ),
)

HOST = (
    Rule(
        name="port",
        text="a port that the program listens on is taken",
        hint="let one rank of a host open it, or give another port; who holds it: kit exec {host} -- ss -ltnp",
        says=("EADDRINUSE", "bind: Address already in use", "errno: 98 - Address already in use"),
        raised=("OSError: [Errno 98] Address already in use",),
    ),
    Rule(
        name="shm",
        text="the memory that processes share, /dev/shm, is full",
        hint="set shm_size in kit.yaml to 8gb, say, then run: kit deploy",
        says=(
            "unable to write to file </torch_",
            "unable to open shared memory object </torch_",
            "error writing '/dev/shm/",
            "insufficient shared memory (shm)",
            "is killed by signal: Bus error",
            "NCCL WARN Error while creating shared memory segment",
            "NCCL WARN Call to posix_fallocate failed : No space left on device",
            "NCCL WARN Error: failed to extend /dev/shm/",
        ),
        raised=("No space left on device: '/dev/shm/",),
    ),
    Rule(
        name="disk",
        text="a disk is full, or /dev/shm",
        hint="make room (for /dev/shm: shm_size in kit.yaml); which one: kit exec {host} -- df -h",
        says=(": No space left on device", "; No space left on device", "Disk quota exceeded"),
        raised=("[Errno 28] No space left on device",),
    ),
    Rule(
        name="read-only",
        text="{path} is on a volume that may only be read",
        hint="write elsewhere, or take :ro off its line of volumes: in kit.yaml and run: kit deploy",
        raised=("[Errno 30] Read-only file system: '{path}'",),
    ),
    Rule(
        name="memlock",
        text="the network card may not pin as much memory as it needs",
        hint="set ulimits: {{memlock: unlimited}} in kit.yaml, then run: kit deploy",
        says=(
            "ibv_reg_mr failed",
            "Call to ibv_reg_mr",
            "Call to ibv_create_cq failed with error Cannot allocate memory",
            "Call to ibv_create_qp failed with error Cannot allocate memory",
        ),
    ),
    Rule(
        name="memory",
        text="the rank asked for more memory than it can have",
        hint="fewer ranks on a host (--npernode), a smaller batch or fewer data workers; "
        "what is free now: kit ssh {host} -- free -m",
        says=(
            "OOM when allocating tensor with ",
            "std::bad_alloc",
            "Failed to allocate CPU Memory",
            "Cannot allocate memory",
        ),
        raised=("MemoryError", "[Errno 12] Cannot allocate memory"),
    ),
    Rule(
        name="threads",
        text="the rank may not start as many threads and processes as it wants",
        hint="fewer data workers, or OMP_NUM_THREADS in env: of kit.yaml; "
        "the limit: kit exec {host} -- cat /sys/fs/cgroup/pids.max",
        says=("pthread_create failed", "fork: Resource temporarily unavailable"),
        raised=("can't start new thread", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ),
    Rule(
        name="files",
        text="the rank has as many files open as it may have",
        hint="set ulimits: {{nofile: 1048576}} in kit.yaml, then run: kit deploy",
        says=("Too many open files",),
    ),
)
