#include "backend/cpu_codegen/render.h"

#include "backend/cpu/streaming_stores.h"
#include "backend/cpu_codegen/renderer.h"
#include "kernel/narrow_values.h"
#include "support/fail.h"

#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <numeric>

namespace egret::backend::cpu {

using kernel::Bind;
using kernel::For;
using kernel::Stmt;

namespace {

bool has_tiles(const kernel::KernelProgram& program) {
  const auto needed = requirements_of(program);
  return std::find(needed.begin(), needed.end(), kernel::Capability::MatrixTiles) != needed.end();
}

} // namespace

Renderer::Renderer(const kernel::KernelProgram& program, const Isa& isa, llvm::Module& module,
                   const StatementLines* lines)
    : program_(program), module_(module), builder_(module.getContext()), sink_{builder_, isa},
      indices_(sink_,
               [this](const Expr& dim) -> Value* {
                 for (auto& [symbol, value] : dims_)
                   if (symbol == dim)
                     return value;
                 for (std::size_t i = 0; i < program_.dims.size(); ++i)
                   if (program_.dims[i] == dim) {
                     Value* loaded = load_at_entry(builder_.getInt64Ty(), argument_field(1),
                                                   static_cast<int>(i));
                     dims_.emplace_back(dim, loaded);
                     return loaded;
                   }
                 ensure(false, "cpu renderer: {} is no dim of kernel {}", dim.str(), program_.name);
                 return nullptr;
               }),
      lines_(lines), bf16_values_(kernel::bf16_values(program)) {}

/// A function of a file that stands for the program's text. Directives are all that is made of it.
void Renderer::add_debug_scope() {
  llvm::DIBuilder debug(module_);
  llvm::DIFile* file = debug.createFile("program", ".");
  debug.createCompileUnit(llvm::dwarf::DW_LANG_C, file, "egret", true, "", 0, "",
                          llvm::DICompileUnit::DebugDirectivesOnly);
  debug_scope_ = debug.createFunction(
      file, program_.name, "", file, 0, debug.createSubroutineType(debug.getOrCreateTypeArray({})),
      0, llvm::DINode::FlagZero,
      llvm::DISubprogram::SPFlagDefinition | llvm::DISubprogram::SPFlagOptimized);
  function_->setSubprogram(debug_scope_);
  debug.finalize();
  module_.addModuleFlag(llvm::Module::Warning, "Debug Info Version", llvm::DEBUG_METADATA_VERSION);
}

void Renderer::run() {
  llvm::LLVMContext& c = context();
  auto* pointer = llvm::PointerType::getUnqual(c);
  auto* i64 = llvm::Type::getInt64Ty(c);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(c), {pointer, i64, i64}, false);
  function_ =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol_of(program_), module_);
  function_->getArg(0)->setName("block");
  function_->getArg(1)->setName("worker");
  function_->getArg(2)->setName("workers");
  function_->setDoesNotThrow();
  // Else LLVM would halve the widest vectors on some CPUs. (CPU and features are the target
  // machine's.)
  function_->addFnAttr("prefer-vector-width", std::to_string(8 * sink_.isa.vector_bytes));
  function_->addFnAttr("no-trapping-math", "true");

  if (lines_)
    add_debug_scope();
  entry_ = llvm::BasicBlock::Create(c, "entry", function_);
  auto* body = llvm::BasicBlock::Create(c, "body", function_);
  builder_.SetInsertPoint(entry_);
  builder_.CreateBr(body);
  builder_.SetInsertPoint(body);

  values_.assign(program_.values.size(), nullptr);
  bases_.assign(program_.buffers.size(), nullptr);
  scalars_.assign(program_.scalars.size(), nullptr);
  for (const kernel::Type& v : program_.variables)
    variables_.push_back(at_entry([&]() -> Value* {
      llvm::Type* held = vector_of(element_type(c, v.dtype), v.lanes);
      Value* slot = builder_.CreateAlloca(held);
      builder_.CreateStore(llvm::Constant::getNullValue(held), slot);
      return slot;
    }));
  streams_ = has_streaming_store(program_.body);
  const bool tiles = has_tiles(program_);
  if (tiles)
    configure_tiles();
  indices_.enter(entry_);
  block(program_.body);
  indices_.leave();
  if (tiles)
    builder_.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
  streaming_fence();
  builder_.CreateRetVoid();
}

llvm::Value* Renderer::argument_field(int number) {
  Value*& field = fields_[number];
  if (field == nullptr)
    field = load_at_entry(builder_.getPtrTy(), function_->getArg(0), number);
  return field;
}

llvm::Value* Renderer::load_at_entry(llvm::Type* type, Value* array, int number) {
  return at_entry([&]() -> Value* {
    // Every array of the argument block has elements of 8 bytes.
    return builder_.CreateLoad(type,
                               builder_.CreateConstGEP1_64(builder_.getInt64Ty(), array,
                                                           static_cast<std::uint64_t>(number)));
  });
}

llvm::Value* Renderer::value(kernel::ValueId id) const {
  ensure(id >= 0 && id < static_cast<int>(values_.size()) &&
             values_[static_cast<std::size_t>(id)] != nullptr,
         "cpu renderer: kernel {} uses value {} before it is made", program_.name, id);
  return values_[static_cast<std::size_t>(id)];
}

void Renderer::block(const kernel::Block& stmts) {
  for (const Stmt& stmt : stmts)
    statement(stmt);
}

void Renderer::statement(const Stmt& stmt) {
  const llvm::DebugLoc around = builder_.getCurrentDebugLocation();
  if (debug_scope_)
    builder_.SetCurrentDebugLocation(
        llvm::DILocation::get(context(), lines_->at(&stmt), 0, debug_scope_));
  std::visit(overloaded{[&](const kernel::Let& x) {
                          auto target = static_cast<std::size_t>(x.target);
                          values_[target] = instruction(x.inst, program_.values[target]);
                          indices_.bind_value(x.target, values_[target]);
                        },
                        [&](const kernel::Assign& x) {
                          builder_.CreateStore(value(x.value),
                                               variables_[static_cast<std::size_t>(x.variable)]);
                        },
                        [&](const kernel::Store& x) { store(x); }, [&](const For& x) { loop(x); },
                        [&](const kernel::If& x) { condition(x); },
                        [&](const kernel::Barrier&) { barrier(); },
                        [&](const kernel::Intrinsic& x) { intrinsic(x); },
                        [&](const kernel::Acquire& x) { intrinsic(x.by); },
                        [&](const kernel::InProblem& x) { problem(x); }},
             stmt.node);
  if (debug_scope_)
    builder_.SetCurrentDebugLocation(around);
}

void Renderer::loop(const For& stmt) {
  if (stmt.bind == Bind::Core) {
    core_loop(stmt);
    return;
  }
  Expr begin = indices_.resolve(stmt.begin), end = indices_.resolve(stmt.end),
       step = indices_.resolve(stmt.step);
  int copies = std::max(1, stmt.unroll);
  if (begin.is_constant() && end.is_constant() && step.is_constant()) {
    std::int64_t count = (end.value() - begin.value() + step.value() - 1) / step.value();
    if (count <= 0)
      return;
    if (count == 1 || stmt.bind == Bind::Unroll || count <= copies) {
      for (std::int64_t i = 0; i < count; ++i) {
        indices_.replace_loop(stmt.number, begin + step * Expr(i));
        block(stmt.body);
      }
      indices_.restore_loop(stmt.number);
      return;
    }
  }
  rolled(stmt, indices_.scalar(begin), indices_.scalar(end), copies);
}

// Worker w of W takes a contiguous piece; the first count % W workers take one iteration more.
void Renderer::core_loop(const For& stmt) {
  ensure(!in_core_loop_, "kernel {}: a core loop inside of a core loop", program_.name);
  Value* worker = function_->getArg(1);
  Value* workers = function_->getArg(2);
  Expr begin = indices_.resolve(stmt.begin), end = indices_.resolve(stmt.end),
       step = indices_.resolve(stmt.step);
  Value* count = indices_.scalar(max(ceildiv(end - begin, step), 0));
  auto& b = builder_;
  Value* quotient = b.CreateUDiv(count, workers);
  Value* extra = b.CreateSub(count, b.CreateMul(quotient, workers));
  auto smaller = [&](Value* x, Value* y) { return b.CreateSelect(b.CreateICmpSLT(x, y), x, y); };
  Value* first = b.CreateAdd(b.CreateMul(worker, quotient), smaller(worker, extra));
  Value* own = b.CreateAdd(quotient, b.CreateZExt(b.CreateICmpSLT(worker, extra), b.getInt64Ty()));
  Value* width = indices_.scalar(step);
  Value* from = b.CreateAdd(indices_.scalar(begin), b.CreateMul(first, width));
  Value* to = smaller(b.CreateAdd(from, b.CreateMul(own, width)), indices_.scalar(end));
  in_core_loop_ = true;
  rolled(stmt, from, to, std::max(1, stmt.unroll));
  in_core_loop_ = false;
}

void Renderer::rolled(const For& stmt, Value* first, Value* last, int copies) {
  if (copies > 1) {
    Expr ahead = indices_.resolve(stmt.step) * Expr(copies - 1);
    Value* limit = builder_.CreateSub(last, indices_.scalar(ahead));
    first = rolled_once(stmt, first, limit, copies);
  }
  rolled_once(stmt, first, last, 1);
}

// Returns where the loop ended: the first iteration that was not made.
llvm::Value* Renderer::rolled_once(const For& stmt, Value* first, Value* limit, int copies) {
  auto& b = builder_;
  auto make = [&](const char* name) {
    return llvm::BasicBlock::Create(context(), name, function_);
  };
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* prologue = make("loop");
  auto* body = make("loop.body");
  auto* after = make("loop.end");
  Value* enters = b.CreateICmpSLT(first, limit);
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(enters);
      known != nullptr && known->isZero()) {
    for (auto* unused : {prologue, body, after})
      unused->eraseFromParent();
    return first;
  }
  bool certain = llvm::isa<llvm::ConstantInt>(enters);
  if (certain)
    b.CreateBr(prologue);
  else
    b.CreateCondBr(enters, prologue, after);

  b.SetInsertPoint(prologue);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2, fmt::format("d{}", stmt.number));
  i->addIncoming(first, before);
  b.CreateBr(body);
  b.SetInsertPoint(body);
  indices_.enter(prologue);
  Expr variable = Expr::axis(stmt.number, stmt.extent);
  Expr step = indices_.resolve(stmt.step);
  indices_.bind_loop(
      stmt.number, i,
      std::gcd(indices_.multiple_of(indices_.resolve(stmt.begin)), indices_.multiple_of(step)));
  for (int copy = 0; copy < copies; ++copy) {
    if (copy > 0)
      indices_.replace_loop(stmt.number, variable + step * Expr(copy));
    block(stmt.body);
  }
  indices_.restore_loop(stmt.number);
  Value* stride = indices_.scalar(step * Expr(copies));
  indices_.leave();

  Value* next = b.CreateAdd(i, stride, "", true, true);
  i->addIncoming(next, b.GetInsertBlock());
  llvm::BasicBlock* latch = b.GetInsertBlock();
  b.CreateCondBr(b.CreateICmpSLT(next, limit), prologue, after);
  b.SetInsertPoint(after);
  llvm::PHINode* end = b.CreatePHI(b.getInt64Ty(), 2);
  if (!certain)
    end->addIncoming(first, before);
  end->addIncoming(next, latch);
  return end;
}

void Renderer::condition(const kernel::If& stmt) {
  Mask mask = mask_of(stmt.condition, 1, 64);
  ensure(mask.lanes == nullptr, "kernel {}: a condition that depends on the lane", program_.name);
  if (mask.scalar == nullptr) {
    block(stmt.body);
    return;
  }
  auto* then = llvm::BasicBlock::Create(context(), "then", function_);
  auto* otherwise = llvm::BasicBlock::Create(context(), "else", function_);
  auto* after = llvm::BasicBlock::Create(context(), "after", function_);
  builder_.CreateCondBr(mask.scalar, then, otherwise);
  builder_.SetInsertPoint(then);
  block(stmt.body);
  builder_.CreateBr(after);
  builder_.SetInsertPoint(otherwise);
  block(stmt.otherwise);
  builder_.CreateBr(after);
  builder_.SetInsertPoint(after);
}

// Finds the problem by binary search without branches, in a table that is as long as a power of
// two.
void Renderer::problem(const kernel::InProblem& stmt) {
  const kernel::ProblemGroup& group = program_.groups[static_cast<std::size_t>(stmt.group)];
  auto& b = builder_;
  Value* item = indices_.scalar(indices_.resolve(stmt.item));
  Value* number = b.getInt64(0);
  const std::size_t length = std::bit_ceil(group.problems());
  std::vector<std::int64_t> begin = group.begin;
  begin.resize(std::max(begin.size(), length), group.begin.back());
  for (std::size_t step = length / 2; step > 0; step /= 2) {
    Value* next = b.CreateAdd(number, b.getInt64(step));
    number = b.CreateSelect(b.CreateICmpSLE(by_problem(begin, next), item), next, number);
  }
  auto* prologue = llvm::BasicBlock::Create(context(), "problem", function_);
  auto* body = llvm::BasicBlock::Create(context(), "problem.body", function_);
  b.CreateBr(prologue);
  b.SetInsertPoint(prologue);
  indices_.enter(prologue);
  indices_.bind_symbol(group.item, b.CreateSub(item, by_problem(begin, number)));
  for (std::size_t s = 0; s < group.sizes.size(); ++s)
    indices_.bind_symbol(group.sizes[s], by_problem(group.values[s], number));
  for (std::size_t i = 0; i < group.buffers.size(); ++i) {
    std::vector<std::int64_t> arguments;
    for (const int a : group.arguments[i])
      arguments.push_back(program_.buffers[static_cast<std::size_t>(a)].argument);
    Value* slot = b.CreateGEP(b.getPtrTy(), argument_field(0), by_problem(arguments, number));
    bases_[static_cast<std::size_t>(group.buffers[i])] = b.CreateLoad(b.getPtrTy(), slot);
    indices_.bind_buffer(group.buffers[i]);
  }
  for (const std::vector<int>& scalar : group.scalars) {
    const DType type = program_.scalars[static_cast<std::size_t>(scalar[0])];
    Value* place = b.CreateGEP(b.getInt64Ty(), argument_field(2),
                               by_problem({scalar.begin(), scalar.end()}, number));
    problem_scalars_.push_back(
        from_memory(b.CreateLoad(memory_element(context(), type), place), type));
  }
  b.CreateBr(body);
  b.SetInsertPoint(body);
  block(stmt.body);
  indices_.leave();
  for (const int buffer : group.buffers)
    bases_[static_cast<std::size_t>(buffer)] = nullptr;
  problem_scalars_.clear();
}

llvm::Value* Renderer::by_problem(std::vector<std::int64_t> values, Value* problem) {
  auto& b = builder_;
  const std::int64_t first = values[0], step = values.size() > 1 ? values[1] - first : 0;
  bool affine = true;
  for (std::size_t p = 0; p < values.size(); ++p)
    affine = affine && values[p] == first + step * static_cast<std::int64_t>(p);
  const auto constant = [&](std::int64_t v) { return b.getInt64(static_cast<std::uint64_t>(v)); };
  if (affine)
    return b.CreateAdd(constant(first), b.CreateMul(problem, constant(step)));
  llvm::GlobalVariable*& table = tables_[values];
  if (table == nullptr) {
    auto* data = llvm::ConstantDataArray::get(
        context(),
        llvm::ArrayRef(reinterpret_cast<const std::uint64_t*>(values.data()), values.size()));
    table = new llvm::GlobalVariable(module_, data->getType(), true,
                                     llvm::GlobalValue::PrivateLinkage, data, "table");
  }
  return b.CreateLoad(b.getInt64Ty(), b.CreateGEP(b.getInt64Ty(), table, problem));
}

void Renderer::barrier() {
  streaming_fence();
  Value* several = builder_.CreateICmpSGT(function_->getArg(2), builder_.getInt64(1));
  guarded(several, [&] {
    llvm::FunctionCallee wait = module_.getOrInsertFunction(
        "egret_barrier",
        llvm::FunctionType::get(builder_.getVoidTy(), {builder_.getPtrTy()}, false));
    builder_.CreateCall(wait, {argument_field(4)})->setDoesNotThrow();
  });
}

// Stores around the caches are not ordered with what follows: others see them after a fence only.
void Renderer::streaming_fence() {
  if (streams_ && sink_.isa.x86)
    builder_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
}

std::string symbol_of(const kernel::KernelProgram& program) {
  std::string name = "k_";
  for (char c : program.name)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

std::string render(const kernel::KernelProgram& program, const Isa& isa, llvm::Module& module,
                   const StatementLines* lines) {
  Renderer(program, isa, module, lines).run();
  return symbol_of(program);
}

} // namespace egret::backend::cpu
