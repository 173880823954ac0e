"""Pretended GPUs of a lab host: nvidia-smi, what gives them to containers, and their faults. Nothing can compute.

It runs on the Python of containers, 3.6 or newer, with nothing installed.
"""
