#include "compiler/trial.h"

#include "compiler/kernel_cache.h"
#include "compiler/trial_bytes.h"

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

Verdict rejected(Verdict verdict, Verdict::Reason reason, std::string message) {
  verdict.state = Verdict::State::Rejected;
  verdict.reason = reason;
  verdict.message = std::move(message);
  return verdict;
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
  Arguments(backend::Device& device, const Trial& trial) {
    reference::RandomNumbers random(trial.check.seed);
    const std::int64_t limit = reference::index_limit_of(trial.region, trial.sizes);
    std::vector<reference::HostArray> arrays;
    double bytes = 0;
    for (const kernel::Operand& operand : trial.region.operands) {
      const auto count = reference::element_count(trial.sizes.values_of(operand.shape));
      arrays.push_back(reference::random_array(operand.dtype, count, limit, false, random));
      if (operand.role == kernel::Role::Scalar) {
        scalars_.push_back(reference::scalar_of(operand.dtype, arrays.back().at(0)).bits);
        arrays.pop_back();
      } else {
        bytes += static_cast<double>(arrays.back().bytes.size());
      }
    }
    std::vector<std::size_t> outputs;
    for (const kernel::Output& output : trial.region.outputs) {
      const auto count = reference::element_count(trial.sizes.values_of(output.shape));
      outputs.push_back(static_cast<std::size_t>(count) * size_of(output.dtype));
      bytes += static_cast<double>(outputs.back());
    }
    sets_.resize(copies(device.target(), trial.cold, bytes));
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
             std::shared_ptr<const backend::Artifact> artifact, const Trial& trial,
             const Arguments& arguments)
      : device_(device), program_(program), artifact_(std::move(artifact)),
        scalars_(arguments.scalars()), workers_(trial.workers) {
    for (const Expr& dim : program.dims)
      dims_.push_back(trial.sizes.value_of(dim));
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
    times_ = static_cast<int>(std::clamp(trial.sample_seconds / once, 1.0, 1000.0));
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
      } catch (const std::exception&) { // the trial that wants it will say why
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

const char* name_of(Verdict::Reason reason) noexcept {
  switch (reason) {
  case Verdict::Reason::None:
    return "none";
  case Verdict::Reason::Compile:
    return "compile";
  case Verdict::Reason::Wrong:
    return "wrong";
  case Verdict::Reason::Crash:
    return "crash";
  case Verdict::Reason::Hang:
    return "hang";
  case Verdict::Reason::Device:
    return "device";
  }
  return "?";
}

struct TrialRoom::Impl {
  explicit Impl(backend::Device& d) : device(d) {}
  backend::Device& device;
  KernelCache kernels{64};
  CompilerAhead ahead{device, kernels};
  std::string checked, timed; // what the members below were made for
  std::optional<reference::KernelChecker> checker;
  std::optional<Arguments> arguments;

  void verify(const Trial& trial, const backend::Artifact& artifact, Verdict& verdict) {
    constexpr std::size_t kMargin = 1024; // within the guard zones
    if (std::string key = check_key(trial); key != checked || !checker) {
      checker.emplace(trial.region, trial.sizes, trial.check);
      checked = std::move(key);
    }
    const auto check = checker->check(
        trial.program, [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
          backend::launch_on_host_memory(device, artifact, program, block, trial.workers, kMargin);
        });
    verdict.checked = check.checked;
    verdict.complete = check.complete;
    verdict.worst = check.worst;
    if (check.ok)
      verdict.state = Verdict::State::Verified;
    else
      verdict = rejected(std::move(verdict), Verdict::Reason::Wrong, check.message);
  }

  void time(const Trial& trial, std::shared_ptr<const backend::Artifact> artifact,
            Verdict& verdict) {
    if (std::string key = timing_key(trial); key != timed || !arguments) {
      arguments.reset(); // before the new ones, which may need the memory
      arguments.emplace(device, trial);
      timed = std::move(key);
    }
    std::vector<Contestant> all;
    all.reserve(trial.rivals.size() + 1);
    all.emplace_back(device, trial.program, std::move(artifact), trial, *arguments);
    for (const kernel::KernelProgram& rival : trial.rivals)
      all.emplace_back(device, rival, kernels.get(rival, device), trial, *arguments);
    verdict.rival_seconds.resize(trial.rivals.size());
    for (int round = 0; round < trial.repetitions; ++round) {
      verdict.seconds.push_back(all[0].sample());
      for (std::size_t r = 1; r < all.size(); ++r)
        verdict.rival_seconds[r - 1].push_back(all[r].sample());
      if (trial.give_up > 0 && !trial.rivals.empty() && round > 0 &&
          least(verdict.seconds) > trial.give_up * least(verdict.rival_seconds[0]))
        break;
    }
    verdict.state = Verdict::State::Timed;
  }
};

TrialRoom::TrialRoom(backend::Device& device) : impl_(std::make_unique<Impl>(device)) {}
TrialRoom::~TrialRoom() = default;

Verdict TrialRoom::run(const Trial& trial) {
  Verdict verdict;
  std::shared_ptr<const backend::Artifact> artifact;
  try {
    kernel::verify(trial.region);
    kernel::verify(trial.program);
    impl_->ahead.take(trial.ahead);
    artifact = impl_->kernels.get(trial.program, impl_->device);
  } catch (const std::exception& error) {
    return rejected(std::move(verdict), Verdict::Reason::Compile, error.what());
  }
  verdict.compile_seconds = artifact->compile_seconds();
  try {
    if (trial.verify)
      impl_->verify(trial, *artifact, verdict);
    if (verdict.ok() && trial.repetitions > 0)
      impl_->time(trial, artifact, verdict);
  } catch (const Error& error) {
    const auto reason = error.kind() == ErrorKind::Device        ? Verdict::Reason::Crash
                        : error.kind() == ErrorKind::Unsupported ? Verdict::Reason::Compile
                                                                 : Verdict::Reason::Device;
    return rejected(std::move(verdict), reason, error.what());
  }
  return verdict;
}

Verdict run_trial(backend::Device& device, const Trial& trial) {
  return TrialRoom(device).run(trial);
}

} // namespace egret::compiler
