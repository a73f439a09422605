#include "kernel/splice.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// The names of one program as those of another.
class Renaming {
public:
  std::vector<int> buffers;        ///< by buffer
  const std::vector<int>& scalars; ///< by scalar
  int values, variables, loops;    ///< what is added to numbers

  Expr expr(const Expr& e) const {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (v.is_axis())
        return Expr::axis(v.axis_number() + loops, expr(v.node().operands[0]));
      if (auto id = value_of(v))
        return value_symbol(*id + values);
      return std::nullopt;
    });
  }

  Block block(const Block& statements) const {
    Block out;
    for (const Stmt& s : statements)
      out.push_back(statement(s));
    return out;
  }

  /// One more than the largest number of a loop.
  static int loops_of(const Block& statements) {
    int most = 0;
    for (const Stmt& s : statements) {
      if (s.kind == StmtKind::For)
        most = std::max(most, s.number + 1);
      most = std::max({most, loops_of(s.body), loops_of(s.otherwise)});
    }
    return most;
  }

private:
  Guard guard(const Guard& g) const { return {expr(g.value), expr(g.lo), expr(g.hi)}; }

  int buffer(int b) const { return b < 0 ? b : buffers.at(static_cast<std::size_t>(b)); }

  Inst inst(Inst i) const {
    i.expr = expr(i.expr);
    i.source_expr = expr(i.source_expr);
    for (Expr& e : i.at)
      e = expr(e);
    for (Guard& g : i.mask)
      g = guard(g);
    i.buffer = buffer(i.buffer);
    i.source = buffer(i.source);
    for (ValueId& v : i.args)
      v += values;
    if (i.kind == InstKind::ReadVar)
      i.number += variables;
    if (i.kind == InstKind::Scalar)
      i.number = scalars.at(static_cast<std::size_t>(i.number));
    return i;
  }

  Stmt statement(Stmt s) const {
    s.inst = inst(std::move(s.inst));
    for (ValueId& v : s.args)
      v += values;
    for (VarId& v : s.variables)
      v += variables;
    if (s.kind == StmtKind::Let)
      s.target += values;
    if (s.kind == StmtKind::Set)
      s.target += variables;
    if (s.kind == StmtKind::For)
      s.number += loops;
    for (Expr* e : {&s.extent, &s.begin, &s.end, &s.step})
      *e = expr(*e);
    s.body = block(s.body);
    s.otherwise = block(s.otherwise);
    return s;
  }
};

} // namespace

Block Splice::add(const KernelProgram& program, const std::vector<int>& arguments,
                  const std::vector<int>& scalars) {
  ensure(program.tensor_maps.empty(), "kernel {}: a program with tensor maps is not spliced",
         program.name);
  Renaming names{{},
                 scalars,
                 static_cast<int>(program_.values.size()),
                 static_cast<int>(program_.variables.size()),
                 loops_};
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
    if (std::find(program_.dims.begin(), program_.dims.end(), d) == program_.dims.end())
      program_.dims.push_back(d);
  program_.values.insert(program_.values.end(), program.values.begin(), program.values.end());
  program_.variables.insert(program_.variables.end(), program.variables.begin(),
                            program.variables.end());
  loops_ += Renaming::loops_of(program.body);
  program_.uses_barrier |= program.uses_barrier;
  program_.deterministic &= program.deterministic;
  return names.block(program.body);
}

} // namespace egret::kernel
