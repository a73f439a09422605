// Plans by relative structure: one program for all walks that differ in sizes, bounds of slices and
// constants only.
#pragma once

#include "tensor/engine.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace egret::detail {

/// Writes Walk::signature, the structure of a walk in words, and Walk::numbers beside it: sizes of
/// leaves and of what operations make, begins and lengths of slices, amounts of padding, bits of
/// constants. Equal words: the same operations on the same operands, where sizes of 0 and of 1
/// stand in the same places. With the numbers, words say all that the
/// program depends on, the settings of the runtime among it.
void describe(Walk& walk);

/// A program whose numbers are expressions of some of them.
struct RelativePlan {
  struct Symbol {
    Expr symbol;
    std::size_t at; ///< the number that it stands for
  };
  std::shared_ptr<const runtime::Program> program;
  std::vector<std::optional<Expr>> numbers; ///< by number; nothing: passed by value
  std::vector<std::size_t> scalars;         ///< numbers passed by value, behind the leaves
  std::vector<Symbol> symbols;              ///< each is the size of an input behind these
  bool has_sizes = false;                   ///< some symbol is a size, so that kernels depend on it
  bool overwrites = false;                  ///< inputs that are given (runtime::RunInput), perhaps

  /// Whether it computes a walk of these numbers.
  bool fits(std::span<const std::int64_t> numbers) const;
};

/// What to expect of a loop over rows: for each begin of a slice of a value in memory, if no other
/// operation slices that value, the numbers of the walk with that begin elsewhere.
std::vector<std::vector<std::int64_t>> with_moved_slices(const Walk& walk);

/// The graph of a walk in which every number that differs among `samples` (numbers of walks of its
/// structure, its own last) is a symbol, an expression of symbols, or passed by value. Fills what
/// `plan` has beside the program. Nothing where the differences cannot be expressed, or where
/// operations on such sizes are refused.
std::optional<ir::Graph> generalized(const Walk& walk,
                                     std::span<const std::vector<std::int64_t>> samples,
                                     RelativePlan& plan);

/// The program's inputs behind those of the leaves. `shapes` holds what they point to.
void add_inputs(const RelativePlan& plan, std::span<const std::int64_t> numbers,
                std::vector<Shape>& shapes, std::vector<runtime::RunInput>& inputs);

} // namespace egret::detail
