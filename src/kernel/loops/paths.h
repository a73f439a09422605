// Where the bodies of a loop tree stand.
#pragma once

#include "kernel/loops/tree.h"

#include <optional>
#include <vector>

namespace egret::kernel::loops {

/// The nodes around a body, outermost first; of a Then, on which side it is.
struct Step {
  const Tree* node = nullptr;
  bool first = false;
};
using Path = std::vector<Step>;

/// By stage: the way to its body; empty when it has none. The body itself is the last step. Of a
/// tree with one body a stage at the most.
std::vector<Path> body_paths(const Region& region, const Tree& tree);

/// The place in both paths of the innermost node that holds both bodies.
std::size_t parting(const Path& a, const Path& b);

/// Whether a loop goes to one iteration only, so that its place does not matter.
bool is_single(const Tree& loop);

/// Loops whose iterations are lanes: vectors, and the columns of a matrix unit's product.
bool is_vector(const Tree& loop);

/// Loops that are shared out among the threads of a block.
bool goes_by_threads(const Tree& tree);

/// Loops that are shared out among workers, blocks, warps or threads.
bool is_shared_out(Bind bind);

/// The stages whose values at its point a body needs: itself, and maps without a body that are
/// read, directly or through each other.
std::vector<int> computed_with(const Region& region, const std::vector<Path>& paths, int stage);

/// Whether there are only bodies of maps and masks: all of one point.
bool is_point(const Region& region, const Tree& tree);

/// Whether the loops of an axis around a body reach beyond the axis's end.
bool overreaches(const Region& region, const Path& path, int axis);

} // namespace egret::kernel::loops
