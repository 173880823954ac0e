/* A libcuda.so.1 for the build, which has no driver: MXNet binds these functions when Python imports it, and Horovod's
   build imports MXNet. Each returns CUDA_ERROR_NO_DEVICE. The image must not have this library: the driver's comes from
   the host. */
#define NONE(name) int name(void) { return 100; }
NONE(cuDeviceGet)
NONE(cuDevicePrimaryCtxRetain)
NONE(cuGetErrorString)
NONE(cuGraphKernelNodeGetParams)
NONE(cuGraphNodeGetType)
NONE(cuLaunchKernel)
NONE(cuModuleGetFunction)
NONE(cuModuleLoadData)
NONE(cuModuleLoadDataEx)
NONE(cuModuleUnload)
