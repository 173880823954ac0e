"""Reads, writes and removes files for kit, as root on a VM, or in a container. Python 3.6, standard library only.

kit.remote.results.far sends these modules as one program. Ranks write the files, so no name and no link in them decides
anything: below TOP, the program follows no link. Names travel as the text whose letters are their bytes (latin-1).
"""
