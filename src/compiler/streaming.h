// Streaming contractions: kernels that never store the products they work on (FlashAttention, Dao
// et al. 2022). A product of few terms an element, such as the scores of attention, has many more
// elements than its factors: every kernel that needs it recomputes it tile by tile, and only sums
// over it reach memory.
#pragma once

#include "compiler/partition.h"

#include <set>

namespace egret::compiler {

/// Which products are recomputed.
struct StreamingRules {
  /// Factors are floats of up to 32 bits as they lie in memory; else also what is computed from
  /// such without other products.
  bool in_memory = true;
  double least_elements = 0; ///< of the product; smaller ones are stored
  /// By its factors' elements: a product of few terms has that many at least, a deep one as many as
  /// both have. By those of a sum over it: each product has that many at least.
  double least_share = 1;
  /// The same for a product that one kernel makes, once: whoever builds the kernel must see that.
  double least_share_of_one = 1;
  double most_terms = 256; ///< that a kernel sums anew for each element: more cost more than memory
  std::set<ir::NodeId> not_these; ///< sums of products that are stored whatever their sizes
};

/// A sum of products' elements by those of its factors.
double share_of_factors(const GraphFacts& facts, ir::NodeId product);

/// Whether a sum of products has more terms. Such ones are taken in as well: whoever builds kernels
/// of the groups must see that each is made by one kernel, once.
bool is_deep(const GraphFacts& facts, const StreamingRules& rules, ir::NodeId product);

/// Groups of kind Stream: sums over a large product, or over what is made of several such products
/// of one box, together with these products, which are members of each group that reads them. Marks
/// as not stored what lies between products and sums, and as stored the conversions that end a sum.
/// A product whose values are needed for anything else than sums is left alone.
std::vector<Group> find_streaming_groups(const GraphFacts& facts, const StreamingRules& rules,
                                         std::vector<bool>& stored);

} // namespace egret::compiler
