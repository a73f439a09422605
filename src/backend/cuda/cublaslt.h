// cublasLt, found at run time: products as candidates beside egret's own kernels.
#pragma once

#include "backend/cuda/kernel_artifact.h"

#include <memory>
#include <mutex>
#include <string>

namespace egret::backend::cuda {

struct CublasLtApi;

/// The library, opened.
class CublasLt {
public:
  /// Null when it is not there or cannot be used; `why_not` says what was tried.
  static std::shared_ptr<const CublasLt> open(const LibraryPaths& paths, std::string& why_not);
  ~CublasLt();

  std::int64_t version() const noexcept { return version_; } ///< 130000 for 13.0.0
  const CublasLtApi& api() const noexcept { return *api_; }
  /// Throws Error(Unsupported) for any status but success.
  void check(int status, const std::string& what) const;

private:
  CublasLt();
  std::unique_ptr<CublasLtApi> api_;
  std::int64_t version_ = 0;
  std::string path_;
};

/// A product with the way in which the library makes it.
class LibraryArtifact final : public CudaArtifact {
public:
  /// Asks the library for its ways; Error(Unsupported) when there are fewer than the program asks
  /// for.
  LibraryArtifact(std::shared_ptr<const Context> context, std::shared_ptr<const CublasLt> library,
                  const kernel::KernelProgram& program);
  ~LibraryArtifact() override;

  std::string code(const kernel::KernelProgram&) const override;
  double compile_seconds() const override { return seconds_; }

  /// Pointers that a launch depends on, in the order of the program's buffers.
  std::size_t pointers() const noexcept { return pointers_; }
  /// Not from two threads at a time.
  void launch(const kernel::ArgBlock& block, StreamHandle stream) const;
  /// The same launch as a graph of its own, for cuGraphDestroy. `stream` is one that does nothing
  /// else meanwhile.
  GraphHandle graph(const kernel::ArgBlock& block, StreamHandle stream) const;

private:
  struct Call;
  std::shared_ptr<const Context> context_;
  std::shared_ptr<const CublasLt> library_;
  std::string name_;
  kernel::LibraryProduct product_;
  std::size_t pointers_ = 0, workspace_bytes_ = 0;
  double seconds_ = 0;
  std::unique_ptr<Call> call_;
};

} // namespace egret::backend::cuda
