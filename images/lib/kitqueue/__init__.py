"""The line of runs that wait on the head: who is next, why each waits, and the process that starts them.

Standard library only, Python 3.6: vendor images bring old interpreters.
"""
