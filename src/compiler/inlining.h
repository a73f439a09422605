// Which values are stored, and which are computed again inside every kernel that reads them: the
// inlining decision of fusing compilers (Halide's compute_root or compute_inline), by cost.
#pragma once

#include "compiler/partition.h"

#include <cstddef>
#include <span>
#include <vector>

namespace egret::compiler {

/// Decides for every node whether its value is stored (in memory or as a stage of a kernel) or
/// computed inside each reader. Always stored: reductions, scans, scatters, outputs, data that is
/// gathered from. Stored or not by cost: elementwise values. A value with one reader that visits
/// each element once is computed there; one with several readers only where that is cheap. Without
/// `fuse` every value is stored.
std::vector<bool> choose_stored(const GraphFacts& facts, bool fuse,
                                const PartitionChoices& choices = {});

/// A value made of indices, constants and single numbers alone that no memory holds: each reader
/// makes it.
struct Recomputed {
  ir::NodeId node;
  double flops; ///< additions an element
  std::size_t readers;
};
/// For reports.
std::vector<Recomputed> recomputed_values(const GraphFacts& facts, const std::vector<bool>& stored);

/// What the stored node reads. `flops`, where it is not null: becomes the work of one point of the
/// domain, in additions. The reads stay as long as the facts.
std::span<const Read> reads_of(const GraphFacts& facts, const std::vector<bool>& stored,
                               ir::NodeId node, double* flops = nullptr);

/// The work of one kernel of these stored nodes, in additions: what several of them compute at the
/// same points counts once.
double flops_together(const GraphFacts& facts, const std::vector<bool>& stored,
                      const std::vector<ir::NodeId>& nodes);

/// The domain over which a stored node's loops run: its own, except that a reduction runs over its
/// operand's and a scatter over its updates'.
const Shape& frame_of(const ir::Graph& graph, ir::NodeId stored);

} // namespace egret::compiler
