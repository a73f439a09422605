#include "compiler/trial.h"

#include "backend/common/host_launch.h"
#include "backend/common/launch_number.h"
#include "backend/reference/random_inputs.h"
#include "support/fail.h"

#include <algorithm>
#include <chrono>

namespace egret::compiler {
namespace {

namespace reference = backend::reference;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Verdict rejected(Verdict verdict, Verdict::Reason reason, std::string message) {
  verdict.state = Verdict::State::Rejected;
  verdict.reason = reason;
  verdict.message = std::move(message);
  return verdict;
}

// The arguments of a launch in the device's memory, random and of the right sizes.
class Arguments {
public:
  Arguments(backend::Device& device, const Trial& trial) : device_(device) {
    for (const Expr& dim : trial.program.dims)
      dims_.push_back(trial.sizes.value_of(dim));
    reference::RandomNumbers random(trial.check.seed);
    const std::int64_t limit = reference::index_limit_of(trial.region, trial.sizes);
    for (const kernel::Operand& operand : trial.region.operands) {
      const auto count = reference::element_count(trial.sizes.values_of(operand.shape));
      const auto array = reference::random_array(operand.dtype, count, limit, false, random);
      if (operand.role == kernel::Role::Scalar)
        scalars_.push_back(reference::scalar_of(operand.dtype, array.at(0)).bits);
      else
        add(array.bytes.size(), array.bytes.data());
    }
    std::size_t arguments = 0;
    for (const auto space : {kernel::Space::Argument, kernel::Space::Workspace})
      for (const kernel::Buffer& buffer : trial.program.buffers)
        if (buffer.space == space && arguments++ >= pointers_.size())
          add(static_cast<std::size_t>(
                  backend::LaunchNumber(buffer.elements, trial.program.dims).at(dims_.data())) *
                  size_of(buffer.dtype),
              nullptr);
  }
  ~Arguments() {
    for (std::size_t i = 0; i < pointers_.size(); ++i)
      device_.release(pointers_[i], sizes_[i]);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  kernel::ArgBlock block() const {
    return {pointers_.data(), dims_.data(), scalars_.data(), nullptr, nullptr};
  }

private:
  void add(std::size_t bytes, const void* contents) {
    sizes_.push_back(std::max<std::size_t>(bytes, 1));
    pointers_.push_back(device_.allocate(sizes_.back()));
    const std::vector<std::byte> zeros(contents ? 0 : bytes); // outputs that are updated
    if (bytes > 0)
      device_.copy_in(pointers_.back(), contents ? contents : zeros.data(), bytes);
  }
  backend::Device& device_;
  std::vector<void*> pointers_;
  std::vector<std::size_t> sizes_;
  std::vector<std::int64_t> dims_;
  std::vector<std::uint64_t> scalars_;
};

// Samples of several launches each, so that waiting for the device does not count.
std::vector<double> time_launches(backend::Device& device, const backend::Artifact& artifact,
                                  const Trial& trial) {
  constexpr double kSample = 2e-3;
  const Arguments arguments(device, trial);
  auto launch = [&](int times) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i)
      device.launch(artifact, trial.program, arguments.block());
    device.synchronize();
    return seconds_since(begin) / times;
  };
  launch(1);
  const double once = std::max(launch(3), 1e-7);
  const int times = static_cast<int>(std::clamp(kSample / once, 1.0, 1000.0));
  std::vector<double> samples;
  for (int i = 0; i < trial.repetitions; ++i)
    samples.push_back(launch(times));
  return samples;
}

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

Verdict run_trial(backend::Device& device, const Trial& trial) {
  Verdict verdict;
  std::shared_ptr<const backend::Artifact> artifact;
  try {
    artifact = device.compile(trial.program);
  } catch (const std::exception& error) {
    return rejected(std::move(verdict), Verdict::Reason::Compile, error.what());
  }
  verdict.compile_seconds = artifact->compile_seconds();
  try {
    if (trial.verify) {
      constexpr std::size_t kMargin = 1024; // within the guard zones
      const auto check = reference::verify_kernel(
          trial.region, trial.program,
          [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
            backend::launch_on_host_memory(device, *artifact, program, block, 0, kMargin);
          },
          trial.sizes, trial.check);
      verdict.checked = check.checked;
      verdict.complete = check.complete;
      if (!check.ok)
        return rejected(std::move(verdict), Verdict::Reason::Wrong, check.message);
      verdict.state = Verdict::State::Verified;
    }
    if (trial.repetitions > 0) {
      verdict.seconds = time_launches(device, *artifact, trial);
      verdict.state = Verdict::State::Timed;
    }
  } catch (const Error& error) {
    return rejected(std::move(verdict),
                    error.kind() == ErrorKind::Device ? Verdict::Reason::Crash
                                                      : Verdict::Reason::Device,
                    error.what());
  }
  return verdict;
}

} // namespace egret::compiler
