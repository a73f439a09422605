// The entry points of the CUDA driver that egret calls, declared here so that no CUDA header is
// needed to build. Names, values and layouts are those of the driver API's documentation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace egret::backend::cuda {

using Result = int;
using DeviceNumber = int;
using DevicePointer = unsigned long long;
using ContextHandle = struct OpaqueContext*;
using StreamHandle = struct OpaqueStream*;
using EventHandle = struct OpaqueEvent*;
using ModuleHandle = struct OpaqueModule*;
using FunctionHandle = struct OpaqueFunction*;
using PoolHandle = struct OpaquePool*;
using GraphHandle = struct OpaqueGraph*;
using GraphNode = struct OpaqueGraphNode*;
using GraphExec = struct OpaqueGraphExec*;

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
};

enum DeviceAttribute : int {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kThreadsPerMultiprocessor = 39,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kSharedPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSharedPerBlockOptIn = 97,
  kBlocksPerMultiprocessor = 106,
  kMemoryPoolsSupported = 115,
};

enum FunctionAttribute : int {
  kStaticShared = 1,
  kLocalBytes = 3,
  kRegisters = 4,
  kMaxDynamicShared = 8,
  kNonPortableCluster = 14,
};

enum PoolAttribute : int { kReleaseThreshold = 4, kReservedNow = 5, kUsedNow = 7 };

struct Location {
  int type = 1; ///< a device
  int id = 0;
};
struct PoolProps {
  int allocation_type = 1; ///< pinned
  int handle_types = 0;
  Location location;
  void* security = nullptr;
  std::size_t max_size = 0;
  unsigned short usage = 0;
  unsigned char reserved[54] = {};
};

enum LaunchAttributeId : int { kClusterDimension = 4, kProgrammaticSerialization = 6 };
struct alignas(8) LaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int number;
  } value = {};
};
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

struct KernelNodeParams {
  FunctionHandle function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  ContextHandle context = nullptr;
};

struct CopySide {
  std::size_t x = 0, y = 0, z = 0, lod = 0;
  int memory_type = 2; ///< device
  const void* host = nullptr;
  DevicePointer device = 0;
  void* array = nullptr;
  void* reserved = nullptr;
  std::size_t pitch = 0, height = 0;
};
struct CopyParams {
  CopySide from, to;
  std::size_t width = 0, height = 1, depth = 1;
};

/// One line a function: result type is Result for all.
#define EGRET_CUDA_FUNCTIONS(X)                                                                    \
  X(cuInit, unsigned)                                                                              \
  X(cuDriverGetVersion, int*)                                                                      \
  X(cuGetErrorName, Result, const char**)                                                          \
  X(cuGetErrorString, Result, const char**)                                                        \
  X(cuDeviceGetCount, int*)                                                                        \
  X(cuDeviceGet, DeviceNumber*, int)                                                               \
  X(cuDeviceGetName, char*, int, DeviceNumber)                                                     \
  X(cuDeviceGetAttribute, int*, int, DeviceNumber)                                                 \
  X(cuDeviceTotalMem_v2, std::size_t*, DeviceNumber)                                               \
  X(cuDevicePrimaryCtxRetain, ContextHandle*, DeviceNumber)                                        \
  X(cuDevicePrimaryCtxRelease_v2, DeviceNumber)                                                    \
  X(cuCtxPushCurrent_v2, ContextHandle)                                                            \
  X(cuCtxPopCurrent_v2, ContextHandle*)                                                            \
  X(cuMemGetInfo_v2, std::size_t*, std::size_t*)                                                   \
  X(cuMemPoolCreate, PoolHandle*, const PoolProps*)                                                \
  X(cuMemPoolDestroy, PoolHandle)                                                                  \
  X(cuMemPoolSetAttribute, PoolHandle, int, void*)                                                 \
  X(cuMemPoolGetAttribute, PoolHandle, int, void*)                                                 \
  X(cuMemPoolTrimTo, PoolHandle, std::size_t)                                                      \
  X(cuMemAllocFromPoolAsync, DevicePointer*, std::size_t, PoolHandle, StreamHandle)                \
  X(cuMemFreeAsync, DevicePointer, StreamHandle)                                                   \
  X(cuMemHostAlloc, void**, std::size_t, unsigned)                                                 \
  X(cuMemFreeHost, void*)                                                                          \
  X(cuMemcpyHtoDAsync_v2, DevicePointer, const void*, std::size_t, StreamHandle)                   \
  X(cuMemcpyDtoHAsync_v2, void*, DevicePointer, std::size_t, StreamHandle)                         \
  X(cuMemcpyDtoDAsync_v2, DevicePointer, DevicePointer, std::size_t, StreamHandle)                 \
  X(cuMemsetD8Async, DevicePointer, unsigned char, std::size_t, StreamHandle)                      \
  X(cuStreamCreate, StreamHandle*, unsigned)                                                       \
  X(cuStreamDestroy_v2, StreamHandle)                                                              \
  X(cuStreamSynchronize, StreamHandle)                                                             \
  X(cuStreamWaitEvent, StreamHandle, EventHandle, unsigned)                                        \
  X(cuStreamBeginCapture_v2, StreamHandle, int)                                                    \
  X(cuStreamEndCapture, StreamHandle, GraphHandle*)                                                \
  X(cuStreamGetCaptureInfo_v2, StreamHandle, int*, std::uint64_t*, GraphHandle*,                   \
    const GraphNode**, std::size_t*)                                                               \
  X(cuEventCreate, EventHandle*, unsigned)                                                         \
  X(cuEventDestroy_v2, EventHandle)                                                                \
  X(cuEventRecord, EventHandle, StreamHandle)                                                      \
  X(cuEventSynchronize, EventHandle)                                                               \
  X(cuEventQuery, EventHandle)                                                                     \
  X(cuEventElapsedTime, float*, EventHandle, EventHandle)                                          \
  X(cuModuleLoadData, ModuleHandle*, const void*)                                                  \
  X(cuModuleUnload, ModuleHandle)                                                                  \
  X(cuModuleGetFunction, FunctionHandle*, ModuleHandle, const char*)                               \
  X(cuFuncGetAttribute, int*, int, FunctionHandle)                                                 \
  X(cuFuncSetAttribute, FunctionHandle, int, int)                                                  \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, FunctionHandle, int, std::size_t)           \
  X(cuLaunchKernelEx, const LaunchConfig*, FunctionHandle, void**, void**)                         \
  X(cuGraphInstantiateWithFlags, GraphExec*, GraphHandle, unsigned long long)                      \
  X(cuGraphDestroy, GraphHandle)                                                                   \
  X(cuGraphExecDestroy, GraphExec)                                                                 \
  X(cuGraphExecKernelNodeSetParams_v2, GraphExec, GraphNode, const KernelNodeParams*)              \
  X(cuGraphExecMemcpyNodeSetParams, GraphExec, GraphNode, const CopyParams*, ContextHandle)        \
  X(cuGraphAddChildGraphNode, GraphNode*, GraphHandle, const GraphNode*, std::size_t, GraphHandle) \
  X(cuGraphExecChildGraphNodeSetParams, GraphExec, GraphNode, GraphHandle)                         \
  X(cuStreamUpdateCaptureDependencies, StreamHandle, GraphNode*, std::size_t, unsigned)            \
  X(cuGraphLaunch, GraphExec, StreamHandle)                                                        \
  X(cuTensorMapEncodeTiled, void*, int, unsigned, void*, const std::uint64_t*,                     \
    const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int, int, int, int)

struct DriverApi {
#define EGRET_CUDA_POINTER(name, ...) Result (*name)(__VA_ARGS__) = nullptr;
  EGRET_CUDA_FUNCTIONS(EGRET_CUDA_POINTER)
#undef EGRET_CUDA_POINTER
};

} // namespace egret::backend::cuda
