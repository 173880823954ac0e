"""The parts of scripts/gpu-check. They run on any machine with a GPU: Python 3.8 and its standard library."""
