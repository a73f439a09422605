// The blocks of a paged cache (PagedAttention, Kwon et al. 2023): which are in use, by how many
// sequences, and which tokens they hold. Nothing here knows what the memory looks like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace egret::models::language {

/// Blocks of so many positions each. A block that holds tokens is a node of a prefix tree: it
/// belongs to the tokens of all blocks above it and its own. Sequences that begin alike share
/// blocks, by reference counts. Blocks that no sequence has any longer keep their tokens, to be
/// found again, until they are needed: leaves first, those first that were given back first.
class BlockPool {
public:
  using Block = std::int64_t;
  static constexpr Block kNone = -1;

  BlockPool(std::int64_t blocks, std::int64_t positions);

  std::int64_t size() const { return static_cast<std::int64_t>(nodes_.size()); }
  std::int64_t positions() const { return positions_; } ///< of a block
  std::int64_t available() const;                       ///< blocks that no sequence has
  std::int64_t blocks_for(std::size_t tokens) const;    ///< that hold so many

  std::int64_t shared() const { return shared_; } ///< blocks of two sequences or more
  /// Blocks that no sequence has and whose tokens would be found again.
  std::int64_t cached() const { return static_cast<std::int64_t>(idle_.size()); }
  std::uint64_t copied() const { return copied_; }   ///< blocks, before they were written to
  std::uint64_t evicted() const { return evicted_; } ///< blocks with tokens, for others

private:
  friend class BlockSequence;

  struct Node {
    std::int64_t references = 0;
    Block parent = kNone;
    std::vector<int> tokens;         ///< whose positions have been written
    std::vector<Block> children;     ///< of a full block
    std::uint64_t writer = 0;        ///< the sequence that may add tokens; 0: any
    std::uint64_t given_back_at = 0; ///< of blocks in idle_
  };

  Node& node(Block block) { return nodes_[static_cast<std::size_t>(block)]; }
  const Node& node(Block block) const { return nodes_[static_cast<std::size_t>(block)]; }
  std::vector<Block>& below(Block parent) {
    return parent == kNone ? roots_ : node(parent).children;
  }
  /// Blocks that hold the longest beginning of a text, and how many tokens of it.
  std::pair<std::vector<Block>, std::size_t> find(std::span<const int> text) const;
  Block take(); ///< one that is available, without tokens; a reference is counted
  void acquire(Block block);
  void release(Block block, std::uint64_t by);

  std::int64_t positions_;
  std::vector<Node> nodes_;
  std::vector<Block> roots_;                       ///< blocks that begin texts
  std::vector<Block> empty_;                       ///< blocks without tokens that no sequence has
  std::set<std::pair<std::uint64_t, Block>> idle_; ///< those with tokens, by given_back_at
  std::uint64_t clock_ = 0, next_sequence_ = 1, copied_ = 0, evicted_ = 0;
  std::int64_t shared_ = 0;
};

/// The tokens of a text that the cache holds, and the blocks that hold them. Gives its blocks back
/// in the end.
class BlockSequence {
public:
  using Block = BlockPool::Block;

  explicit BlockSequence(std::shared_ptr<BlockPool> pool);
  ~BlockSequence();
  BlockSequence(BlockSequence&& other) noexcept;
  BlockSequence& operator=(BlockSequence&& other) noexcept;

  const std::vector<int>& tokens() const { return tokens_; }
  std::size_t size() const { return tokens_.size(); }
  std::span<const Block> blocks() const { return blocks_; }
  /// Of a position below size() or in reserved blocks: its row in memory.
  std::int64_t row(std::size_t position) const;

  /// Holds instead what the pool holds of a text's beginning where that is more.
  void share(std::span<const int> text);

  /// Blocks that reserve() would take for `count` tokens more.
  std::int64_t needed(std::size_t count) const;
  /// Sees that `count` tokens more have positions that no other sequence reads or writes; false,
  /// and nothing changes, where too few blocks are available. A block that others may read beyond
  /// this sequence's tokens is copied first, by `copy`.
  bool reserve(std::size_t count, const std::function<void(Block from, Block to)>& copy);
  /// Tokens whose reserved positions have been written.
  void append(std::span<const int> tokens);
  /// Holds its first `count` tokens only.
  void keep(std::size_t count);

private:
  std::size_t last() const;    ///< number of the block that the next token goes to
  std::size_t in_last() const; ///< tokens there
  bool must_copy() const;
  void give_back();

  std::shared_ptr<BlockPool> pool_;
  std::uint64_t id_;
  std::vector<int> tokens_;
  std::vector<Block> blocks_; ///< enough for the tokens; others at the end are reserved
};

} // namespace egret::models::language
