// The renderer's state, shared by its parts: statements (render.cpp), instructions
// (render_inst.cpp), memory (render_memory.cpp).
#pragma once

#include "backend/cpu_codegen/indices.h"
#include "backend/cpu_codegen/ops.h"
#include "backend/cpu_codegen/render.h"

#include <llvm/IR/Function.h>
#include <llvm/IR/Module.h>

#include <map>
#include <optional>
#include <vector>

namespace egret::backend::cpu {

class Renderer {
public:
  Renderer(const kernel::KernelProgram& program, const Isa& isa, llvm::Module& module,
           const StatementLines* lines);
  void run();

private:
  using Value = llvm::Value;

  // Statements (render.cpp).
  void add_debug_scope();
  void block(const kernel::Block& stmts);
  void statement(const kernel::Stmt& stmt);
  void loop(const kernel::For& stmt);
  void core_loop(const kernel::For& stmt);
  /// Iterates from `first` while below `last`, `copies` copies of the body for each pass, and the
  /// rest one by one.
  void rolled(const kernel::For& stmt, Value* first, Value* last, int copies);
  Value* rolled_once(const kernel::For& stmt, Value* first, Value* limit, int copies);
  void condition(const kernel::If& stmt);
  void problem(const kernel::InProblem& stmt);
  /// An integer that has another value in each problem; of the problem number `problem`.
  Value* by_problem(std::vector<std::int64_t> values, Value* problem);
  void barrier();
  void streaming_fence();

  // Instructions (render_inst.cpp).
  Value* instruction(const kernel::Inst& inst, kernel::Type type);
  Value* apply_op(const kernel::inst::Apply& inst, kernel::Type type);
  Value* index(const Expr& index, kernel::Type type);
  Value* test(const std::vector<Guard>& guards, int lanes);
  Value* reduce_lanes(const kernel::inst::ReduceLanes& inst);
  Value* shuffle(const kernel::inst::Shuffle& inst);
  Value* scalar_argument(int number, int lanes);

  // Intrinsics, which are those of matrix registers and prefetches (render_tiles.cpp).
  void configure_tiles();
  void intrinsic(const kernel::Intrinsic& use);
  void move_tile(const kernel::Intrinsic& use);

  // Memory (render_memory.cpp).
  struct Mask {
    Value* scalar =
        nullptr; ///< i1: of the guards that are the same in all lanes; null when they hold
    Value* lanes = nullptr; ///< vector of i1: of the others; null when they hold
  };
  Mask mask_of(const std::vector<Guard>& guards, int lanes, unsigned compare_bits);
  /// The guard of the first lane, where that is the guard of every lane.
  std::optional<Guard> same_in_all_lanes(const Guard& guard, int lanes) const;
  Value* lane_guard(const Guard& guard, int lanes, unsigned compare_bits);
  Value* mask_vector(const Mask& mask, int lanes);
  Value* load(const kernel::inst::Load& inst, kernel::Type type);
  Value* or_zeros(Value* pointer, Value* condition);
  Value* load_one(Value* pointer, Value* condition, llvm::Type* type, llvm::Align align);
  Value* load_lanes(int buffer, const Expr& e, const Mask& mask, int lanes);
  void store(const kernel::Store& stmt);
  void store_lanes(const kernel::Store& stmt, const Expr& e, const Mask& mask, Value* value,
                   int lanes);
  void prefetch(const kernel::Address& at);
  Value* from_memory(Value* raw, DType type);
  Value* to_memory(Value* value, DType type);
  Value* address(int buffer, const Expr& e);
  Value* lane_addresses(int buffer, const Expr& e, int lanes);
  bool is_within(int buffer, const Expr& first, int lanes) const;
  Value* below_cut(const LanePieces& pieces, int lanes, unsigned bits);
  llvm::Align element_alignment(int buffer) const;
  llvm::Align known_alignment(int buffer, const Expr& e) const;
  Value* base_of(int buffer);
  Value* zeros();
  Value* reverse(Value* vector);
  /// Runs `make` only where `condition` holds.
  template <class F>
  void guarded(Value* condition, F make);

  Value* argument_field(int number);
  Value* load_at_entry(llvm::Type* type, Value* array, int number);
  template <class F>
  Value* at_entry(F make);
  llvm::IRBuilder<>& b() { return builder_; }
  llvm::LLVMContext& context() { return module_.getContext(); }
  int lanes_of(kernel::ValueId id) const {
    return program_.values[static_cast<std::size_t>(id)].lanes;
  }
  DType dtype_of(kernel::ValueId id) const {
    return program_.values[static_cast<std::size_t>(id)].dtype;
  }
  Value* value(kernel::ValueId id) const;

  const kernel::KernelProgram& program_;
  llvm::Module& module_;
  llvm::IRBuilder<> builder_;
  Sink sink_;
  Indices indices_;
  const StatementLines* lines_;               ///< null: instructions have no lines
  llvm::DISubprogram* debug_scope_ = nullptr; ///< with lines
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  Value* fields_[5] = {}; ///< of the argument block, loaded when first needed
  std::vector<Value*> values_, variables_, bases_, scalars_;
  std::vector<Value*> problem_scalars_; ///< within a problem
  const std::vector<bool> bf16_values_; ///< by value: a conversion to bf16 rounds nothing
  std::vector<std::pair<Expr, Value*>> dims_;
  std::map<std::vector<std::int64_t>, llvm::GlobalVariable*> tables_;
  bool streams_ = false; ///< some store may bypass the caches
  bool in_core_loop_ = false;
};

template <class F>
llvm::Value* Renderer::at_entry(F make) {
  llvm::IRBuilderBase::InsertPointGuard guard(builder_);
  builder_.SetInsertPoint(entry_->getTerminator());
  return make();
}

template <class F>
void Renderer::guarded(Value* condition, F make) {
  if (condition == nullptr) {
    make();
    return;
  }
  auto* then = llvm::BasicBlock::Create(context(), "then", function_);
  auto* after = llvm::BasicBlock::Create(context(), "after", function_);
  builder_.CreateCondBr(condition, then, after);
  builder_.SetInsertPoint(then);
  make();
  builder_.CreateBr(after);
  builder_.SetInsertPoint(after);
}

} // namespace egret::backend::cpu
