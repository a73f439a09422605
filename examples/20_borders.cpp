// Memory that is shared with other libraries: wrapped, viewed, and given on by DLPack.
#include <egret/egret.h>

#include <iostream>
#include <memory>
#include <new>

using namespace egret;

namespace {

// Memory of an application, 64-byte aligned.
struct Samples {
  static constexpr std::size_t kCount = 1024;
  alignas(64) float values[kCount];
};

// A library that takes DLPack: it reads the tensor and calls the deleter.
float sum_elsewhere(dlpack::DLManagedTensorVersioned* managed) {
  const dlpack::DLTensor& t = managed->dl_tensor;
  const auto* values =
      reinterpret_cast<const float*>(static_cast<const std::byte*>(t.data) + t.byte_offset);
  float sum = 0;
  for (std::int64_t i = 0; i < t.shape[0]; ++i)
    sum += values[i * t.strides[0]];
  managed->deleter(managed);
  return sum;
}

} // namespace

int main() {
  auto samples = std::make_shared<Samples>();
  for (std::size_t i = 0; i < Samples::kCount; ++i)
    samples->values[i] = static_cast<float>(i % 4);

  // The tensor reads the samples where they are, and keeps them alive.
  Tensor x = wrap(samples->values, DType::F32, {Samples::kCount}, [samples] {});
  Tensor y = x * 2 + 1;

  const auto seen = view<float>(y); // computes y, copies nothing
  std::cout << "y[3] = " << seen[3] << '\n';

  const float sum = sum_elsewhere(to_dlpack(y).release());
  Tensor back = from_dlpack(to_dlpack(y)); // the same memory
  std::cout << "sum = " << sum << " elsewhere, " << back.sum().item() << " here\n";

  const MemoryStats memory = memory_stats("cpu");
  std::cout << memory.in_use << " bytes in use, " << memory.reserved << " reserved\n";
  return seen[3] == 7 && sum == 4096 && back.sum().item() == 4096 ? 0 : 1;
}
