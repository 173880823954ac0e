"""What the program does: with Horovod, its files and the internet."""

from __future__ import annotations

from kit.plan.run.causes.rule import Rule

PROGRAM = (
    Rule(
        name="horovod-mismatch",
        text="the ranks gave Horovod different tensors for one operation",
        hint="all ranks need the same model and batches of one size (drop_remainder); the rank's last lines name it",
        says=("Mismatched …: One rank ", "Mismatched CPU/GPU device selection"),
    ),
    Rule(
        name="horovod-stalled",
        text="ranks waited for others that never came to the same operation, and Horovod gave up",
        hint="all ranks must do the same number of steps; the missing ones stand in the output; what runs now: kit ps",
        says=('One or more rank (marked by "!") is stalled',),
    ),
    Rule(
        name="horovod-init",
        text="the program used Horovod before hvd.init()",
        hint="call hvd.init() first, right after the imports",
        raised=("Horovod has not been initialized; use hvd.init()",),
    ),
    Rule(
        name="launcher-ps",
        text="the program uses MPI, or Horovod, and --launcher ps gives it a parameter server instead",
        hint="run it without --launcher ps",
        says=("Component: none-with-launcher-ps",),
    ),
    Rule(
        name="han-in-place",
        text="Open MPI's hierarchical all-reduce (HAN) breaks on what is summed in place, as Horovod does",
        hint="let HAN do it in one piece: put --mca coll_han_use_simple_allreduce 1 into mpi.args in kit.yaml",
        says=("mca_coll_han_allreduce_intra",),
    ),
    Rule(
        name="graphdef",
        text="the TensorFlow graph is over 2 GB: data stands in it as constants",
        hint="read the data with tf.data from files, instead of from an array",
        says=("GraphDef cannot be larger than 2GB",),
        raised=("Cannot serialize protocol buffer of type tensorflow.GraphDef", "GraphDef cannot be larger than 2GB"),
    ),
    Rule(
        name="certificate",
        text="the container does not trust the certificate of a server, or of a proxy in between",
        hint="mount the CA file with volumes:, name it as SSL_CERT_FILE and REQUESTS_CA_BUNDLE in env: of kit.yaml, "
        "then run: kit deploy",
        raised=("CERTIFICATE_VERIFY_FAILED",),
    ),
    Rule(
        name="download",
        text="the program wants something from the internet, and the container has no way there",
        hint="put it on every host, below volumes:, or set https_proxy in env: of kit.yaml, then run: kit deploy",
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
        text="the rank may not open {path}",
        hint="look at its owner and mode: kit exec {host} -- ls -la {path}",
        raised=("PermissionError: [Errno 13] Permission denied: '{path}'",),
    ),
    Rule(
        name="file",
        text="there is no {path} in the container",
        hint="its folder must be on every host, and a line of volumes: in kit.yaml; then run: kit deploy",
        raised=(
            "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
            "NotFoundError: …{path}; No such file or directory",
        ),
    ),
    Rule(
        name="locale",
        text="the container does not have the locale that the program wants",
        hint="set LC_ALL: C.UTF-8 in env: of kit.yaml, then run: kit deploy",
        raised=("locale.Error: unsupported locale setting", "UnicodeEncodeError: 'ascii' codec"),
    ),
)
