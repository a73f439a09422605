// Small hand-written kernels, and folders that vanish, for tests of the CUDA backend.
#pragma once

#include "backend/cuda/cuda_device.h"
#include "egret/error.h"
#include "support/fake_cuda/fake_cuda.h"

#include <unistd.h>

#include <filesystem>
#include <string>

namespace egret::testing {

/// A program with the signature of `out[i] = a * in[i] + b` over n elements, in f32: the dim n, the
/// scalars a and b. Its body is empty: the text comes from axpb_text().
inline kernel::KernelProgram axpb_program(int threads = 128) {
  static const Expr n = Expr::symbol("n", 0, std::int64_t{1} << 40, 1);
  kernel::KernelProgram program;
  program.name = "axpb";
  program.dims = {n};
  program.scalars = {DType::F32, DType::F32};
  for (int i = 0; i < 2; ++i) {
    kernel::Buffer buffer;
    buffer.name = i == 0 ? "in" : "out";
    buffer.argument = i;
    buffer.elements = n;
    buffer.read = i == 0;
    buffer.written = i == 1;
    program.buffers.push_back(buffer);
  }
  program.launch.threads = threads;
  program.launch.workers = ceildiv(n, threads);
  return program;
}

inline backend::cuda::KernelText axpb_text(const kernel::KernelProgram& = {},
                                           const backend::cuda::CudaTarget& = {}) {
  return {R"(struct EgretArgs { void* p[2]; long long d[1]; unsigned long long s[2]; };
extern "C" __global__ void axpb(const __grid_constant__ EgretArgs args) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < args.d[0])
    ((float*)args.p[1])[i] = __uint_as_float((unsigned)args.s[0]) * ((const float*)args.p[0])[i]
                             + __uint_as_float((unsigned)args.s[1]);
}
)",
          "axpb", 0};
}

/// What axpb does, for the fake driver.
inline void launch_axpb(const FakeLaunch& launch, void*) {
  struct Args {
    void* p[2];
    long long n;
    unsigned long long s[2];
  };
  const auto& args = *static_cast<const Args*>(launch.args);
  float a, b;
  __builtin_memcpy(&a, &args.s[0], sizeof a);
  __builtin_memcpy(&b, &args.s[1], sizeof b);
  const auto* in = static_cast<const float*>(host_address(args.p[0]));
  auto* out = static_cast<float*>(host_address(args.p[1]));
  for (long long i = 0; i < args.n; ++i)
    out[i] = a * in[i] + b;
}

/// A fresh folder that is removed at the end.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "egret-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

/// The message of the egret::Error of this kind that `run` throws; empty when it throws none.
template <class Run>
std::string error_of(ErrorKind kind, Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.kind() == kind ? error.what() : std::string("of another kind: ") + error.what();
  }
  return {};
}

} // namespace egret::testing
