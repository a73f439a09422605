// Where the reads of a thread came in what it recorded, so that the same operations are computed
// there before they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace egret::detail {

struct Node;

/// Of one stream, for its thread. A *round* is what is recorded from one read that computed
/// something to the next. When the operations of a round are those of two earlier ones up to where
/// these were read, and the device computes while the thread goes on, the value that was read then
/// is due: to be computed as its read would. A round that goes on differently loses nothing but
/// that its operations are in two plans, and has the end forgotten.
class Triggers {
public:
  void recorded(const std::shared_ptr<Node>& node);
  /// The value that is due behind the operation recorded last; null: none is.
  std::shared_ptr<Node> take_due() noexcept;
  bool is_due() const noexcept { return due_ != nullptr; }
  /// One value was read, or several (null). `computed`: some of it was pending.
  void read(const Node* root, bool computed, bool asynchronous);

private:
  static constexpr std::size_t kMostOperations = 8192, kMostEnds = 8;
  static constexpr int kConfirmed = 2;
  struct End {
    std::uint64_t hash;
    std::size_t operations, root; ///< of the round; the place of the value in it
    int times = 0;
    bool asynchronous = false;
    std::weak_ptr<Node> now{}; ///< in this round
  };
  void begin_round() noexcept;

  std::uint64_t hash_ = 0;
  std::size_t operations_ = 0;
  std::vector<const Node*> round_; ///< the first ones; they may be gone
  std::vector<End> ends_;
  bool asynchronous_ = false; ///< some end was
  End* due_ = nullptr;
  End* early_ = nullptr; ///< computed before its read, which has not come yet
};

} // namespace egret::detail
