// Work recorded as one CUDA graph: submitted as a whole, with what changed patched in.
#pragma once

#include "backend/cuda/kernel_artifact.h"

#include <span>
#include <vector>

namespace egret::backend::cuda {

class StepGraph final : public Recording {
public:
  /// Records `work`, none of which is empty.
  StepGraph(std::shared_ptr<DeviceCore> core, std::span<const Work> work);
  ~StepGraph() override;

  /// Queues the recorded work once with the pointers, numbers and sizes of `work`.
  void run(std::span<const Work> work);
  /// Nodes whose parameters run() has changed so far.
  std::uint64_t patched() const noexcept { return patched_; }

private:
  struct Node {
    GraphNode handle = nullptr;
    const Artifact* artifact = nullptr;
    LaunchArgs args;
    std::vector<void*> pointers; ///< of a library's product, which is a graph of its own
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
  };
  void capture(std::span<const Work> work, StreamHandle stream);
  void patch_launch(Node& node, const Work& item);
  void patch_copy(Node& node, const Work& item);
  void capture_product(const Work& item, StreamHandle stream);
  void patch_product(Node& node, const Work& item);
  GraphHandle graph_of(const Work& item);

  std::shared_ptr<DeviceCore> core_;
  GraphHandle graph_ = nullptr; ///< kept: its nodes name those of exec_ when they are patched
  GraphExec exec_ = nullptr;
  std::vector<Node> nodes_;
  LaunchArgs scratch_;
  std::uint64_t patched_ = 0;
};

} // namespace egret::backend::cuda
