// Greedy partition of a graph into kernels: which values are stored in memory, and which of them
// one kernel computes (loop fusion and operator fusion).
#pragma once

#include "compiler/layout_assignment.h"
#include "compiler/views.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace egret::compiler {

/// Departures from the greedy partition, for a search (search/fusion_plans.h). What a graph or
/// target does not allow is left as it is: any choices give a right partition.
struct PartitionChoices {
  /// Elementwise values that every reader computes anew, where it can.
  std::set<ir::NodeId> recomputed;
  /// Stored values that no kernel makes together, the earlier first.
  std::set<std::pair<ir::NodeId, ir::NodeId>> apart;
  /// Values that are stored in any case.
  std::set<ir::NodeId> stored;
  /// Values that readers take from copies in other layouts: for divide(), not for a partition.
  std::vector<LayoutChange> layout_changes;
  /// By node: values of different chunks of one product (chunks.h), which no kernel makes together;
  /// 0: of none. Empty: nothing is cut.
  std::vector<int> chunks;
  bool columns = false; ///< kernels of column reductions may store values of every point: by target
  /// Elementwise values of which products read overlapping windows are stored: by target.
  bool windows_stored = false;
  /// Factors of f32 that take more than a few operations are stored when a product reads each
  /// element many times: by target, where matrix units multiply them.
  bool factors_stored = false;
  /// Values are computed in the concatenation that reads them where their arithmetic, for all of
  /// its points, costs less than memory: by target.
  bool concatenated_in_place = false;
  bool streams = true;       ///< large products may be recomputed (streaming.h)
  bool stored_scores = true; ///< but not where storing them is predicted to take less time
  bool siblings = true;      ///< kernels that read the same array over the same loops become one
  bool column_reductions = true; ///< sums of columns go along with rows (fuse_column_reductions.h)
  bool batches = true;           ///< small independent kernels share a launch (batching.h)
  bool slices = true; ///< a product's kernel may take readers of its slices along (join.h)
  /// Products whose kernels take no readers of slices along.
  std::set<ir::NodeId> unsliced;
  friend bool operator==(const PartitionChoices&, const PartitionChoices&) = default;
};

/// Work of one point of a kernel, of all members together, in additions. Beyond that another pass
/// over memory costs little beside the arithmetic, and the time to compile a kernel grows faster
/// than its code.
inline constexpr double kLargestKernel = 640;

/// Stream: streaming contractions, which recompute a product in each kernel (streaming.h).
enum class GroupKind : std::uint8_t { Map, Reduce, Contraction, Scan, Sort, Scatter, Stream };

/// A stored node in its group. Dims of size 1 have kZeroAxis.
struct Member {
  ir::NodeId node;
  std::vector<int> frame; ///< by dim of the node's frame: the group's axis
  std::vector<int> place; ///< by dim of the node's box: the group's axis
  bool remade = false;    ///< other groups make the value as well, and none stores it
};

/// Stored nodes that one kernel computes, over common axes. Every member runs over all parallel
/// axes, alone or with all reduced ones; but readers of a product's slices do not run over the axis
/// of the slices' numbers.
struct Group {
  GroupKind kind = GroupKind::Map;
  std::vector<Expr> axes;      ///< extents, in loop order
  std::vector<bool> reduced;   ///< by axis
  std::vector<Member> members; ///< in an order that respects reads
  double flops = 0;            ///< work of one point of each member's frame, in additions
  int sliced = -1;             ///< the axis of the numbers of slices that members read, or -1
};

/// A value that its reader's kernel does not make, and why not.
struct Unfused {
  ir::NodeId producer, consumer;
  std::string why;
};

struct Partition {
  std::vector<bool> stored;
  std::vector<Group> groups; ///< in an order that respects reads
  std::vector<Unfused> unfused;
};

/// Every stored node that is no graph input is a member of exactly one group, unless it is remade,
/// and reads between groups form no cycle. `streams`: which products kernels may remake, which asks
/// for a generator of such kernels; null: none.
struct StreamingRules;
Partition partition_greedily(const GraphFacts& facts, bool fuse,
                             const StreamingRules* streams = nullptr,
                             const PartitionChoices& choices = {});

} // namespace egret::compiler
