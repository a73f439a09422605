#include "support/fake_cuda/fake_cuda.h"

#include "backend/cuda/driver_api.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

using namespace egret::backend::cuda;
using egret::testing::FakeCuda;
using egret::testing::FakeLaunch;
using egret::testing::kFakeAddressBits;

namespace egret::backend::cuda {

struct OpaqueContext {};
struct OpaqueEvent {};
struct OpaquePool {};
struct OpaqueFunction {
  std::string symbol, text;
};
struct OpaqueModule {
  std::string text;
  std::deque<OpaqueFunction> functions;
};
struct OpaqueGraphNode {
  FunctionHandle function = nullptr; ///< null: a copy
  std::vector<char> args;
  unsigned blocks = 0, threads = 0, shared = 0;
  DevicePointer from = 0, to = 0;
  std::size_t bytes = 0;
  bool alive = true; ///< its graph is
};
struct OpaqueGraph {
  std::vector<OpaqueGraphNode*> nodes;
};
struct OpaqueGraphExec {
  std::vector<OpaqueGraphNode*> nodes;
};
struct OpaqueStream {
  OpaqueGraph* capturing = nullptr;
};

} // namespace egret::backend::cuda

namespace {

FakeCuda state;
std::recursive_mutex mutex;
OpaqueContext context;
// What is handed out. A device keeps its memory until the process ends, and its addresses are none
// of the host's: here a leak checker finds what they stand for.
struct Allocation {
  void* memory;
  std::size_t bytes;
};
auto& blocks = *new std::map<DevicePointer, Allocation>;

Result fails(const char* name) {
  if (!state.failing || std::strcmp(state.failing, name) != 0)
    return kSuccess;
  return state.failures_after-- > 0 ? kSuccess : state.failure;
}

// As the driver: only a thread that has turned to the device may ask for these.
thread_local int contexts_pushed = 0;
#define NEEDS_CONTEXT                                                                              \
  if (contexts_pushed == 0)                                                                        \
    return kInvalidContext;

#define FAKE(name)                                                                                 \
  std::lock_guard lock(mutex);                                                                     \
  if (const Result injected = fails(name); injected != kSuccess)                                   \
    return injected;

char* host(DevicePointer p) {
  return reinterpret_cast<char*>(p ^ kFakeAddressBits);
}

void run_node(const OpaqueGraphNode& node) {
  if (!node.function) {
    ++state.copies;
    std::memmove(host(node.to), host(node.from), node.bytes);
    return;
  }
  ++state.launches;
  if (state.launcher)
    state.launcher({node.function->symbol.c_str(), node.function->text.c_str(), node.args.data(),
                    node.blocks, node.threads, node.shared},
                   state.launcher_data);
}

/// What PTX begins with here.
constexpr std::string_view kPtx = "// PTX\n";

/// The number behind `before` in the text; 0 where there is none.
std::size_t number_behind(const std::string& text, const char* before) {
  const std::size_t at = text.find(before);
  return at == std::string::npos
             ? 0
             : std::strtoull(text.c_str() + at + std::strlen(before), nullptr, 10);
}

// A driver knows the size of a kernel's parameters from its code: here from the struct in its text.
// Machine code of the real NVRTC has none; its parameters are a heap block of their own.
std::vector<char> copy_args(const std::string& text, void* args) {
  const std::string head = text.substr(0, text.find("__global__"));
  std::size_t words = number_behind(head, "void* p[") + number_behind(head, "long long d[") +
                      number_behind(head, "unsigned long long s[") +
                      (head.find("unsigned long long settled") != std::string::npos);
  std::vector<char> bytes(words > 0 ? 8 * words : malloc_usable_size(args));
  std::memcpy(bytes.data(), args, bytes.size());
  return bytes;
}

void handle(StreamHandle stream, OpaqueGraphNode node) {
  // Nodes outlive their graph, so that a use after its end is seen and refused.
  static std::deque<OpaqueGraphNode> kept;
  if (stream && stream->capturing)
    stream->capturing->nodes.push_back(&kept.emplace_back(std::move(node)));
  else
    run_node(node);
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) FakeCuda* fake_cuda_state() {
  return &state;
}

Result cuInit(unsigned) {
  FAKE("cuInit")
  return state.devices > 0 ? kSuccess : kNoDevice;
}
Result cuDriverGetVersion(int* version) {
  *version = state.driver_version;
  return kSuccess;
}
Result cuGetErrorName(Result result, const char** name) {
  *name = result == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                      : "CUDA_ERROR_FAKE";
  return kSuccess;
}
Result cuGetErrorString(Result result, const char** text) {
  *text = result == kOutOfMemory      ? "out of memory"
          : result == kIllegalAddress ? "an illegal memory access was encountered"
                                      : "a fake error";
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  *count = state.devices;
  return kSuccess;
}
Result cuDeviceGet(DeviceNumber* device, int index) {
  FAKE("cuDeviceGet")
  *device = index;
  return kSuccess;
}
Result cuDeviceGetName(char* name, int size, DeviceNumber) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int which, DeviceNumber) {
  const std::map<int, int> known{{kMultiprocessors, 4},
                                 {kL2Bytes, 50 << 20},
                                 {kThreadsPerMultiprocessor, 2048},
                                 {kCapabilityMajor, state.capability / 10},
                                 {kCapabilityMinor, state.capability % 10},
                                 {kSharedPerMultiprocessor, 228 << 10},
                                 {kRegistersPerMultiprocessor, 65536},
                                 {kSharedPerBlockOptIn, 227 << 10},
                                 {kBlocksPerMultiprocessor, 32},
                                 {kMemoryPoolsSupported, 1}};
  const auto found = known.find(which);
  *value = found == known.end() ? 0 : found->second;
  return kSuccess;
}
Result cuDeviceTotalMem_v2(std::size_t* bytes, DeviceNumber) {
  *bytes = state.memory;
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(ContextHandle* handle, DeviceNumber) {
  FAKE("cuDevicePrimaryCtxRetain")
  *handle = &context;
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(DeviceNumber) {
  return kSuccess;
}
Result cuCtxPushCurrent_v2(ContextHandle) {
  ++contexts_pushed;
  return kSuccess;
}
Result cuCtxPopCurrent_v2(ContextHandle* handle) {
  --contexts_pushed;
  *handle = &context;
  return kSuccess;
}
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = state.memory - state.used;
  *total = state.memory;
  return kSuccess;
}
Result cuMemPoolCreate(PoolHandle* pool, const PoolProps* props) {
  FAKE("cuMemPoolCreate")
  *pool = props->allocation_type == 1 && props->location.type == 1 ? new OpaquePool : nullptr;
  return *pool ? kSuccess : kInvalidValue;
}
Result cuMemPoolDestroy(PoolHandle pool) {
  delete pool;
  return kSuccess;
}
Result cuMemPoolSetAttribute(PoolHandle, int, void*) {
  return kSuccess;
}
Result cuMemPoolGetAttribute(PoolHandle, int, void* value) {
  *static_cast<std::uint64_t*>(value) = state.used;
  return kSuccess;
}
Result cuMemPoolTrimTo(PoolHandle, std::size_t) {
  return kSuccess;
}
Result cuMemAllocFromPoolAsync(DevicePointer* memory, std::size_t bytes, PoolHandle, StreamHandle) {
  NEEDS_CONTEXT
  FAKE("cuMemAllocFromPoolAsync")
  if (state.used + bytes > state.memory)
    return kOutOfMemory;
  void* block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(block, 0xa5, bytes);
  *memory = reinterpret_cast<DevicePointer>(block) ^ kFakeAddressBits;
  blocks[*memory] = {block, bytes};
  state.used += bytes;
  ++state.allocations;
  return kSuccess;
}
Result cuMemFreeAsync(DevicePointer memory, StreamHandle) {
  std::lock_guard lock(mutex);
  const auto found = blocks.find(memory);
  if (found == blocks.end())
    return kInvalidValue;
  state.used -= found->second.bytes;
  std::free(found->second.memory);
  blocks.erase(found);
  return kSuccess;
}
Result cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  FAKE("cuMemHostAlloc")
  *memory = std::malloc(bytes);
  return kSuccess;
}
Result cuMemFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, StreamHandle) {
  NEEDS_CONTEXT
  FAKE("cuMemcpyHtoDAsync_v2")
  std::memcpy(host(to), from, bytes);
  return kSuccess;
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, StreamHandle) {
  NEEDS_CONTEXT
  FAKE("cuMemcpyDtoHAsync_v2")
  std::memcpy(to, host(from), bytes);
  return kSuccess;
}
Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes,
                            StreamHandle stream) {
  FAKE("cuMemcpyDtoDAsync_v2")
  OpaqueGraphNode node;
  node.to = to;
  node.from = from;
  node.bytes = bytes;
  handle(stream, std::move(node));
  return kSuccess;
}
Result cuMemsetD8Async(DevicePointer to, unsigned char value, std::size_t bytes, StreamHandle) {
  std::memset(host(to), value, bytes);
  return kSuccess;
}
Result cuStreamCreate(StreamHandle* stream, unsigned) {
  NEEDS_CONTEXT
  FAKE("cuStreamCreate")
  *stream = new OpaqueStream;
  return kSuccess;
}
Result cuStreamDestroy_v2(StreamHandle stream) {
  delete stream;
  return kSuccess;
}
Result cuStreamSynchronize(StreamHandle) {
  FAKE("cuStreamSynchronize")
  return kSuccess;
}
Result cuStreamWaitEvent(StreamHandle, EventHandle, unsigned) {
  return kSuccess;
}
Result cuStreamBeginCapture_v2(StreamHandle stream, int) {
  NEEDS_CONTEXT
  FAKE("cuStreamBeginCapture_v2")
  stream->capturing = new OpaqueGraph;
  return kSuccess;
}
Result cuStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  *graph = stream->capturing;
  stream->capturing = nullptr;
  return kSuccess;
}
Result cuStreamGetCaptureInfo_v2(StreamHandle stream, int* status, std::uint64_t* id,
                                 GraphHandle* graph, const GraphNode** last, std::size_t* count) {
  *status = 1;
  *id = 1;
  *graph = stream->capturing;
  *last = &stream->capturing->nodes.back();
  *count = 1;
  return kSuccess;
}
Result cuEventCreate(EventHandle* event, unsigned) {
  NEEDS_CONTEXT
  *event = new OpaqueEvent;
  return kSuccess;
}
Result cuEventDestroy_v2(EventHandle event) {
  delete event;
  return kSuccess;
}
Result cuEventRecord(EventHandle, StreamHandle) {
  return kSuccess;
}
Result cuEventSynchronize(EventHandle) {
  FAKE("cuEventSynchronize")
  return kSuccess;
}
Result cuEventQuery(EventHandle) {
  return kSuccess;
}
Result cuEventElapsedTime(float* ms, EventHandle, EventHandle) {
  *ms = 1;
  return kSuccess;
}
Result cuModuleLoadData(ModuleHandle* module, const void* code) {
  NEEDS_CONTEXT
  FAKE("cuModuleLoadData")
  const std::string text = static_cast<const char*>(code);
  if (state.only_ptx && !text.starts_with(kPtx))
    return kNoBinaryForGpu;
  *module = new OpaqueModule{text, {}};
  ++state.modules;
  return kSuccess;
}
Result cuModuleUnload(ModuleHandle module) {
  if (module)
    --state.modules;
  delete module;
  return kSuccess;
}
Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name) {
  // Machine code of the real NVRTC can be loaded, not run: what it has is not looked for.
  const bool real = module->text.starts_with("\x7f"
                                             "ELF");
  if (!real && module->text.find(name) == std::string::npos)
    return 500;
  *function = &module->functions.emplace_back(OpaqueFunction{name, module->text});
  return kSuccess;
}
Result cuFuncGetAttribute(int* value, int, FunctionHandle) {
  *value = 0;
  return kSuccess;
}
Result cuFuncSetAttribute(FunctionHandle, int, int) {
  return kSuccess;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* fit, FunctionHandle, int threads,
                                                   std::size_t) {
  *fit = 2048 / threads;
  return kSuccess;
}
Result cuOccupancyMaxActiveClusters(int* fit, FunctionHandle, const LaunchConfig*) {
  *fit = 4;
  return kSuccess;
}
Result cuLaunchKernelEx(const LaunchConfig* config, FunctionHandle function, void** parameters,
                        void**) {
  NEEDS_CONTEXT
  FAKE("cuLaunchKernelEx")
  if (config->grid[0] == 0 || config->block[0] == 0 || config->block[0] > 1024)
    return kInvalidValue;
  OpaqueGraphNode node;
  node.function = function;
  node.args = copy_args(function->text, parameters[0]);
  node.blocks = config->grid[0];
  node.threads = config->block[0];
  node.shared = config->shared_bytes;
  for (unsigned i = 0; i < config->attribute_count; ++i)
    state.early_launches += config->attributes[i].id == kProgrammaticSerialization &&
                            config->attributes[i].value.number == 1;
  handle(config->stream, std::move(node));
  return kSuccess;
}
Result cuGraphInstantiateWithFlags(GraphExec* exec, GraphHandle graph, unsigned long long) {
  NEEDS_CONTEXT
  FAKE("cuGraphInstantiateWithFlags")
  *exec = new OpaqueGraphExec{graph->nodes};
  ++state.graphs_made;
  return kSuccess;
}
Result cuGraphDestroy(GraphHandle graph) {
  for (OpaqueGraphNode* node : graph->nodes)
    node->alive = false; // still run by what was made of the graph, but no name for it any more
  delete graph;
  return kSuccess;
}
Result cuGraphExecDestroy(GraphExec exec) {
  delete exec;
  return kSuccess;
}
Result cuGraphExecKernelNodeSetParams_v2(GraphExec, GraphNode node,
                                         const KernelNodeParams* params) {
  FAKE("cuGraphExecKernelNodeSetParams_v2")
  if (!node->alive || node->function != params->function || params->grid[0] == 0)
    return kInvalidValue;
  node->args = copy_args(params->function->text, params->parameters[0]);
  node->blocks = params->grid[0];
  ++state.nodes_changed;
  return kSuccess;
}
Result cuGraphExecMemcpyNodeSetParams(GraphExec, GraphNode node, const CopyParams* params,
                                      ContextHandle) {
  if (!node->alive || node->function || params->from.memory_type != 2 ||
      params->to.memory_type != 2 || params->height != 1 || params->depth != 1)
    return kInvalidValue;
  node->from = params->from.device;
  node->to = params->to.device;
  node->bytes = params->width;
  ++state.nodes_changed;
  return kSuccess;
}
// Graphs within graphs hold a library's work, which there is none of here.
Result cuGraphAddChildGraphNode(GraphNode*, GraphHandle, const GraphNode*, std::size_t,
                                GraphHandle) {
  return kInvalidValue;
}
Result cuGraphExecChildGraphNodeSetParams(GraphExec, GraphNode, GraphHandle) {
  return kInvalidValue;
}
Result cuStreamUpdateCaptureDependencies(StreamHandle, GraphNode*, std::size_t, unsigned) {
  return kInvalidValue;
}
Result cuGraphLaunch(GraphExec exec, StreamHandle) {
  NEEDS_CONTEXT
  FAKE("cuGraphLaunch")
  ++state.graph_launches;
  for (const OpaqueGraphNode* node : exec->nodes)
    run_node(*node);
  return kSuccess;
}
Result cuTensorMapEncodeTiled(void*, int type, unsigned rank, void*, const std::uint64_t* extents,
                              const std::uint64_t* strides, const std::uint32_t* box,
                              const std::uint32_t* steps, int interleave, int swizzle,
                              int promotion, int fill) {
  NEEDS_CONTEXT
  ++state.tensor_maps;
  auto mix = [](std::uint64_t number) {
    state.tensor_map_numbers = (state.tensor_map_numbers ^ number) * 0x100000001b3u;
  };
  for (const int number : {type, interleave, swizzle, promotion, fill})
    mix(static_cast<std::uint64_t>(number));
  for (unsigned d = 0; d < rank; ++d) {
    mix(extents[d]);
    mix(d + 1 < rank ? strides[d] : 0);
    mix(box[d]);
    mix(steps[d]);
  }
  return kSuccess;
}

// NVRTC: the machine code is the text.

struct OpaqueProgram {
  std::string text, log;
};

int nvrtcVersion(int* major, int* minor) {
  *major = state.nvrtc_version;
  *minor = 0;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 4;
  return 0;
}
int nvrtcGetSupportedArchs(int* archs) {
  const int all[] = {80, 86, 90, 100};
  std::memcpy(archs, all, sizeof all);
  return 0;
}
const char* nvrtcGetErrorString(int result) {
  return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_FAKE";
}
int nvrtcCreateProgram(OpaqueProgram** program, const char* text, const char*, int,
                       const char* const*, const char* const*) {
  *program = new OpaqueProgram{text, {}};
  return 0;
}
int nvrtcDestroyProgram(OpaqueProgram** program) {
  delete *program;
  return 0;
}
int nvrtcCompileProgram(OpaqueProgram* program, int, const char* const*) {
  std::lock_guard lock(mutex);
  ++std::atomic_ref(state.compilations);
  const bool fails =
      state.compile_error &&
      (!state.only_texts_with || program->text.find(state.only_texts_with) != std::string::npos);
  if (!fails) {
    program->log = "ptxas info    : Compiling entry function 'fake' for 'sm_90a'\n";
    return 0;
  }
  program->log = state.compile_error;
  return 6;
}
int nvrtcGetCUBINSize(OpaqueProgram* program, std::size_t* size) {
  *size = program->text.size();
  return 0;
}
int nvrtcGetCUBIN(OpaqueProgram* program, char* code) {
  std::memcpy(code, program->text.data(), program->text.size());
  return 0;
}
int nvrtcGetPTXSize(OpaqueProgram* program, std::size_t* size) {
  *size = kPtx.size() + program->text.size();
  return 0;
}
int nvrtcGetPTX(OpaqueProgram* program, char* code) {
  std::memcpy(code, kPtx.data(), kPtx.size());
  std::memcpy(code + kPtx.size(), program->text.data(), program->text.size());
  return 0;
}
int nvrtcGetProgramLogSize(OpaqueProgram* program, std::size_t* size) {
  *size = program->log.size();
  return 0;
}
int nvrtcGetProgramLog(OpaqueProgram* program, char* log) {
  std::memcpy(log, program->log.data(), program->log.size());
  return 0;
}

} // extern "C"
