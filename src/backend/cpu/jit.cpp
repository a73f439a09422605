#include "backend/cpu/jit.h"

#include "backend/cpu/interleave.h"
#include "backend/cpu/math_library.h"
#include "support/fail.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#if defined(__GNUC__) && !defined(__clang__)
// With sanitizers GCC 12 takes LLVM's small-function buffer for uninitialized.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace egret::backend::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string words_of(llvm::Error error) {
  return llvm::toString(std::move(error));
}

template <class T>
T take(llvm::Expected<T> result, const char* doing, ErrorKind kind = ErrorKind::Device) {
  if (!result)
    fail(kind, "cpu code generator: {}: {}", doing, words_of(result.takeError()));
  return std::move(*result);
}

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

// Functions are made of explicit vectors with their invariants hoisted already, so little is left
// to do: variables into registers, and what addresses and masks have in common.
void optimize(llvm::Module& module, llvm::TargetMachine& machine, const Isa& isa) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graph, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  passes.addPass(llvm::EarlyCSEPass(true));
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) {
      passes.run(function, functions);
      // As many as registers suffice for.
      interleave_chains(function, isa.avx512 ? 4 : 2);
    }
}

} // namespace

struct Jit::Impl {
  Isa isa;
  llvm::orc::JITTargetMachineBuilder machine_builder;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> machines; // idle ones

  explicit Impl(const Isa& wanted) : isa(wanted), machine_builder(builder_for(wanted)) {
    jit = take(llvm::orc::LLJITBuilder()
                   .setJITTargetMachineBuilder(machine_builder)
                   .setLinkProcessSymbolsByDefault(false)
                   .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                   .create(),
               "starting");
    // Errors come back from the calls that caused them; ORC would print them, too.
    jit->getExecutionSession().setErrorReporter(
        [](llvm::Error error) { llvm::consumeError(std::move(error)); });
    llvm::orc::SymbolMap symbols;
    for (const LibraryFunction& f : math_library())
      symbols[jit->mangleAndIntern(f.name)] = {llvm::orc::ExecutorAddr::fromPtr(f.address),
                                               llvm::JITSymbolFlags::Exported |
                                                   llvm::JITSymbolFlags::Callable};
    if (auto error = jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))))
      fail(ErrorKind::Device, "cpu code generator: library symbols: {}",
           words_of(std::move(error)));
  }

  static llvm::orc::JITTargetMachineBuilder builder_for(const Isa& isa) {
    initialize_llvm();
    llvm::orc::JITTargetMachineBuilder builder{llvm::Triple(LLVM_DEFAULT_TARGET_TRIPLE)};
    builder.setCPU(isa.cpu);
    builder.addFeatures(split(isa.features));
    builder.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    // As ORC's own linker wants it: data relative to the instruction, far functions through stubs.
    builder.setCodeModel(llvm::CodeModel::Small);
    builder.setRelocationModel(llvm::Reloc::PIC_);
    return builder;
  }

  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t comma = std::min(text.find(',', at), text.size());
      parts.push_back(text.substr(at, comma - at));
      at = comma + 1;
    }
    return parts;
  }

  std::unique_ptr<llvm::TargetMachine> borrow() {
    {
      std::lock_guard lock(mutex);
      if (!machines.empty()) {
        auto machine = std::move(machines.back());
        machines.pop_back();
        return machine;
      }
    }
    return take(machine_builder.createTargetMachine(), "target machine");
  }

  void give_back(std::unique_ptr<llvm::TargetMachine> machine) {
    std::lock_guard lock(mutex);
    machines.push_back(std::move(machine));
  }
};

namespace {

// Each object has a library of its own, so that names cannot meet.
struct OrcCode final : Code {
  llvm::orc::ExecutionSession& session;
  llvm::orc::JITDylib& library;
  OrcCode(llvm::orc::ExecutionSession& in, llvm::orc::JITDylib& own) : session(in), library(own) {}
  ~OrcCode() override { llvm::consumeError(session.removeJITDylib(library)); }
};

struct Borrowed {
  Jit::Impl& impl;
  std::unique_ptr<llvm::TargetMachine> machine;
  explicit Borrowed(Jit::Impl& from) : impl(from), machine(from.borrow()) {}
  ~Borrowed() { impl.give_back(std::move(machine)); }
};

struct Built {
  std::unique_ptr<llvm::Module> module;
  llvm::Function* function;
};

Built build(llvm::LLVMContext& context, llvm::TargetMachine& machine, const Jit::Fill& fill) {
  auto module = std::make_unique<llvm::Module>("kernel", context);
  module->setDataLayout(machine.createDataLayout());
  module->setTargetTriple(machine.getTargetTriple().str());
  const std::string name = fill(*module);
#ifdef EGRET_CHECKS
  std::string words;
  llvm::raw_string_ostream stream(words);
  ensure(!llvm::verifyModule(*module, &stream), "kernel {}: malformed IR: {}", name, words);
#endif
  llvm::Function* function = module->getFunction(name);
  ensure(function != nullptr, "kernel {}: its module has no such function", name);
  return {std::move(module), function};
}

} // namespace

Jit::Jit(const Isa& isa) : impl_(std::make_unique<Impl>(isa)) {}
Jit::~Jit() = default;

const Isa& Jit::isa() const noexcept {
  return impl_->isa;
}

std::string Jit::emit(const std::string& symbol, const Fill& fill, JitTimes* times) {
  JitTimes unused;
  JitTimes& t = times != nullptr ? *times : unused;
  Borrowed borrowed(*impl_);
  auto start = Clock::now();
  llvm::LLVMContext context;
  Built built = build(context, *borrowed.machine, fill);
  built.function->setName(symbol);
  t.render = seconds_since(start);

  start = Clock::now();
  optimize(*built.module, *borrowed.machine, impl_->isa);
  t.optimize = seconds_since(start);

  start = Clock::now();
  auto object = take(llvm::orc::SimpleCompiler(*borrowed.machine)(*built.module), "emitting",
                     ErrorKind::Unsupported);
  t.emit = seconds_since(start);
  return object->getBuffer().str();
}

std::unique_ptr<Code> Jit::link(const std::string& symbol, std::string_view object,
                                JitTimes* times) {
  const auto start = Clock::now();
  auto& session = impl_->jit->getExecutionSession();
  auto code = std::make_unique<OrcCode>(
      session, session.createBareJITDylib(fmt::format("object {}", impl_->next.fetch_add(1))));
  code->library.addToLinkOrder(impl_->jit->getMainJITDylib());
  code->object_bytes = object.size();
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}, symbol);
  if (auto error = impl_->jit->addObjectFile(code->library, std::move(buffer)))
    fail(ErrorKind::Unsupported, "cpu code generator: linking {}: {}", symbol,
         words_of(std::move(error)));
  code->entry = take(impl_->jit->lookup(code->library, symbol), "linking", ErrorKind::Unsupported)
                    .toPtr<void*>();
  if (times != nullptr)
    times->link = seconds_since(start);
  return code;
}

std::string Jit::text(const Fill& fill, bool assembly) {
  Borrowed borrowed(*impl_);
  llvm::LLVMContext context;
  const auto module = build(context, *borrowed.machine, fill).module;
  optimize(*module, *borrowed.machine, impl_->isa);
  std::string text;
  {
    llvm::raw_string_ostream stream(text);
    if (!assembly)
      module->print(stream, nullptr);
  }
  if (!assembly)
    return text;
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  ensure(!borrowed.machine->addPassesToEmitFile(passes, stream, nullptr,
                                                llvm::CodeGenFileType::AssemblyFile),
         "this target cannot write assembly");
  passes.run(*module);
  return buffer.str().str();
}

} // namespace egret::backend::cpu
