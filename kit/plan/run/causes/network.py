"""What keeps hosts and ranks from each other, and what mpirun refuses."""

from __future__ import annotations

from kit.plan.run.causes.rule import Rule

NETWORK = (
    Rule(
        name="nccl-interface",
        text="NCCL found no network interface of the name that it was given",
        hint="take NCCL_SOCKET_IFNAME out of env: and -x, since kit gives each host its own, and run: kit deploy",
        says=("Bootstrap : no socket interface found", "no NCCL_SOCKET_IFNAME interface found"),
    ),
    Rule(
        name="nccl-connect",
        text="NCCL could not connect to {address}: a firewall between the VMs, a wrong network, or that rank was gone",
        hint="let the VMs reach each other on all TCP ports, and look at network: in kit.yaml; then run: kit deploy",
        says=("Connect to {address}<{port}> failed :",),
    ),
    Rule(
        name="mpi-unreachable",
        text="Open MPI has no network that joins all ranks",
        hint="write the VMs' own network as network: in kit.yaml, take btl out of mpi.args, then run: kit deploy",
        says=("MPI processes are unable to reach each other for", "MPI process is unreachable"),
    ),
    Rule(
        name="mpi-connect",
        text="Open MPI could not connect the hosts: a firewall between the VMs, or a wrong network",
        hint="let the VMs reach each other on all TCP ports, and look at network: in kit.yaml; then run: kit deploy",
        says=(
            "connect() to {address} failed",
            "accepted a TCP connection from what appears to be",
            "received unexpected process identifier",
            "Unable to connect to the peer {address}",
            "was unable to complete a TCP connection",
        ),
    ),
    Rule(
        name="ssh-refused",
        text="no sshd answers at {address}, port {port}: that node's container is down",
        hint="kit ps shows which; start it again, run: kit deploy",
        says=("ssh: connect to host {address} port {port}: Connection refused",),
    ),
    Rule(
        name="ssh-unreachable",
        text="the head does not reach {address}, port {port}: that VM is down, or a firewall is between",
        hint="open the port between the VMs (ssh_port in kit.yaml), then run: kit deploy",
        says=("ssh: connect to host {address} port {port}: ",),
    ),
    Rule(
        name="ssh-name",
        text="the head does not know the address of {address}",
        hint="write internal= for that VM in the hosts file, then run: kit deploy",
        says=("ssh: Could not resolve hostname {address}: ",),
    ),
    Rule(
        name="ssh-key",
        text="a node and the head do not have the keys of the same deploy",
        hint="deploy puts them right, run: kit deploy",
        says=(
            "Host key verification failed",
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            ": Permission denied (publickey",
        ),
    ),
    Rule(
        name="ssh-closed",
        text="a node's sshd hung up before the login",
        hint="too many at once (MaxStartups), or it refused the head before and makes it wait; its words: kit logs",
        says=("kex_exchange_identification: ", "ssh_exchange_identification: ", "banner exchange: "),
    ),
    Rule(
        name="node-lost",
        text="the connection to the node {node} broke while the run was on: the VM, its container or the network",
        hint="see what is left, run: kit ps",
        says=("Remote daemon: … on node {node}",),
    ),
    Rule(
        name="node-start",
        text="mpirun could not start its daemon on some node",
        hint="deploy tries each node and names the one, run: kit deploy",
        says=("unable to reliably start one or more daemons", "has lost communication with a remote daemon"),
    ),
    Rule(
        name="slots",
        text="mpirun was asked for more ranks than there are slots",
        hint="raise slots= in the hosts file, take -np out of mpi.args, or insist: kit run --oversubscribe",
        says=("There are not enough slots available",),
    ),
    Rule(
        name="binding",
        text="there are more ranks on a host than cores to bind them to",
        hint="set mpi: {{bind_to: none}} in kit.yaml, or start fewer ranks there: kit run --npernode 1",
        says=("would result in binding more",),
    ),
    Rule(
        name="mpi-option",
        text="mpirun does not know the option {option}",
        hint="correct mpi.args in kit.yaml",
        says=('mpirun: Error: unknown option "{option}"',),
    ),
)
