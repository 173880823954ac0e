"""Elastic Horovod: kit-elastic on the head, in mpirun's place, and kit-worker around each rank.

It uses Horovod's own driver (horovod.runner.elastic), with kit's ssh, hosts and rendezvous server in place of
horovodrun's. Python 3.6.
"""
