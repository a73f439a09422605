#include "compiler/refusals.h"

#include "support/fail.h"
#include "support/printable.h"

#include <cstdlib>
#include <string_view>

namespace egret::compiler {

bool strict_by_environment() {
  const char* text = std::getenv("EGRET_STRICT");
  if (!text || !*text || std::string_view(text) == "0")
    return false;
  if (std::string_view(text) != "1")
    fail(ErrorKind::Value, "EGRET_STRICT: `{}` is neither 0 nor 1", printable(text));
  return true;
}

std::optional<std::string> refusal_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InternalError& e) {
    return e.what();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Unsupported)
      return e.what();
  } catch (...) {
  }
  return std::nullopt;
}

Refusals::Refusals(const kernel::Target& target, bool strict) : target_(target), strict_(strict) {}

std::string Refusals::check(const std::exception_ptr& why) const {
  const std::optional<std::string> reason = refusal_of(why);
  if (!reason || strict_)
    std::rethrow_exception(why);
  return *reason;
}

void Refusals::note_failed(const std::string& kernel,
                           const std::vector<kernel::FailedLowering>& failed,
                           const std::string& instead) {
  for (const kernel::FailedLowering& f : failed) {
    ensure(!strict_, "kernel {}: {} does not lower: {}", kernel, f.schedule, f.reason);
    list.push_back({kernel, f.schedule, f.reason, instead});
  }
}

kernel::Chosen Refusals::lower_greedily(const kernel::Region& region) {
  std::vector<kernel::FailedLowering> failed;
  kernel::Chosen chosen = kernel::lower_greedily(region, target_, &failed);
  note_failed(region.name, failed, kernel::to_string(chosen.schedule));
  return chosen;
}

void Refusals::note(const SearchReport& search) {
  for (const RegionSearch& r : search.regions) {
    note_failed(r.name, r.failed, r.chosen);
    if (r.candidates.empty() || !r.candidates[0].rejected())
      continue;
    const CandidateReport& first = r.candidates[0];
    ensure(!strict_, "kernel {}: the first schedule, {}, is rejected ({}): {}", r.name,
           first.schedule, first.state, first.message);
    list.push_back({r.name, first.schedule, first.state + ": " + first.message, r.chosen});
  }
}

kernel::Chosen Refusals::replace(const kernel::Region& region, const kernel::Schedule& schedule,
                                 std::uint64_t program, const std::exception_ptr& why) {
  std::string reason = check(why);
  programs_.insert(program);
  const std::uint64_t key = kernel::hash_of(region);
  const auto untried = [&](const kernel::Schedule& other) {
    return tried_.emplace(key, kernel::to_string(other)).second;
  };
  untried(schedule);
  std::optional<kernel::Chosen> next = kernel::lower_next(
      region, target_, schedule.generator, untried, [&](kernel::Chosen& candidate) {
        candidate.program.name = region.name;
        try {
          kernel::verify(candidate.program);
        } catch (const InternalError&) {
          return false;
        }
        return !refused(kernel::hash_of(candidate.program));
      });
  if (!next)
    std::rethrow_exception(why);
  list.push_back({region.name, kernel::to_string(schedule), std::move(reason),
                  kernel::to_string(next->schedule)});
  return std::move(*next);
}

void Refusals::drop(const std::string& kernel, const kernel::Schedule& schedule,
                    std::uint64_t program, const kernel::Schedule& instead,
                    const std::exception_ptr& why) {
  std::string reason = check(why);
  programs_.insert(program);
  list.push_back(
      {kernel, kernel::to_string(schedule), std::move(reason), kernel::to_string(instead)});
}

} // namespace egret::compiler
