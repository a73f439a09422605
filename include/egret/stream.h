// Batches made in the background, and a place among them that can be saved.
#pragma once

#include "egret/data.h"
#include "egret/tensor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace egret::data {

struct StreamOptions {
  std::int64_t workers = 1; ///< threads that make batches; 0: next() makes them itself
  std::int64_t ahead = 4;   ///< batches that may stand ready
};

/// The batches of one epoch after another. Which batch comes when depends on nothing but the
/// place: not on the number of workers, nor on time. The place is a tensor in a tree, so a
/// checkpoint that holds the stream continues in the middle of an epoch.
///
///   data::Stream stream(data::Loader({images, labels}, {.batch = 64}));
///   for (int i = 0; i < 1000; ++i) {
///     auto batch = stream.next();
///     train(batch[0], batch[1]);
///   }
///
/// next() is for one thread at a time.
class Stream {
public:
  /// Makes one batch; called by several threads at once, for any place.
  using Make = std::function<std::vector<Tensor>(std::int64_t epoch, std::int64_t batch)>;

  /// Error(Value) when an epoch has no batches.
  Stream(std::int64_t batches_an_epoch, Make make, const StreamOptions& options = {});
  explicit Stream(Loader loader, const StreamOptions& options = {});
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  /// The batch at the place, which moves on by one. What its maker threw is thrown here, and the
  /// place stays.
  std::vector<Tensor> next();

  std::int64_t epoch() const;   ///< of the batch that next() will give
  std::int64_t batch() const;   ///< its number in that epoch
  std::int64_t batches() const; ///< of one epoch

  Tensor place; ///< i64 [2]: epoch and batch. When it is assigned, next() goes there.

  template <class V>
  void visit(V& v) {
    v("place", place);
  }

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Windows of a text (as numbers) for a model that says what comes next: inputs [n, length], and
/// targets of the same shape, which are the inputs moved by one.
class TextWindows {
public:
  /// Error(Value) for a text that is not longer than one piece.
  TextWindows(std::vector<std::int64_t> text, std::int64_t length);

  struct Pieces {
    Tensor inputs, targets; ///< i64 [n, length]
  };
  /// `count` windows at positions that depend on `seed` only.
  Pieces random(std::int64_t count, std::uint64_t seed) const;
  /// Consecutive windows from the start, without overlap.
  std::int64_t in_order() const noexcept;                        ///< how many there are
  Pieces in_order(std::int64_t first, std::int64_t count) const; ///< Error(Index)

private:
  Pieces at(const std::vector<std::size_t>& places) const;
  std::vector<std::int64_t> text_;
  std::int64_t length_;
};

} // namespace egret::data
