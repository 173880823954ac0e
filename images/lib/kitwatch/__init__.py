"""What a host does: its cores, memory, disks, network, GPUs, and the ranks of runs.

Standard library only, Python 3.6, and no other package of kit: kit also sends these modules to the VM's own Python.
"""
