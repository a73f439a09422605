// One graph for each op of the table, each dtype that it takes and each way in which its operands
// can lie in memory: generated from the table, so that a new row is tested without another word.
#pragma once

#include "egret/ir.h"

#include <string>
#include <vector>

namespace egret::testing {

struct OpCase {
  std::string name; ///< "add f32 turned"
  Op op;
  DType dtype;     ///< of the value operands (of the result, for sources)
  ir::Graph graph; ///< one output
};

/// Whether the op takes value operands of this dtype.
bool takes(Op op, DType dtype);
std::vector<DType> all_dtypes();

/// Layouts: dense, ones (all dims 1), empty (a dim of size 0), repeated (broadcast), turned
/// (permuted), cut (a flipped part), framed (padded), long (one row beyond any vector width). Input
/// nodes alone (Input, Constant) have no cases.
std::vector<OpCase> op_cases(const std::vector<DType>& dtypes = all_dtypes());

} // namespace egret::testing
