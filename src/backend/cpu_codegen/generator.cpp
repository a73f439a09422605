#include "backend/cpu/code_generator.h"

#include "backend/cpu_codegen/interleave.h"
#include "backend/cpu_codegen/render.h"
#include "generators_version.h"
#include "kernel/serialize.h"
#include "support/fail.h"

#include <llvm-c/Core.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
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
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include <algorithm>
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

// LLVM 19's pass "X86 Avoid Store Forwarding Blocks" asks for the size of each memory operand that
// it looks at, and ends the process where that is unknown, as it is of a masked load. The pass is
// for copies of structs, which kernels do not make.
void leave_out_store_forwarding() {
  auto& options = llvm::cl::getRegisteredOptions();
  const auto option = options.find("x86-disable-avoid-SFB");
  if (option != options.end())
    static_cast<llvm::cl::opt<bool>*>(option->second)->setValue(true);
}

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    leave_out_store_forwarding();
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

// Each object has a library of its own, so that names cannot meet.
struct OrcCode final : Code {
  llvm::orc::ExecutionSession& session;
  llvm::orc::JITDylib& library;
  OrcCode(llvm::orc::ExecutionSession& in, llvm::orc::JITDylib& own) : session(in), library(own) {}
  ~OrcCode() override { llvm::consumeError(session.removeJITDylib(library)); }
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

llvm::orc::JITTargetMachineBuilder builder_for(const Isa& isa) {
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

// Each compilation has its own context and target machine.
class LlvmGenerator final : public CodeGenerator {
public:
  LlvmGenerator(const Isa& isa, std::span<const LibraryFunction> functions)
      : isa_(isa), machine_builder_(builder_for(isa)) {
    jit_ = take(llvm::orc::LLJITBuilder()
                    .setJITTargetMachineBuilder(machine_builder_)
                    .setLinkProcessSymbolsByDefault(false)
                    .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                    .create(),
                "starting");
    // Errors come back from the calls that caused them; ORC would print them, too.
    jit_->getExecutionSession().setErrorReporter(
        [](llvm::Error error) { llvm::consumeError(std::move(error)); });
    llvm::orc::SymbolMap symbols;
    for (const LibraryFunction& f : functions)
      symbols[jit_->mangleAndIntern(f.name)] = {llvm::orc::ExecutorAddr::fromPtr(f.address),
                                                llvm::JITSymbolFlags::Exported |
                                                    llvm::JITSymbolFlags::Callable};
    if (auto error = jit_->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))))
      fail(ErrorKind::Device, "cpu code generator: library symbols: {}",
           words_of(std::move(error)));
  }

  std::string emit(const std::string& symbol, std::string_view program, CodeTimes* times) override;
  std::unique_ptr<Code> link(const std::string& symbol, std::string_view object,
                             CodeTimes* times) override;
  std::string text(std::string_view program, bool assembly) override;

private:
  struct Borrowed {
    LlvmGenerator& from;
    std::unique_ptr<llvm::TargetMachine> machine;
    explicit Borrowed(LlvmGenerator& generator) : from(generator), machine(generator.borrow()) {}
    ~Borrowed() { from.give_back(std::move(machine)); }
  };

  struct Built {
    std::unique_ptr<llvm::Module> module;
    llvm::Function* function;
  };

  std::unique_ptr<llvm::TargetMachine> borrow() {
    {
      std::lock_guard lock(mutex_);
      if (!machines_.empty()) {
        auto machine = std::move(machines_.back());
        machines_.pop_back();
        return machine;
      }
    }
    return take(machine_builder_.createTargetMachine(), "target machine");
  }

  void give_back(std::unique_ptr<llvm::TargetMachine> machine) {
    std::lock_guard lock(mutex_);
    machines_.push_back(std::move(machine));
  }

  Built build(llvm::LLVMContext& context, llvm::TargetMachine& machine,
              const kernel::KernelProgram& program, const StatementLines* lines = nullptr) const {
    auto module = std::make_unique<llvm::Module>("kernel", context);
    module->setDataLayout(machine.createDataLayout());
    module->setTargetTriple(machine.getTargetTriple().str());
    const std::string name = render(program, isa_, *module, lines);
#ifdef EGRET_CHECKS
    std::string words;
    llvm::raw_string_ostream stream(words);
    ensure(!llvm::verifyModule(*module, &stream), "kernel {}: malformed IR: {}", name, words);
#endif
    llvm::Function* function = module->getFunction(name);
    ensure(function != nullptr, "kernel {}: its module has no such function", name);
    return {std::move(module), function};
  }

  Isa isa_;
  llvm::orc::JITTargetMachineBuilder machine_builder_;
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  std::atomic<std::uint64_t> next_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<llvm::TargetMachine>> machines_; // idle ones
};

std::string LlvmGenerator::emit(const std::string& symbol, std::string_view program,
                                CodeTimes* times) {
  CodeTimes unused;
  CodeTimes& t = times != nullptr ? *times : unused;
  Borrowed borrowed(*this);
  auto start = Clock::now();
  llvm::LLVMContext context;
  Built built = build(context, *borrowed.machine, kernel::program_of_bytes(program));
  built.function->setName(symbol);
  t.render = seconds_since(start);

  start = Clock::now();
  optimize(*built.module, *borrowed.machine, isa_);
  t.optimize = seconds_since(start);

  start = Clock::now();
  auto object = take(llvm::orc::SimpleCompiler(*borrowed.machine)(*built.module), "emitting",
                     ErrorKind::Unsupported);
  t.emit = seconds_since(start);
  return object->getBuffer().str();
}

std::unique_ptr<Code> LlvmGenerator::link(const std::string& symbol, std::string_view object,
                                          CodeTimes* times) {
  const auto start = Clock::now();
  auto& session = jit_->getExecutionSession();
  auto code = std::make_unique<OrcCode>(
      session, session.createBareJITDylib(fmt::format("object {}", next_.fetch_add(1))));
  code->library.addToLinkOrder(jit_->getMainJITDylib());
  code->object_bytes = object.size();
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}, symbol);
  if (auto error = jit_->addObjectFile(code->library, std::move(buffer)))
    fail(ErrorKind::Unsupported, "cpu code generator: linking {}: {}", symbol,
         words_of(std::move(error)));
  code->entry =
      take(jit_->lookup(code->library, symbol), "linking", ErrorKind::Unsupported).toPtr<void*>();
  if (times != nullptr)
    times->link = seconds_since(start);
  return code;
}

std::string LlvmGenerator::text(std::string_view bytes, bool assembly) {
  Borrowed borrowed(*this);
  llvm::LLVMContext context;
  const kernel::KernelProgram program = kernel::program_of_bytes(bytes);
  const StatementLines lines = statement_lines(program);
  const auto module = build(context, *borrowed.machine, program, &lines).module;
  optimize(*module, *borrowed.machine, isa_);
  if (!assembly)
    return text_with_lines(*module);
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  ensure(!borrowed.machine->addPassesToEmitFile(passes, stream, nullptr,
                                                llvm::CodeGenFileType::AssemblyFile),
         "this target cannot write assembly");
  passes.run(*module);
  return assembly_with_lines(buffer.str().str());
}

std::string llvm_version() {
  unsigned major = 0, minor = 0, patch = 0;
  LLVMGetVersion(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

HostCpu host_cpu() {
  HostCpu cpu;
  cpu.name = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    cpu.features.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(cpu.features.begin(), cpu.features.end());
  cpu.x86 = llvm::Triple(llvm::sys::getProcessTriple()).isX86();
  return cpu;
}

std::unique_ptr<CodeGenerator> open(const Isa& isa, std::span<const LibraryFunction> functions) {
  return std::make_unique<LlvmGenerator>(isa, functions);
}

} // namespace
} // namespace egret::backend::cpu

extern "C" const egret::backend::cpu::CodeGeneratorLibrary* egret_code_generator() {
  using namespace egret::backend::cpu;
  static constexpr CodeGeneratorLibrary library{EGRET_CPU_CODE_VERSION, llvm_version, host_cpu,
                                                open};
  return &library;
}
