#include "backend/cpu_codegen/lines.h"

#include "support/overloaded.h"

#include <llvm/IR/AssemblyAnnotationWriter.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/FormattedStream.h>
#include <llvm/Support/raw_ostream.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace egret::backend::cpu {

namespace {

/// Numbers the lines that kernel::print() writes for blocks of statements.
class LineCounter {
public:
  explicit LineCounter(StatementLines& lines) : lines_(lines) {}

  void block(const kernel::Block& statements) {
    for (const kernel::Stmt& statement : statements) {
      lines_.emplace(&statement, ++count);
      std::visit(overloaded{[&](const kernel::For& x) { block(x.body); },
                            [&](const kernel::If& x) {
                              block(x.body);
                              if (x.otherwise.empty())
                                return;
                              ++count; // else
                              block(x.otherwise);
                            },
                            [&](const kernel::Acquire& x) { block(x.body); },
                            [&](const kernel::InProblem& x) { block(x.body); }, [](const auto&) {}},
                 statement.node);
    }
  }

  unsigned count = 0;

private:
  StatementLines& lines_;
};

/// How lines begin that are there only because of debug information.
constexpr const char* kOfDebugInformation[] = {"\t.file\t1 ", "\t.cfi_", ".Ltmp", ".Lfunc_begin"};

class LineWriter final : public llvm::AssemblyAnnotationWriter {
public:
  explicit LineWriter(std::unordered_map<const llvm::Value*, unsigned> lines)
      : lines_(std::move(lines)) {}
  void printInfoComment(const llvm::Value& value, llvm::formatted_raw_ostream& out) override {
    if (const auto found = lines_.find(&value); found != lines_.end())
      out << "  ; line " << found->second;
  }

private:
  std::unordered_map<const llvm::Value*, unsigned> lines_;
};

} // namespace

StatementLines statement_lines(const kernel::KernelProgram& program) {
  StatementLines lines;
  LineCounter counter(lines);
  counter.block(program.body);
  const std::string text = kernel::print(program); // what stands above the body
  const auto all = static_cast<unsigned>(std::count(text.begin(), text.end(), '\n'));
  for (auto& [statement, line] : lines)
    line += all - counter.count;
  return lines;
}

std::string text_with_lines(llvm::Module& module) {
  std::unordered_map<const llvm::Value*, unsigned> lines;
  for (const llvm::Function& function : module)
    for (const llvm::Instruction& instruction : llvm::instructions(function))
      if (const llvm::DebugLoc& at = instruction.getDebugLoc(); at && at.getLine() > 0)
        lines.emplace(&instruction, at.getLine());
  llvm::StripDebugInfo(module);
  LineWriter writer(std::move(lines));
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, &writer);
  return text;
}

std::string assembly_with_lines(const std::string& assembly) {
  std::string text;
  unsigned line = 0;
  for (std::size_t at = 0; at < assembly.size();) {
    const std::size_t end = std::min(assembly.find('\n', at), assembly.size());
    const std::string one = assembly.substr(at, end - at);
    at = end + 1;
    unsigned file = 0;
    if (std::sscanf(one.c_str(), "\t.loc\t%u %u", &file, &line) == 2)
      continue;
    if (std::ranges::any_of(kOfDebugInformation,
                            [&](const char* start) { return one.starts_with(start); }))
      continue;
    const bool instruction = one.size() > 1 && one[0] == '\t' && one[1] != '.';
    text += instruction && line > 0 ? fmt::format("{}  # line {}\n", one, line) : one + '\n';
  }
  return text;
}

} // namespace egret::backend::cpu
