// Batches made in the background, and a position among them that can be saved.
#pragma once

#include "egret/data.h"
#include "egret/tensor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace egret::data {

struct PrefetchOptions {
  std::int64_t workers = 1; ///< threads that make batches; 0: next() makes them itself
  std::int64_t ahead = 4;   ///< batches that may stand ready
};

/// The batches of one epoch after another. Which batch comes when depends on nothing but the
/// position: not on the number of workers, nor on time. The position is a tensor in a tree, so a
/// checkpoint that holds the loader continues in the middle of an epoch.
///
///   data::PrefetchLoader batches(data::Loader({images, labels}, {.batch = 64}));
///   for (int i = 0; i < 1000; ++i) {
///     auto batch = batches.next();
///     train(batch[0], batch[1]);
///   }
///
/// next() is for one thread at a time.
class PrefetchLoader {
public:
  /// Makes one batch; called by several threads at once, for any position.
  using Make = std::function<std::vector<Tensor>(std::int64_t epoch, std::int64_t batch)>;

  /// Error(Value) when an epoch has no batches.
  PrefetchLoader(std::int64_t batches_an_epoch, Make make, const PrefetchOptions& options = {});
  explicit PrefetchLoader(Loader loader, const PrefetchOptions& options = {});
  ~PrefetchLoader();
  PrefetchLoader(PrefetchLoader&&) noexcept;
  PrefetchLoader& operator=(PrefetchLoader&&) noexcept;

  /// The batch at the position, which moves on by one. What its maker threw is thrown here, and the
  /// position stays.
  std::vector<Tensor> next();

  std::int64_t epoch() const;   ///< of the batch that next() will give
  std::int64_t batch() const;   ///< its number in that epoch
  std::int64_t batches() const; ///< of one epoch

  Tensor position; ///< i64 [2]: epoch and batch. When it is assigned, next() goes there.

  template <class V>
  void visit(V& v) {
    v("position", position);
  }

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Windows of a text (as numbers) for a model that says what comes next: inputs [n, length], and
/// targets of the same shape, which are the inputs moved by one.
class TextWindows {
public:
  /// Error(Value) for a text that is not longer than one window.
  TextWindows(std::vector<std::int64_t> text, std::int64_t length);

  struct Windows {
    Tensor inputs, targets; ///< i64 [n, length]
  };
  /// `count` windows at positions that depend on `seed` only.
  Windows random(std::int64_t count, std::uint64_t seed) const;
  /// Consecutive windows from the start, without overlap.
  std::int64_t in_order() const noexcept;                         ///< how many there are
  Windows in_order(std::int64_t first, std::int64_t count) const; ///< Error(Index)

private:
  Windows at(const std::vector<std::size_t>& starts) const;
  std::vector<std::int64_t> text_;
  std::int64_t length_;
};

} // namespace egret::data
