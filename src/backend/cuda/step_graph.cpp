#include "backend/cuda/step_graph.h"

#include "backend/cuda/cublaslt.h"
#include "support/fail.h"

namespace egret::backend::cuda {
namespace {

const KernelArtifact* kernel_of(const Work& item) {
  return static_cast<const CudaArtifact&>(*item.artifact).kernel();
}

const LibraryArtifact& product_of(const Work& item) {
  return static_cast<const LibraryArtifact&>(*item.artifact);
}

std::vector<void*> pointers_of(const Work& item) {
  return {item.block.pointers, item.block.pointers + product_of(item).pointers()};
}

/// A stream of its own: other threads go on using the context's.
class OwnStream {
public:
  explicit OwnStream(const Context& context) : api_(context.api()) {
    context.driver().check(api_.cuStreamCreate(&handle_, 1), "making a stream on {}",
                           context.name());
  }
  ~OwnStream() { api_.cuStreamDestroy_v2(handle_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  StreamHandle handle() const noexcept { return handle_; }

private:
  const DriverApi& api_;
  StreamHandle handle_ = nullptr;
};

} // namespace

StepGraph::StepGraph(std::shared_ptr<DeviceCore> core, std::span<const Work> work)
    : core_(std::move(core)) {
  const Context& context = *core_->context;
  const DriverApi& api = context.api();
  const Context::Use use(context);
  const OwnStream own(context);
  StreamHandle const stream = own.handle();
  constexpr int kRelaxed = 2;
  context.driver().check(api.cuStreamBeginCapture_v2(stream, kRelaxed),
                         "beginning to record {} parts of a step", work.size());
  try {
    capture(work, stream);
  } catch (...) {
    api.cuStreamEndCapture(stream, &graph_);
    if (graph_)
      api.cuGraphDestroy(graph_);
    throw;
  }
  context.driver().check(api.cuStreamEndCapture(stream, &graph_), "recording a step of {} parts",
                         work.size());
  const Result made = api.cuGraphInstantiateWithFlags(&exec_, graph_, 0);
  if (made != kSuccess)
    api.cuGraphDestroy(graph_);
  context.driver().check(made, "making a graph of {} parts", work.size());
}

StepGraph::~StepGraph() {
  const DriverApi& api = core_->context->api();
  if (api.cuCtxPushCurrent_v2(core_->context->handle()) != kSuccess)
    return;
  api.cuGraphExecDestroy(exec_);
  api.cuGraphDestroy(graph_);
  ContextHandle popped = nullptr;
  api.cuCtxPopCurrent_v2(&popped);
}

void StepGraph::capture(std::span<const Work> work, StreamHandle stream) {
  const Context& context = *core_->context;
  const DriverApi& api = context.api();
  for (const Work& item : work) {
    Node node;
    node.artifact = item.artifact;
    if (item.artifact && !kernel_of(item)) {
      node.pointers = pointers_of(item);
      capture_product(item, stream);
    } else if (item.artifact) {
      kernel_of(item)->pack(item.block, item.settled, node.args);
      kernel_of(item)->launch(node.args, stream);
    } else {
      node.to = item.to;
      node.from = item.from;
      node.bytes = item.bytes;
      context.driver().check(api.cuMemcpyDtoDAsync_v2(reinterpret_cast<DevicePointer>(item.to),
                                                      reinterpret_cast<DevicePointer>(item.from),
                                                      item.bytes, stream),
                             "recording a copy of {} bytes", item.bytes);
    }
    // What the stream waits for now is the node that was just added.
    int status = 0;
    std::uint64_t id = 0;
    GraphHandle graph = nullptr;
    const GraphNode* last = nullptr;
    std::size_t count = 0;
    context.driver().check(
        api.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &last, &count),
        "recording part {} of a step", nodes_.size());
    ensure(count == 1, "part {} of a recorded step became {} nodes", nodes_.size(), count);
    node.handle = last[0];
    nodes_.push_back(std::move(node));
  }
}

GraphHandle StepGraph::graph_of(const Work& item) {
  const OwnStream own(*core_->context);
  return product_of(item).graph(item.block, own.handle());
}

void StepGraph::capture_product(const Work& item, StreamHandle stream) {
  const Context& context = *core_->context;
  const DriverApi& api = context.api();
  GraphHandle child = graph_of(item), graph = nullptr;
  int status = 0;
  std::uint64_t id = 0;
  const GraphNode* before = nullptr;
  std::size_t count = 0;
  GraphNode node = nullptr;
  Result result = api.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &before, &count);
  if (result == kSuccess)
    result = api.cuGraphAddChildGraphNode(&node, graph, before, count, child);
  api.cuGraphDestroy(child); // the node has a copy
  context.driver().check(result, "recording a product of a library");
  constexpr unsigned kReplace = 1;
  context.driver().check(api.cuStreamUpdateCaptureDependencies(stream, &node, 1, kReplace),
                         "recording a product of a library");
}

void StepGraph::patch_product(Node& node, const Work& item) {
  std::vector<void*> pointers = pointers_of(item);
  if (pointers == node.pointers)
    return;
  const Context& context = *core_->context;
  GraphHandle child = graph_of(item);
  const Result result = context.api().cuGraphExecChildGraphNodeSetParams(exec_, node.handle, child);
  context.api().cuGraphDestroy(child);
  context.driver().check(result, "changing the arguments of a library's product");
  node.pointers = std::move(pointers);
  ++patched_;
}

void StepGraph::patch_launch(Node& node, const Work& item) {
  if (!kernel_of(item))
    return patch_product(node, item);
  kernel_of(item)->pack(item.block, item.settled, scratch_);
  if (scratch_ == node.args)
    return;
  std::swap(node.args, scratch_);
  void* parameters[KernelArtifact::kMostParameters];
  const KernelNodeParams params = kernel_of(item)->node_params(node.args, parameters);
  const Context& context = *core_->context;
  context.driver().check(
      context.api().cuGraphExecKernelNodeSetParams_v2(exec_, node.handle, &params),
      "changing the arguments of kernel {} in a recorded step", kernel_of(item)->name());
  ++patched_;
}

void StepGraph::patch_copy(Node& node, const Work& item) {
  if (node.to == item.to && node.from == item.from && node.bytes == item.bytes)
    return;
  node.to = item.to;
  node.from = item.from;
  node.bytes = item.bytes;
  CopyParams params;
  params.from.device = reinterpret_cast<DevicePointer>(item.from);
  params.to.device = reinterpret_cast<DevicePointer>(item.to);
  params.width = params.from.pitch = params.to.pitch = item.bytes;
  const Context& context = *core_->context;
  context.driver().check(
      context.api().cuGraphExecMemcpyNodeSetParams(exec_, node.handle, &params, context.handle()),
      "changing a copy of {} bytes in a recorded step", item.bytes);
  ++patched_;
}

void StepGraph::run(std::span<const Work> work) {
  ensure(work.size() == nodes_.size(), "a step of {} parts was recorded, {} are to be run",
         nodes_.size(), work.size());
  const Context& context = *core_->context;
  const Context::Use use(context);
  for (std::size_t i = 0; i < work.size(); ++i) {
    ensure(work[i].artifact == nodes_[i].artifact, "part {} of a recorded step is another kernel",
           i);
    if (work[i].artifact)
      patch_launch(nodes_[i], work[i]);
    else
      patch_copy(nodes_[i], work[i]);
  }
  context.driver().check(context.api().cuGraphLaunch(exec_, context.stream()),
                         "launching a step of {} parts on {}", work.size(), context.name());
}

} // namespace egret::backend::cuda
