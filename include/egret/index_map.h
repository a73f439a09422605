// Maps from the points of one index domain to those of another: what views, layouts and loads are
// made of.
#pragma once

#include "egret/expr.h"
#include "egret/scalar.h"

#include <optional>
#include <span>
#include <vector>

namespace egret {

/// The condition lo <= value < hi.
struct Guard {
  Expr value, lo, hi;
  friend bool operator==(const Guard&, const Guard&) = default;
};

/// Where any of `valid` fails, the map yields `fill` instead of a point.
struct Hole {
  std::vector<Guard> valid;
  Scalar fill;
  friend bool operator==(const Hole&, const Hole&) = default;
};

/// Sends a point of the index domain `dims` (written with the variables Expr::axis(i, dims[i])) to
/// the coordinates `coords` of a source, or to the fill of the first hole, in order, one of whose
/// conditions fails. (A list of holes, not one fill, makes compose total: a pad by 0 of a pad by 1
/// has two fills.) `coords` need only be meaningful where every hole's conditions hold.
struct IndexMap {
  std::vector<Expr> dims;
  std::vector<Expr> coords;
  std::vector<Hole> holes;

  static IndexMap identity(const Shape& dims);
  /// Row-major order: from a tensor's coordinates to one coordinate, the element's number.
  static IndexMap row_major(const Shape& dims);
  /// Each takes the shape of the source and gives the map from the result's index domain to
  /// the source's.
  static IndexMap reshape(const Shape& source, const Shape& result);
  static IndexMap
  permute(const Shape& source,
          std::span<const std::int64_t> axes); ///< result dim i is source dim axes[i]
  static IndexMap expand(const Shape& source,
                         const Shape& result); ///< dims of size 1 are repeated; same rank
  static IndexMap pad(const Shape& source, std::span<const Expr> before,
                      std::span<const Expr> after, Scalar fill);
  static IndexMap shrink(const Shape& source, std::span<const Expr> begin,
                         std::span<const Expr> end);
  static IndexMap flip(const Shape& source, std::span<const std::int64_t> axes);

  bool is_identity() const;
  bool is_total() const { return holes.empty(); } ///< never yields a fill
  /// Structural hash, the same in every process.
  std::uint64_t hash() const noexcept;
  std::string str() const; ///< "(d0,d1)[2,3] -> (d1,d0)"
  friend bool operator==(const IndexMap&, const IndexMap&) = default;
};

/// First `outer`, whose coordinates are points of `inner`'s domain, then `inner`. Total: any two
/// maps whose ranks fit compose. Conditions that are proved are dropped; holes with equal fills are
/// merged where order permits.
IndexMap compose(const IndexMap& outer, const IndexMap& inner);
/// The map back, from an index domain `target` that `map` covers exactly once; nothing when `map`
/// is no bijection onto it or none is found.
std::optional<IndexMap> inverse(const IndexMap& map, const Shape& target);
/// The map with its variables replaced: variable i of `map` becomes `values[i]`, an expression over
/// the index domain `dims`.
IndexMap rebase(const IndexMap& map, const std::vector<Expr>& values, const Shape& dims);

} // namespace egret
