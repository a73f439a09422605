// The same product by cuBLAS, which is looked for at run time. Of its interface only the few
// declarations below are needed; names and values are those of its documentation.
#include "bench.h"

#include "backend/cuda/context.h"
#include "backend/cuda/cuda_device.h"
#include "runtime/runtime.h"

#include <cmath>

namespace egret::tool::bench {

namespace {

using backend::cuda::Library;
using Handle = struct OpaqueCublas*;
using Status = int;

struct Cublas {
  Library loaded;
  Status (*create)(Handle*) = nullptr;
  Status (*destroy)(Handle) = nullptr;
  Status (*set_stream)(Handle, backend::cuda::StreamHandle) = nullptr;
  Status (*gemm)(Handle, int turn_a, int turn_b, int m, int n, int k, const void* alpha,
                 const void* a, int type_a, int lda, const void* b, int type_b, int ldb,
                 const void* beta, void* c, int type_c, int ldc, int compute,
                 int algorithm) = nullptr;
  explicit operator bool() const { return create && destroy && set_stream && gemm; }
};

enum : int { kAsIs = 0, kTransposed = 1, kF32 = 0, kF16 = 2, kBf16 = 14, kCompute32 = 68 };

Cublas open() {
  Cublas c;
  c.loaded = Library::open_first(backend::cuda::toolkit_paths("libcublas", "EGRET_CUBLAS"));
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(c.loaded.symbol(name));
  };
  find(c.create, "cublasCreate_v2");
  find(c.destroy, "cublasDestroy_v2");
  find(c.set_stream, "cublasSetStream_v2");
  find(c.gemm, "cublasGemmEx");
  return c;
}

int type_of(DType dtype) {
  return dtype == DType::BF16 ? kBf16 : dtype == DType::F16 ? kF16 : kF32;
}

} // namespace

double cublas_seconds(const Product& p, const MeasureOptions& options) {
  auto& runtime = runtime::Runtime::instance();
  const auto* context = backend::cuda::context_of(runtime.device());
  if (!context)
    return 0;
  static const Cublas cublas = open();
  if (!cublas)
    return 0;
  const backend::cuda::Context::Use use(*context);
  Handle handle = nullptr;
  if (cublas.create(&handle) != 0)
    return 0;
  struct Destroy {
    Handle handle;
    ~Destroy() { cublas.destroy(handle); }
  } destroy{handle};
  if (cublas.set_stream(handle, context->stream()) != 0)
    return 0;

  const double element = static_cast<double>(size_of(p.dtype));
  const double bytes = element * static_cast<double>(p.m * p.k + p.k * p.n);
  struct Set {
    runtime::StoragePtr a, b;
  };
  std::vector<Set> sets;
  auto random = [&](std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    const Tensor t =
        random_tensor({rows, columns}, seed, p.dtype, 1 / std::sqrt(static_cast<double>(p.k)));
    const auto size = static_cast<std::size_t>(rows * columns) * size_of(p.dtype);
    auto storage = runtime.allocate(size);
    const auto host = t.to_bytes();
    runtime.copy_in(storage, host.data(), size);
    return storage;
  };
  for (std::uint64_t i = 0; i < sets_of(bytes); ++i)
    sets.push_back({random(p.m, p.k, 2 * i + 1), random(p.k, p.n, 2 * i + 2)});
  auto result = runtime.allocate(static_cast<std::size_t>(p.m * p.n) * size_of(p.dtype));

  // Row by row as egret has them, all matrices are the transposes of what cuBLAS takes.
  bool right = true;
  std::size_t turn = 0;
  auto run = [&] {
    const Set& set = sets[turn++ % sets.size()];
    const float one = 1, zero = 0;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    right = cublas.gemm(handle, p.turned ? kTransposed : kAsIs, kAsIs, n, m, k, &one, set.b->data(),
                        type_of(p.dtype), p.turned ? k : n, set.a->data(), type_of(p.dtype), k,
                        &zero, result->data(), type_of(p.dtype), n, kCompute32, -1) == 0 &&
            right;
  };
  const double seconds = time_runs(run, options).median();
  return right ? seconds : 0;
}

} // namespace egret::tool::bench
