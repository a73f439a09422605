#include "tensor/triggers.h"

#include "support/hash.h"
#include "tensor/node.h"

#include <algorithm>
#include <utility>

namespace egret::detail {

void Triggers::recorded(const std::shared_ptr<Node>& node) {
  if (early_) // the read did not come
    std::exchange(early_, nullptr)->times = 0;
  due_ = nullptr;
  hash_ = combine(hash_, static_cast<std::uint64_t>(node->form.op) |
                             static_cast<std::uint64_t>(node->form.dtype) << 16 |
                             node->form.shape.size() << 32);
  if (operations_ < kMostOperations)
    round_.push_back(node.get());
  ++operations_;
  if (!asynchronous_) // nothing is due
    return;
  for (End& end : ends_) {
    if (!end.asynchronous)
      continue;
    if (end.root + 1 == operations_)
      end.now = node;
    if (end.operations == operations_ && end.hash == hash_ && end.times >= kConfirmed)
      due_ = &end;
  }
}

std::shared_ptr<Node> Triggers::take_due() noexcept {
  early_ = std::exchange(due_, nullptr);
  return early_ ? early_->now.lock() : nullptr;
}

void Triggers::read(const Node* root, bool computed, bool asynchronous) {
  if (!computed && !early_)
    return;
  const auto place = std::find(round_.rbegin(), round_.rend(), root);
  if (root && place != round_.rend() && operations_ <= kMostOperations) {
    const auto at = static_cast<std::size_t>(round_.rend() - place) - 1;
    auto end = std::find_if(ends_.begin(), ends_.end(), [&](const End& e) {
      return e.hash == hash_ && e.operations == operations_ && e.root == at;
    });
    if (end == ends_.end()) {
      if (ends_.size() == kMostEnds)
        ends_.erase(std::min_element(ends_.begin(), ends_.end(),
                                     [](const End& a, const End& b) { return a.times < b.times; }));
      end = ends_.insert(ends_.end(), End{hash_, operations_, at});
    }
    end->times = std::min(end->times + 1, kConfirmed);
    end->asynchronous = computed ? asynchronous : end->asynchronous;
    asynchronous_ = asynchronous_ || end->asynchronous;
  }
  begin_round();
}

void Triggers::begin_round() noexcept {
  hash_ = 0;
  operations_ = 0;
  round_.clear();
  for (End& end : ends_)
    end.now.reset();
  due_ = early_ = nullptr;
}

} // namespace egret::detail
