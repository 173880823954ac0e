"""What keeps a run alive on the cluster: the launcher's front, the supervisor in the head, the guards on the nodes.

Standard library only, Python 3.6: vendor images bring old interpreters.
"""
