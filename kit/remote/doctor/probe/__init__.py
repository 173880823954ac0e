"""Measures between hosts for kit doctor. Runs on a VM's own Python, 3.6 or newer, and arrives on standard input.

kit.remote.doctor.probes sends these modules as one program. It writes no file, and ends with its input, which ends with
the connection.

It listens on the cluster's address only. Everybody who can reach a port can connect, so a peer first answers a
challenge with the secret of this examination, which came with the first order, and the program proves that it knows the
secret, too. Packets have a proof as well, and an answer is never longer than the question.
"""
