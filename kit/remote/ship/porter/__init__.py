"""The porter: takes an image's layers from the host before it, hands them to the host behind it, and loads them.

It is sent to a VM with every ship and runs there for as long as the operator's connection stands; nothing is
installed. So this package knows nothing of kit but itself: Python's standard library, from version 3.6 on.
"""
