#include "runtime/debug.h"

#include "compiler/compiled.h"
#include "compiler/options.h"
#include "compiler/values/launch_piece.h"
#include "runtime/environment.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace egret::runtime {
namespace {

int level_of_environment() noexcept {
  const char* text = std::getenv("EGRET_DEBUG");
  return text ? std::atoi(text) : 0; // what is no level is refused by check_environment()
}

std::atomic<int>& level() noexcept {
  static std::atomic<int> value{level_of_environment()};
  return value;
}

DebugFilter filter_of_environment() {
  DebugFilter filter; // what is wrong is refused by check_environment()
  if (const auto text = environment("EGRET_DEBUG_PASSES"))
    filter.passes = parse_debug_passes(*text, "EGRET_DEBUG_PASSES");
  if (const auto text = environment("EGRET_DEBUG_NODES"))
    filter.nodes = parse_debug_nodes(*text, "EGRET_DEBUG_NODES");
  return filter;
}

std::mutex& filter_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::shared_ptr<const DebugFilter>& filter_place() {
  static auto filter = std::make_shared<const DebugFilter>(filter_of_environment());
  return filter;
}
std::shared_ptr<const DebugFilter> debug_filter() {
  std::lock_guard lock(filter_mutex());
  return filter_place();
}

} // namespace

void set_debug_filter(DebugFilter filter) {
  std::lock_guard lock(filter_mutex());
  filter_place() = std::make_shared<const DebugFilter>(std::move(filter));
}

bool debug_shows(const ir::Graph& graph, const compiler::LaunchValues& launch) {
  const auto filter = debug_filter();
  if (filter->nodes.empty())
    return true;
  const auto named = [&](std::string_view name) {
    return std::ranges::find(filter->nodes, name) != filter->nodes.end();
  };
  const compiler::LaunchPiece piece = compiler::piece_of(graph, launch.operands, launch.outputs);
  return std::ranges::any_of(piece.nodes, [&](ir::NodeId id) {
    const bool computed = std::ranges::find(piece.inputs, id) == piece.inputs.end();
    return computed && (named(info_of(graph[id].op).name) || named(fmt::format("%{}", id)));
  });
}

void debug_pass(const compiler::PassEvent& event) {
  const auto filter = debug_filter();
  if (!filter->passes.empty() &&
      std::ranges::find(filter->passes, event.pass) == filter->passes.end())
    return;
  write_debug(fmt::format("pass {}{}{} {:.2f} ms{}", event.pass,
                          event.fusion_plan.empty() ? "" : " of ", event.fusion_plan,
                          event.seconds * 1e3,
                          event.changed() ? ":\n" + event.after : ", nothing new"));
}

int debug_level() noexcept {
  return level().load(std::memory_order_relaxed);
}

void set_debug_level(int value) noexcept {
  level().store(value, std::memory_order_relaxed);
}

void write_debug(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += "egret: ";
    lines += text.substr(0, end);
    lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::fwrite(lines.data(), 1, lines.size(), stderr);
}

} // namespace egret::runtime
