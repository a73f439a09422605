// Loops that every generator needs: vectors with a tail, and boxes of points shared out among
// workers.
#pragma once

#include "kernel/builder.h"

#include <functional>
#include <span>

namespace egret::kernel {

/// A vector's place along one axis: `at` contains the lane variable when there are several lanes;
/// `mask` says which lanes exist.
struct Position {
  Expr at;
  std::vector<Guard> mask;
};

/// Goes along [begin, end) in vectors: first `copies` at a time, then singly, then the rest under a
/// mask. The body is written for each of these loops and gets its positions. `extent`: an exclusive
/// bound of the axis.
void vector_loop(ProgramBuilder& b, const Expr& begin, const Expr& end, const Expr& extent,
                 int lanes, int copies, const std::function<void(std::span<const Position>)>& body);

/// All points of a box in row-major order as one loop, shared out among the workers. The body gets
/// the coordinates.
void core_loop(ProgramBuilder& b, std::span<const Expr> extents,
               const std::function<void(std::span<const Expr>)>& body);

/// A serial loop nest over a box, outermost first.
void serial_loops(ProgramBuilder& b, std::span<const Expr> extents,
                  const std::function<void(std::span<const Expr>)>& body);

/// Workers that `iterations` pieces of `work` operations each can feed: at most one a piece, and
/// none for too little work.
Expr useful_workers(const Expr& iterations, const Expr& total_work);

} // namespace egret::kernel
