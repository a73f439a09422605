#include "backend/cuda/c_library_text.h"

namespace egret::backend::cuda {

namespace {

constexpr std::string_view kDriver = R"text(
/* What is called of the CUDA driver, by the names, numbers and layouts of its API. */
struct EgAttribute {
  int id, pad;
  union {
    uint64_t words[8];
    int number;
  } value;
};
struct EgConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  struct EgAttribute* attributes;
  unsigned count;
};
struct EgPool {
  int allocation, handles, location, device;
  void* security;
  size_t most;
  unsigned short usage;
  unsigned char reserved[54];
};
#define EG_FUNCTIONS(X)                                                            \
  X(cuInit, unsigned)                                                              \
  X(cuGetErrorName, int, const char**)                                             \
  X(cuGetErrorString, int, const char**)                                           \
  X(cuDeviceGetCount, int*)                                                        \
  X(cuDeviceGet, int*, int)                                                        \
  X(cuDeviceGetAttribute, int*, int, int)                                          \
  X(cuDevicePrimaryCtxRetain, void**, int)                                         \
  X(cuDevicePrimaryCtxRelease_v2, int)                                             \
  X(cuCtxPushCurrent_v2, void*)                                                    \
  X(cuCtxPopCurrent_v2, void**)                                                    \
  X(cuMemPoolCreate, void**, const struct EgPool*)                                 \
  X(cuMemPoolDestroy, void*)                                                       \
  X(cuMemPoolSetAttribute, void*, int, void*)                                      \
  X(cuMemAllocFromPoolAsync, uint64_t*, size_t, void*, void*)                      \
  X(cuMemFreeAsync, uint64_t, void*)                                               \
  X(cuMemcpyHtoDAsync_v2, uint64_t, const void*, size_t, void*)                    \
  X(cuMemcpyDtoHAsync_v2, void*, uint64_t, size_t, void*)                          \
  X(cuMemcpyDtoDAsync_v2, uint64_t, uint64_t, size_t, void*)                       \
  X(cuMemsetD8Async, uint64_t, unsigned char, size_t, void*)                       \
  X(cuStreamCreate, void**, unsigned)                                              \
  X(cuStreamDestroy_v2, void*)                                                     \
  X(cuStreamSynchronize, void*)                                                    \
  X(cuStreamWaitEvent, void*, void*, unsigned)                                     \
  X(cuEventCreate, void**, unsigned)                                               \
  X(cuEventDestroy_v2, void*)                                                      \
  X(cuEventRecord, void*, void*)                                                   \
  X(cuModuleLoadData, void**, const void*)                                         \
  X(cuModuleUnload, void*)                                                         \
  X(cuModuleGetFunction, void**, void*, const char*)                               \
  X(cuFuncSetAttribute, void*, int, int)                                           \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, void*, int, size_t)         \
  X(cuLaunchKernelEx, const struct EgConfig*, void*, void**, void**)               \
  X(cuTensorMapEncodeTiled, void*, int, unsigned, void*, const uint64_t*,          \
    const uint64_t*, const uint32_t*, const uint32_t*, int, int, int, int)

static struct {
  void* library;
#define EG_POINTER(name, ...) int (*name)(__VA_ARGS__);
  EG_FUNCTIONS(EG_POINTER)
#undef EG_POINTER
} eg_cu;

static _Thread_local char eg_words[1024]; /* of the last error of this thread */

/* The words, up to a null pointer, become the message. */
static int eg_fail(int code, const char* first, ...) {
  va_list words;
  size_t at = 0;
  va_start(words, first);
  for (const char* word = first; word; word = va_arg(words, const char*))
    for (; *word && at + 1 < sizeof eg_words; ++word) eg_words[at++] = *word;
  va_end(words);
  eg_words[at] = 0;
  return code;
}

/* EG_OK, or what a call of the driver has refused. */
static int eg_check(int result, const char* doing, const char* what) {
  const char *text = 0, *name = 0;
  if (result == 0) return EG_OK;
  eg_cu.cuGetErrorString(result, &text);
  eg_cu.cuGetErrorName(result, &name);
  return eg_fail(result == 2 ? EG_NO_MEMORY : EG_FAILED, EG_NAME ": ", doing, what, ": ",
                 text ? text : "unknown error", " (", name ? name : "no name", ")",
                 (const char*)0);
}

static int eg_find_driver(void) {
  static const char* const usual[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                      "/usr/lib/wsl/lib/libcuda.so.1"};
  const char* const named = getenv("EGRET_CUDA_DRIVER");
  const char* missing = 0;
  int code = EG_OK;
  void* library = 0;
  void* found = 0;
  if (eg_cu.library) return EG_OK;
  if (named && *named)
    library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
  else
    for (int i = 0; i < 3 && !library; ++i) library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const why = dlerror();
    return eg_fail(EG_NO_DEVICE, EG_NAME ": no CUDA driver: ", why ? why : "not found",
                   (const char*)0);
  }
#define EG_FIND(name, ...)                                \
  found = dlsym(library, #name);                          \
  memcpy(&eg_cu.name, &found, sizeof found);              \
  if (!found && !missing) missing = #name;
  EG_FUNCTIONS(EG_FIND)
#undef EG_FIND
  if (missing) {
    dlclose(library);
    return eg_fail(EG_NO_DEVICE, EG_NAME ": the CUDA driver lacks ", missing,
                   " (12.0 or later is needed)", (const char*)0);
  }
  code = eg_check(eg_cu.cuInit(0), "starting the CUDA driver", "");
  if (code) {
    dlclose(library);
    return EG_NO_DEVICE;
  }
  eg_cu.library = library;
  return EG_OK;
}
)text";

constexpr std::string_view kLaunch = R"text(
static struct {
  int device, multiprocessors;
  void *context, *stream, *pool, *done; /* the event of the last call */
  char* memory;                         /* values, then counters */
  void *modules[EG_KERNELS + 1], *functions[EG_KERNELS + 1];
  unsigned most_blocks[EG_KERNELS + 1];
} eg_gpu;
static atomic_flag eg_busy = ATOMIC_FLAG_INIT;

static uint64_t eg_address(const void* memory) {
  return (uint64_t)(uintptr_t)memory;
}

static int eg_allocate(char** memory, size_t bytes, void* stream) {
  uint64_t at = 0;
  const int code =
      eg_check(eg_cu.cuMemAllocFromPoolAsync(&at, bytes ? bytes : 1, eg_gpu.pool, stream),
               "allocating memory of the GPU", "");
  *memory = (char*)(uintptr_t)at;
  return code;
}

static size_t eg_place(size_t* end, size_t bytes) {
  const size_t at = *end;
  *end += (bytes + 255) / 256 * 256;
  return at;
}

/* The GPU's own code, or what the driver compiles for it. */
static int eg_load_module(int number) {
  const struct EgKernel* const kernel = &eg_kernels[number];
  int result = 209; /* no code for this GPU */
  if (kernel->cubin) result = eg_cu.cuModuleLoadData(&eg_gpu.modules[number], kernel->cubin);
  if (result != 0 && result != 2 && kernel->ptx) {
    const int own = result;
    result = eg_cu.cuModuleLoadData(&eg_gpu.modules[number], kernel->ptx);
    if (result != 0 && own != 209) result = own;
  }
  if (result != 0) eg_gpu.modules[number] = 0;
  if (result == 209)
    return eg_fail(EG_NO_DEVICE, EG_NAME ": kernel ", kernel->name, " was made for ",
                   kernel->target, " and does not run on this GPU", (const char*)0);
  return eg_check(result, "loading kernel ", kernel->name);
}

static int eg_load_kernel(int number) {
  const struct EgKernel* const kernel = &eg_kernels[number];
  void** const function = &eg_gpu.functions[number];
  int fit = 0;
  int code = eg_load_module(number);
  if (!code)
    code = eg_check(
        eg_cu.cuModuleGetFunction(function, eg_gpu.modules[number], kernel->symbol),
        "looking for kernel ", kernel->name);
  if (!code && kernel->shared)
    code = eg_check(eg_cu.cuFuncSetAttribute(*function, 8, (int)kernel->shared),
                    "asking for shared memory for kernel ", kernel->name);
  if (!code && kernel->large_clusters)
    code = eg_check(eg_cu.cuFuncSetAttribute(*function, 14, 1),
                    "asking for large clusters for kernel ", kernel->name);
  eg_gpu.most_blocks[number] = 0x7fffffffu;
  if (code || !kernel->resident) return code;
  code = eg_check(eg_cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                      &fit, *function, (int)kernel->threads, kernel->shared),
                  "asking how many blocks fit of kernel ", kernel->name);
  if (!code && fit < 1)
    return eg_fail(EG_NO_DEVICE, EG_NAME ": a block of kernel ", kernel->name,
                   " does not fit a multiprocessor of this GPU", (const char*)0);
  if (kernel->blocks_per_core > 0 && fit > kernel->blocks_per_core) fit = kernel->blocks_per_core;
  eg_gpu.most_blocks[number] = (unsigned)(fit * eg_gpu.multiprocessors);
  return code;
}

/* With the context current. */
static int eg_prepare(void) {
  struct EgPool pool;
  uint64_t all = UINT64_MAX;
  memset(&pool, 0, sizeof pool);
  pool.allocation = pool.location = 1;
  pool.device = eg_gpu.device;
  int code = eg_check(eg_cu.cuStreamCreate(&eg_gpu.stream, 1), "making a stream", "");
  if (!code) code = eg_check(eg_cu.cuEventCreate(&eg_gpu.done, 2), "making an event", "");
  if (!code) code = eg_check(eg_cu.cuMemPoolCreate(&eg_gpu.pool, &pool), "making a memory pool", "");
  if (!code)
    code = eg_check(eg_cu.cuMemPoolSetAttribute(eg_gpu.pool, 4, &all), "keeping memory", "");
  if (!code && EG_VALUE_BYTES + EG_COUNTER_BYTES > 0)
    code = eg_allocate(&eg_gpu.memory, EG_VALUE_BYTES + EG_COUNTER_BYTES, eg_gpu.stream);
  for (int i = 0; i < EG_VALUES && !code; ++i)
    code = eg_check(eg_cu.cuMemcpyHtoDAsync_v2(eg_address(eg_gpu.memory + eg_values[i].at),
                                               eg_values[i].from, eg_values[i].bytes,
                                               eg_gpu.stream),
                    "copying values to the GPU", "");
  if (!code && EG_COUNTER_BYTES > 0)
    code = eg_check(eg_cu.cuMemsetD8Async(eg_address(eg_gpu.memory + EG_VALUE_BYTES), 0,
                                          EG_COUNTER_BYTES, eg_gpu.stream),
                    "clearing counters", "");
  for (int i = 0; i < EG_KERNELS && !code; ++i) code = eg_load_kernel(i);
  if (!code) code = eg_check(eg_cu.cuStreamSynchronize(eg_gpu.stream), "waiting for the GPU", "");
  return code;
}

static void eg_close(void) {
  void* popped = 0;
  if (!eg_gpu.context) return;
  if (eg_cu.cuCtxPushCurrent_v2(eg_gpu.context) == 0) {
    if (eg_gpu.stream && eg_gpu.done) eg_cu.cuStreamWaitEvent(eg_gpu.stream, eg_gpu.done, 0);
    if (eg_gpu.memory) eg_cu.cuMemFreeAsync(eg_address(eg_gpu.memory), eg_gpu.stream);
    if (eg_gpu.stream) eg_cu.cuStreamSynchronize(eg_gpu.stream);
    for (int i = 0; i < EG_KERNELS; ++i)
      if (eg_gpu.modules[i]) eg_cu.cuModuleUnload(eg_gpu.modules[i]);
    if (eg_gpu.pool) eg_cu.cuMemPoolDestroy(eg_gpu.pool);
    if (eg_gpu.done) eg_cu.cuEventDestroy_v2(eg_gpu.done);
    if (eg_gpu.stream) eg_cu.cuStreamDestroy_v2(eg_gpu.stream);
    eg_cu.cuCtxPopCurrent_v2(&popped);
  }
  eg_cu.cuDevicePrimaryCtxRelease_v2(eg_gpu.device);
  memset(&eg_gpu, 0, sizeof eg_gpu);
}

static int eg_open(int device) {
  int count = 0;
  void* popped = 0;
  int code = eg_find_driver();
  if (code) return code;
  code = eg_check(eg_cu.cuDeviceGetCount(&count), "counting the GPUs", "");
  if (!code && (device < 0 || device >= count))
    return eg_fail(EG_NO_DEVICE, EG_NAME ": there is no GPU of that number", (const char*)0);
  if (!code)
    code = eg_check(eg_cu.cuDeviceGet(&eg_gpu.device, device), "opening the GPU", "");
  if (!code)
    code = eg_check(eg_cu.cuDeviceGetAttribute(&eg_gpu.multiprocessors, 16, eg_gpu.device),
                    "counting multiprocessors", "");
  if (!code)
    code = eg_check(eg_cu.cuDevicePrimaryCtxRetain(&eg_gpu.context, eg_gpu.device),
                    "making a context", "");
  if (code) {
    eg_gpu.context = 0;
    return code;
  }
  code = eg_check(eg_cu.cuCtxPushCurrent_v2(eg_gpu.context), "turning to the GPU", "");
  if (!code) {
    code = eg_prepare();
    eg_cu.cuCtxPopCurrent_v2(&popped);
  }
  if (code) eg_close();
  return code;
}

/* Begins a call: the GPU is open and its context current, or no EG_OK is given. */
static int eg_enter(void) {
  int code = EG_OK;
  if (atomic_flag_test_and_set(&eg_busy))
    return eg_fail(EG_BUSY, EG_NAME ": another thread is in a function of this library",
                   (const char*)0);
  if (!eg_gpu.context) code = eg_open(0);
  if (!code) code = eg_check(eg_cu.cuCtxPushCurrent_v2(eg_gpu.context), "turning to the GPU", "");
  if (code) atomic_flag_clear(&eg_busy);
  return code;
}

static int eg_leave(int code) {
  void* popped = 0;
  eg_cu.cuCtxPopCurrent_v2(&popped);
  atomic_flag_clear(&eg_busy);
  return code;
}

/* Calls share counters: their work is done one after the other, whatever their streams. */
static int eg_begin(void* stream) {
  return eg_check(eg_cu.cuStreamWaitEvent(stream, eg_gpu.done, 0), "waiting for the call before",
                  "");
}

static int eg_end(int code, void* stream) {
  const int result = eg_cu.cuEventRecord(eg_gpu.done, stream);
  return code ? code : eg_check(result, "ending a call", "");
}

static inline int eg_check_aligned(const void* memory, const char* name) {
  if (((uintptr_t)memory & 63) == 0) return EG_OK;
  return eg_fail(EG_FAILED, EG_NAME ": ", name, " is not aligned to 64 bytes", (const char*)0);
}

/* A copy between two places of the GPU's memory. */
static inline int eg_copy(const void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return EG_OK;
  return eg_check(eg_cu.cuMemcpyDtoDAsync_v2(eg_address(to), eg_address(from), bytes, stream),
                  "copying on the GPU", "");
}

static inline int eg_copy_in(const void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return EG_OK;
  return eg_check(eg_cu.cuMemcpyHtoDAsync_v2(eg_address(to), from, bytes, stream),
                  "copying to the GPU", "");
}

static inline int eg_copy_out(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return EG_OK;
  return eg_check(eg_cu.cuMemcpyDtoHAsync_v2(to, eg_address(from), bytes, stream),
                  "copying from the GPU", "");
}

struct EgMap {
  _Alignas(64) unsigned char bytes[128];
};

static inline int eg_map(struct EgMap* map, int type, unsigned rank, char* base,
                         const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
                         int swizzle, int number) {
  static const uint32_t ones[5] = {1, 1, 1, 1, 1};
  return eg_check(eg_cu.cuTensorMapEncodeTiled(map, type, rank, base, extents, strides, box, ones,
                                               0, swizzle, 2, 0),
                  "making a tensor map for kernel ", eg_kernels[number].name);
}

static inline int eg_launch(int number, long long blocks, void** parameters, void* stream) {
  const struct EgKernel* const kernel = &eg_kernels[number];
  struct EgConfig config;
  struct EgAttribute serialization;
  if (blocks <= 0) return EG_OK;
  memset(&config, 0, sizeof config);
  memset(&serialization, 0, sizeof serialization);
  config.grid[0] =
      blocks < eg_gpu.most_blocks[number] ? (unsigned)blocks : eg_gpu.most_blocks[number];
  config.block[0] = kernel->threads;
  config.grid[1] = config.grid[2] = config.block[1] = config.block[2] = 1;
  config.shared = kernel->shared;
  config.stream = stream;
  serialization.id = 6; /* it waits for the launch before it by itself */
  serialization.value.number = 1;
  config.attributes = kernel->early ? &serialization : 0;
  config.count = kernel->early ? 1 : 0;
  return eg_check(eg_cu.cuLaunchKernelEx(&config, eg_gpu.functions[number], parameters, 0),
                  "launching kernel ", kernel->name);
}
)text";

} // namespace

std::string_view library_driver_text() {
  return kDriver;
}
std::string_view library_launch_text() {
  return kLaunch;
}

} // namespace egret::backend::cuda
