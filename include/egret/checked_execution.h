// What a run throws whose results are not those of the reference: see set_checked_execution() in
// effort.h. A compiled function is also traced once more at each call: Error(State) tells what it
// no longer records as it did, which is a C++ value that it captures and that has changed
// (compile.h).
#pragma once

#include "egret/error.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace egret {

/// what() names the output, the element that is furthest from its right value in tolerances, both
/// values, and the rule, region or kernel that is to blame, where one was found.
class WrongResult : public InternalError {
public:
  WrongResult(const std::string& message, std::size_t output, std::int64_t element,
              std::string culprit)
      : InternalError(message), output_(output), element_(element), culprit_(std::move(culprit)) {}
  std::size_t output() const noexcept { return output_; }    ///< of the graph
  std::int64_t element() const noexcept { return element_; } ///< in row-major order
  /// "rule NAME makes the result wrong" and the like; empty when it was not found.
  const std::string& culprit() const noexcept { return culprit_; }

private:
  std::size_t output_;
  std::int64_t element_;
  std::string culprit_;
};

} // namespace egret
