// What wrapping, DLPack and readers of files share.
#pragma once

#include "egret/tensor.h"
#include "runtime/storage.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace egret::detail {

/// Of dims that were checked to be countable.
std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> sizes);
/// Whether strides in elements put the elements in row-major order; those of dims of size 1 and of
/// tensors without elements mean nothing.
bool is_row_major(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);
/// The number of elements; Error(Shape) in the name of `who` for dims that are negative or whose
/// bytes cannot be counted.
std::size_t checked_elements(std::span<const std::int64_t> sizes, DType dtype, const char* who);

/// The value, computed, where it is.
runtime::StoragePtr computed(const Tensor& a, const char* who);
/// A tensor with a value in memory.
Tensor of_storage(DType dtype, std::span<const std::int64_t> sizes, runtime::StoragePtr storage);
/// A new tensor whose bytes `write` writes: at once where they are to stay, or, for a device whose
/// memory the host cannot write, in parts of at most `most` bytes, each from `at` on, in order.
Tensor written(DType dtype, const Shape& shape, std::size_t most,
               const std::function<void(std::size_t at, std::span<std::byte>)>& write);

} // namespace egret::detail
