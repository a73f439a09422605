// What makes machine code of kernel programs, apart from the device that runs it: the part of this
// back end that needs LLVM (backend/cpu_codegen), behind an interface that a library of its own can
// fill, so that a process loads LLVM when it opens its first CPU device and not before.
#pragma once

#include "backend/cpu/host.h"
#include "backend/cpu/math_library.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace egret::backend::cpu {

/// Machine code in this process; freed with the object. Its generator must live as long.
class Code {
public:
  virtual ~Code() = default;
  void* entry = nullptr;        ///< address of the function
  std::size_t object_bytes = 0; ///< of the object file that it was linked from
};

/// Where the time of one compilation went, in seconds.
struct CodeTimes {
  double render = 0, optimize = 0, emit = 0, link = 0;
  double total() const { return render + optimize + emit + link; }
};

/// Makes and links code for one instruction set. Safe to use from several threads at once. Programs
/// come as kernel::to_bytes() wrote them: expressions are unique within a library, and so none may
/// pass from one to another.
class CodeGenerator {
public:
  virtual ~CodeGenerator() = default;
  /// The object file of a module with the program's function
  /// `void symbol(const ArgBlock*, i64 worker, i64 workers)`. InternalError when the program breaks
  /// a promise of its form.
  virtual std::string emit(const std::string& symbol, std::string_view program,
                           CodeTimes* times = nullptr) = 0;
  /// Links what emit() made, here or in another process, by itself: several objects may have one
  /// symbol. Error(Unsupported) when it cannot be linked.
  virtual std::unique_ptr<Code> link(const std::string& symbol, std::string_view object,
                                     CodeTimes* times = nullptr) = 0;
  /// The optimized IR or the assembly of the program, for people: instructions that are of a line
  /// of kernel::print()'s text end with "; line N" or "# line N".
  virtual std::string text(std::string_view program, bool assembly) = 0;
};

/// What such a library offers.
struct CodeGeneratorLibrary {
  std::uint64_t sources;         ///< hash of the sources it was built from: source_version()
  std::string (*llvm_version)(); ///< "19.1.7", at run time
  HostCpu (*host_cpu)();
  /// Generated code calls `functions` by name; they must live as long as the code.
  std::unique_ptr<CodeGenerator> (*open)(const Isa& isa,
                                         std::span<const LibraryFunction> functions);
};

/// The one of this process: linked in, or found and loaded at the first call, whose errors are
/// those of load_code_generator().
const CodeGeneratorLibrary& code_generator_library();

/// Loads the first of `files` that exists; one without a slash is one of the working folder.
/// Error(Device) when none does, naming them, and when one cannot be loaded, is no such library, or
/// was built from other sources: `variable`, if any, is what named the files, and is named too.
const CodeGeneratorLibrary& load_code_generator(std::span<const std::string> files,
                                                std::string_view variable = {});

} // namespace egret::backend::cpu

/// The one function that the library shows.
extern "C" const egret::backend::cpu::CodeGeneratorLibrary* egret_code_generator();
