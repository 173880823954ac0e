"""kit: from a list of GPU VMs to an MPI cluster that trains."""

__version__ = "0.1.0"
