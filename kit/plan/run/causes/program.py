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
        name="gloo-stalled",
        text="Gloo gave up because some ranks never reached the operation that the others waited for",
        hint="make all ranks run the same operations in the same order; see what is running: kit ps",
        says=("Timed out waiting …ms for recv operation", "Timed out waiting …ms for send operation"),
    ),
    Rule(
        name="horovod-init",
        text="the program used Horovod before hvd.init()",
        hint="call hvd.init() first, right after the imports",
        raised=("Horovod has not been initialized; use hvd.init()",),
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
        name="download",
        text="the program needs the internet, but the container has no access to it",
        hint="name the data in data: of kit.yaml, or set https_proxy in env: there, then run: kit deploy",
        raised=(
            "Name or service not known",
            "Temporary failure in name resolution",
            "Failed to resolve '",
            "URL fetch failure on ",
            "ProxyError: ",
            "Max retries exceeded with url",
            "We couldn't connect to '",
        ),
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
        "volumes:, then run: kit deploy",
        raised=(
            "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
            "NotFoundError: …{path}; No such file or directory",
        ),
    ),
    Rule(
        name="locale",
        text="the container lacks the locale that the program needs",
        hint="set LC_ALL: C.UTF-8 in env: of kit.yaml, then run: kit deploy",
        raised=("locale.Error: unsupported locale setting", "UnicodeEncodeError: 'ascii' codec"),
    ),
)
