"""What brings a data set to the hosts: the stager, which runs in a separate container on each host.

Standard library only, Python 3.6: vendor images bring old interpreters.
"""
