#include "kernel/splice.h"

#include "kernel/program_fields.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// The names of one program as those of another.
class Renaming : public FieldVisitor<Renaming> {
public:
  Renaming(const std::vector<int>& new_scalars, const KernelProgram& into, int first_loop)
      : scalars(new_scalars), values(static_cast<int>(into.values.size())),
        variables(static_cast<int>(into.variables.size())), loops(first_loop) {}

  std::vector<int> buffers;        ///< by buffer
  const std::vector<int>& scalars; ///< by scalar
  int values, variables, loops;    ///< what is added to numbers

  void visit(Expr& e) const { e = expr(e); }
  void id(IdKind kind, int& number) const {
    switch (kind) {
    case IdKind::Value:
      number += values;
      break;
    case IdKind::Variable:
      number += variables;
      break;
    case IdKind::Loop:
      number += loops;
      break;
    case IdKind::Buffer:
      number = number < 0 ? number : buffers.at(static_cast<std::size_t>(number));
      break;
    case IdKind::Scalar:
      number = scalars.at(static_cast<std::size_t>(number));
      break;
    }
  }

private:
  Expr expr(const Expr& e) const {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (v.is_axis())
        return Expr::axis(v.axis_number() + loops, expr(v.node().operands[0]));
      if (auto id = value_of(v))
        return value_symbol(*id + values);
      return std::nullopt;
    });
  }
};

/// One more than the largest number of a loop.
int loops_of(const Block& statements) {
  int most = 0;
  each_statement(statements, [&](const Stmt& s) {
    if (const auto* loop = get_if<For>(s))
      most = std::max(most, loop->number + 1);
  });
  return most;
}

} // namespace

Block Splice::add(const KernelProgram& program, const std::vector<int>& arguments,
                  const std::vector<int>& scalars, const std::vector<Expr>& sizes) {
  ensure(program.tensor_maps.empty() && program.groups.empty(),
         "kernel {}: a program with tensor maps or groups is not spliced", program.name);
  Renaming names(scalars, program_, loops_);
  for (const Buffer& b : program.buffers) {
    if (b.space == Space::Argument) {
      names.buffers.push_back(arguments.at(static_cast<std::size_t>(b.argument)));
      Buffer& own = program_.buffers[static_cast<std::size_t>(names.buffers.back())];
      own.read |= b.read;
      own.written |= b.written;
      own.aliased |= b.aliased;
      own.alignment = std::max(own.alignment, b.alignment);
      continue;
    }
    names.buffers.push_back(static_cast<int>(program_.buffers.size()));
    program_.buffers.push_back(b);
  }
  for (const Expr& d : program.dims)
    if (std::find(program_.dims.begin(), program_.dims.end(), d) == program_.dims.end() &&
        std::find(sizes.begin(), sizes.end(), d) == sizes.end())
      program_.dims.push_back(d);
  program_.values.insert(program_.values.end(), program.values.begin(), program.values.end());
  program_.variables.insert(program_.variables.end(), program.variables.begin(),
                            program.variables.end());
  loops_ += loops_of(program.body);
  program_.uses_barrier |= program.uses_barrier;
  program_.deterministic &= program.deterministic;
  Block body = program.body;
  names(body);
  return body;
}

} // namespace egret::kernel
