#include "compiler/candidate_measurement.h"

#include "compiler/kernel_cache.h"
#include "compiler/measurement_bytes.h"

#include "backend/common/host_launch.h"
#include "backend/common/launch_number.h"
#include "backend/reference/random_inputs.h"
#include "support/fail.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace egret::compiler {
namespace {

namespace reference = backend::reference;

/// Launches of so many seconds are made no more often than needed.
constexpr double kLong = 2e-2;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

MeasurementResult rejected(MeasurementResult outcome, MeasurementResult::Reason reason,
                           std::string message) {
  outcome.state = MeasurementResult::State::Rejected;
  outcome.reason = reason;
  outcome.message = std::move(message);
  return outcome;
}

// Memory of the device, filled.
class Memory {
public:
  Memory(backend::Device& device, std::size_t bytes, const std::byte* contents)
      : device_(&device), bytes_(std::max<std::size_t>(bytes, 1)),
        address_(device.allocate(bytes_)) {
    const std::vector<std::byte> zeros(contents ? 0 : bytes); // outputs that are updated
    if (bytes > 0)
      device.copy_in(address_, contents ? contents : zeros.data(), bytes);
  }
  Memory(Memory&& other) noexcept
      : device_(other.device_), bytes_(other.bytes_),
        address_(std::exchange(other.address_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (address_)
      device_->release(address_, bytes_);
  }
  void* address() const { return address_; }

private:
  backend::Device* device_;
  std::size_t bytes_;
  void* address_;
};

// Arguments of a region's programs in the device's memory, random and of the right sizes.
class Arguments {
public:
  Arguments(backend::Device& device, const CandidateMeasurement& measurement) {
    reference::RandomNumbers random(measurement.check.seed);
    const std::int64_t limit = reference::index_limit_of(measurement.region, measurement.sizes);
    std::vector<reference::HostArray> arrays;
    double bytes = 0;
    for (const kernel::Operand& operand : measurement.region.operands) {
      const auto count = reference::element_count(measurement.sizes.values_of(operand.shape));
      arrays.push_back(reference::random_array(operand.dtype, count, limit, false, random));
      if (operand.role == kernel::Role::Scalar) {
        scalars_.push_back(reference::scalar_of(operand.dtype, arrays.back().at(0)).bits);
        arrays.pop_back();
      } else {
        bytes += static_cast<double>(arrays.back().bytes.size());
      }
    }
    std::vector<std::size_t> outputs;
    for (const kernel::Output& output : measurement.region.outputs) {
      const auto count = reference::element_count(measurement.sizes.values_of(output.shape));
      outputs.push_back(static_cast<std::size_t>(count) * size_of(output.dtype));
      bytes += static_cast<double>(outputs.back());
    }
    sets_.resize(copies(device.target(), measurement.cold, bytes));
    for (auto& set : sets_) {
      for (const auto& array : arrays)
        set.emplace_back(device, array.bytes.size(), array.bytes.data());
      for (const std::size_t size : outputs)
        set.emplace_back(device, size, nullptr);
    }
  }
  std::size_t sets() const { return sets_.size(); }
  const std::vector<Memory>& set(std::size_t i) const { return sets_[i % sets_.size()]; }
  const std::vector<std::uint64_t>& scalars() const { return scalars_; }

private:
  // As many as together exceed the last cache by half.
  static std::size_t copies(const kernel::Target& target, bool cold, double bytes) {
    constexpr double kMostBytes = 512e6, kMostCopies = 16;
    const auto cache = static_cast<double>(std::max(target.l3_bytes, target.l2_bytes));
    if (!cold || bytes <= 0)
      return 1;
    return static_cast<std::size_t>(
        std::clamp(std::ceil(1.5 * cache / bytes), 1.0,
                   std::max(1.0, std::min(kMostCopies, std::floor(kMostBytes / bytes)))));
  }
  std::vector<std::vector<Memory>> sets_; // operands, then outputs
  std::vector<std::uint64_t> scalars_;
};

// One program that is timed: its launches on each set of arguments, with workspaces of its own.
class Contestant {
public:
  Contestant(backend::Device& device, const kernel::KernelProgram& program,
             std::shared_ptr<const backend::Artifact> artifact,
             const CandidateMeasurement& measurement, const Arguments& arguments)
      : device_(device), program_(program), artifact_(std::move(artifact)),
        scalars_(arguments.scalars()), workers_(measurement.workers) {
    for (const Expr& dim : program.dims)
      dims_.push_back(measurement.sizes.value_of(dim));
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == kernel::Space::Workspace)
        workspaces_.emplace_back(device, bytes_of(buffer), nullptr);
    for (std::size_t s = 0; s < arguments.sets(); ++s) {
      pointers_.emplace_back();
      for (const Memory& memory : arguments.set(s))
        pointers_.back().push_back(memory.address());
      for (const Memory& memory : workspaces_)
        pointers_.back().push_back(memory.address());
    }
    // The first launch is a warm-up, but for programs that take so long that it matters little.
    double once = launch(1);
    if (once < kLong)
      once = std::max(launch(1), 1e-7);
    times_ = static_cast<int>(std::clamp(measurement.sample_seconds / once, 1.0, 1000.0));
  }
  double sample() { return launch(times_); }

private:
  // Seconds of each of some launches.
  double launch(int times) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i)
      device_.launch(*artifact_, program_,
                     {pointers_[next_++ % pointers_.size()].data(), dims_.data(), scalars_.data(),
                      nullptr, nullptr},
                     workers_);
    device_.synchronize();
    return seconds_since(begin) / times;
  }
  std::size_t bytes_of(const kernel::Buffer& buffer) const {
    return static_cast<std::size_t>(
               backend::LaunchNumber(buffer.elements, program_.dims).at(dims_.data())) *
           size_of(buffer.dtype);
  }

  backend::Device& device_;
  const kernel::KernelProgram& program_;
  std::shared_ptr<const backend::Artifact> artifact_;
  const std::vector<std::uint64_t>& scalars_;
  std::vector<std::int64_t> dims_;
  std::vector<Memory> workspaces_;
  std::vector<std::vector<void*>> pointers_; // by set
  int workers_;
  std::size_t next_ = 0;
  int times_ = 1;
};

double least(const std::vector<double>& samples) {
  return *std::min_element(samples.begin(), samples.end());
}

/// Compiles programs in the background, on all cores but one.
class CompilerAhead {
public:
  CompilerAhead(backend::Device& device, KernelCache& kernels)
      : device_(device), kernels_(kernels) {}
  ~CompilerAhead() {
    for (std::jthread& thread : threads_)
      thread.request_stop();
  }
  CompilerAhead(const CompilerAhead&) = delete;
  CompilerAhead& operator=(const CompilerAhead&) = delete;

  void take(const std::vector<kernel::KernelProgram>& programs) {
    // Where kernels run on the host's cores, they would be disturbed.
    if (programs.empty() || device_.host_memory())
      return;
    {
      std::lock_guard lock(guard_);
      waiting_.assign(programs.rbegin(), programs.rend());
    }
    const auto most = static_cast<std::size_t>(std::max(1, device_.compile_threads() - 1));
    while (threads_.size() < std::min(most, programs.size()))
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    more_.notify_all();
  }

private:
  void work(const std::stop_token& stop) {
    while (true) {
      kernel::KernelProgram program;
      {
        std::unique_lock lock(guard_);
        if (!more_.wait(lock, stop, [&] { return !waiting_.empty(); }))
          return;
        program = std::move(waiting_.back());
        waiting_.pop_back();
      }
      try {
        kernel::verify(program);
        kernels_.get(program, device_);
      } catch (const std::exception&) { // the measurement that wants it will say why
      }
    }
  }

  backend::Device& device_;
  KernelCache& kernels_;
  std::mutex guard_;
  std::condition_variable_any more_;
  std::vector<kernel::KernelProgram> waiting_; // the next one last
  std::vector<std::jthread> threads_;          // end before the rest goes
};

} // namespace

const char* name_of(MeasurementResult::Reason reason) noexcept {
  switch (reason) {
  case MeasurementResult::Reason::None:
    return "none";
  case MeasurementResult::Reason::Compile:
    return "compile";
  case MeasurementResult::Reason::Wrong:
    return "wrong";
  case MeasurementResult::Reason::Crash:
    return "crash";
  case MeasurementResult::Reason::Hang:
    return "hang";
  case MeasurementResult::Reason::Device:
    return "device";
  }
  return "?";
}

struct CandidateMeasurer::Impl {
  explicit Impl(backend::Device& d) : device(d) {}
  backend::Device& device;
  KernelCache kernels{64};
  CompilerAhead ahead{device, kernels};
  std::string checked, timed; // what the members below were made for
  std::optional<reference::KernelChecker> checker;
  std::optional<Arguments> arguments;

  void verify(const CandidateMeasurement& measurement, const backend::Artifact& artifact,
              MeasurementResult& outcome) {
    constexpr std::size_t kMargin = 1024; // within the guard zones
    if (std::string key = check_key(measurement); key != checked || !checker) {
      checker.emplace(measurement.region, measurement.sizes, measurement.check);
      checked = std::move(key);
    }
    const auto check = checker->check(measurement.program, [&](const kernel::KernelProgram& program,
                                                               const kernel::ArgBlock& block) {
      backend::launch_on_host_memory(device, artifact, program, block, measurement.workers,
                                     kMargin);
    });
    outcome.checked = check.checked;
    outcome.complete = check.complete;
    outcome.worst = check.worst;
    if (check.ok)
      outcome.state = MeasurementResult::State::Verified;
    else
      outcome = rejected(std::move(outcome), MeasurementResult::Reason::Wrong, check.message);
  }

  void time(const CandidateMeasurement& measurement,
            std::shared_ptr<const backend::Artifact> artifact, MeasurementResult& outcome) {
    if (std::string key = timing_key(measurement); key != timed || !arguments) {
      arguments.reset(); // before the new ones, which may need the memory
      arguments.emplace(device, measurement);
      timed = std::move(key);
    }
    std::vector<Contestant> all;
    all.reserve(measurement.baselines.size() + 1);
    all.emplace_back(device, measurement.program, std::move(artifact), measurement, *arguments);
    for (const kernel::KernelProgram& baseline : measurement.baselines)
      all.emplace_back(device, baseline, kernels.get(baseline, device), measurement, *arguments);
    outcome.baseline_seconds.resize(measurement.baselines.size());
    for (int round = 0; round < measurement.repetitions; ++round) {
      outcome.seconds.push_back(all[0].sample());
      for (std::size_t r = 1; r < all.size(); ++r)
        outcome.baseline_seconds[r - 1].push_back(all[r].sample());
      if (measurement.give_up > 0 && !measurement.baselines.empty() && round > 0 &&
          least(outcome.seconds) > measurement.give_up * least(outcome.baseline_seconds[0]))
        break;
    }
    outcome.state = MeasurementResult::State::Timed;
  }
};

CandidateMeasurer::CandidateMeasurer(backend::Device& device)
    : impl_(std::make_unique<Impl>(device)) {}
CandidateMeasurer::~CandidateMeasurer() = default;

MeasurementResult CandidateMeasurer::run(const CandidateMeasurement& measurement) {
  MeasurementResult outcome;
  std::shared_ptr<const backend::Artifact> artifact;
  try {
    kernel::verify(measurement.region);
    kernel::verify(measurement.program);
    impl_->ahead.take(measurement.ahead);
    artifact = impl_->kernels.get(measurement.program, impl_->device);
  } catch (const std::exception& error) {
    return rejected(std::move(outcome), MeasurementResult::Reason::Compile, error.what());
  }
  outcome.compile_seconds = artifact->compile_seconds();
  try {
    if (measurement.verify)
      impl_->verify(measurement, *artifact, outcome);
    if (outcome.ok() && measurement.repetitions > 0)
      impl_->time(measurement, artifact, outcome);
  } catch (const Error& error) {
    const auto reason = error.kind() == ErrorKind::Device ? MeasurementResult::Reason::Crash
                        : error.kind() == ErrorKind::Unsupported
                            ? MeasurementResult::Reason::Compile
                            : MeasurementResult::Reason::Device;
    return rejected(std::move(outcome), reason, error.what());
  }
  return outcome;
}

MeasurementResult measure_candidate(backend::Device& device,
                                    const CandidateMeasurement& measurement) {
  return CandidateMeasurer(device).run(measurement);
}

} // namespace egret::compiler
