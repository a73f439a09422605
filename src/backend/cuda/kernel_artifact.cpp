#include "backend/cuda/kernel_artifact.h"

#include "backend/cuda/disassembly.h"
#include "kernel/clusters.h"
#include "support/fail.h"

#include <algorithm>
#include <cstring>

namespace egret::backend::cuda {
namespace {

using kernel::KernelProgram;
using kernel::Space;

std::size_t count_of(const KernelProgram& program, Space space) {
  return static_cast<std::size_t>(
      std::count_if(program.buffers.begin(), program.buffers.end(),
                    [&](const kernel::Buffer& b) { return b.space == space; }));
}

} // namespace

KernelArtifact::KernelArtifact(std::shared_ptr<DeviceCore> core, const KernelProgram& program,
                               KernelText text, Cubin cubin, double seconds, CodeOrigin origin)
    : core_(std::move(core)), name_(program.name), text_(std::move(text)),
      log_(std::move(cubin.log)), origin_(std::move(origin)), seconds_(seconds),
      cached_(cubin.cached),
      pointers_(count_of(program, Space::Argument) + count_of(program, Space::Workspace)),
      dims_(program.dims.size()), scalars_(program.scalars.size()),
      blocks_(program.launch.workers, program.dims), maps_(program),
      threads_(static_cast<unsigned>(program.launch.threads)),
      has_settled_(kernel::has_settled(program)),
      early_(text_.text.find("griddepcontrol.wait") != std::string::npos) {
  const Context& context = *core_->context;
  const DriverApi& api = context.api();
  const Context::Use use(context);
  for (const KernelResources& r : cubin.kernels)
    if (r.kernel == text_.symbol)
      resources_ = r;
  text_.shared_bytes = std::max(text_.shared_bytes, program.launch.least_shared);
  const std::int64_t shared = text_.shared_bytes + resources_.shared_bytes;
  if (shared > context.target().block_shared_bytes)
    fail(ErrorKind::Unsupported,
         "{}: kernel {} asks for {} bytes of shared memory a block, {} are there", context.name(),
         name_, shared, context.target().block_shared_bytes);
  if (threads_ == 0 || threads_ > 1024)
    fail(ErrorKind::Unsupported, "{}: kernel {} asks for blocks of {} threads (1 to 1024)",
         context.name(), name_, threads_);
  const Result loaded = api.cuModuleLoadData(&module_, cubin.code.c_str());
  if (loaded == kInvalidPtx || loaded == kNoBinaryForGpu) // by the driver's own compiler
    fail(ErrorKind::Unsupported, "{}: the driver refuses kernel {}: {}", context.name(), name_,
         context.driver().text_of(loaded));
  context.driver().check(loaded, "loading kernel {} on {}", name_, context.name());
  try {
    context.driver().check(api.cuModuleGetFunction(&function_, module_, text_.symbol.c_str()),
                           "looking for {} in kernel {}", text_.symbol, name_);
    if (text_.shared_bytes > 0)
      context.driver().check(api.cuFuncSetAttribute(function_, kMaxDynamicShared,
                                                    static_cast<int>(text_.shared_bytes)),
                             "asking for {} bytes of shared memory for kernel {}",
                             text_.shared_bytes, name_);
    if (kernel::cluster_blocks(program) > kernel::kPortableCluster)
      context.driver().check(api.cuFuncSetAttribute(function_, kNonPortableCluster, 1),
                             "asking for large clusters for kernel {}", name_);
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == Space::Counter) {
        const auto bytes =
            static_cast<std::size_t>(buffer.elements.upper()) * size_of(buffer.dtype);
        counters_.push_back(core_->memory.allocate(bytes));
        context.driver().check(
            api.cuMemsetD8Async(reinterpret_cast<DevicePointer>(counters_.back()), 0, bytes,
                                context.stream()),
            "clearing the counters of kernel {}", name_);
      }
    most_blocks_ = program.launch.resident ? resident_blocks(program) : 0x7fffffffu;
    const std::size_t words = std::max<std::size_t>(1, pointers_ + counters_.size()) +
                              std::max<std::size_t>(1, dims_) + std::max<std::size_t>(1, scalars_) +
                              (has_settled_ ? 1 : 0);
    const std::size_t bytes = words * 8 + maps_.count() * (TensorMaps::kBytes + 64);
    const auto most = static_cast<std::size_t>(context.target().parameter_bytes);
    if (bytes > most)
      fail(ErrorKind::Unsupported, "{}: kernel {} has {} bytes of parameters, {} are allowed",
           context.name(), name_, bytes, most);
  } catch (...) {
    for (void* counter : counters_)
      core_->memory.release(counter);
    api.cuModuleUnload(module_);
    throw;
  }
}

KernelArtifact::~KernelArtifact() {
  const DriverApi& api = core_->context->api();
  for (void* counter : counters_)
    core_->memory.release(counter);
  if (api.cuCtxPushCurrent_v2(core_->context->handle()) != kSuccess)
    return;
  // Launches of it may still be queued.
  api.cuStreamSynchronize(core_->context->stream());
  api.cuModuleUnload(module_);
  ContextHandle popped = nullptr;
  api.cuCtxPopCurrent_v2(&popped);
}

int KernelArtifact::blocks_that_fit() const {
  const Context& context = *core_->context;
  int fit = 0;
  context.driver().check(context.api().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                             &fit, function_, static_cast<int>(threads_),
                             static_cast<std::size_t>(text_.shared_bytes)),
                         "asking how many blocks of kernel {} fit", name_);
  return fit;
}

unsigned KernelArtifact::resident_blocks(const KernelProgram& program) const {
  const Context& context = *core_->context;
  int fit = blocks_that_fit();
  if (fit == 0)
    fail(ErrorKind::Unsupported,
         "{}: a block of kernel {} does not fit a multiprocessor: {} threads of {} registers",
         context.name(), name_, threads_, resources_.registers);
  if (program.launch.blocks_per_core > 0)
    fit = std::min(fit, program.launch.blocks_per_core);
  return static_cast<unsigned>(fit) * static_cast<unsigned>(context.target().workers);
}

CodeUse KernelArtifact::use() const {
  const Context::Use turned(*core_->context);
  CodeUse use{resources_.registers,
              resources_.stack_bytes,
              resources_.spill_stores,
              resources_.spill_loads,
              resources_.shared_bytes + text_.shared_bytes,
              static_cast<int>(threads_),
              blocks_that_fit()};
  if (const int most = core_->context->target().threads; most > 0)
    use.occupancy = static_cast<double>(use.blocks) * use.threads / most;
  return use;
}

std::string KernelArtifact::assembly() const {
  constexpr int kFirstLine = 2; // of the text in code()
  return disassembly(*origin_.compiler, text_.text, origin_.architecture, text_.symbol, kFirstLine);
}

std::string KernelArtifact::code(const kernel::KernelProgram&) const {
  return fmt::format("// {}: {} registers, {} bytes of stack, {} + {} bytes of spills, {} + {} "
                     "bytes of shared memory, {} threads\n{}\n{}",
                     name_, resources_.registers, resources_.stack_bytes, resources_.spill_stores,
                     resources_.spill_loads, resources_.shared_bytes, text_.shared_bytes, threads_,
                     text_.text, log_.empty() ? "" : "/*\n" + log_ + "\n*/\n");
}

void KernelArtifact::pack(const kernel::ArgBlock& block, bool settled, LaunchArgs& args) const {
  const std::size_t pointers = std::max<std::size_t>(1, pointers_ + counters_.size());
  const std::size_t dims = std::max<std::size_t>(1, dims_);
  const std::size_t scalars = std::max<std::size_t>(1, scalars_);
  const std::size_t words = pointers + dims + scalars + (has_settled_ ? 1 : 0);
  args.bytes.assign(words * 8 + maps_.count() * TensorMaps::kBytes, std::byte{0});
  std::byte* at = args.bytes.data();
  auto put = [&](const void* from, std::size_t words) {
    if (words > 0)
      std::memcpy(at, from, words * 8);
    at += words * 8;
  };
  put(block.pointers, pointers_);
  put(counters_.data(), counters_.size());
  at = args.bytes.data() + pointers * 8;
  put(block.dims, dims_);
  at = args.bytes.data() + (pointers + dims) * 8;
  put(block.scalars, scalars_);
  at = args.bytes.data() + (pointers + dims + scalars) * 8;
  const std::uint64_t told = settled ? 1 : 0;
  put(&told, has_settled_ ? 1 : 0);
  const std::int64_t blocks = std::max<std::int64_t>(0, blocks_.at(block.dims));
  args.blocks = static_cast<unsigned>(std::min<std::int64_t>(blocks, most_blocks_));
  if (args.blocks > 0)
    maps_.encode(*core_->context, block.pointers, block.dims, args.bytes.data() + words * 8);
}

void KernelArtifact::put_parameters(const LaunchArgs& args, void** parameters) const {
  auto* const bytes = const_cast<std::byte*>(args.bytes.data());
  parameters[0] = bytes;
  for (std::size_t i = 0; i < maps_.count(); ++i)
    parameters[1 + i] = bytes + args.bytes.size() - (maps_.count() - i) * TensorMaps::kBytes;
}

KernelNodeParams KernelArtifact::node_params(const LaunchArgs& args, void** parameters) const {
  put_parameters(args, parameters);
  KernelNodeParams params;
  params.function = function_;
  params.grid[0] = args.blocks;
  params.block[0] = threads_;
  params.shared_bytes = static_cast<unsigned>(text_.shared_bytes);
  params.parameters = parameters;
  return params;
}

void KernelArtifact::launch(const LaunchArgs& args, StreamHandle stream) const {
  void* parameters[kMostParameters];
  put_parameters(args, parameters);
  LaunchConfig config;
  config.grid[0] = args.blocks;
  config.block[0] = threads_;
  config.shared_bytes = static_cast<unsigned>(text_.shared_bytes);
  config.stream = stream;
  LaunchAttribute serialization;
  serialization.id = kProgrammaticSerialization;
  serialization.value.number = 1;
  if (early_) {
    config.attributes = &serialization;
    config.attribute_count = 1;
  }
  const Context& context = *core_->context;
  context.driver().check(context.api().cuLaunchKernelEx(&config, function_, parameters, nullptr),
                         "launching kernel {} on {} ({} blocks of {} threads)", name_,
                         context.name(), args.blocks, threads_);
}

} // namespace egret::backend::cuda
