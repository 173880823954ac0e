"""The porter: takes an image's layers from the host before it, passes them to the host behind it, and loads them.

kit sends it to a VM with every ship. It runs there while the operator's connection is open, and installs nothing. So
this package imports no other part of kit: only Python's standard library, from version 3.6 on.
"""
