"""Rules for the memory, disks, GPUs and limits of a host."""

from __future__ import annotations

from kit.plan.run.causes.rule import BUILD, Rule

GPU = (
    Rule(
        name="gpu-memory",
        text="the GPU is out of memory",
        hint="use a smaller batch, or one rank per GPU; see what uses the memory: kit exec {host} -- nvidia-smi",
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
        hint="install a newer driver on the VM, or use an image.base with an older CUDA; see the driver's "
        "version: kit exec {host} -- nvidia-smi",
        says=(
            "CUDA driver version is insufficient",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "compiled with an unsupported toolchain",
            "forward compatibility was attempted on non supported HW",
        ),
    ),
    Rule(
        name="driver-mismatch",
        text="the NVIDIA driver on the VM was updated, but its old kernel module is still loaded",
        hint="reboot the VM, then run: kit deploy",
        says=("Failed to initialize NVML: Driver/library version mismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
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
        ),
    ),
    Rule(
        name="gpu-number",
        text="the rank used a GPU that the host does not have: there are more ranks than GPUs, or the rank "
        "used another rank's GPU",
        hint="use hvd.local_rank() in the program, and check slots= in the hosts file; list the GPUs: kit "
        "exec {host} -- nvidia-smi -L",
        says=("invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE"),
    ),
    Rule(
        name="gpu-none",
        text="the container has no GPU, or lost it",
        hint="after systemctl daemon-reload, run docker restart for the container on the VM; list the GPUs "
        "that the container sees: kit exec {host} -- nvidia-smi -L",
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
        text="the image's MXNet is built for CPUs only",
        hint=f"set image.flavour in kit.yaml to cuda-mxnet, then {BUILD}",
        says=("Compile MXNet with USE_CUDA=1",),
        raised=(" is not implemented for GPU.",),
    ),
    Rule(
        name="avx",
        text="the CPU lacks instructions that TensorFlow was built for (AVX)",
        hint="leave out the host (-H): it needs a newer CPU, or a VM type that exposes AVX",
        says=("but these aren't available on your machine",),
    ),
)

HOST = (
    Rule(
        name="port",
        text="a port that the program listens on is already in use",
        hint="open it in only one rank per host, or use another port; see who uses it: kit exec {host} -- ss -ltnp",
        says=("EADDRINUSE", "bind: Address already in use", "errno: 98 - Address already in use"),
        raised=("OSError: [Errno 98] Address already in use",),
    ),
    Rule(
        name="shm",
        text="the shared memory, /dev/shm, is full",
        hint="set shm_size in kit.yaml, to 8gb for example, then run: kit deploy",
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
        text="a disk or /dev/shm is full",
        hint="free some space (for /dev/shm, raise shm_size in kit.yaml); see which one is full: kit exec "
        "{host} -- df -h",
        says=(": No space left on device", "; No space left on device", "Disk quota exceeded"),
        raised=("[Errno 28] No space left on device",),
    ),
    Rule(
        name="read-only",
        text="{path} is read-only: it belongs to the image, or to a volume with :ro",
        hint="write below HOME, /tmp or KIT_OUTPUT_DIR, or remove :ro from its line of volumes: in kit.yaml, then run: "
        "kit deploy",
        raised=("[Errno 30] Read-only file system: '{path}'",),
    ),
    Rule(
        name="memlock",
        text="the network card cannot pin as much memory as it needs",
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
        text="the rank requested more memory than is available",
        hint="start fewer ranks per host (--npernode), or use a smaller batch or fewer data workers; see "
        "the free memory: kit ssh {host} -- free -m",
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
        text="the rank reached its limit of threads and processes",
        hint="use fewer data workers, set OMP_NUM_THREADS in env: of kit.yaml, or raise pids: below security:; see the "
        "limit: kit exec "
        "{host} -- cat /sys/fs/cgroup/pids.max",
        says=("pthread_create failed", "fork: Resource temporarily unavailable"),
        raised=("can't start new thread", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ),
    Rule(
        name="files",
        text="the rank reached its limit of open files",
        hint="set ulimits: {{nofile: 1048576}} in kit.yaml, then run: kit deploy",
        says=("Too many open files",),
    ),
)
