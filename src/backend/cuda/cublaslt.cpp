// Of cublasLt's interface only the few declarations below are needed; names, values and layouts are
// those of its documentation.
#include "backend/cuda/cublaslt.h"

#include "support/fail.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace egret::backend::cuda {

using kernel::LibraryProduct;

namespace {

using LtHandle = struct OpaqueLt*;
using Desc = struct OpaqueLtDesc*;
using Layout = struct OpaqueLtLayout*;
using Preference = struct OpaqueLtPreference*;

struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

enum : int { kF32 = 0, kF16 = 2, kBf16 = 14 }; // cudaDataType_t
enum : int { kCompute32 = 68 };                // cublasComputeType_t: f32, without tf32
enum : int { kAsIs = 0, kTurned = 1 };         // cublasOperation_t
enum : int { kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8 }; // of a desc
enum : int { kBatchCount = 5, kBatchStride = 6 };                         // of a layout
enum : int { kWorkspaceBytes = 1, kReductions = 3, kAlignmentA = 5 };     // of a preference
/// Shares of the depth may only be added up in f32, through the workspace: in one order, and not
/// in the result's type.
enum : unsigned { kInComputeType = 2 };
enum : int { kPlain = 1, kRelu = 2, kWithBias = 4, kGelu = 32 }; // cublasLtEpilogue_t
constexpr int kMostWays = 64;
/// What the library asks of its workspace; a plan's may begin anywhere, so some bytes are kept
/// back.
constexpr std::size_t kAligned = 256;

void* aligned(void* workspace) {
  const auto place = reinterpret_cast<std::uintptr_t>(workspace);
  return reinterpret_cast<void*>((place + kAligned - 1) / kAligned * kAligned);
}

int type_of(DType dtype) {
  return dtype == DType::BF16 ? kBf16 : dtype == DType::F16 ? kF16 : kF32;
}

} // namespace

#define EGRET_CUBLASLT_FUNCTIONS(X)                                                                \
  X(Create, LtHandle*)                                                                             \
  X(Destroy, LtHandle)                                                                             \
  X(Matmul, LtHandle, Desc, const void*, const void*, Layout, const void*, Layout, const void*,    \
    const void*, Layout, void*, Layout, const Algorithm*, void*, std::size_t, StreamHandle)        \
  X(MatmulDescCreate, Desc*, int, int)                                                             \
  X(MatmulDescDestroy, Desc)                                                                       \
  X(MatmulDescSetAttribute, Desc, int, const void*, std::size_t)                                   \
  X(MatrixLayoutCreate, Layout*, int, std::uint64_t, std::uint64_t, std::int64_t)                  \
  X(MatrixLayoutDestroy, Layout)                                                                   \
  X(MatrixLayoutSetAttribute, Layout, int, const void*, std::size_t)                               \
  X(MatmulPreferenceCreate, Preference*)                                                           \
  X(MatmulPreferenceDestroy, Preference)                                                           \
  X(MatmulPreferenceSetAttribute, Preference, int, const void*, std::size_t)                       \
  X(MatmulAlgoGetHeuristic, LtHandle, Desc, Layout, Layout, Layout, Layout, Preference, int,       \
    Heuristic*, int*)

struct CublasLtApi {
#define EGRET_CUBLASLT_POINTER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  EGRET_CUBLASLT_FUNCTIONS(EGRET_CUBLASLT_POINTER)
#undef EGRET_CUBLASLT_POINTER
  std::size_t (*GetVersion)() = nullptr;
};

CublasLt::CublasLt() : api_(std::make_unique<CublasLtApi>()) {}
CublasLt::~CublasLt() = default;

std::shared_ptr<const CublasLt> CublasLt::open(const LibraryPaths& paths, std::string& why_not) {
  const Library library = Library::open_first(paths.cublaslt);
  if (!library) {
    why_not = "no cublasLt: " + library.failures();
    return nullptr;
  }
  std::shared_ptr<CublasLt> opened(new CublasLt);
  CublasLtApi& api = *opened->api_;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(library.symbol(name));
    if (!function)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
#define EGRET_CUBLASLT_LOAD(name, ...) find(api.name, "cublasLt" #name);
  EGRET_CUBLASLT_FUNCTIONS(EGRET_CUBLASLT_LOAD)
#undef EGRET_CUBLASLT_LOAD
  find(api.GetVersion, "cublasLtGetVersion");
  if (!missing.empty()) {
    why_not = fmt::format("{} is no usable cublasLt: it lacks {}", library.path(), missing);
    return nullptr;
  }
  opened->path_ = library.path();
  opened->version_ = static_cast<std::int64_t>(api.GetVersion());
  return opened;
}

void CublasLt::check(int status, const std::string& what) const {
  if (status != 0)
    fail(ErrorKind::Unsupported, "cublasLt ({}, version {}): {}: status {}", path_, version_, what,
         status);
}

/// The library's objects for one product. Row by row as egret has them, all matrices are the
/// transposes of what the library takes: its A is our right factor.
struct LibraryArtifact::Call {
  const CublasLtApi& api;
  LtHandle handle = nullptr;
  Desc desc = nullptr;
  Layout right = nullptr, left = nullptr, result = nullptr;
  Algorithm algorithm{};
  std::size_t sizes[3] = {}; ///< bytes of an element: left, right, result

  explicit Call(const CublasLtApi& a) : api(a) {}
  ~Call() {
    for (Layout layout : {right, left, result})
      if (layout)
        api.MatrixLayoutDestroy(layout);
    if (desc)
      api.MatmulDescDestroy(desc);
    if (handle)
      api.Destroy(handle);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

LibraryArtifact::LibraryArtifact(std::shared_ptr<const Context> context,
                                 std::shared_ptr<const CublasLt> library,
                                 const kernel::KernelProgram& program)
    : context_(std::move(context)), library_(std::move(library)), name_(program.name),
      product_(program.product.value()), pointers_(program.buffers.size()),
      call_(std::make_unique<Call>(library_->api())) {
  const auto begin = std::chrono::steady_clock::now();
  const Context::Use use(*context_);
  const CublasLtApi& api = library_->api();
  const LibraryProduct& p = product_;
  Call& call = *call_;
  const auto buffer = [&](int number) -> const kernel::Buffer& {
    return program.buffers[static_cast<std::size_t>(number)];
  };
  library_->check(api.Create(&call.handle), "opening it on " + context_->name());
  library_->check(api.MatmulDescCreate(&call.desc, kCompute32, kF32), "describing a product");
  const auto set = [&](int attribute, int value) {
    library_->check(api.MatmulDescSetAttribute(call.desc, attribute, &value, sizeof value),
                    "describing a product");
  };
  int epilogue = p.activation == LibraryProduct::Activation::Relu   ? kRelu
                 : p.activation == LibraryProduct::Activation::Gelu ? kGelu
                                                                    : 0;
  epilogue += p.bias >= 0 ? kWithBias : 0;
  set(kEpilogue, epilogue == 0 ? kPlain : epilogue);
  if (p.bias >= 0) { // ways are chosen by how the place is aligned; it is not read
    const std::uintptr_t place =
        static_cast<std::uintptr_t>(buffer(p.bias).alignment) +
        static_cast<std::uintptr_t>(p.bias_offset) * size_of(buffer(p.bias).dtype);
    library_->check(api.MatmulDescSetAttribute(call.desc, kBiasPointer, &place, sizeof place),
                    "describing a bias");
  }

  // Column by column, which is how the library counts: `rows` neighbours, columns `step` apart.
  const auto layout = [&](Layout& made, const LibraryProduct::Matrix& m, std::int64_t rows,
                          std::int64_t columns, std::int64_t step) {
    library_->check(api.MatrixLayoutCreate(
                        &made, type_of(buffer(m.buffer).dtype), static_cast<std::uint64_t>(rows),
                        static_cast<std::uint64_t>(columns), std::max(step, rows)),
                    "describing a matrix");
    if (p.batches == 1)
      return;
    const int count = static_cast<int>(p.batches);
    library_->check(api.MatrixLayoutSetAttribute(made, kBatchCount, &count, sizeof count),
                    "describing a batch");
    library_->check(api.MatrixLayoutSetAttribute(made, kBatchStride, &m.batch, sizeof m.batch),
                    "describing a batch");
  };
  const auto factor = [&](Layout& made, const LibraryProduct::Matrix& m, std::int64_t panel) {
    const bool along_depth = (m.column == 1 || p.depth == 1) && (panel == 1 || m.row >= p.depth);
    if (along_depth)
      layout(made, m, p.depth, panel, m.row);
    else
      layout(made, m, panel, p.depth, m.column);
    return along_depth;
  };
  set(kTransA, factor(call.right, p.right, p.columns) ? kTurned : kAsIs);
  set(kTransB, factor(call.left, p.left, p.rows) ? kAsIs : kTurned);
  layout(call.result, p.result, p.columns, p.rows, p.result.row);
  const LibraryProduct::Matrix* matrices[] = {&p.left, &p.right, &p.result};
  for (int i = 0; i < 3; ++i)
    call.sizes[i] = size_of(buffer(matrices[i]->buffer).dtype);

  Preference preference = nullptr;
  library_->check(api.MatmulPreferenceCreate(&preference), "describing a preference");
  struct Destroy {
    const CublasLtApi& api;
    Preference preference;
    ~Destroy() { api.MatmulPreferenceDestroy(preference); }
  } destroy{api, preference};
  const auto prefer = [&](int attribute, const auto& value) {
    library_->check(api.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                    "describing a preference");
  };
  if (p.workspace >= 0)
    workspace_bytes_ = static_cast<std::size_t>(buffer(p.workspace).elements.value()) - kAligned;
  prefer(kWorkspaceBytes, workspace_bytes_);
  prefer(kReductions, std::uint32_t{kInComputeType});
  const auto alignment = [&](const LibraryProduct::Matrix& m) {
    std::int64_t bytes = std::min<std::int64_t>(buffer(m.buffer).alignment, 256);
    const auto size = static_cast<std::int64_t>(size_of(buffer(m.buffer).dtype));
    for (const std::int64_t step : {m.offset * size, p.batches > 1 ? m.batch * size : 0})
      while (step % bytes != 0)
        bytes /= 2;
    return static_cast<std::uint32_t>(bytes);
  };
  const LibraryProduct::Matrix* in_order[] = {&p.right, &p.left, &p.result, &p.result};
  for (int i = 0; i < 4; ++i)
    prefer(kAlignmentA + i, alignment(*in_order[i]));

  std::vector<Heuristic> ways(kMostWays);
  int count = 0;
  library_->check(api.MatmulAlgoGetHeuristic(call.handle, call.desc, call.right, call.left,
                                             call.result, call.result, preference, kMostWays,
                                             ways.data(), &count),
                  "asking for ways to make " + name_);
  ways.resize(static_cast<std::size_t>(std::clamp(count, 0, kMostWays)));
  std::erase_if(ways,
                [&](const Heuristic& h) { return h.state != 0 || h.workspace > workspace_bytes_; });
  if (static_cast<std::size_t>(p.rank) >= ways.size())
    fail(ErrorKind::Unsupported, "cublasLt has {} ways to make {}, number {} was asked for",
         ways.size(), name_, p.rank);
  call.algorithm = ways[static_cast<std::size_t>(p.rank)].algorithm;
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

LibraryArtifact::~LibraryArtifact() {
  const DriverApi& api = context_->api();
  if (api.cuCtxPushCurrent_v2(context_->handle()) != kSuccess)
    return;
  api.cuStreamSynchronize(context_->stream()); // launches of it may still be queued
  call_.reset();
  ContextHandle popped = nullptr;
  api.cuCtxPopCurrent_v2(&popped);
}

std::string LibraryArtifact::code(const kernel::KernelProgram&) const {
  const LibraryProduct& p = product_;
  return fmt::format("// {}: cublasLt {}, way {}: {} x {} x {} (depth), {} of them{}{}\n", name_,
                     library_->version(), p.rank, p.rows, p.columns, p.depth, p.batches,
                     p.bias >= 0 ? ", with bias" : "",
                     p.activation == LibraryProduct::Activation::None
                         ? ""
                         : fmt::format(", {}", kernel::name_of(p.activation)));
}

void LibraryArtifact::launch(const kernel::ArgBlock& block, StreamHandle stream) const {
  const LibraryProduct& p = product_;
  const Call& call = *call_;
  const auto place = [&](const LibraryProduct::Matrix& m, std::size_t size) {
    return static_cast<std::byte*>(block.pointers[m.buffer]) +
           static_cast<std::size_t>(m.offset) * size;
  };
  if (p.bias >= 0) {
    const void* bias = static_cast<std::byte*>(block.pointers[p.bias]) +
                       static_cast<std::size_t>(p.bias_offset) * call.sizes[0];
    library_->check(call.api.MatmulDescSetAttribute(call.desc, kBiasPointer, &bias, sizeof bias),
                    "naming the bias of " + name_);
  }
  const float one = 1, zero = 0;
  std::byte* result = place(p.result, call.sizes[2]);
  const int status = call.api.Matmul(
      call.handle, call.desc, &one, place(p.right, call.sizes[1]), call.right,
      place(p.left, call.sizes[0]), call.left, &zero, result, call.result, result, call.result,
      &call.algorithm, p.workspace < 0 ? nullptr : aligned(block.pointers[p.workspace]),
      workspace_bytes_, stream);
  if (status != 0)
    library_->check(status, "making " + name_);
}

GraphHandle LibraryArtifact::graph(const kernel::ArgBlock& block, StreamHandle stream) const {
  constexpr int kRelaxed = 2;
  const DriverApi& api = context_->api();
  context_->driver().check(api.cuStreamBeginCapture_v2(stream, kRelaxed), "beginning to record {}",
                           name_);
  GraphHandle made = nullptr;
  try {
    launch(block, stream);
  } catch (...) {
    api.cuStreamEndCapture(stream, &made);
    if (made)
      api.cuGraphDestroy(made);
    throw;
  }
  context_->driver().check(api.cuStreamEndCapture(stream, &made), "recording {}", name_);
  return made;
}

} // namespace egret::backend::cuda
