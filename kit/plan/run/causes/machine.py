"""Rules for the memory, disks and limits of a host."""

from __future__ import annotations

from kit.plan.run.causes.rule import Rule

_READ_ONLY = "{path} is read-only: it belongs to the image, to a data set, or to a volume with :ro"
_WRITABLE = (
    "write below HOME, /tmp or KIT_OUTPUT_DIR; or, in kit.yaml, remove :ro from its line of volumes:, or add write: "
    "true to its data set (if that is a mounted store, also run kit data rm), then run: kit deploy"
)

# Words of shells and tools. They often go on after such a line, so it counts only if nothing else explains the end.
READ_ONLY = Rule(
    name="read-only-program",
    text=_READ_ONLY,
    hint=_WRITABLE,
    says=("'{path}': Read-only file system", "‘{path}’: Read-only file system", "{path}: Read-only file system"),
)

HOST = (
    Rule(
        name="port",
        text="a port that the program listens on is already in use",
        hint="open it in only one rank per host, or use another port; see who uses it: kit ssh {host} -- sudo ss -ltnp",
        says=("EADDRINUSE", "bind: Address already in use", "errno: 98 - Address already in use"),
        raised=("OSError: [Errno 98] Address already in use",),
    ),
    Rule(
        name="shm",
        text="the shared memory, /dev/shm, is full",
        hint="set shm_size in kit.yaml, to 8gb for example, then run: kit deploy",
        says=(
            "unable to write to file </torch_",
            "unable to allocate shared memory(shm) for file </torch_…>: No space left on device",
            "unable to open shared memory object </torch_",
            "error writing '/dev/shm/",
            "insufficient shared memory (shm)",
            "is killed by signal: Bus error",
            "Error while creating shared memory segment",
            "Call to posix_fallocate failed : No space left on device",
            "Error: failed to extend /dev/shm/",
        ),
        raised=("No space left on device: '/dev/shm/",),
    ),
    Rule(
        name="disk",
        text="a disk or /dev/shm is full",
        hint="free some space (for /dev/shm, raise shm_size in kit.yaml); see which one is full: kit exec "
        "{host} -- df -h",
        says=(": No space left on device", "; No space left on device", "Disk quota exceeded"),
        # h5py, which Keras uses, has other words; NumPy and PyTorch do not even name the error. Newer versions of
        # PyTorch raise the last one.
        raised=(
            "[Errno 28] No space left on device",
            "OSError: [Errno 28] ",
            "PytorchStreamWriter failed writing file ",
            "OSError: … requested and … written",
            "RuntimeError: basic_ios::clear: iostream error",
        ),
    ),
    Rule(
        name="read-only",
        text=_READ_ONLY,
        hint=_WRITABLE,
        raised=("[Errno 30] Read-only file system: '{path}'", "{path}; Read-only file system"),
    ),
    Rule(
        name="file-server",
        text="the file server of {path} is gone, was restarted, or closed this host out",
        hint="see which mounts of the host answer, and what to do: kit doctor",
        raised=(
            "[Errno 116] Stale file handle: '{path}'",
            "[Errno 112] Host is down: '{path}'",
            "[Errno 121] Remote I/O error: '{path}'",
            "[Errno 108] Cannot send after transport endpoint shutdown: '{path}'",
            "{path}; Stale file handle",
            "{path}; Remote I/O error",
        ),
    ),
    Rule(
        name="store-mount",
        text="the mount of {path} has ended: its program (rclone, sshfs …) was killed or has failed",
        hint="mount a data set again with kit data mount; a mount of your own, on {host} itself, and then run: kit "
        "down && kit deploy",
        says=(
            "kit-rank: cannot read {path}: its mount has ended",
            "kit-rank: cannot make KIT_CHECKPOINT_DIR: {path}: Transport endpoint is not connected",
        ),
        raised=(
            "[Errno 107] Transport endpoint is not connected: '{path}'",
            "{path}; Transport endpoint is not connected",
        ),
    ),
    Rule(
        name="store-not-mounted",
        text="no store is mounted at {path}: what ranks write would stay on the VM's disk",
        hint="give the run --data with the name of the data set, or mount it first: kit data mount",
        says=("kit-rank: cannot write to {path}: no store is mounted there",),
    ),
    Rule(
        name="store-write",
        text="the program went back in a file that takes only bytes in order: a file in a mounted store, or a pipe",
        hint="write the file below KIT_OUTPUT_DIR or /tmp first, then copy it into the store",
        raised=("[Errno 29] Illegal seek",),
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
        # The last one is of JAX on CPUs.
        raised=("MemoryError", "[Errno 12] Cannot allocate memory", "RESOURCE_EXHAUSTED: Out of memory allocating "),
    ),
    Rule(
        name="memory-loader",
        text="a data worker of the rank was killed, usually because memory ran out: that of the host, or the node's "
        "limit (memory: in kit.yaml)",
        hint="use fewer data workers or a smaller batch, or start fewer ranks per host (--npernode); if memory: in "
        "kit.yaml is the limit, raise it and deploy again; see the free memory: kit ssh {host} -- free -m",
        says=("DataLoader worker (pid …) is killed by signal: Killed",),
    ),
    Rule(
        name="loader-ended",
        text="a data worker of the rank ended without an error of Python: memory or /dev/shm was full, or compiled "
        "code in it failed",
        hint="run it with num_workers=0 to see where it fails, or use fewer data workers; see whether the kernel "
        "killed it: kit ssh {host} -- sudo dmesg",
        # While the rank computes, PyTorch prints only the last two. mpirun ends workers by SIGTERM: that is no cause.
        says=(
            "DataLoader worker (pid(s) …) exited unexpectedly",
            "DataLoader worker (pid …) is killed by signal: Segmentation fault",
            "DataLoader worker (pid …) is killed by signal: Aborted",
        ),
    ),
    Rule(
        name="threads",
        text="the rank reached its limit of threads and processes",
        hint="use fewer data workers, set OMP_NUM_THREADS in env: of kit.yaml, or raise pids: below security:; see the "
        "limit: kit exec "
        "{host} -- cat /sys/fs/cgroup/pids.max",
        # The last three are of TensorFlow, of OpenMP (PyTorch), and of any thread of C++.
        says=(
            "pthread_create failed",
            "fork: Resource temporarily unavailable",
            " creation via pthread_create() failed",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "what():  Resource temporarily unavailable",
        ),
        raised=("can't start new thread", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ),
    Rule(
        name="files",
        text="the rank reached its limit of open files",
        hint="set ulimits: {{nofile: 1048576}} in kit.yaml, then run: kit deploy",
        says=("Too many open files",),
        raised=("RuntimeError: received 0 items of ancdata",),
    ),
)
