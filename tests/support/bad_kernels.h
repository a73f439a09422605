// Trials of a kernel that is right, and ways to spoil it.
#pragma once

#include "backend/reference/random_inputs.h"
#include "compiler/candidate_measurement.h"
#include "kernel/generator.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <cstdlib>
#include <functional>
#include <string>

namespace egret::testing {

/// Processes started from here on end by the signal of a fault, also where a sanitizer would turn
/// it into an exit code.
inline void let_children_crash() {
  for (const char* const variable : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* before = std::getenv(variable);
    const std::string options = before ? std::string(before) + ":handle_segv=0" : "handle_segv=0";
    setenv(variable, options.c_str(), 1);
  }
}

/// y = tanh(x + w) over 1000 elements, as the target's first generator makes it.
inline compiler::CandidateMeasurement good_trial(const kernel::Target& target) {
  ir::Graph g;
  const Shape shape{Expr(1000)};
  const ir::NodeId x = g.input("x", DType::F32, shape), w = g.input("w", DType::F32, shape);
  g.outputs = {g.add(Op::Tanh, std::vector<ir::NodeId>{g.binary(Op::Add, x, w)})};
  const auto inputs = random_inputs(g, 1);
  auto cases = region_cases(g, inputs);
  compiler::CandidateMeasurement trial;
  trial.program = kernel::lower_greedily(cases.at(0).region, target).program;
  trial.program.name = "victim";
  trial.region = std::move(cases[0].region);
  trial.sizes = cases[0].dims;
  return trial;
}

/// Calls `change` with every application of an operation.
inline void each_apply(kernel::Block& block,
                       const std::function<void(kernel::inst::Apply&)>& change) {
  each_statement(block, [&](kernel::Stmt& s) {
    if (auto* apply = kernel::made_by<kernel::inst::Apply>(s))
      change(*apply);
  });
}
/// Makes every application of one operation one of another.
inline void replace_op(kernel::Block& block, Op from, Op to) {
  each_apply(block, [&](kernel::inst::Apply& apply) {
    if (apply.op == from)
      apply.op = to;
  });
}

/// Subtracts where it should add.
inline void spoil_values(compiler::CandidateMeasurement& trial) {
  replace_op(trial.program.body, Op::Add, Op::Mul);
}
/// Stores far away from its buffer.
inline void spoil_stores(compiler::CandidateMeasurement& trial, std::int64_t elements) {
  each_statement(trial.program.body, [&](kernel::Stmt& s) {
    if (auto* store = kernel::get_if<kernel::Store>(s))
      store->to.index = store->to.index + Expr(elements);
  });
}
/// Does its work over and over, for longer than anybody waits.
inline void spoil_loops(compiler::CandidateMeasurement& trial) {
  constexpr std::int64_t kEver = std::int64_t{1} << 40;
  kernel::For again;
  again.number = 1000;
  again.extent = again.end = Expr(kEver);
  again.step = Expr(1);
  again.body = std::move(trial.program.body);
  trial.program.body.clear();
  trial.program.body.push_back(std::move(again));
}

} // namespace egret::testing
