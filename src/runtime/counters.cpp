#include "egret/counters.h"

#include "runtime/count.h"
#include "runtime/runtime.h"

#include <fmt/format.h>

namespace egret {
namespace runtime {

Counts& count() noexcept {
  static Counts counts;
  return counts;
}

} // namespace runtime

namespace {

// The sums, which subtract; the states (bytes in use ...) are the newer ones.
constexpr std::uint64_t Counters::*kSums[] = {
    &Counters::ops_recorded,       &Counters::kernels_launched,   &Counters::submissions,
    &Counters::bytes_read,         &Counters::bytes_written,      &Counters::graphs_traced,
    &Counters::compiles,           &Counters::kernels_compiled,   &Counters::plan_hits,
    &Counters::plan_misses,        &Counters::plans_evicted,      &Counters::device_allocations,
    &Counters::pool_allocations,   &Counters::host_copies,        &Counters::candidates_tried,
    &Counters::measurements,       &Counters::choices_remembered, &Counters::search_microseconds,
    &Counters::kernels_loaded,     &Counters::derived_fills,      &Counters::kernels_refused,
    &Counters::plan_symbolic_hits, &Counters::plan_explorations,  &Counters::plan_specializations,
    &Counters::plans_triggered,
};

} // namespace

Counters counters() {
  const auto& c = runtime::count();
  Counters now;
  now.ops_recorded = c.ops_recorded.get();
  now.kernels_launched = c.kernels_launched.get();
  now.submissions = c.submissions.get();
  now.bytes_read = c.bytes_read.get();
  now.bytes_written = c.bytes_written.get();
  now.graphs_traced = c.graphs_traced.get();
  now.compiles = c.compiles.get();
  now.kernels_compiled = c.kernels_compiled.get();
  now.kernels_loaded = c.kernels_loaded.get();
  now.kernels_refused = c.kernels_refused.get();
  now.candidates_tried = c.candidates_tried.get();
  now.measurements = c.measurements.get();
  now.choices_remembered = c.choices_remembered.get();
  now.search_microseconds = c.search_microseconds.get();
  now.derived_fills = c.derived_fills.get();
  now.plan_hits = c.plan_hits.get();
  now.plan_symbolic_hits = c.plan_symbolic_hits.get();
  now.plan_explorations = c.plan_explorations.get();
  now.plan_specializations = c.plan_specializations.get();
  now.plans_triggered = c.plans_triggered.get();
  now.plan_misses = c.plan_misses.get();
  now.plans_evicted = c.plans_evicted.get();
  now.device_allocations = c.device_allocations.get();
  now.pool_allocations = c.pool_allocations.get();
  now.host_copies = c.host_copies.get();
  now.bytes_in_use = c.in_use();
  now.bytes_reserved = c.bytes_reserved.get();
  now.peak_bytes = c.peak();
  now.plans = c.plans.get();
  now.plan_bytes = c.plan_bytes.get();
  return now;
}

void set_plan_memory(std::size_t bytes) {
  runtime::Runtime::instance().set_plan_memory(bytes);
}

void reset_peak_bytes() {
  runtime::count().reset_peak();
}

Counters operator-(const Counters& after, const Counters& before) {
  Counters difference = after;
  for (auto field : kSums)
    difference.*field -= before.*field;
  return difference;
}

std::string Counters::text() const {
  return fmt::format(
      "ops recorded       {}\nkernels launched   {}\nsubmissions        {}\nbytes read         {}\n"
      "bytes written      {}\ngraphs traced      {}\ncompiles           {}\n"
      "kernels compiled   {}\nkernels loaded     {}\nkernels refused    {}\ncandidates tried   "
      "{}\nmeasurements       {}\n"
      "choices remembered {}\nsearch us          {}\nderived fills      {}\nplan hits          "
      "{}\nsymbolic hits      {}\nexplorations       {}\nspecializations    {}\ntriggered          "
      "{}\nplan misses        "
      "{}\n"
      "plans evicted      {}\ndevice allocations {}\npool allocations   {}\n"
      "host copies        {}\nbytes in use       {}\nbytes reserved     {}\n"
      "peak bytes         {}\nplans              {}\nplan bytes         {}\n",
      ops_recorded, kernels_launched, submissions, bytes_read, bytes_written, graphs_traced,
      compiles, kernels_compiled, kernels_loaded, kernels_refused, candidates_tried, measurements,
      choices_remembered, search_microseconds, derived_fills, plan_hits, plan_symbolic_hits,
      plan_explorations, plan_specializations, plans_triggered, plan_misses, plans_evicted,
      device_allocations, pool_allocations, host_copies, bytes_in_use, bytes_reserved, peak_bytes,
      plans, plan_bytes);
}

} // namespace egret
