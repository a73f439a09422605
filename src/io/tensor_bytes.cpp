#include "io/tensor_bytes.h"

#include "backend/common/host_machine.h"
#include "support/thread_pool.h"
#include "tensor/borders.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace egret::io {

namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20; ///< that a thread reads at once
constexpr std::size_t kLeastOfThread = std::size_t{16} << 20;
constexpr std::size_t kStaged = std::size_t{64} << 20; ///< on the way to another device
constexpr std::size_t kMostThreads = 8;                ///< the page cache gives no more then

void make_bools(DType dtype, std::span<std::byte> bytes) {
  if (dtype == DType::Bool)
    for (std::byte& b : bytes)
      b = b != std::byte{0} ? std::byte{1} : std::byte{0};
}

Shape dims_of(const std::vector<std::int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

/// The pieces of `out`, dynamically scheduled over threads; the first error is thrown on.
void read_in_parallel(
    std::uint64_t offset, std::span<std::byte> out,
    const std::function<void(std::uint64_t offset, std::span<std::byte> out)>& read) {
  const auto cores = static_cast<std::size_t>(backend::count_workers(0, "reading files"));
  const std::size_t threads = std::min({cores, kMostThreads, out.size() / kLeastOfThread});
  if (threads < 2) {
    read(offset, out);
    return;
  }
  std::atomic<std::size_t> next = 0;
  ThreadPool(static_cast<int>(threads)).run_apart(static_cast<int>(threads), [&](int, int) {
    for (std::size_t at = 0; (at = next.fetch_add(kPiece)) < out.size();)
      read(offset + at, out.subspan(at, std::min(kPiece, out.size() - at)));
  });
}

} // namespace

Tensor tensor_filled_by(DType dtype, const std::vector<std::int64_t>& shape,
                        const std::function<void(std::span<std::byte>)>& fill) {
  return detail::written(dtype, dims_of(shape), std::numeric_limits<std::size_t>::max(),
                         [&](std::size_t, std::span<std::byte> out) {
                           fill(out);
                           make_bools(dtype, out);
                         });
}

Tensor
tensor_read_by(DType dtype, const std::vector<std::int64_t>& shape,
               const std::function<void(std::uint64_t offset, std::span<std::byte> out)>& read) {
  return detail::written(dtype, dims_of(shape), kStaged,
                         [&](std::size_t at, std::span<std::byte> out) {
                           read_in_parallel(at, out, read);
                           make_bools(dtype, out);
                         });
}

} // namespace egret::io
