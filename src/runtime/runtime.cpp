#include "runtime/runtime.h"

#include "backend/all/backends.h"
#include "compiler/builders.h"
#include "compiler/search/tuner.h"
#include "runtime/active_record.h"
#include "runtime/checked_program.h"
#include "runtime/count.h"
#include "runtime/debug.h"
#include "runtime/derived_program.h"
#include "runtime/environment.h"
#include "runtime/interpreter_device.h"
#include "runtime/plan_program.h"
#include "runtime/plan_store.h"
#include "runtime/profile.h"
#include "runtime/reference_program.h"
#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace egret::runtime {
namespace {

// An engine, and the device that Engine::Compiled is for.
struct Place {
  Engine engine = Engine::Compiled;
  backend::DeviceName device;
  std::uint64_t number() const {
    return combine(combine(hash_text(device.backend), static_cast<std::uint64_t>(device.index)),
                   static_cast<std::uint64_t>(engine));
  }
};

thread_local DeviceNumber thread_device = 0;

// All devices that have a number, at their number less 1.
struct NumberedDevices {
  std::mutex mutex;
  std::deque<backend::DeviceName> names;
};

NumberedDevices& numbered_devices() {
  static auto* const devices = new NumberedDevices;
  return *devices;
}

// How much work goes into what is compiled.
struct EffortSetting {
  std::optional<Effort> effort; // empty: none was set
  double budget_seconds = 60;
  bool frozen = false, checked = false, libraries = true, deterministic = false;
  RuleTags allowed;
};

EffortSetting effort_of_environment() {
  check_environment();
  EffortSetting setting;
  if (const auto word = environment("EGRET_EFFORT"))
    setting.effort = parse_effort(*word, "EGRET_EFFORT");
  if (const auto text = environment("EGRET_BUDGET"))
    setting.budget_seconds = parse_budget(*text, "EGRET_BUDGET");
  for (auto [name, flag] : {std::pair("EGRET_FROZEN", &setting.frozen),
                            {"EGRET_CHECKED", &setting.checked},
                            {"EGRET_DETERMINISTIC", &setting.deterministic},
                            {"EGRET_LIBRARIES", &setting.libraries}})
    if (const auto text = environment(name))
      *flag = parse_flag(*text, name);
  if (const auto text = environment("EGRET_ALLOW"))
    setting.allowed = parse_tags(*text, "EGRET_ALLOW");
  return setting;
}

Place place_of_environment() {
  if (const auto name = environment("EGRET_ENGINE"))
    return {parse_engine(*name, "EGRET_ENGINE"), {}};
  if (const auto name = environment("EGRET_DEVICE"))
    return {Engine::Compiled, backend::backends().parse(*name, "EGRET_DEVICE")};
  return {};
}

std::uint64_t key_of(const ir::Graph& graph, const compiler::Options& options, const Place& place) {
  std::uint64_t key = combine(ir::canonical_hash(graph), place.number());
  key = combine(key, options.fuse);
  key = combine(key, static_cast<std::uint64_t>(options.workers));
  key = combine(key, static_cast<std::uint64_t>(*options.effort));
  key = combine(key, saturate::hash_of(options.rules));
  key = combine(key, std::bit_cast<std::uint64_t>(*options.budget_seconds));
  key = combine(key, options.frozen);
  key = combine(key, options.checked);
  key = combine(key, options.deterministic);
  key = combine(key, static_cast<std::uint64_t>(options.memory_limit.value_or(0)));
  key = combine(key, *options.libraries);
  for (const bool steady : options.steady)
    key = combine(key, steady);
  for (const compiler::OutputSpec& output : options.outputs)
    key = combine(combine(key, static_cast<std::uint64_t>(output.state_input)),
                  static_cast<std::uint64_t>(output.over_input));
  key = combine(key, options.builders_number);
  for (const auto& [name, schedule] : options.schedules)
    key = combine(combine(key, hash_text(name)), hash_text(schedule));
  return key;
}

} // namespace

DeviceNumber number_of(const backend::DeviceName& device) {
  NumberedDevices& all = numbered_devices();
  std::lock_guard lock(all.mutex);
  const auto found = std::find(all.names.begin(), all.names.end(), device);
  const auto at = static_cast<std::size_t>(found - all.names.begin());
  if (found == all.names.end()) {
    ensure(at < std::numeric_limits<DeviceNumber>::max(), "there are too many devices");
    all.names.push_back(device);
  }
  return static_cast<DeviceNumber>(at + 1);
}

const backend::DeviceName& device_of(DeviceNumber number) {
  NumberedDevices& all = numbered_devices();
  std::lock_guard lock(all.mutex);
  return all.names.at(static_cast<std::size_t>(number) - 1);
}

DeviceNumber ThreadDevice::now() noexcept {
  return thread_device;
}
DeviceNumber ThreadDevice::exchange(DeviceNumber device) noexcept {
  return std::exchange(thread_device, device);
}

// What belongs to one engine's memory.
struct DeviceSet {
  std::unique_ptr<backend::Device> device;
  std::shared_ptr<Pool> pool;
  compiler::KernelCache kernels;
  std::unique_ptr<compiler::Tuner> tuner; // of devices that a worker process can have too

  explicit DeviceSet(std::unique_ptr<backend::Device> d, bool tunes)
      : device(std::move(d)), pool(std::make_shared<Pool>(*device)),
        tuner(tunes ? std::make_unique<compiler::Tuner>(*device, tuner_options(*device))
                    : nullptr) {}

private:
  static compiler::TunerOptions tuner_options(const backend::Device& device) {
    compiler::TunerOptions options;
    options.worker.device = device.name();
    options.folder = cache_folder();
    return options;
  }
};

struct Runtime::Impl {
  mutable std::mutex mutex;
  Place place = place_of_environment();
  EffortSetting effort = effort_of_environment();
  std::function<bool(const SearchProgress&)> progress;
  std::atomic<std::uint64_t> place_number{number()};
  std::atomic<DeviceNumber> device_number{number_of(place.device)};
  std::atomic<const backend::Device*> current{nullptr}; // of place; null before it is made
  std::map<backend::DeviceName, std::unique_ptr<DeviceSet>> compiled; // of Engine::Compiled
  std::unique_ptr<DeviceSet> interpreter;                             // of the other engines
  PlanStore plans{plan_limit_of_environment()};
  std::atomic<std::uint64_t> generation{0};

  std::uint64_t number() const {
    return combine(
        combine(place.number(), effort.effort ? 1 + static_cast<std::uint64_t>(*effort.effort) : 0),
        combine(combine(std::bit_cast<std::uint64_t>(effort.budget_seconds), effort.frozen),
                combine(effort.allowed.bits(),
                        4 * effort.deterministic + 2 * effort.checked + effort.libraries)));
  }
  // Made at first use. The engines of the host share one address space, so memory of any of them
  // serves every other one.
  DeviceSet& devices(Place which) {
    if (which.engine == Engine::Compiled) {
      auto found = compiled.find(which.device);
      if (found == compiled.end())
        found =
            compiled
                .emplace(which.device,
                         std::make_unique<DeviceSet>(backend::backends().open(which.device), true))
                .first;
      return *found->second;
    }
    if (!interpreter)
      interpreter = std::make_unique<DeviceSet>(make_interpreter_device(), false);
    return *interpreter;
  }
  // The thread's.
  Place here() const {
    return thread_device == 0 ? place : Place{place.engine, device_of(thread_device)};
  }
  // What makes numbers of the thread's device others than those of the device in use.
  std::uint64_t elsewhere() const noexcept {
    return thread_device == device_number.load(std::memory_order_relaxed) ? 0 : thread_device;
  }
  DeviceSet& devices() {
    if (thread_device != 0)
      return devices(here());
    DeviceSet& set = devices(place);
    current.store(set.device.get(), std::memory_order_release);
    return set;
  }
  // For all that is evaluated from now on; nothing changes where the device cannot be had.
  void turn_to(const Place& to) {
    DeviceSet& set = devices(to); // may throw
    place = to;
    current.store(set.device.get(), std::memory_order_release);
    place_number = number();
    device_number = number_of(place.device);
    ++generation;
  }
  void complete(compiler::Options& options, DeviceSet& set) const {
    const bool as_written = options.lazy || !options.fuse;
    const Effort usual = as_written ? Effort::None : Effort::Quick;
    options.effort = options.effort.value_or(effort.effort.value_or(usual));
    options.budget_seconds =
        checked_budget(options.budget_seconds.value_or(effort.budget_seconds), "compile");
    options.frozen = options.frozen || effort.frozen;
    options.checked = options.checked || effort.checked;
    options.deterministic = options.deterministic || effort.deterministic;
    options.libraries = options.libraries.value_or(effort.libraries);
    options.allow = options.allow.value_or(effort.allowed);
    options.rules = options.chosen_rules();
    options.tuner = set.tuner.get();
    std::tie(options.builders, options.builders_number) = compiler::registered_builders();
    options.progress = progress;
  }
};

Runtime::Runtime() : impl_(new Impl) {
  record_as_environment_says();
}

Runtime& Runtime::instance() {
  static auto* const runtime = new Runtime;
  return *runtime;
}

Pool& Runtime::pool() {
  std::lock_guard lock(impl_->mutex);
  return *impl_->devices().pool;
}

Pool& Runtime::pool(const backend::DeviceName& device) {
  std::lock_guard lock(impl_->mutex);
  const bool here = impl_->place.engine != Engine::Compiled && device == backend::DeviceName{};
  return *impl_->devices(here ? impl_->place : Place{Engine::Compiled, device}).pool;
}

StoragePtr Runtime::allocate(std::size_t bytes) {
  return pool().allocate(bytes);
}

void Runtime::copy_in(const StoragePtr& to, const void* from, std::size_t bytes, std::size_t at) {
  if (bytes > 0)
    observed_copy(
        [&] { return "to " + to->device().name(); }, bytes,
        [&] { to->device().copy_in(static_cast<std::byte*>(to->data()) + at, from, bytes); });
  count().host_copies.add(bytes);
}

void Runtime::copy_out(void* to, const StoragePtr& from, std::size_t bytes) {
  if (bytes > 0)
    observed_copy([&] { return "from " + from->device().name(); }, bytes,
                  [&] { from->device().copy_out(to, from->data(), bytes); });
  count().host_copies.add(bytes);
}

void Runtime::copy(const StoragePtr& to, const StoragePtr& from, std::size_t bytes) {
  copy_storage(*to, *from, bytes);
}

void Runtime::bring_here(StoragePtr& storage) {
  const backend::Device* now =
      thread_device == 0 ? impl_->current.load(std::memory_order_acquire) : nullptr;
  if (now && share_memory(*now, storage->device()))
    return;
  Pool& own = pool();
  if (share_memory(own.device(), storage->device()))
    return;
  auto copy = own.allocate(storage->bytes());
  copy_storage(*copy, *storage, storage->bytes());
  count().host_copies.add(storage->bytes());
  storage = std::move(copy);
}

// What a program is made from, but for the graph.
struct Runtime::Request {
  std::uint64_t key = 0;
  Place place;
  DeviceSet* set = nullptr;
  compiler::Options options; // complete
  std::string text;          // of the graph, which takes less memory than the graph itself
};

std::shared_ptr<const Program> Runtime::program(const ir::Graph& graph,
                                                const compiler::Options& asked) {
  auto request = std::make_shared<Request>();
  request->options = asked;
  {
    std::lock_guard lock(impl_->mutex);
    request->place = impl_->here();
    request->set = &impl_->devices();
    impl_->complete(request->options, *request->set);
  }
  request->key = key_of(graph, request->options, request->place);
  std::shared_ptr<const Program> program;
  if (asked.inject_fault) { // what tests have planted is theirs alone
    count().plan_misses.add(1);
    program = compiled(*request, graph);
  } else {
    program = stored(request, graph);
  }
  return with_kept(std::move(program), graph, request->options);
}

std::shared_ptr<const Program> Runtime::stored(const std::shared_ptr<Request>& request,
                                               const ir::Graph& graph) {
  PlanStore::EntryPtr entry = impl_->plans.find(request->key);
  if (entry) {
    count().plan_hits.add(1);
    debug(1, "plan {:016x} found in the store", request->key);
    return make_stored_program(entry);
  }
  count().plan_misses.add(1);
  auto program = compiled(*request, graph);
  request->options.after_pass = {}; // the caller's, who may have gone
  request->text = ir::print(graph);
  return make_stored_program(put(request, std::move(program)));
}

PlanStore::EntryPtr Runtime::put(const std::shared_ptr<const Request>& request,
                                 std::shared_ptr<const Program> program) {
  auto recompile = std::make_shared<const std::function<PlanStore::EntryPtr()>>([this, request] {
    if (auto found = impl_->plans.find(request->key))
      return found;
    return put(request, compiled(*request, ir::parse_graph(request->text)));
  });
  return impl_->plans.put(request->key, std::move(program), std::move(recompile));
}

std::shared_ptr<const Program> Runtime::compiled(const Request& request, const ir::Graph& graph) {
  const auto begin = std::chrono::steady_clock::now();
  compiler::Options options = request.options;
  if (debug_level() >= 5)
    options.after_pass = [inner = std::move(options.after_pass)](const compiler::PassEvent& event) {
      debug_pass(event);
      if (inner)
        inner(event);
    };
  const bool reference = request.place.engine == Engine::Reference;
  DeviceSet& set = *request.set;
  std::shared_ptr<const Program> program =
      reference ? make_reference_program(graph, options, set.pool)
                : recorded(graph, options, set.device->name(), [&](const compiler::Options& o) {
                    return make_plan_program(graph, o, *set.device, set.kernels, set.pool);
                  });
  if (options.checked && !reference && !program->derivation())
    program = make_checked_program(std::move(program), graph, options, *set.device);
  count().compiles.add(1);
  const compiler::CompileReport& report = program->report();
  count().kernels_compiled.add(static_cast<std::uint64_t>(report.kernels_compiled));
  count().kernels_loaded.add(static_cast<std::uint64_t>(report.kernels_loaded));
  count().kernels_refused.add(static_cast<std::uint64_t>(report.refused.size()));
  count().candidates_tried.add(static_cast<std::uint64_t>(report.search.candidates()));
  count().measurements.add(static_cast<std::uint64_t>(report.search.measured));
  count().choices_remembered.add(static_cast<std::uint64_t>(report.search.cache_hits));
  count().search_microseconds.add(static_cast<std::uint64_t>(report.search.seconds * 1e6));
  if (debug_level() >= 1) {
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    debug(1,
          "plan {:016x} made in {:.1f} ms: {} ops, {} kernels ({} compiled, {} loaded, {} found)",
          request.key, ms, report.ops_recorded, report.kernels.size(), report.kernels_compiled,
          report.kernels_loaded, report.kernels_from_cache);
    for (const compiler::RefusedKernel& refused : report.refused)
      write_debug(compiler::refusal_text(refused));
  }
  if (debug_level() >= 3)
    write_debug(program->loops());
  if (debug_level() >= 4)
    write_debug(program->code());
  return program;
}

std::shared_ptr<const Program> Runtime::with_kept(std::shared_ptr<const Program> program,
                                                  const ir::Graph& graph,
                                                  const compiler::Options& options) {
  const std::shared_ptr<const compiler::ParameterFolding> derivation = program->derivation();
  if (!derivation)
    return program;
  compiler::Options fill = options; // it runs once: nothing that takes time
  fill.outputs.clear();
  fill.steady.clear();
  fill.memory_limit.reset();
  fill.inject_fault = {};
  fill.after_pass = {};
  fill.effort = std::min(*options.effort, Effort::Quick);
  auto filler = this->program(derivation->fill, fill);
  auto derived = make_derived_program(*derivation, std::move(program), std::move(filler));
  return options.checked ? make_checked_program(std::move(derived), graph, options, device())
                         : derived;
}

void Runtime::complete(compiler::Options& options) {
  std::lock_guard lock(impl_->mutex);
  impl_->complete(options, impl_->devices());
}

void Runtime::set_plan_memory(std::size_t bytes) {
  impl_->plans.set_limit(bytes);
}

void Runtime::clear_plans() {
  std::lock_guard lock(impl_->mutex);
  impl_->plans.clear();
  ++impl_->generation;
}

Engine Runtime::engine() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->place.engine;
}

void Runtime::use(Engine engine) {
  std::lock_guard lock(impl_->mutex);
  impl_->turn_to({engine, impl_->place.device});
}

void Runtime::use(const backend::DeviceName& device) {
  std::lock_guard lock(impl_->mutex);
  impl_->turn_to({Engine::Compiled, device});
}

void Runtime::set_effort(std::optional<Effort> effort, std::optional<double> budget_seconds) {
  std::lock_guard lock(impl_->mutex);
  if (budget_seconds)
    impl_->effort.budget_seconds = checked_budget(*budget_seconds, "set_effort");
  impl_->effort.effort = effort;
  impl_->place_number = impl_->number();
  ++impl_->generation;
}

void Runtime::set_frozen(bool frozen) {
  std::lock_guard lock(impl_->mutex);
  impl_->effort.frozen = frozen;
  impl_->place_number = impl_->number();
  ++impl_->generation;
}

void Runtime::allow_rules(RuleTags tags) {
  std::lock_guard lock(impl_->mutex);
  impl_->effort.allowed = tags;
  impl_->place_number = impl_->number();
  ++impl_->generation;
}

RuleTags Runtime::allowed_rules() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.allowed;
}

void Runtime::allow_libraries(bool allowed) {
  std::lock_guard lock(impl_->mutex);
  impl_->effort.libraries = allowed;
  impl_->place_number = impl_->number();
  ++impl_->generation;
}

bool Runtime::libraries_allowed() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.libraries;
}

void Runtime::set_checked_execution(bool checked) {
  std::lock_guard lock(impl_->mutex);
  impl_->effort.checked = checked;
  impl_->place_number = impl_->number();
  ++impl_->generation;
}

bool Runtime::checked_execution() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.checked;
}

void Runtime::set_deterministic(bool deterministic) {
  std::lock_guard lock(impl_->mutex);
  impl_->effort.deterministic = deterministic;
  impl_->place_number = impl_->number();
  ++impl_->generation;
}

bool Runtime::deterministic() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.deterministic;
}

bool Runtime::frozen() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.frozen;
}

void Runtime::on_search_progress(std::function<bool(const SearchProgress&)> hook) {
  std::lock_guard lock(impl_->mutex);
  impl_->progress.swap(hook); // the one before goes after the lock
}

std::optional<Effort> Runtime::effort() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.effort;
}

double Runtime::budget_seconds() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->effort.budget_seconds;
}

std::uint64_t Runtime::place() const noexcept {
  return impl_->place_number.load(std::memory_order_relaxed) ^ mix(impl_->elsewhere()) ^
         compiler::builders_number() << 32;
}

std::uint64_t Runtime::generation() const noexcept {
  return (impl_->generation.load(std::memory_order_relaxed) ^ impl_->elsewhere() << 48) +
         (compiler::builders_number() << 24);
}

DeviceNumber Runtime::device_number() const noexcept {
  return impl_->device_number.load(std::memory_order_relaxed);
}

backend::Device& Runtime::device() {
  std::lock_guard lock(impl_->mutex);
  return *impl_->devices().device;
}

const kernel::Target& Runtime::target() {
  return device().target();
}

} // namespace egret::runtime
