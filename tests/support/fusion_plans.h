// One fusion plan of a graph in normal form, compiled without a search.
#pragma once

#include "compiler/compiled.h"
#include "compiler/describe.h"
#include "compiler/pipeline.h"

namespace egret::testing {

inline compiler::Compiled compile_fusion_plan(const compiler::CandidateGraph& graph,
                                              const compiler::PartitionChoices& choices,
                                              const compiler::Options& options,
                                              backend::Device& device,
                                              compiler::KernelCache& cache) {
  compiler::Compilation c(options, device.target());
  compiler::Proposer proposer(options, c.target);
  c.device = &device;
  c.cache = &cache;
  c.proposer = &proposer;
  c.candidate = {std::shared_ptr<const void>(), &graph};
  c.choices = choices;
  for (const auto phase : {compiler::Phase::Regions, compiler::Phase::Launches,
                           compiler::Phase::Schedules, compiler::Phase::Plan})
    compiler::run_phase(c, phase);
  return compiler::compiled_of(std::move(c));
}

} // namespace egret::testing
