"""Rules for connections between hosts and ranks, and for what mpirun refuses."""

from __future__ import annotations

from kit.model import names
from kit.plan.run.causes.rule import Rule

# A node's sshd says nothing about this to the head.
HUNG_UP = Rule(
    name="ssh-closed",
    text="a node's sshd closed the connection before the login",
    hint="it had too many connections at once (MaxStartups), or it blocks the head after refused "
    "logins; see its log: kit logs --nodes",
    says=("kex_exchange_identification: ", "ssh_exchange_identification: ", "banner exchange: "),
)

# What the ssh of mpirun prints, as HUNG_UP. The ssh of a rank, such as that of git, connects to another server.
SSH = (
    Rule(
        name="ssh-refused",
        text="no sshd answers at {address}, port {port}: that node's container is down",
        hint="see which node is down with kit ps, then start it again: kit deploy",
        says=("ssh: connect to host {address} port {port}: Connection refused",),
    ),
    Rule(
        name="ssh-unreachable",
        text="the head cannot reach {address}, port {port}: the VM is down, or a firewall blocks the port",
        hint="open the port between the VMs (ssh_port in kit.yaml), then run: kit deploy",
        says=("ssh: connect to host {address} port {port}: ",),
    ),
    Rule(
        name="ssh-name",
        text="the head cannot resolve the name {address}",
        hint="set internal= for that VM in the hosts file, then run: kit deploy",
        says=("ssh: Could not resolve hostname {address}: ",),
    ),
    Rule(
        name="ssh-key",
        text="a node and the head have keys from different deploys",
        hint="replace the keys: kit deploy",
        says=(
            "Host key verification failed",
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            ": Permission denied (publickey",
        ),
    ),
)

NETWORK = (
    Rule(
        name="nccl-interface",
        text="NCCL found no network interface with the configured name",
        hint="remove NCCL_SOCKET_IFNAME from env: and -x, because kit sets it for each host, then run: kit deploy",
        says=("Bootstrap : no socket interface found", "no NCCL_SOCKET_IFNAME interface found"),
    ),
    Rule(
        name="nccl-network",
        text="NCCL uses another network between hosts than nccl.require names",
        hint="mend what NCCL names above (kit doctor checks the hosts' networks), or allow this network: "
        "kit run --again {run} --nccl-require any",
        says=(", and nccl.require is ",),
    ),
    Rule(
        name="nccl-connect",
        text="NCCL could not connect to {address}: a firewall between the VMs, a wrong network, or a rank "
        "that had already ended",
        hint="let the VMs reach each other on all TCP ports, check network: in kit.yaml, then run: kit deploy",
        says=(
            "Connect to {address}<{port}> failed :",
            "socketPollConnect: Connect to {address}<{port}> returned ",
            "connect to {address}<{port}> returned …, exceeded error retry count",
        ),
    ),
    Rule(
        name="nccl-connect-unnamed",
        text="NCCL could not connect to another host: a firewall between the VMs, a wrong network, or a rank that had "
        "already ended",
        hint="let the VMs reach each other on all TCP ports, check network: in kit.yaml, then run: kit deploy",
        says=("connect returned …, exceeded error retry count",),
    ),
    Rule(
        name="nccl-version",
        text="the ranks have different versions of NCCL, so not all run in the same image",
        hint="remove NCCL from volumes: and LD_LIBRARY_PATH, then give all hosts the same image: kit deploy",
        says=("Mismatched NCCL version detected : rank ",),
    ),
    Rule(
        name="nccl-rdma",
        text="NCCL could not use the RDMA network card (InfiniBand or RoCE)",
        hint="check the link of each card and NCCL_IB_GID_INDEX, which may differ between hosts; or try without RDMA: "
        "kit run --again {run} -x NCCL_IB_DISABLE=1",
        says=(
            "Call to ibv_create_qp failed",
            "Call to ibv_modify_qp failed",
            "Got completion from peer ",
            "NET/IB : Got completion with error ",
        ),
    ),
    Rule(
        name="ucx-rdma",
        text="UCX got no answer by {device}, the RDMA network card (InfiniBand or RoCE)",
        hint="check the link of each card and UCX_IB_GID_INDEX, which may differ between hosts; or try without RDMA: "
        "kit run --again {run} -x UCX_TLS=tcp,sm,self",
        says=("Transport retry count exceeded on {device} ",),
    ),
    Rule(
        name="torch-store",
        text="PyTorch could not connect to {address}, port {port}, where rank 0 connects the ranks: it had not begun, "
        "or had ended; or a firewall between the VMs",
        hint="read what rank 0 printed; leave MASTER_ADDR and MASTER_PORT to kit; let the VMs reach each other on all "
        "TCP ports; print the rank of each line: kit logs {run} --tag-output",
        raised=(
            "The client socket has timed out after …ms while trying to connect to ({address}, {port})",
            "The client socket has failed to connect to any network address of ({address}, {port})",
        ),
    ),
    Rule(
        name="torch-rendezvous",
        text="torchrun waited in vain for the torchrun of another host: that did not start, or had ended; or a "
        "firewall between the VMs",
        hint="read what the others printed; let the VMs reach each other on all TCP ports; see which ones do not: "
        "kit doctor",
        raised=(
            "RendezvousTimeoutError",
            "RendezvousConnectionError: The connection to the C10d store has failed",
        ),
    ),
    Rule(
        name="gloo-interface",
        text="Gloo found no address of the network interface {interface}",
        hint="remove GLOO_SOCKET_IFNAME from env: and -x, because kit sets it for each host, then run: kit deploy",
        says=("ifa != nullptr. Unable to find address for: {interface}",),
    ),
    Rule(
        name="gloo-connect",
        text="Gloo could not connect the ranks: a wrong interface, or a firewall between the VMs",
        hint="let the VMs reach each other on all TCP ports; remove GLOO_SOCKET_IFNAME from env: and -x, because kit "
        "sets it for each host, then run: kit deploy",
        says=("Gloo connectFullMesh failed with",),
    ),
    Rule(
        name="gloo-own-name",
        text="JAX could not connect the ranks: on CPUs it takes the address of each host's own name, which is "
        "127.0.1.1 on many VMs",
        hint="let the VMs reach each other on all TCP ports; if volumes: in kit.yaml has /etc/hosts, correct that "
        "file; start the nodes again, which then have the right address: kit down && kit deploy",
        says=("Gloo context initialization failed: ",),
    ),
    Rule(
        name="mpi-unreachable",
        text="Open MPI has no network that connects all ranks",
        hint="set network: in kit.yaml to the VMs' own network, remove btl from mpi.args, then run: kit deploy",
        says=("MPI processes are unable to reach each other for", "MPI process is unreachable"),
    ),
    Rule(
        name="mpi-connect",
        text="Open MPI could not connect the hosts: a firewall between the VMs, or a wrong network",
        hint="let the VMs reach each other on all TCP ports, check network: in kit.yaml, then run: kit deploy",
        says=(
            "connect() to {address} failed",
            "accepted a TCP connection from what appears to be",
            "received unexpected process identifier",
            "Unable to connect to the peer {address}",
            "was unable to complete a TCP connection",
        ),
    ),
    *SSH,
    # In the log of the node itself (kit.flows.run.node_log).
    Rule(
        name="node-files",
        text=f"the node's sshd has no host key any more: the cluster's files in {names.ROOT} are missing on that VM",
        hint="write them again: kit deploy",
        says=("no hostkeys available", "Unable to load host key: ", f'Unable to load host key "{names.MOUNT}/'),
    ),
    HUNG_UP,
    Rule(
        name="node-lost",
        text="the connection to the node {node} broke during the run: the VM, its container, or the network failed",
        hint="see what is still running: kit ps",
        says=("Remote daemon: … on node {node}",),
    ),
    Rule(
        name="node-start",
        text="mpirun could not start its daemon on a node",
        hint="check every node and see which one fails: kit deploy",
        says=("unable to reliably start one or more daemons", "has lost communication with a remote daemon"),
    ),
    Rule(
        name="slots",
        text="mpirun has fewer slots than ranks to start",
        hint="raise slots= in the hosts file, remove -np from mpi.args, or ignore the limit: "
        "kit run --again {run} --oversubscribe",
        says=("There are not enough slots available",),
    ),
    Rule(
        name="binding",
        text="a host has more ranks than cores to bind them to",
        hint="set mpi: {{bind_to: none}} in kit.yaml, or start fewer ranks per host (--npernode)",
        says=("would result in binding more",),
    ),
    Rule(
        name="mpi-unfinished",
        text="a rank ended with exit code 0 before MPI_Init or without MPI_Finalize, as os._exit() does, so mpirun "
        "ended the others",
        hint="let all ranks call hvd.init(), or none; before os._exit(), call hvd.shutdown(), or MPI.Finalize() with "
        "mpi4py",
        says=('this process called "init", but exited without calling "finalize"',),
    ),
    Rule(
        name="mpi-option",
        text="mpirun does not know the option {option}",
        hint="correct mpi.args in kit.yaml",
        # The second one is of Open MPI 5.
        says=(
            'mpirun: Error: unknown option "{option}"',
            "An unrecognized option was included on the … command line:\n\n  Option: {option}",
        ),
    ),
)
