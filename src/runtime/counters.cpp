#include "egret/counters.h"

#include "runtime/count.h"
#include "runtime/runtime.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace egret {
namespace runtime {

namespace {

struct alignas(64) Line {
  Counts counts;
  std::atomic<bool> taken{false}; ///< by a thread that lives
};
constexpr std::size_t kLines = 16;

// The first one is that of threads that find all others taken.
std::array<Line, kLines>& lines() noexcept {
  static std::array<Line, kLines> all;
  return all;
}

[[gnu::tls_model("initial-exec")]] constinit thread_local Line* own_line = nullptr;

// When the thread ends: what it still counts, it counts with others.
struct LineReturn {
  ~LineReturn() {
    Line* const line = std::exchange(own_line, &lines()[0]);
    line->taken.store(false, std::memory_order_release);
  }
};

[[gnu::noinline]] Line& take_line() noexcept {
  own_line = &lines()[0];
  for (std::size_t i = 1; i < kLines && own_line == &lines()[0]; ++i)
    if (!lines()[i].taken.exchange(true, std::memory_order_acquire))
      own_line = &lines()[i];
  if (own_line != &lines()[0]) {
    thread_local const LineReturn at_end;
    static_cast<void>(at_end);
  }
  return *own_line;
}

} // namespace

Counts& count() noexcept {
  return own_line ? own_line->counts : take_line().counts;
}

void count_operation() noexcept {
  Counts& own = count();
  if (own_line != &lines()[0])
    own.ops_recorded.add_alone(1);
  else
    own.ops_recorded.add(1);
}

std::uint64_t sum_of(Count Counts::*number) noexcept {
  std::uint64_t sum = 0; // a part may be below zero, modulo 2^64, where another one is above
  for (const Line& line : lines())
    sum += (line.counts.*number).get();
  return sum;
}

Levels& levels() noexcept {
  static Levels all;
  return all;
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
  using runtime::Counts;
  const auto& levels = runtime::levels();
  Counters now;
  now.ops_recorded = sum_of(&Counts::ops_recorded);
  now.kernels_launched = sum_of(&Counts::kernels_launched);
  now.submissions = sum_of(&Counts::submissions);
  now.bytes_read = sum_of(&Counts::bytes_read);
  now.bytes_written = sum_of(&Counts::bytes_written);
  now.graphs_traced = sum_of(&Counts::graphs_traced);
  now.compiles = sum_of(&Counts::compiles);
  now.kernels_compiled = sum_of(&Counts::kernels_compiled);
  now.kernels_loaded = sum_of(&Counts::kernels_loaded);
  now.kernels_refused = sum_of(&Counts::kernels_refused);
  now.candidates_tried = sum_of(&Counts::candidates_tried);
  now.measurements = sum_of(&Counts::measurements);
  now.choices_remembered = sum_of(&Counts::choices_remembered);
  now.search_microseconds = sum_of(&Counts::search_microseconds);
  now.derived_fills = sum_of(&Counts::derived_fills);
  now.plan_hits = sum_of(&Counts::plan_hits);
  now.plan_symbolic_hits = sum_of(&Counts::plan_symbolic_hits);
  now.plan_explorations = sum_of(&Counts::plan_explorations);
  now.plan_specializations = sum_of(&Counts::plan_specializations);
  now.plans_triggered = sum_of(&Counts::plans_triggered);
  now.plan_misses = sum_of(&Counts::plan_misses);
  now.plans_evicted = sum_of(&Counts::plans_evicted);
  now.device_allocations = sum_of(&Counts::device_allocations);
  now.pool_allocations = sum_of(&Counts::pool_allocations);
  now.host_copies = sum_of(&Counts::host_copies);
  now.bytes_in_use = levels.in_use();
  now.bytes_reserved = sum_of(&Counts::bytes_reserved);
  now.peak_bytes = levels.peak();
  now.plans = levels.plans.get();
  now.plan_bytes = levels.plan_bytes.get();
  return now;
}

void set_plan_memory(std::size_t bytes) {
  runtime::Runtime::instance().set_plan_memory(bytes);
}

void reset_peak_bytes() {
  runtime::levels().reset_peak();
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
