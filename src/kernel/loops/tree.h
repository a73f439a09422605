// A loop tree: how the points of a region's stages are gone through. No term names a variable: the
// index along an axis is the sum of iteration * step over the loops of that axis that enclose a
// body, so that splitting, merging, exchanging, fusing and binding loops never rename anything.
#pragma once

#include "kernel/region.h"
#include "kernel/schedule.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::kernel::loops {

enum class Kind : std::uint8_t {
  Body,       ///< a point of a stage: a map's value is stored, a reduction's is combined
  For,        ///< `extent` iterations along `axis`, `step` apart
  Mask,       ///< only where the index along `axis` is below the axis's extent
  Accumulate, ///< sums of `stage` for all points of its result axes that the loops inside go
              ///< through: empty at the start, finished (and stored) behind `rest`. One inside
              ///< another of the same stage makes a part, which the outer one combines. Of a scan:
              ///< outside of its loops along the scanned axis; each body has the sum so far. With
              ///< `step` > 1 each sum has as many accumulators in registers, which the iterations
              ///< of unrolled loops along reduced axes take in rotation; behind `rest` they are
              ///< combined in pairs
  Near,     ///< what `rest` reads of `operand` is copied near first, in the order of `rest`'s loops
  Then,     ///< `first`, then `rest`
  Collapse, ///< the grid loops directly inside are one loop over all their points, row-major (the
            ///< collapse of OpenMP): a block of `step` threads takes `extent` times as many points
            ///< in a row, a thread every `step`-th of them
  Prefetch, ///< bodies inside ask the cache for what they will read `step` further along `axis`
};

struct Tree;
using TreePtr = std::shared_ptr<const Tree>;

/// Bodies of stages run in the order in which they stand. A map without a body, and a cheap output
/// that others store, is computed where it is read. What else is read outside of the loops over its
/// point lives in memory over the loops inside the innermost tree around its body and its readers.
struct Tree {
  Kind kind = Kind::Body;
  int axis = -1; ///< For, Mask, Prefetch: of the region
  Expr extent;   ///< For: iterations; a number, or ceildiv(the axis's extent, a number). Collapse
  std::int64_t step = 1; ///< For, Collapse, Prefetch; of an Accumulate, accumulators of each sum
  Bind bind = Bind::Serial;
  int stage = -1;   ///< Body, Accumulate
  int operand = -1; ///< Near
  TreePtr first;    ///< Then
  TreePtr rest;     ///< of all but Body
};

TreePtr body(int stage);
TreePtr loop(int axis, Expr extent, std::int64_t step, Bind bind, TreePtr rest);
TreePtr mask(int axis, TreePtr rest);
TreePtr accumulate(int stage, TreePtr rest, std::int64_t accumulators = 1);
TreePtr near(int operand, TreePtr rest);
TreePtr then(TreePtr first, TreePtr rest);
TreePtr collapse(int threads, int copies, TreePtr rest);
TreePtr prefetch(int axis, std::int64_t distance, TreePtr rest);

bool equal(const Tree& a, const Tree& b);

/// One line without spaces, as a schedule holds it, such as
/// "for(0,64,8,core,acc(0,for(1,512,1,serial,for(0,8,1,vector,body(0)))))"; an extent that depends
/// on a symbolic axis is written "ceil(16)": the axis's extent by 16, rounded up. The others are
/// "mask(axis,TREE)", "near(operand,TREE)", "then(TREE,TREE)" and "collapse(threads,copies,TREE)".
/// "acc(stage,accumulators,TREE)" has several accumulators; "prefetch(axis,distance,TREE)".
std::string to_text(const Tree& tree, const Region& region);
/// Throws Error(Parse): of text that is no such line, of numbers that the region has no axis, stage
/// or operand for, and beyond the limits below.
TreePtr parse_tree(std::string_view text, const Region& region);

inline constexpr int kMostDepth = 200, kMostNodes = 1 << 15;
/// Lanes of a vector; iterations of an unrolled loop, and copies of a body by all that enclose it.
inline constexpr std::int64_t kMostLanes = 64, kMostUnroll = 64, kMostCopies = 512;
/// Threads of a block.
inline constexpr std::int64_t kMostThreads = 1024;

/// Why the tree does not go through the region's points, each once and in an order that gives the
/// region's values; empty when it does. Trees come from files, too.
///
/// - A body stands under loops of its stage's axes only. Those of an axis, by their steps, are the
///   digits of the index: the largest step has as many iterations as reach the axis's end, each
///   other as many as its place has. Loops that reach beyond the end need a mask inside of them
///   all.
/// - A reduction's loops along reduced axes are inside of an Accumulate of its stage; between one
///   that is shared out (core, grid) and its body there is another.
/// - What reads a result comes behind it in a Then, outside of its Accumulate (but for a scan's),
///   so that the loops around both are of axes which both have and neither reduces. Inside of the
///   Accumulate there may be sums that go along with it (loops/online.h).
/// - A scan goes along its axis, ArgMax along its reduced axes, and a scatter with Set along axes
///   on which updates may meet, in ascending row-major order; a scan and a scatter along those
///   without sharing them out at all.
/// - Unrolled loops and vectors have constant extents; around a body there is one vector loop at
///   the most, of a power of two, and only serial and unrolled loops inside. Matrix loops come in
///   threes, nothing between them, of two result axes and a reduced one of a sum, and only masks
///   and its body inside.
/// - A Collapse holds a nest of grid loops (of none it is one point), none along an axis that a
/// stage inside reduces or scans,
///   and is inside of no other loop and no Accumulate.
std::string why_not(const Region& region, const Tree& tree);

/// The plain tree: a nest for each stage that is stored, one after the other, serial loops in the
/// order of the stage's axes, its reduced axes innermost.
TreePtr plain_tree(const Region& region);

} // namespace egret::kernel::loops
