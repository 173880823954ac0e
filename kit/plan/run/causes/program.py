"""Rules for the program itself: its use of Horovod, of files and of the internet."""

from __future__ import annotations

from kit.plan.run.causes.rule import Rule

PROGRAM = (
    Rule(
        name="horovod-mismatch",
        text="the ranks passed different tensors to Horovod for the same operation",
        hint="use the same model and the same batch size on all ranks (drop_remainder); the rank's last "
        "lines name the tensor",
        says=("Mismatched …: One rank ", "Mismatched CPU/GPU device selection"),
    ),
    Rule(
        name="horovod-stalled",
        text="Horovod gave up because some ranks never reached the operation that the others waited for",
        hint="make all ranks run the same number of steps; the output names the missing ranks; see what is "
        "running: kit ps",
        says=('One or more rank (marked by "!") is stalled',),
    ),
    Rule(
        name="torch-stalled",
        text="PyTorch gave up because some ranks never reached the operation that the others waited for",
        hint="make all ranks run the same operations in the same order; see what is running: kit ps",
        says=("Watchdog caught collective operation timeout: ",),
    ),
    Rule(
        name="torch-stuck",
        text="PyTorch gave up because a call of NCCL or CUDA did not return, often because another rank or a GPU hung",
        hint="look at the last lines of the other ranks; see which call it was: kit run --again {run} -x "
        "NCCL_DEBUG=INFO",
        says=("watchdog got stuck for … without making progress",),
    ),
    Rule(
        name="torch-late",
        text="PyTorch gave up because some ranks did not come to init_process_group, or to the first operation after "
        "it, in time",
        hint="let the ranks download and prepare data before it, or raise its timeout=; if a rank that came could not "
        "connect, let the VMs reach each other on all TCP ports; print the rank of each line: kit logs {run} "
        "--tag-output",
        raised=(
            "DistStoreError: Timed out after … seconds waiting for clients. ",
            "DistStoreError: wait timeout after ",
            "DistStoreError: Socket Timeout",
            "') got error: wait timeout after ",
            "') got error: Socket Timeout",
            "') got error: Timeout waiting for key: ",
        ),
    ),
    Rule(
        name="gloo-stalled",
        text="Gloo gave up because some ranks never reached the operation that the others waited for",
        hint="make all ranks run the same operations in the same order; see what is running: kit ps",
        says=("Timed out waiting …ms for recv operation", "Timed out waiting …ms for send operation"),
    ),
    Rule(
        name="gloo-mismatch",
        text="the ranks passed tensors of different sizes to the same operation of Gloo",
        hint="make all ranks run the same operations in the same order, with tensors of the same shape and type",
        says=("op.preamble.length <= op.nbytes",),
    ),
    Rule(
        name="horovod-init",
        text="the program used Horovod before hvd.init()",
        hint="call hvd.init() first, right after the imports",
        raised=("Horovod has not been initialized; use hvd.init()",),
    ),
    Rule(
        name="input",
        text="the program waited for typed input, and got none",
        hint="pass the answer as an argument, or as a variable with -x; to type it, or to debug, give one rank a "
        "terminal: kit run -it --np 1 -- python FILE",
        raised=("EOFError: EOF when reading a line", "bdb.BdbQuit"),
    ),
    Rule(
        name="launcher-ps",
        text="the program uses MPI or Horovod, but --launcher ps starts a parameter server instead",
        hint="run it without --launcher ps",
        says=("Component: none-with-launcher-ps",),
    ),
    Rule(
        name="han-in-place",
        text="Open MPI's hierarchical all-reduce (HAN) fails on in-place sums, which Horovod uses",
        hint="let HAN reduce in one piece: add --mca coll_han_use_simple_allreduce 1 to mpi.args in kit.yaml",
        says=("mca_coll_han_allreduce_intra",),
    ),
    Rule(
        name="graphdef",
        text="the TensorFlow graph is over 2 GB because it holds data as constants",
        hint="read the data from files with tf.data instead of from an array",
        says=("GraphDef cannot be larger than 2GB",),
        raised=("Cannot serialize protocol buffer of type tensorflow.GraphDef", "GraphDef cannot be larger than 2GB"),
    ),
    Rule(
        name="certificate",
        text="the container does not trust the certificate of a server or of a proxy",
        hint="mount the CA file with volumes:, set SSL_CERT_FILE and REQUESTS_CA_BUNDLE to its path in "
        "env: of kit.yaml, then run: kit deploy",
        raised=("CERTIFICATE_VERIFY_FAILED",),
    ),
    Rule(
        name="refused",
        text="{address}, port {port}, refused the connection: no program listens there, or a firewall refuses it",
        hint="start the server, and name the host that runs it: in a rank, localhost is the rank's host, and not your "
        "machine; for a server in the internet, set https_proxy in env: of kit.yaml, then run: kit deploy",
        raised=(
            "(host='{address}', port={port}): Max retries exceeded with url: …(Caused by NewConnectionError(…"
            "[Errno 111] Connection refused",
        ),
    ),
    Rule(
        name="rate-limit",
        text="a server limits how many requests it answers, and the ranks sent too many",
        hint="let one rank per host download (LOCAL_RANK 0), and the others wait; or name the data in data: of "
        "kit.yaml",
        raised=(
            "too many 429 error responses",
            "429 Client Error: Too Many Requests",
            "Client error '429 Too Many Requests'",
        ),
    ),
    Rule(
        name="download",
        text="the container cannot reach a server that the program needs: it has no access to the internet, or does "
        "not know the server's name",
        hint="name the data in data: of kit.yaml; or set https_proxy in env: there, or use the server's address where "
        "only its name is unknown; then run: kit deploy",
        raised=(
            "Name or service not known",
            "Temporary failure in name resolution",
            "Failed to resolve '",
            "urlopen error [Errno 101] Network is unreachable",
            "urlopen error [Errno 110] Connection timed out",
            "urlopen error [Errno 113] No route to host",
            "URL fetch failure on ",
            "ProxyError: ",
            "Max retries exceeded with url",
            "We couldn't connect to '",
        ),
    ),
    Rule(
        name="refused-unnamed",
        text="a server, or a proxy, refused the connection: no program listens there, or a firewall refuses it",
        hint="start the server, and name the host that runs it: in a rank, localhost is the rank's host, and not your "
        "machine",
        raised=("[Errno 111] Connection refused",),
    ),
    Rule(
        name="permission",
        text="the rank has no permission to open {path}",
        hint="check its owner and mode: kit exec {host} -- ls -la {path}",
        raised=("PermissionError: [Errno 13] Permission denied: '{path}'",),
    ),
    Rule(
        name="file",
        text="the container has no {path}",
        hint="stage its data set, or name it in data: of kit.yaml; or put its folder on every host and mount it with "
        "volumes:; if it is a program, add its package to image.packages; then run: kit deploy",
        raised=(
            "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
            "NotFoundError: …{path}; No such file or directory",
        ),
    ),
    Rule(
        name="folder",
        text="the program writes to {path}, and that host has no such folder",
        hint="create it first, on each host that writes there, with os.makedirs(FOLDER, exist_ok=True); or write below "
        "KIT_OUTPUT_DIR",
        raised=("RuntimeError: Parent directory {path} does not exist.",),
    ),
    Rule(
        name="locale",
        text="the container lacks the locale that the program needs",
        hint="set LC_ALL: C.UTF-8 in env: of kit.yaml, then run: kit deploy",
        raised=("locale.Error: unsupported locale setting", "UnicodeEncodeError: 'ascii' codec"),
    ),
)
