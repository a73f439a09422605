// The left side of a rule as a conjunctive query: atoms over tables and primitives, with variables
// and constants.
#pragma once

#include "egret/egraph.h"

#include <cstdint>
#include <vector>

namespace egret::egraph {

/// A variable or a constant.
struct QueryTerm {
  bool is_const = false;
  std::uint32_t value = 0; ///< the variable's number, or the constant
  bool operator==(const QueryTerm&) const = default;
};

/// function(terms but the last) = last term.
struct TableAtom {
  FunctionId function{};
  std::vector<QueryTerm> terms;
};

/// primitive(args) = out.
struct PrimAtom {
  std::uint32_t primitive = 0;
  std::vector<QueryTerm> args;
  QueryTerm out;
};

struct Query {
  std::uint32_t variables = 0;
  std::vector<TableAtom> atoms;
  std::vector<PrimAtom> prims;
  bool impossible = false; ///< asks two different constants to be equal
};

} // namespace egret::egraph
