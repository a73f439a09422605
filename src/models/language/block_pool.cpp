#include "models/language/block_pool.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::models::language {

namespace {

/// How many tokens two texts have in common at their beginnings.
std::size_t common(std::span<const int> a, std::span<const int> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

} // namespace

BlockPool::BlockPool(std::int64_t blocks, std::int64_t positions)
    : positions_(positions), nodes_(static_cast<std::size_t>(blocks)) {
  for (Block block = blocks; block-- > 0;) // the first ones are taken first
    empty_.push_back(block);
}

std::int64_t BlockPool::available() const {
  return static_cast<std::int64_t>(empty_.size() + idle_.size());
}

std::int64_t BlockPool::blocks_for(std::size_t tokens) const {
  return (static_cast<std::int64_t>(tokens) + positions_ - 1) / positions_;
}

std::pair<std::vector<BlockPool::Block>, std::size_t>
BlockPool::find(std::span<const int> text) const {
  std::vector<Block> blocks;
  std::size_t found = 0;
  for (const std::vector<Block>* level = &roots_; found < text.size();) {
    const std::span<const int> rest = text.subspan(found);
    Block best = kNone;
    std::size_t most = 0;
    for (const Block block : *level)
      if (const std::size_t n = common(node(block).tokens, rest); n > most) {
        best = block;
        most = n;
      }
    if (best == kNone)
      break;
    blocks.push_back(best);
    found += most;
    if (static_cast<std::int64_t>(most) < positions_)
      break;
    level = &node(best).children;
  }
  return {std::move(blocks), found};
}

BlockPool::Block BlockPool::take() {
  Block block = kNone;
  if (!empty_.empty()) {
    block = empty_.back();
    empty_.pop_back();
  } else {
    // Whoever has a block has those above it, and gives them back after it: this one is a leaf.
    ensure(!idle_.empty(), "no block is available");
    block = idle_.begin()->second;
    idle_.erase(idle_.begin());
    ensure(node(block).children.empty(), "block {} has others below it", block);
    std::erase(below(node(block).parent), block);
    node(block) = {};
    ++evicted_;
  }
  node(block).references = 1;
  return block;
}

void BlockPool::acquire(Block block) {
  Node& n = node(block);
  if (n.references == 0)
    idle_.erase({n.given_back_at, block});
  shared_ += ++n.references == 2;
}

void BlockPool::release(Block block, std::uint64_t by) {
  Node& n = node(block);
  if (n.writer == by)
    n.writer = 0;
  shared_ -= n.references-- == 2;
  if (n.references > 0)
    return;
  if (n.tokens.empty()) {
    empty_.push_back(block);
    return;
  }
  n.given_back_at = ++clock_;
  idle_.insert({n.given_back_at, block});
}

BlockSequence::BlockSequence(std::shared_ptr<BlockPool> pool)
    : pool_(std::move(pool)), id_(pool_->next_sequence_++) {}

BlockSequence::~BlockSequence() {
  give_back();
}

BlockSequence::BlockSequence(BlockSequence&& other) noexcept
    : pool_(other.pool_), id_(other.id_), tokens_(std::exchange(other.tokens_, {})),
      blocks_(std::exchange(other.blocks_, {})) {}

BlockSequence& BlockSequence::operator=(BlockSequence&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = other.pool_;
    id_ = other.id_;
    tokens_ = std::exchange(other.tokens_, {});
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

void BlockSequence::give_back() {
  for (std::size_t i = blocks_.size(); i-- > 0;) // leaves first
    pool_->release(blocks_[i], id_);
  blocks_.clear();
  tokens_.clear();
}

std::int64_t BlockSequence::row(std::size_t position) const {
  const auto positions = static_cast<std::size_t>(pool_->positions_);
  return blocks_.at(position / positions) * pool_->positions_ +
         static_cast<std::int64_t>(position % positions);
}

void BlockSequence::share(std::span<const int> text) {
  auto [blocks, found] = pool_->find(text);
  if (found <= tokens_.size() && common(tokens_, text) == tokens_.size())
    return;
  for (const Block block : blocks)
    pool_->acquire(block);
  give_back();
  blocks_ = std::move(blocks);
  tokens_.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(found));
}

std::size_t BlockSequence::in_last() const {
  return tokens_.size() % static_cast<std::size_t>(pool_->positions_);
}
std::size_t BlockSequence::last() const {
  return tokens_.size() / static_cast<std::size_t>(pool_->positions_);
}

/// Whether the next token's position is in a block where another sequence writes, or where a token
/// stands there already.
bool BlockSequence::must_copy() const {
  if (in_last() == 0)
    return false;
  const BlockPool::Node& node = pool_->node(blocks_[last()]);
  return node.tokens.size() != in_last() || (node.writer != 0 && node.writer != id_);
}

std::int64_t BlockSequence::needed(std::size_t count) const {
  const auto have = static_cast<std::int64_t>(blocks_.size());
  const std::int64_t more =
      std::max<std::int64_t>(pool_->blocks_for(tokens_.size() + count) - have, 0);
  // A copy of a block that no other sequence has leaves that one available.
  return more + (must_copy() && pool_->node(blocks_[last()]).references > 1);
}

bool BlockSequence::reserve(std::size_t count,
                            const std::function<void(Block from, Block to)>& copy) {
  if (needed(count) > pool_->available())
    return false;
  if (must_copy()) {
    const Block from = blocks_[last()];
    if (pool_->available() == 0) { // nothing is below it, which would be available
      pool_->node(from).tokens.resize(in_last());
    } else {
      const Block to = pool_->take();
      try {
        copy(from, to);
      } catch (...) {
        pool_->release(to, id_);
        throw;
      }
      BlockPool::Node &old = pool_->node(from), &made = pool_->node(to);
      made.parent = old.parent;
      made.tokens.assign(old.tokens.begin(),
                         old.tokens.begin() + static_cast<std::ptrdiff_t>(in_last()));
      pool_->below(made.parent).push_back(to);
      pool_->release(from, id_);
      blocks_[last()] = to;
      ++pool_->copied_;
    }
  }
  while (std::ssize(blocks_) < pool_->blocks_for(tokens_.size() + count))
    blocks_.push_back(pool_->take());
  if (in_last() != 0)
    pool_->node(blocks_[last()]).writer = id_;
  return true;
}

void BlockSequence::append(std::span<const int> tokens) {
  for (const int token : tokens) {
    const std::size_t i = last();
    const Block block = blocks_.at(i);
    BlockPool::Node& node = pool_->node(block);
    ensure(node.tokens.size() == in_last(), "block {} is not this sequence's", block);
    if (node.tokens.empty()) {
      node.parent = i == 0 ? BlockPool::kNone : blocks_[i - 1];
      node.writer = id_;
      pool_->below(node.parent).push_back(block);
    }
    node.tokens.push_back(token);
    tokens_.push_back(token);
  }
}

void BlockSequence::keep(std::size_t count) {
  if (count >= tokens_.size())
    return;
  tokens_.resize(count);
  for (const std::int64_t enough = pool_->blocks_for(count); std::ssize(blocks_) > enough;) {
    pool_->release(blocks_.back(), id_);
    blocks_.pop_back();
  }
  if (in_last() == 0)
    return;
  BlockPool::Node& node = pool_->node(blocks_[last()]);
  if (node.references == 1 && node.children.empty() && node.writer == id_)
    node.tokens.resize(in_last());
}

} // namespace egret::models::language
