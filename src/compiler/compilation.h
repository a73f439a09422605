// A program on its way through the passes of the pipeline (pipeline.h).
#pragma once

#include "backend/common/device.h"
#include "compiler/candidate_graph.h"
#include "compiler/chunks.h"
#include "compiler/fold_parameters.h"
#include "compiler/generate_code.h"
#include "compiler/kernel_cache.h"
#include "compiler/layout_assignment.h"
#include "compiler/options.h"
#include "compiler/partitioned.h"
#include "compiler/plan_builder.h"
#include "compiler/proposer.h"
#include "compiler/report.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::saturate {
class Saturated;
}

namespace egret::compiler {

/// Each pass reads what the caller gave and what passes before it made, and writes its own part.
struct Compilation {
  Compilation(const Options& asked, const kernel::Target& of) : options(asked), target(of) {}

  // Given.
  Options options;
  kernel::Target target;
  backend::Device* device = nullptr;      ///< for `generate-code`
  KernelCache* cache = nullptr;           ///< likewise
  Proposer* proposer = nullptr;           ///< for `propose-schedules`
  double search_seconds = 0;              ///< of that pass, with an effort that measures
  std::optional<ProductSplit> split;      ///< for `split-products`
  std::vector<PassTime>* times = nullptr; ///< where seconds of passes are added up; null: nowhere
  std::string fusion_plan;                ///< its name, for Options::after_pass

  // Passes on graphs: the program's, later one candidate's.
  ir::Graph graph;
  std::optional<ParameterFolding> folded;
  std::shared_ptr<saturate::Saturated> saturated;
  std::size_t ops_before_rules = 0, ops_before_normal_form = 0;
  std::vector<ir::Graph> extracted; ///< the cheapest graphs that rules found, the best one first
  std::shared_ptr<const CandidateGraph> candidate;

  // Passes on one fusion plan of the candidate.
  PartitionChoices choices;
  std::shared_ptr<const LayoutAssignment>
      layouts; ///< where values are in other layouts; null: nowhere
  Partitioned parts;

  // Passes on the regions' kernels.
  Proposed proposed;
  std::vector<ClaimedKernel> claimed;
  std::optional<BuiltPlan> planned;
  std::optional<OverLimit> over_limit; ///< of memory: there is no plan, and no pass runs any more
  GeneratedCode code;
  std::vector<Chain> chains;
  bool chain_refused = false; ///< no launches are chained any more
};

} // namespace egret::compiler
