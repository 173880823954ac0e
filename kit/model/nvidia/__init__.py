"""Parses the output of nvidia-smi, from driver 410 on. Every function takes text and returns values.

scripts/gpu-check uses this on machines without kit's packages: Python 3.8 and its standard library. For that reason,
values are dataclasses here, and not keyword-only. The text is untrusted: the parsers raise OddAnswer, and nothing else.
"""
