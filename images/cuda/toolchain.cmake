# Horovod links CUDA's runtime statically by default. The wheels have only the shared one.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
