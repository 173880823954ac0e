"""How the workers of mxnet_train exchange gradients: MXNet's key-value stores, and Horovod."""

import os
import struct
from typing import Any

WITHIN = ("local", "device", "nccl")
BETWEEN = ("dist_sync", "dist_device_sync", "dist_async")
STORES = (*WITHIN, *BETWEEN, "horovod")


def why_not(store, gpus, has_nccl):
    """Return why this store cannot be used here, or ''. `gpus` is the number of GPUs."""
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    with_servers = "DMLC_ROLE" in os.environ
    if with_servers:
        ranks = int(os.environ.get("DMLC_NUM_WORKER", "1"))
    if store == "nccl" and not has_nccl:
        return "this MXNet was built without NCCL"
    if store == "nccl" and not gpus:
        return "it exchanges between GPUs, and this machine has no GPU"
    if store in WITHIN and ranks > 1:
        return "it exchanges within one process, and of %d ranks each would train for itself" % ranks
    if store in BETWEEN and not with_servers:
        return "it needs servers and a scheduler, which `kit run --launcher ps --servers N` starts"
    if store == "horovod" and with_servers:
        return "Horovod needs MPI, which `kit run --launcher mpi` (the default) gives"
    return ""


def why_not_compressed(store, gpus):
    """Return why 2-bit compression cannot be used with this store, or ''."""
    if store in BETWEEN:
        return ""
    if store == "device":
        # With MXNet 1.9.1 the process dies of a segmentation fault.
        return "" if gpus else "MXNet compresses between GPUs or through servers, and there is no GPU"
    return "MXNet has it for %s" % ", ".join(("device", *BETWEEN))


class Store:
    """A key-value store that keeps the weights and updates them: each step pushes gradients and pulls weights.

    gluon's Trainer cannot be used: it exchanges by pushpull, for which MXNet 1.9 has no compression.
    """

    def __init__(self, mx, name, compression):
        self.mx = mx
        self.kv = mx.kv.create(name)
        # The store numbers workers differently. Logs and failures show mpirun's numbers.
        self.rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", self.kv.rank))
        self.size = self.kv.num_workers
        self._synchronous = name != "dist_async"
        self._threshold = 1.0
        if compression:
            self.kv.set_gradient_compression(compression)
            self._threshold = compression["threshold"]
        self.parameters = []

    def begin(self, parameters, batch_size, options):
        """Give all workers the first one's weights."""
        self.parameters = [parameter for parameter in parameters if parameter.grad_req != "null"]
        # A synchronous server gets the sum of all gradients; an asynchronous one gets them one after the other.
        samples = batch_size * (self.size if self._synchronous else 1)
        for number, parameter in enumerate(self.parameters):
            self.kv.init(number, parameter.list_data()[0])
        named = {number: parameter.name for number, parameter in enumerate(self.parameters)}
        self.kv.set_optimizer(
            self.mx.optimizer.create("sgd", rescale_grad=1.0 / samples, param_idx2name=named, **options)
        )
        for number, parameter in enumerate(self.parameters):
            self.kv.pull(number, out=parameter.list_data(), priority=-number)
        self.mx.nd.waitall()

    def step(self, _batch_size):
        """Send each gradient as soon as it is ready, those of the first layers before others."""
        for number, parameter in enumerate(self.parameters):
            self.kv.push(number, parameter.list_grad(), priority=-number)
            self.kv.pull(number, out=parameter.list_data(), priority=-number)

    def gather(self, values):
        """Return [values of each worker], exactly. All workers pass the same number of values.

        The store can only exchange gradients. It may compress them, and the servers' optimizer takes them as steps. So
        each bit of each number is an entry of one more weight, which begins at 0; a set bit makes it negative.
        """
        bits = "".join(f"{byte:08b}" for byte in struct.pack("<%dd" % len(values), *values))
        key = len(self.parameters)
        context = self.mx.cpu()
        self.kv.init(key, self.mx.nd.zeros((self.size, len(bits)), ctx=context))
        mine = self.mx.nd.zeros((self.size, len(bits)), ctx=context)
        mine[self.rank] = self.mx.nd.array([self._threshold if bit == "1" else 0.0 for bit in bits], ctx=context)
        self.kv.push(key, mine)
        self.mx.nd.waitall()
        if self.size > 1:
            self.kv._barrier()
        self.kv.pull(key, out=mine)
        rows = []
        for row in mine.asnumpy() < 0:
            text = "".join("1" if bit else "0" for bit in row)
            data = bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))
            rows.append(list(struct.unpack("<%dd" % len(values), data)))
        return rows

    def end(self):
        """Do nothing: at the end of the process, a worker's store waits for all others."""


class Horovod:
    """The same methods with an all-reduce: each worker updates its own weights."""

    trainer: Any = None

    def __init__(self, mx):
        import horovod.mxnet as hvd

        hvd.init()
        self.mx, self.hvd = mx, hvd
        self.rank, self.size = hvd.rank(), hvd.size()

    def begin(self, parameters, _batch_size, options):
        self.hvd.broadcast_parameters(parameters, root_rank=0)
        self.trainer = self.hvd.DistributedTrainer(parameters, "sgd", dict(options))
        self.mx.nd.waitall()

    def step(self, batch_size):
        self.trainer.step(batch_size)

    def gather(self, values):
        rows = self.hvd.allgather(self.mx.nd.array([values], dtype="float64"), name="gather").asnumpy()
        return [list(row) for row in rows]

    def end(self):
        self.hvd.shutdown()


def create(mx, name, compression):
    """Return what exchanges the gradients of this worker."""
    return Horovod(mx) if name == "horovod" else Store(mx, name, compression)
