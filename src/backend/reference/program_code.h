// A kernel program with its expressions translated, ready to be interpreted.
#pragma once

#include "backend/reference/expr_code.h"
#include "kernel/program.h"

#include <unordered_map>
#include <vector>

namespace egret::backend::reference {

/// Indices and masks of an instruction or a statement. Those that depend on data take it from value
/// symbols, whose slots are filled before evaluation.
struct InstCode {
  int lanes = 1;
  ExprCode index; ///< of a load or store; the value of an Index
  GuardCode mask;
  std::vector<ExprCode> memory, indices; ///< of an intrinsic, in its order
  struct Symbol {
    int slot;
    kernel::ValueId value;
  };
  std::vector<Symbol> symbols;
};

struct StmtCode {
  const kernel::Stmt* stmt = nullptr;
  InstCode inst;
  ExprCode extent, begin, end, step; ///< For
  int slot = -1;          ///< For: of the loop variable; Problem: of the item's number in it
  std::vector<int> sizes; ///< Problem: slots of the group's sizes
  std::vector<StmtCode> body, otherwise;
};

/// Where the variables of expressions live: dims first, then the lane number, the thread number,
/// then loop variables and values as they are met.
class SlotTable {
public:
  explicit SlotTable(const kernel::KernelProgram& program);
  int lane() const { return lane_; }
  int thread() const { return lane_ + 1; }
  int loop(int number);
  int value(kernel::ValueId value);
  int symbol(const Expr& symbol); ///< of a group
  int of(const Expr& variable);
  int size() const { return count_; }

private:
  const kernel::KernelProgram& program_;
  std::unordered_map<int, int> loops_, values_;
  std::vector<std::pair<Expr, int>> symbols_;
  int lane_, count_;
};

struct ProgramCode {
  explicit ProgramCode(const kernel::KernelProgram& program);

  const kernel::KernelProgram& program;
  SlotTable slots;
  std::vector<ExprCode> buffer_elements;
  struct Map {
    ExprCode offset;
    std::vector<ExprCode> extents, strides;
  };
  std::vector<Map> tensor_maps;
  ExprCode workers;
  std::vector<StmtCode> body;
  std::vector<int> value_offset; ///< ValueId -> place of its first lane; the total at the end
  std::vector<int> variable_offset;
};

} // namespace egret::backend::reference
