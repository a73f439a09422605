// How long a run takes: by the host's clock on a CPU, by the device's own on a GPU.
#include "bench.h"
#include "console.h"

#include "backend/cuda/context.h"
#include "backend/cuda/cuda_device.h"
#include "runtime/runtime.h"

#include <algorithm>
#include <chrono>
#include <memory>

namespace egret::tool::bench {

namespace {

using Clock = std::chrono::steady_clock;

// A few rounds are timed however long they take, unless even those take far longer than asked for.
constexpr std::size_t kRounds = 3;
bool enough(const Times& times, double spent, std::size_t least, const MeasureOptions& options) {
  return (spent >= options.seconds && times.seconds.size() >= least) ||
         (spent > 10 * options.seconds && times.seconds.size() >= kRounds);
}

/// Short runs are timed several at a time, so that the clock is not what is measured.
Times by_clock(const std::function<void()>& run, const MeasureOptions& options) {
  auto start = Clock::now();
  run();
  const int together = std::max(1, static_cast<int>(1e-3 / std::max(1e-9, seconds_since(start))));
  auto round = [&] {
    start = Clock::now();
    for (int i = 0; i < together; ++i)
      run();
    return seconds_since(start);
  };
  for (double spent = 0; spent < 0.1;) // warm up
    spent += round();
  Times times;
  for (double spent = 0; !enough(times, spent, static_cast<std::size_t>(options.reps), options);) {
    const double t = round();
    spent += t;
    times.seconds.push_back(t / together);
  }
  times.runs = static_cast<std::int64_t>(times.seconds.size()) * together;
  return times;
}

/// Work for the device to do while the host queues what is timed: copies of a large buffer.
class Filling {
public:
  explicit Filling(backend::Device& device) : device_(device) {
    const std::size_t free = device.memory().free;
    bytes_ = std::min(kMost, free / 8) / 256 * 256;
    memory_ = device.allocate(2 * bytes_);
    seconds_ = copies(8) / 8;
  }
  ~Filling() { device_.release(memory_, 2 * bytes_); }
  Filling(const Filling&) = delete;
  Filling& operator=(const Filling&) = delete;

  /// Queues copies that take about so long.
  void fill(double seconds) {
    for (double done = 0; done < seconds; done += seconds_)
      queue();
  }

private:
  static constexpr std::size_t kMost = std::size_t{256} << 20;

  void queue() { device_.copy(static_cast<std::byte*>(memory_) + bytes_, memory_, bytes_); }
  double copies(int count) {
    queue();
    device_.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i)
      queue();
    device_.synchronize();
    return std::max(1e-6, seconds_since(start));
  }

  backend::Device& device_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  double seconds_ = 0;
};

Times by_device(const std::function<void()>& run, backend::Device& device,
                const backend::cuda::Context& context, const MeasureOptions& options) {
  const int reps = std::max(20, options.reps);
  Filling filling(device);
  double queueing = 0; // what the host takes for a round
  for (int i = 0; i < 2; ++i) {
    device.synchronize();
    const auto start = Clock::now();
    for (int k = 0; k < reps; ++k)
      run();
    queueing = seconds_since(start);
  }
  device.synchronize();
  // A host that waits for its runs is not to be waited for in vain.
  const double fill = std::min(0.25, 1.25 * queueing + 1e-3);
  Times times;
  backend::cuda::Event begin(context, true), end(context, true);
  const auto start = Clock::now();
  do {
    filling.fill(fill);
    begin.record();
    for (int k = 0; k < reps; ++k)
      run();
    end.record();
    end.wait();
    times.seconds.push_back(end.seconds_since(begin) / reps);
  } while (!enough(times, seconds_since(start), 2 * kRounds - 1, options));
  times.runs = static_cast<std::int64_t>(times.seconds.size()) * reps;
  return times;
}

} // namespace

Times time_runs(const std::function<void()>& run, const MeasureOptions& options) {
  backend::Device& device = runtime::Runtime::instance().device();
  const auto* context = backend::cuda::context_of(device);
  Times times = context ? by_device(run, device, *context, options) : by_clock(run, options);
  std::sort(times.seconds.begin(), times.seconds.end());
  return times;
}

std::size_t sets_of(double bytes) {
  const backend::Device& device = runtime::Runtime::instance().device();
  if (!backend::cuda::context_of(device))
    return 1;
  const double beyond = 3 * static_cast<double>(device.target().l2_bytes);
  return static_cast<std::size_t>(std::clamp(beyond / std::max(1.0, bytes), 1.0, 32.0)) +
         (bytes < beyond ? 1 : 0);
}

} // namespace egret::tool::bench
