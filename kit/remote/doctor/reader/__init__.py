"""Reads files, names and the output of programs on a VM for kit doctor. It changes nothing.

kit.remote.doctor.read sends these modules as one program, on standard input. Python 3.6, standard library only.
"""
