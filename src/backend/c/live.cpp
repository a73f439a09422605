#include "backend/c/live.h"

namespace egret::backend::c {

namespace {

using kernel::Block;
using kernel::Inst;
using kernel::ValueId;

// Uses stand behind what they use, so one walk from the end finds the values; a variable may be
// read by the next iteration, so walks are repeated until no more variables are found.
class Walk {
public:
  explicit Walk(const kernel::KernelProgram& program) : program_(program) {
    live_.values.assign(program.values.size(), false);
    live_.variables.assign(program.variables.size(), false);
  }

  Live run() {
    do {
      again_ = false;
      block(program_.body);
    } while (again_);
    return std::move(live_);
  }

private:
  void value(ValueId id) { live_.values[static_cast<std::size_t>(id)] = true; }
  void expr(const Expr& e) {
    for (const Expr& v : variables_of(e))
      if (const auto id = kernel::value_of(v))
        value(*id);
  }
  void mask(const std::vector<Guard>& guards) {
    for (const Guard& g : guards) {
      expr(g.value);
      expr(g.lo);
      expr(g.hi);
    }
  }

  void block(const Block& stmts) {
    for (auto stmt = stmts.rbegin(); stmt != stmts.rend(); ++stmt)
      statement(*stmt);
  }

  void statement(const kernel::Stmt& stmt) {
    std::visit(overloaded{[&](const kernel::Let& x) {
                            if (live_.values[static_cast<std::size_t>(x.target)])
                              instruction(x.inst);
                          },
                          [&](const kernel::Assign& x) {
                            if (live_.variables[static_cast<std::size_t>(x.variable)])
                              value(x.value);
                          },
                          [&](const kernel::Store& x) {
                            value(x.value);
                            expr(x.to.index);
                            mask(x.mask);
                          },
                          [&](const kernel::For& x) {
                            block(x.body);
                            expr(x.begin);
                            expr(x.end);
                            expr(x.step);
                          },
                          [&](const kernel::If& x) {
                            block(x.otherwise);
                            block(x.body);
                            mask(x.condition);
                          },
                          [](const kernel::Barrier&) {}, [](const kernel::Intrinsic&) {},
                          [&](const kernel::Acquire& x) { block(x.body); },
                          [&](const kernel::InProblem& x) {
                            block(x.body);
                            expr(x.item);
                          }},
               stmt.node);
  }

  void instruction(const Inst& inst) {
    using namespace kernel::inst;
    const auto all = [&](const auto& args) {
      for (ValueId id : args)
        value(id);
    };
    std::visit(overloaded{[](const Constant&) {}, [](const Argument&) {},
                          [&](const Index& x) { expr(x.expr); },
                          [&](const Apply& x) { all(x.args); }, [&](const Fma& x) { all(x.args); },
                          [&](const Load& x) {
                            expr(x.from.index);
                            mask(x.mask);
                          },
                          [&](const Read& x) {
                            const auto v = static_cast<std::size_t>(x.variable);
                            again_ = again_ || !live_.variables[v];
                            live_.variables[v] = true;
                          },
                          [&](const Splat& x) { value(x.value); },
                          [&](const Extract& x) { value(x.value); },
                          [&](const ReduceLanes& x) { value(x.value); },
                          [&](const Shuffle& x) {
                            const int first =
                                program_.values[static_cast<std::size_t>(x.args.at(0))].lanes;
                            for (int from : x.lanes_from)
                              value(from < first ? x.args[0] : x.args.at(1));
                          },
                          [&](const Test& x) { mask(x.mask); }, [](const kernel::Intrinsic&) {}},
               inst.op);
  }

  const kernel::KernelProgram& program_;
  Live live_;
  bool again_ = false;
};

} // namespace

Live live_in(const kernel::KernelProgram& program) {
  return Walk(program).run();
}

} // namespace egret::backend::c
