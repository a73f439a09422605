// Memory shared with other libraries: wrapped buffers, views, DLPack.
#include "egret/borders.h"
#include "egret/compile.h"
#include "egret/dlpack.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/memory.h"
#include "egret/random.h"
#include "tensor/engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>

namespace egret {
namespace {

using namespace dlpack;

/// Aligned memory of somebody else.
class Buffer {
public:
  explicit Buffer(std::size_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {}
  ~Buffer() { ::operator delete (data_, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

private:
  std::byte* data_;
};

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& run) {
  try {
    run();
    FAIL() << "nothing was thrown: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Wrap, ReadsTheCallersMemoryAndLetsItGoOnce) {
  const Buffer buffer(24 * 4);
  std::iota(buffer.floats(), buffer.floats() + 24, 0.0f);
  int gone = 0;
  const std::uint64_t before = memory_stats("cpu").in_use;
  Tensor sum;
  {
    const Tensor t = wrap(buffer.data(), DType::F32, {4, 6}, [&] { ++gone; });
    EXPECT_EQ(memory_stats("cpu").in_use, before) << "nothing was copied";
    EXPECT_EQ(static_cast<const void*>(view<float>(t).data()), buffer.data());
    EXPECT_EQ(((t * 2)[{1, 2}].item()), 16);
    sum = t.sum(1);
    EXPECT_EQ(gone, 0);
  }
  EXPECT_EQ(gone, 0) << "a pending value reads it";
  EXPECT_EQ(sum.to_vector(), (std::vector<float>{15, 51, 87, 123}));
  EXPECT_EQ(gone, 1);
}

// Whether another thread can have it.
template <class Mutex>
bool is_free(Mutex& mutex) {
  bool had = false;
  std::thread([&] {
    had = mutex.try_lock();
    if (had)
      mutex.unlock();
  }).join();
  return had;
}

// A read that waits for another thread holds nothing meanwhile: it would let it go under the lock.
TEST(Wrap, IsNotHeldByAReadThatWaits) {
  const Buffer buffer(64 * 4);
  std::fill_n(buffer.floats(), 64, 1.0f);
  const Tensor value = full({64}, 5.0).eval();
  const detail::NodePtr to_come = detail::pending_node(DType::F32, {64});
  const Tensor y = wrap(buffer.data(), DType::F32, {64}, [] {}) + 1 + detail::Access::wrap(to_come);
  const detail::NodePtr root = detail::Access::node(y, "test");
  {
    std::lock_guard lock(detail::engine_mutex());
    const detail::Walk walk =
        detail::walk(std::span(&root, 1), detail::WalkOutputs::RootsAndHeld, nullptr, "test");
    EXPECT_EQ(walk.busy, to_come.get());
    EXPECT_TRUE(walk.leaves.empty() && walk.outputs.empty() && walk.order.empty());
  }
  detail::land({{to_come, detail::storage_of(detail::Access::node(value, "test"))}});
  EXPECT_EQ(y.to_vector(), std::vector<float>(64, 7.0f));
}

// Else what is told could not use tensors, nor wait for a thread that does.
TEST(Wrap, IsLetGoUnderNoLockByAGraph) {
  const Buffer buffer(64 * 4);
  std::fill_n(buffer.floats(), 64, 1.0f);
  bool gone = false, free = false;
  Graph graph;
  Tensor in = graph.tensor({64}, DType::F32, "in");
  Generator random(3);
  Tensor noise = rand({64}, random) * wrap(buffer.data(), DType::F32, {64}, [&] {
                   gone = true;
                   free = is_free(detail::engine_mutex());
                 });
  Tensor out = in + noise;
  graph.compile(Generic{} | Fusion{}, &out); // random numbers that somebody holds have one value
  EXPECT_TRUE(gone);
  EXPECT_TRUE(free);
  in.set(zeros({64}));
  graph.execute();
  EXPECT_EQ(out.to_vector(), noise.to_vector());
}

TEST(Wrap, IsLetGoUnderNoLockByAGradient) {
  const Buffer buffer(64 * 4);
  std::fill_n(buffer.floats(), 64, 1.0f);
  Tensor leaf = full({64}, 2.0).eval().set_requires_grad();
  const auto slot = detail::Access::slot(leaf, "test");
  for (const bool zero : {false, true}) {
    bool gone = false, free = false;
    (leaf * wrap(buffer.data(), DType::F32, {64},
                 [&] {
                   gone = true;
                   free = is_free(slot->mutex);
                 }))
        .sum()
        .backward(); // the gradient, which is pending, reads the memory
    EXPECT_FALSE(gone);
    if (zero)
      leaf.zero_grad();
    else
      leaf.set_grad(Tensor());
    EXPECT_TRUE(gone);
    EXPECT_TRUE(free);
  }
}

TEST(Wrap, NeverWritesToTheCallersMemory) {
  const Buffer buffer(64 * 4);
  std::fill_n(buffer.floats(), 64, 1.0f);
  int gone = 0;
  {
    auto step = compile(+[](Tensor& t) { t = t * 0.5 + 1.0; }); // updates its state in place
    Tensor t = wrap(buffer.data(), DType::F32, {64}, [&] { ++gone; });
    for (int i = 0; i < 4; ++i)
      step(t);
    EXPECT_EQ(t.to_vector()[0], 1.9375f);
    t += 1;
    t.assign({0}, 7);
    EXPECT_EQ(t.to_vector()[0], 7);
  }
  EXPECT_EQ(std::vector<float>(buffer.floats(), buffer.floats() + 64),
            std::vector<float>(64, 1.0f));
  EXPECT_EQ(gone, 1);
}

TEST(Wrap, AnyThreadMayLetGo) {
  const Buffer buffer(64);
  std::atomic<int> gone{0};
  Tensor t = wrap(buffer.data(), DType::I32, {16}, [&] { ++gone; });
  std::thread([moved = std::move(t)]() mutable { moved = Tensor(); }).join();
  EXPECT_EQ(gone, 1);
}

TEST(Wrap, TakesEmptyTensorsNumbersAndStridesThatAreRowMajor) {
  const Buffer buffer(64);
  std::memset(buffer.data(), 0, 64);
  const auto nothing = [] {};
  EXPECT_EQ(wrap(nullptr, DType::F32, {0, 3}, nothing).sum().item(), 0);
  EXPECT_EQ(wrap(buffer.data(), DType::I64, {}, nothing).item<std::int64_t>(), 0);
  EXPECT_EQ(wrap(buffer.data(), DType::F32, {1, 2, 3}, nothing, {{99, 3, 1}}).numel(), 6);
}

TEST(Wrap, RefusesWhatItCannotUse) {
  const Buffer buffer(256);
  int gone = 0;
  const auto let_go = [&] { ++gone; };
  expect_error(ErrorKind::Value, "wrap: the memory is not aligned to 64 bytes",
               [&] { wrap(buffer.data() + 4, DType::F32, {2}, let_go); });
  expect_error(ErrorKind::Value, "wrap: strides [1,2] of [2,3] are not row-major", [&] {
    wrap(buffer.data(), DType::F32, {2, 3}, let_go, {{1, 2}});
  });
  expect_error(ErrorKind::Value, "wrap: 1 strides for [2,3], which has 2 dims", [&] {
    wrap(buffer.data(), DType::F32, {2, 3}, let_go, {{1}});
  });
  expect_error(ErrorKind::Value, "wrap: null for [2], which has 2 elements",
               [&] { wrap(nullptr, DType::F32, {2}, let_go); });
  expect_error(ErrorKind::Value, "wrap: nothing is to be called",
               [&] { wrap(buffer.data(), DType::F32, {2}, {}); });
  expect_error(ErrorKind::Shape, "wrap: [-2] has a negative dim",
               [&] { wrap(buffer.data(), DType::F32, {-2}, let_go); });
  expect_error(ErrorKind::Shape, "more elements than can be counted", [&] {
    wrap(buffer.data(), DType::F32, {std::int64_t{1} << 40, std::int64_t{1} << 40}, let_go);
  });
  EXPECT_EQ(gone, 0);
}

TEST(View, ShowsWhatIsStoredAndOutlivesTheTensor) {
  Tensor t = arange(6).reshape({2, 3}) * 2;
  const auto seen = view<std::int64_t>(t);
  EXPECT_TRUE(t.is_materialized());
  t += 100;
  t.eval();
  t = Tensor();
  EXPECT_EQ(std::vector<std::int64_t>(seen.begin(), seen.end()),
            (std::vector<std::int64_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(seen[2], 4);
  EXPECT_EQ(view<float>(scalar(2.5)).span()[0], 2.5f);
  EXPECT_EQ(view_bytes(zeros({3}, DType::BF16)).size(), 6u);
  EXPECT_EQ(view<float>(zeros({0})).size(), 0u);
}

TEST(View, ACompiledStepThatUpdatesInPlaceDoesNotChangeIt) {
  auto step = compile(+[](Tensor& t) { t = t + 1.0; });
  Tensor t = zeros({8}).eval();
  step(t);
  const auto seen = view<float>(t);
  step(t);
  EXPECT_EQ(seen[3], 1);
  EXPECT_EQ(t.to_vector()[3], 2);
}

TEST(View, OfAnotherDTypeIsAnError) {
  expect_error(ErrorKind::DType, "view: the tensor is f32 and is asked for as f64",
               [] { view<double>(ones({2})); });
  expect_error(ErrorKind::State, "empty", [] { view_bytes(Tensor()); });
}

/// A producer: a tensor that counts how often it was deleted.
struct Producer {
  std::vector<std::int64_t> shape, strides;
  DLManagedTensorVersioned managed{};
  int deleted = 0;

  Producer(void* data, DLDataType type, std::vector<std::int64_t> s,
           std::vector<std::int64_t> steps = {})
      : shape(std::move(s)), strides(std::move(steps)) {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Producer*>(self->manager_ctx)->deleted;
    };
    managed.dl_tensor = {data, {kDLCPU, 0},  static_cast<std::int32_t>(shape.size()),
                         type, shape.data(), strides.empty() ? nullptr : strides.data(),
                         0};
  }
  Managed give() { return Managed(&managed); }
};
constexpr DLDataType kF32{kDLFloat, 32, 1};

TEST(DLPack, GivesMemoryAwayWithoutACopy) {
  Tensor t = arange(6).reshape({2, 3}).to(DType::F32);
  Managed out = to_dlpack(t);
  EXPECT_EQ(out->version.major, 1u);
  EXPECT_EQ(out->flags, kReadOnly);
  const DLTensor& d = out->dl_tensor;
  EXPECT_EQ(d.data, static_cast<const void*>(view<float>(t).data()));
  EXPECT_EQ(d.ndim, 2);
  EXPECT_EQ(std::vector<std::int64_t>(d.shape, d.shape + 2), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::vector<std::int64_t>(d.strides, d.strides + 2), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(d.device.device_type, kDLCPU);
  EXPECT_EQ(d.dtype.code, kDLFloat);
  EXPECT_EQ(d.dtype.bits, 32);
  t = Tensor(); // the consumer's from here on
  EXPECT_EQ(static_cast<const float*>(d.data)[5], 5);
  DLManagedTensorVersioned* consumer = out.release();
  consumer->deleter(consumer);
}

TEST(DLPack, GivesACopyThatMayBeWritten) {
  const Tensor t = ones({4}).eval();
  const Managed out = to_dlpack(t, BorderCopy::Always);
  EXPECT_EQ(out->flags, kIsCopied);
  static_cast<float*>(out->dl_tensor.data)[0] = 9;
  EXPECT_EQ(t.to_vector()[0], 1);
}

TEST(DLPack, TakesMemoryWithoutACopyAndDeletesItOnce) {
  const Buffer buffer(64 + 24);
  std::iota(buffer.floats(), buffer.floats() + 22, 0.0f);
  Producer producer(buffer.data(), kF32, {2, 3});
  producer.managed.dl_tensor.byte_offset = 64;
  {
    const Tensor t = from_dlpack(producer.give(), BorderCopy::Never);
    EXPECT_EQ(static_cast<const void*>(view<float>(t).data()), buffer.data() + 64);
    EXPECT_EQ(t.to_vector(), (std::vector<float>{16, 17, 18, 19, 20, 21}));
    EXPECT_EQ(producer.deleted, 0);
  }
  EXPECT_EQ(producer.deleted, 1);
}

TEST(DLPack, CopiesWhatCannotBeUsedAsItIs) {
  const Buffer buffer(256);
  std::iota(buffer.floats(), buffer.floats() + 64, 0.0f);
  Producer transposed(buffer.data(), kF32, {3, 2}, {1, 3});
  EXPECT_EQ(from_dlpack(transposed.give()).to_vector(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(transposed.deleted, 1);
  Producer backwards(buffer.floats() + 10, kF32, {2, 3}, {-4, -1});
  EXPECT_EQ(from_dlpack(backwards.give()).to_vector(), (std::vector<float>{10, 9, 8, 6, 5, 4}));
  Producer expanded(buffer.data(), kF32, {2, 2}, {0, 1});
  EXPECT_EQ(from_dlpack(expanded.give()).to_vector(), (std::vector<float>{0, 1, 0, 1}));
  Producer misaligned(buffer.floats() + 1, kF32, {2});
  EXPECT_EQ(from_dlpack(misaligned.give()).to_vector(), (std::vector<float>{1, 2}));
  EXPECT_EQ(misaligned.deleted, 1);
  Producer always(buffer.data(), kF32, {2});
  const Tensor copy = from_dlpack(always.give(), BorderCopy::Always);
  EXPECT_EQ(always.deleted, 1);
  EXPECT_EQ(copy.to_vector(), (std::vector<float>{0, 1}));
}

TEST(DLPack, GoesRoundWithEveryDType) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor t = (arange(10).reshape({5, 2}) % 2).to(dtype).eval();
    const Tensor back = from_dlpack(to_dlpack(t));
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.shape(), t.shape());
    EXPECT_EQ(back.to_bytes(), t.to_bytes()) << name_of(dtype);
  }
  EXPECT_EQ(from_dlpack(to_dlpack(scalar(3))).item(), 3);
  EXPECT_EQ(from_dlpack(to_dlpack(zeros({0, 4}))).numel(), 0);
}

TEST(DLPack, RefusesWhatItCannotRead) {
  const Buffer buffer(256);
  std::memset(buffer.data(), 2, 256);
  const auto refused = [&](ErrorKind kind, const std::string& part,
                           const std::function<void(DLManagedTensorVersioned&)>& change,
                           BorderCopy copy = BorderCopy::IfNeeded) {
    Producer producer(buffer.data(), kF32, {2, 3}, {3, 1});
    change(producer.managed);
    expect_error(kind, part, [&] { from_dlpack(producer.give(), copy); });
    EXPECT_EQ(producer.deleted, 1) << part;
  };
  using M = DLManagedTensorVersioned;
  refused(ErrorKind::Unsupported, "version 2.0", [](M& m) { m.version = {2, 0}; });
  refused(ErrorKind::DType, "code 2 of 32 bits and 4 lanes",
          [](M& m) { m.dl_tensor.dtype.lanes = 4; });
  refused(ErrorKind::DType, "code 5 of 64 bits", [](M& m) { m.dl_tensor.dtype = {5, 64, 1}; });
  refused(ErrorKind::Shape, "-1 dims", [](M& m) { m.dl_tensor.ndim = -1; });
  refused(ErrorKind::Shape, "2000000000 dims", [](M& m) { m.dl_tensor.ndim = 2'000'000'000; });
  refused(ErrorKind::Value, "no shape for 2 dims", [](M& m) { m.dl_tensor.shape = nullptr; });
  refused(ErrorKind::Shape, "negative dim", [](M& m) { m.dl_tensor.shape[0] = -5; });
  refused(ErrorKind::Shape, "more elements than can be counted",
          [](M& m) { m.dl_tensor.shape[0] = std::numeric_limits<std::int64_t>::max(); });
  refused(ErrorKind::Value, "leads out of memory",
          [](M& m) { m.dl_tensor.strides[0] = std::numeric_limits<std::int64_t>::min(); });
  refused(ErrorKind::Value, "null for 6 elements", [](M& m) { m.dl_tensor.data = nullptr; });
  refused(ErrorKind::Unsupported, "device type 10",
          [](M& m) { m.dl_tensor.device.device_type = static_cast<DLDeviceType>(10); });
  refused(ErrorKind::Value, "a bool is 2", [](M& m) { m.dl_tensor.dtype = {kDLBool, 8, 1}; });
  refused(
      ErrorKind::Value, "a copy is not allowed", [](M& m) { m.dl_tensor.strides[1] = 2; },
      BorderCopy::Never);
  refused(
      ErrorKind::Value, "not aligned to 64 bytes", [](M& m) { m.dl_tensor.byte_offset = 4; },
      BorderCopy::Never);
  expect_error(ErrorKind::Value, "from_dlpack: null", [] { from_dlpack(nullptr); });
}

TEST(DLPack, AProducerWithoutADeleterIsLeftAlone) {
  const Buffer buffer(64);
  std::memset(buffer.data(), 0, 64);
  Producer producer(buffer.data(), kF32, {2});
  producer.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(producer.give()).sum().item(), 0);
}

} // namespace
} // namespace egret
