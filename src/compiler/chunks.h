// Chunking: a large product is computed chunk by chunk along one of its axes, and each chunk is
// reduced before the next one is computed, as chunked losses of large vocabularies are. So a graph
// keeps within memory that does not hold the product.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace egret::compiler {

/// A sum of products, and how it may be split.
struct ProductSplit {
  ir::NodeId product = ir::kNoNode;
  std::size_t dim = 0;
  std::int64_t chunks = 0;
  /// Sums of the product's own elements along `dim` (a softmax's maximum and sum) are made chunk by
  /// chunk, too. Where they are not, they have the whole product to themselves: a kernel that never
  /// stores it may make them (streaming.h).
  bool all_sums = false;
};

/// Ways to split the two largest products of at least `least_bytes`, those with fewer chunks first.
std::vector<ProductSplit> possible_splits(const ir::Graph& graph, double least_bytes);

/// The same graph with each chunk of the product, and what is made of it elementwise, as values of
/// their own. What a reduction makes of the product along `dim` is combined chunk by chunk, in
/// order, which rounds differently; what reductions along other axes make of it is joined, with the
/// same bits. Nothing when something else needs the product as a whole, or nothing larger than it
/// is reduced.
std::optional<ir::Graph> split_into_chunks(const ir::Graph& graph, const ProductSplit& cut);

/// Begin and end of each chunk along the dim.
std::vector<std::pair<std::int64_t, std::int64_t>> bounds_of(const ir::Graph& graph,
                                                             const ProductSplit& cut);
/// By node of a graph that split_into_chunks() made: the number of the chunk that it belongs to,
/// from 1 on; 0: none; kSoFar: it combines what several chunks have.
inline constexpr int kSoFar = -1;
std::vector<int> chunks_of(const ir::Graph& graph,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& bounds);
/// Whether a kernel that makes values of both would hold two chunks at a time.
inline bool are_apart(int a, int b) {
  return (a > 0 && b > 0 && a != b) || (a == kSoFar && b == kSoFar);
}

} // namespace egret::compiler
