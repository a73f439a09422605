// What saturation may do, and what it did.
#pragma once

#include "saturate/rules.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace egret::saturate {

struct SaturateOptions {
  Tags allowed{Tag::Exact};         ///< groups with other tags are left out
  std::vector<std::string> groups;  ///< only these; empty: all that are allowed. Error(Value) names
                                    ///< one that does not exist
  std::vector<std::string> without; ///< rules, or the groups `pull` and `fold`, that are left out
  double seconds = 10;              ///< when time is up, what was found by then is used; long, so
                                    ///< that rows and rounds decide, on a busy machine too
  std::uint64_t rows = 400000;      ///< of all tables of the e-graph; likewise
  std::uint64_t rounds = 12;        ///< of all groups in order
  std::uint64_t shuffle = 0;        ///< not 0: load rules in an order drawn with this seed
  std::vector<RuleFile> files;      ///< beside the built-in ones
};

/// Equal for equal options, for keys of what was compiled with them.
std::uint64_t hash_of(const SaturateOptions& options);

struct RuleUse {
  std::string rule, group;
  Tag tag = Tag::Exact;
  std::uint64_t fired = 0;      ///< matches acted on
  std::uint64_t rows_added = 0; ///< e-nodes and facts that were new
  double seconds = 0;           ///< matching and acting
  double idle_seconds = 0;      ///< matching in rounds in which it found nothing
};

struct SaturateReport {
  std::size_t classes = 0, nodes = 0; ///< e-classes and e-nodes at the end
  std::uint64_t rounds = 0;
  bool saturated = false; ///< no rule had anything to add
  std::string stopped;    ///< why, where not: "rounds", "rows", "time"
  double load_seconds = 0, run_seconds = 0;
  double zero_match_share = 0; ///< share of matching time in which rules found nothing
  std::vector<RuleUse>
      rules; ///< that fired, most often first; rules that only compute analyses are left out
};

} // namespace egret::saturate
