// Gives tensors to Python and takes them, by DLPack (tests/oracle/dlpack.py).
#include "egret/dlpack.h"
#include "egret/functional.h"

#include <cstdio>

using namespace egret;

#define EGRET_EXPORT extern "C" __attribute__((visibility("default")))

/// [[0, 1.5, 3], [4.5, 6, 7.5]], read-only.
EGRET_EXPORT void* give() {
  return to_dlpack(arange(6).reshape({2, 3}).to(DType::F32) * 1.5).release();
}

/// 0 to 5 in i32, which may be written.
EGRET_EXPORT void* give_copy() {
  return to_dlpack(arange(6).to(DType::I32), BorderCopy::Always).release();
}

/// The sum of all elements, each times its position in row-major order; -1 for an error.
EGRET_EXPORT double take(void* managed) {
  try {
    const Tensor t =
        from_dlpack(dlpack::Managed(static_cast<dlpack::DLManagedTensorVersioned*>(managed)));
    return (t.to(DType::F64) * arange(t.numel()).reshape(t.shape())).sum().item();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return -1;
  }
}
