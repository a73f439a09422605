#include "tensor/holders.h"

#include "support/fail.h"
#include "tensor/node.h"

#include <algorithm>
#include <unordered_set>

namespace egret::detail {
namespace {

constexpr std::size_t kShown = 3;

struct Holder {
  std::size_t bytes;
  std::string type; // "f32[2,3]"
};

// The values in memory that handles have, each once, the largest ones first.
std::vector<Holder> holders() {
  std::vector<NodePtr> nodes;
  for_each_handle([&](const Handle& handle) { nodes.push_back(handle.node()); });
  std::vector<Holder> all;
  std::unordered_set<const runtime::Storage*> met;
  std::lock_guard lock(engine_mutex());
  for (const NodePtr& node : nodes)
    if (node->storage && met.insert(node->storage.get()).second)
      all.push_back({node->storage->bytes(),
                     fmt::format("{}{}", name_of(node->form.dtype), to_string(node->form.shape))});
  std::stable_sort(all.begin(), all.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  return all;
}

} // namespace

void rethrow_with_holders(const Error& error) {
  if (error.kind() != ErrorKind::Memory)
    throw;
  const std::vector<Holder> all = holders();
  std::string largest;
  for (std::size_t i = 0; i < std::min(kShown, all.size()); ++i)
    largest += fmt::format("{}{} ({} bytes)", i ? ", " : "", all[i].type, all[i].bytes);
  if (largest.empty())
    throw;
  fail(ErrorKind::Memory, "{}; tensors hold {} values, the largest: {}", error.what(), all.size(),
       largest);
}

} // namespace egret::detail
