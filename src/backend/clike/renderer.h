// What renderers of C-like languages share: text by lines, the walk over statements, index
// expressions, the names of things. A value v is `v<number>`, a loop variable `i<number>`, a buffer
// `b<number>`, a dim `d<number>`, a variable `r<number>`.
#pragma once

#include "backend/clike/index_text.h"
#include "backend/clike/language.h"
#include "kernel/program.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

namespace egret::backend::clike {

class Renderer {
public:
  virtual ~Renderer() = default;

protected:
  /// Both must outlive this.
  Renderer(const kernel::KernelProgram& program, const Language& language);

  void block(const kernel::Block& stmts);
  /// At the beginning of a block that may not be run.
  virtual void enter_branch(const kernel::Block& /*body*/) {}

  // Statements, by kind.
  virtual void let(kernel::ValueId target, const kernel::Inst& inst) = 0;
  virtual void assign(const kernel::Assign& stmt) = 0;
  virtual void store(const kernel::Store& stmt) = 0;
  virtual void loop(const kernel::For& stmt) = 0;
  virtual void barrier() = 0;
  virtual void intrinsic(const kernel::Intrinsic& use) = 0;
  virtual void acquire(const kernel::Acquire& stmt) = 0;

  /// Declares a constant array of integers and returns its name.
  virtual std::string table(const char* type, const std::vector<std::string>& values) = 0;
  /// The pointer of the argument whose number is the text `number`.
  virtual std::string argument_pointer(const kernel::Buffer& buffer,
                                       const std::string& number) const = 0;

  /// The number of a scalar of the argument block, as text.
  std::string scalar_number(const kernel::inst::Argument& x) const;

  /// The text of a lane of a value that was made; kEachLane where it is in a loop over the lanes.
  virtual std::string lane_text(kernel::ValueId id, int lane) const = 0;

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  void open(const std::string& head) {
    line("{} {{", head);
    ++depth_;
  }
  void otherwise() {
    --depth_;
    line("}} else {{");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}}");
  }

  DType dtype_of(kernel::ValueId id) const {
    return program_.values[static_cast<std::size_t>(id)].dtype;
  }

  const kernel::KernelProgram& program_;
  const Language& language_;
  IndexText index_;
  std::string out_;
  int depth_ = 1;
  int names_ = 0; ///< of helper variables

private:
  void statement(const kernel::Stmt& stmt);
  void condition(const kernel::If& stmt);
  void problem(const kernel::InProblem& stmt);
  /// An integer that has another value in each problem, for the problem whose number has the name
  /// `problem`.
  std::string by_problem(const std::vector<std::int64_t>& values, const std::string& problem);

  std::vector<std::string> problem_scalars_; ///< within a problem: numbers of its scalars
};

/// The name of the program's function: an identifier made from its name and hash.
std::string kernel_symbol(const kernel::KernelProgram& program);

/// A name that came from outside, as it may stand in a comment of one line.
std::string comment_text(std::string_view name);

/// A piece of the text that goes before a kernel.
struct Piece {
  std::string_view names; ///< separated by blanks; the text is needed when one of them is used
  std::string_view text;  ///< may use pieces before it; a line break at its start is left out
};
/// Those pieces that `text` and they themselves use, in their order.
std::string prelude_for(const std::string& text, std::span<const Piece> pieces);

} // namespace egret::backend::clike
