// A kernel program compiled for a GPU and loaded there.
#pragma once

#include "backend/common/launch_number.h"
#include "backend/common/machine_code.h"
#include "backend/cuda/cubin_cache.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/tensor_maps.h"

#include <memory>
#include <string>
#include <vector>

namespace egret::backend::cuda {

/// What the loaded kernels of a device share.
struct DeviceCore {
  explicit DeviceCore(std::shared_ptr<const Context> c)
      : context(std::move(c)), memory(context), staging(context) {}
  std::shared_ptr<const Context> context;
  DeviceMemory memory;
  Staging staging;
};

/// A kernel's text with what is needed to launch it.
struct KernelText {
  std::string text;
  std::string symbol;
  std::int64_t shared_bytes = 0; ///< dynamic, of a block
};

/// What made a kernel's machine code.
struct CodeOrigin {
  std::shared_ptr<const Nvrtc> compiler;
  std::string architecture; ///< "sm_90a"
};

/// One launch in the driver's terms: the parameter struct and the shape.
struct LaunchArgs {
  std::vector<std::byte> bytes; ///< of EgretArgs, see render.h, then of the tensor maps
  unsigned blocks = 0;          ///< 0: nothing is to be done
  friend bool operator==(const LaunchArgs&, const LaunchArgs&) = default;
};

class KernelArtifact;

/// What this back end makes of programs: a kernel of its own, or else a LibraryArtifact.
class CudaArtifact : public Artifact {
public:
  virtual const KernelArtifact* kernel() const noexcept { return nullptr; }
};

class KernelArtifact final : public CudaArtifact, public MachineCode {
public:
  static constexpr std::size_t kMostParameters = 1 + TensorMaps::kMost;
  /// Loads `cubin` on the device. Error(Unsupported) when the kernel asks for more than a block can
  /// have.
  KernelArtifact(std::shared_ptr<DeviceCore> core, const kernel::KernelProgram& program,
                 KernelText text, Cubin cubin, double seconds, CodeOrigin origin);
  ~KernelArtifact() override;

  const KernelArtifact* kernel() const noexcept override { return this; }
  std::string code(const kernel::KernelProgram&) const override;
  CodeUse use() const override;
  std::string assembly() const override;
  double compile_seconds() const override { return seconds_; }
  const KernelResources& resources() const noexcept { return resources_; }
  bool loaded() const override { return cached_; }

  /// `args` keeps its memory from launch to launch. `settled`: see Work.
  void pack(const kernel::ArgBlock& block, bool settled, LaunchArgs& args) const;
  void launch(const LaunchArgs& args, StreamHandle stream) const;
  /// The same launch as parameters of a graph's node; `parameters` must hold kMostParameters.
  KernelNodeParams node_params(const LaunchArgs& args, void** parameters) const;
  const std::string& name() const noexcept { return name_; }

private:
  void put_parameters(const LaunchArgs& args, void** parameters) const;
  /// That a multiprocessor holds.
  int blocks_that_fit() const;
  unsigned resident_blocks(const kernel::KernelProgram& program) const;

  std::shared_ptr<DeviceCore> core_;
  std::string name_;
  KernelText text_;
  KernelResources resources_;
  std::string log_;
  CodeOrigin origin_;
  double seconds_;
  bool cached_;
  ModuleHandle module_ = nullptr;
  FunctionHandle function_ = nullptr;
  std::size_t pointers_ = 0, dims_ = 0, scalars_ = 0;
  std::vector<void*> counters_; ///< memory of the Counter buffers
  LaunchNumber blocks_;
  TensorMaps maps_;
  unsigned threads_ = 0, most_blocks_ = 0;
  bool has_settled_ = false;
  bool early_ = false; ///< it waits for the launch before it by itself
};

} // namespace egret::backend::cuda
