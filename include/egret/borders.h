// Memory that egret and other libraries share without a copy.
#pragma once

#include "egret/tensor.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace egret {

/// What memory of somebody else must be aligned to, in bytes, to be used where it is.
inline constexpr std::size_t kBorderAlignment = 64;

/// A tensor whose value is the caller's memory of the host, row-major elements of `dtype`. Nothing
/// is copied, and nothing is ever written there: an update gives the tensor memory of its own. The
/// contents must not change until `let_go` is called, which happens once, on any thread, when no
/// tensor and no program needs the memory any more. `let_go` must not throw, nor use tensors.
///
/// `strides`: in elements, if they are given only to be checked: any others than row-major ones are
/// Error(Value). So are memory that is not aligned to kBorderAlignment, null for a tensor with
/// elements, and an empty `let_go`; a shape with negative or uncountable dims is Error(Shape). Then
/// `let_go` is not called. tensor() and from_bytes() copy instead.
Tensor wrap(const void* data, DType dtype, const Shape& shape, std::function<void()> let_go,
            const std::optional<std::vector<std::int64_t>>& strides = {});

/// A value in memory of the host, row-major, for as long as the object lives.
template <class T>
class HostView {
public:
  HostView(std::shared_ptr<const void> memory, const T* data, std::size_t count) noexcept
      : memory_(std::move(memory)), elements_(data, count) {}
  std::span<const T> span() const noexcept { return elements_; }
  const T* data() const noexcept { return elements_.data(); }
  std::size_t size() const noexcept { return elements_.size(); }
  auto begin() const noexcept { return elements_.begin(); }
  auto end() const noexcept { return elements_.end(); }
  const T& operator[](std::size_t i) const { return elements_[i]; }

private:
  std::shared_ptr<const void> memory_;
  std::span<const T> elements_;
};

/// The elements as stored, without a copy; computes the value. Error(Device) for a value in memory
/// that the host cannot read: to_bytes() copies it. Later updates of the tensor do not change what
/// is seen.
HostView<std::byte> view_bytes(const Tensor& a);

namespace detail {
void check_view(const Tensor& a, DType dtype);
}

/// The elements of a tensor of exactly T's dtype (Error(DType) for others), as view_bytes().
template <Arithmetic T>
HostView<T> view(const Tensor& a) {
  detail::check_view(a, dtype_of<T>());
  auto bytes = std::make_shared<const HostView<std::byte>>(view_bytes(a));
  const auto* data = reinterpret_cast<const T*>(bytes->data());
  const std::size_t count = bytes->size() / sizeof(T);
  return {std::move(bytes), data, count};
}

} // namespace egret
