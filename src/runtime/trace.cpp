#include "runtime/trace.h"

#include "egret/profile.h"
#include "support/call_sites.h"
#include "support/output_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace egret {

namespace runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRows[] = {"compiler", "launches", "copies", "ranges"};
constexpr int kRowsPerThread = 4; // of numbers in the trace, so that a thread's rows are neighbours

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

} // namespace

Observer Trace::observer() {
  const auto self = shared_from_this();
  return {.launch =
              [self](const LaunchRecord& launch) {
                const compiler::KernelReport& kernel = launch.kernel;
                self->add({1, 0, kernel.name, launch.begin,
                           seconds_between(launch.begin, launch.end), kernel.ops, kernel.schedule,
                           static_cast<std::size_t>(kernel.bytes_read + kernel.bytes_written),
                           kernel.flops, &kernel});
              },
          .copy =
              [self](const CopyRecord& copy) {
                self->add({2,
                           0,
                           std::string(copy.what),
                           copy.begin,
                           seconds_between(copy.begin, copy.end),
                           {},
                           {},
                           copy.bytes,
                           0});
              },
          .memory =
              [self](const MemoryRecord& memory) {
                self->add(
                    Memory{std::string(memory.device), memory.at, memory.in_use, memory.reserved});
              },
          .pass =
              [self](const compiler::PassEvent& pass) {
                self->add({0,
                           0,
                           std::string(pass.pass),
                           pass.begin,
                           pass.seconds,
                           {},
                           std::string(pass.fusion_plan),
                           0,
                           0});
              },
          .compiled =
              [self](const CompiledRecord& compiled) {
                std::lock_guard lock(self->mutex_);
                self->compiled_.push_back({compiled.program, compiled.origins});
              },
          .range =
              [self](const RangeRecord& range) {
                self->add({3,
                           0,
                           std::string(range.name),
                           range.begin,
                           seconds_between(range.begin, range.end),
                           {},
                           {},
                           0,
                           0});
              }};
}

bool Trace::has_room() {
  if (spans_.size() + memory_.size() < kMostEvents)
    return true;
  ++left_out_;
  return false;
}

int Trace::thread() {
  const std::size_t own = std::hash<std::thread::id>()(std::this_thread::get_id());
  const auto found = std::ranges::find(threads_, own);
  const auto place = static_cast<int>(found - threads_.begin());
  if (found == threads_.end())
    threads_.push_back(own);
  return place + 1;
}

void Trace::add(Span span) {
  std::lock_guard lock(mutex_);
  if (!has_room())
    return;
  span.thread = thread();
  spans_.push_back(std::move(span));
}

void Trace::add(Memory memory) {
  std::lock_guard lock(mutex_);
  if (has_room())
    memory_.push_back(std::move(memory));
}

std::map<const compiler::KernelReport*, std::vector<std::string>> Trace::lines() {
  std::map<const compiler::KernelReport*, std::vector<std::string>> lines;
  for (const Compiled& one : compiled_) {
    const compiler::CompileReport& report = one.program->report();
    const auto origins = one.origins->finished(report);
    for (const compiler::KernelReport& kernel : report.kernels) {
      std::set<std::string> places;
      for (const ir::NodeId node : kernel.nodes)
        places.insert(origins[node].places.begin(), origins[node].places.end());
      lines[&kernel].assign(places.begin(), places.end());
    }
  }
  return lines;
}

std::string Trace::text() {
  std::lock_guard lock(mutex_);
  const auto lines_of = lines();
  TimePoint begin = TimePoint::max();
  for (const Span& span : spans_)
    begin = std::min(begin, span.begin);
  for (const Memory& memory : memory_)
    begin = std::min(begin, memory.at);
  const auto microseconds = [&](TimePoint at) { return 1e6 * seconds_between(begin, at); };

  Json events = Json::array();
  std::set<std::pair<int, int>> rows; // by thread
  for (const Span& span : spans_)
    rows.emplace(span.thread, span.row);
  for (const auto& [thread, row] : rows)
    events.push_back(
        {{"name", "thread_name"},
         {"ph", "M"},
         {"pid", 1},
         {"tid", kRowsPerThread * thread + row},
         {"args",
          {{"name", threads_.size() > 1 ? fmt::format("{}, thread {}", kRows[row], thread)
                                        : std::string(kRows[row])}}}});
  for (const Span& span : spans_) {
    Json about = Json::object();
    if (!span.ops.empty())
      about["ops"] = span.ops;
    if (const auto lines = lines_of.find(span.kernel);
        lines != lines_of.end() && !lines->second.empty())
      about["lines"] = lines->second;
    if (!span.about.empty())
      about[span.row == 0 ? "fusion_plan" : "schedule"] = span.about;
    if (span.bytes > 0) {
      about["bytes"] = span.bytes;
      about["GB/s"] = 1e-9 * static_cast<double>(span.bytes) / span.seconds;
    }
    if (span.flops > 0)
      about["GFLOP/s"] = 1e-9 * span.flops / span.seconds;
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"cat", kRows[span.row]},
                      {"pid", 1},
                      {"tid", kRowsPerThread * span.thread + span.row},
                      {"ts", microseconds(span.begin)},
                      {"dur", 1e6 * span.seconds},
                      {"args", std::move(about)}});
  }
  for (const Memory& memory : memory_)
    events.push_back({{"name", "memory of " + memory.device},
                      {"ph", "C"},
                      {"pid", 1},
                      {"ts", microseconds(memory.at)},
                      {"args",
                       {{"in use", memory.in_use},
                        {"free", memory.reserved - std::min(memory.reserved, memory.in_use)}}}});
  Json document = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}};
  if (left_out_ > 0)
    document["otherData"] = {{"events left out", left_out_}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace runtime

struct Profile::Impl {
  explicit Impl(const std::string& path) : file("profile", path) {}
  std::shared_ptr<runtime::Trace> trace = std::make_shared<runtime::Trace>();
  std::optional<call_sites::Wanted> sites{std::in_place};
  std::optional<runtime::Observing> observing;
  OutputFile file;
  bool closed = false;
};

Profile::Profile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  impl_->observing.emplace(impl_->trace->observer());
}

Profile::~Profile() {
  try {
    close();
  } catch (...) { // who wants to know calls close()
  }
}

void Profile::close() {
  if (std::exchange(impl_->closed, true))
    return;
  impl_->observing.reset();
  impl_->file.write(impl_->trace->text());
  impl_->sites.reset();
  impl_->file.commit();
}

} // namespace egret
