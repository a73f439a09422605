#include "egret/record.h"

#include "compiler/record/origins.h"
#include "runtime/active_record.h"
#include "runtime/environment.h"
#include "runtime/profile.h"
#include "support/call_sites.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/warn.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

namespace egret {

namespace runtime {
namespace {

/// The programs of a record, which it keeps so that launches can be told by their reports.
class ActiveRecord {
public:
  ActiveRecord(const std::string& path)
      : file_("record", path), writer_([this](std::string_view line) { put(line); }) {}

  compiler::RecordWriter& writer() { return writer_; }

  void add(int number, std::shared_ptr<const Program> program) {
    std::lock_guard lock(mutex_);
    programs_.emplace_back(number, std::move(program));
  }

  void launch(const LaunchRecord& launch) {
    std::lock_guard lock(mutex_);
    for (const auto& [number, program] : programs_) {
      const std::vector<compiler::KernelReport>& kernels = program->report().kernels;
      const std::less<const compiler::KernelReport*> before;
      const compiler::KernelReport* const kernel = &launch.kernel;
      if (before(kernel, kernels.data()) || !before(kernel, kernels.data() + kernels.size()))
        continue;
      writer_.launch(number, static_cast<std::size_t>(kernel - kernels.data()), launch.begin,
                     launch.end);
      return;
    }
  }

  Observer observer(const std::shared_ptr<ActiveRecord>& self) {
    return {.launch = [self](const LaunchRecord& launched) { self->launch(launched); },
            .copy =
                [self](const CopyRecord& copy) {
                  self->writer_.copy(copy.what, copy.bytes, copy.begin, copy.end);
                },
            .memory =
                [self](const MemoryRecord& memory) {
                  self->writer_.memory(memory.device, memory.at, memory.in_use, memory.reserved);
                },
            .range =
                [self](const RangeRecord& range) {
                  self->writer_.range(call_sites::open_ranges(), range.begin, range.end);
                }};
  }

  void commit() {
    writer_.end(); // no put() comes after it
    if (failure_)
      std::rethrow_exception(failure_);
    file_.commit();
  }

private:
  /// Called by one thread at a time, until the writer's end. A full disk must not end what is
  /// recorded: commit() tells of it.
  void put(std::string_view line) {
    if (failure_)
      return;
    try {
      file_.write(line);
      file_.write("\n");
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }

  OutputFile file_;
  std::exception_ptr failure_;
  compiler::RecordWriter writer_;
  std::mutex mutex_;
  std::vector<std::pair<int, std::shared_ptr<const Program>>> programs_;
};

std::mutex& active_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::shared_ptr<ActiveRecord>& active_place() {
  static std::shared_ptr<ActiveRecord> active;
  return active;
}
std::shared_ptr<ActiveRecord> active() {
  std::lock_guard lock(active_mutex());
  return active_place();
}

} // namespace

std::shared_ptr<const Program>
recorded(const ir::Graph& graph, const compiler::Options& options, std::string_view device,
         const std::function<std::shared_ptr<const Program>(const compiler::Options&)>& compile) {
  const std::shared_ptr<ActiveRecord> record = active();
  const Observers seen = observers();
  const auto any_sees = [&](auto Observer::*what) {
    return seen &&
           std::ranges::any_of(*seen, [&](const auto& one) { return (*one).*what != nullptr; });
  };
  if (!record && !any_sees(&Observer::pass) && !any_sees(&Observer::compiled))
    return compile(options);
  const auto origins =
      any_sees(&Observer::compiled) ? std::make_shared<compiler::OriginRecord>(graph) : nullptr;
  const auto program = record ? record->writer().program(graph, device, options) : nullptr;
  compiler::Options shown = options;
  shown.after_pass = [&](const compiler::PassEvent& event) {
    if (program)
      program->pass(event);
    if (origins)
      origins->pass(event);
    tell(seen, &Observer::pass, event);
    if (options.after_pass)
      options.after_pass(event);
  };
  std::shared_ptr<const Program> compiled;
  try {
    compiled = compile(shown);
  } catch (const Error& error) {
    if (program)
      program->failed(error.what());
    throw;
  }
  if (program) {
    program->finished(compiled->report());
    record->add(program->number(), compiled);
  }
  if (origins)
    tell(seen, &Observer::compiled, CompiledRecord{compiled, origins});
  return compiled;
}

void record_as_environment_says() {
  static Record* record = nullptr; // until the process ends
  const auto path = environment("EGRET_RECORD");
  if (!path)
    return;
  record = new Record(*path);
  std::atexit([] {
    try {
      record->close();
    } catch (const Error& error) {
      warn("EGRET_RECORD: {}", error.what());
    }
  });
}

} // namespace runtime

struct Record::Impl {
  std::shared_ptr<runtime::ActiveRecord> active;
  std::optional<call_sites::Wanted> sites{std::in_place}; // lines of what is recorded
  std::optional<runtime::Observing> observing;
  bool closed = false;
};

Record::Record(const std::string& path) : impl_(std::make_unique<Impl>()) {
  std::lock_guard lock(runtime::active_mutex());
  if (runtime::active_place())
    fail(ErrorKind::State, "record: another record is being written; close it before {}", path);
  impl_->active = std::make_shared<runtime::ActiveRecord>(path);
  runtime::active_place() = impl_->active;
  impl_->observing.emplace(impl_->active->observer(impl_->active));
}

Record::~Record() {
  try {
    close();
  } catch (...) { // who wants to know calls close()
  }
}

void Record::close() {
  if (std::exchange(impl_->closed, true))
    return;
  {
    std::lock_guard lock(runtime::active_mutex());
    runtime::active_place() = nullptr;
    impl_->observing.reset();
  }
  impl_->active->commit();
  impl_->sites.reset();
}

void Record::add_source(std::string_view file, std::string_view text, std::uint64_t hash,
                        std::vector<int> lines) {
  impl_->active->writer().source(file, text, hash, std::move(lines));
}

} // namespace egret
