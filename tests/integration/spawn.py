"""A rank that asks the daemon of a host to start a program, as every login of that VM could."""

SPAWN = """
import ctypes, sys
from ctypes import byref, c_char, c_char_p, c_int, c_void_p
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
alone = ctypes.addressof(c_char.in_dll(mpi, "ompi_mpi_comm_self"))
info = c_void_p()
mpi.MPI_Info_create(byref(info))
for key, value in (("host", sys.argv[1]), ("map_by", "slot:OVERSUBSCRIBE")):
    mpi.MPI_Info_set(info, key.encode(), value.encode())
mpi.MPI_Comm_spawn.argtypes = [c_char_p, c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p, c_void_p]
words = (c_char_p * 3)(b"-c", b"id -u >/tmp/spawned; exit 9", None)
# sh is no MPI program: the ranks would wait for it, were it not for its code.
mpi.MPI_Comm_spawn(b"/bin/sh", words, 1, info, 0, alone, byref(c_void_p()), (c_int * 1)())
"""
