#include "tensor/queue.h"

#include "egret/streams.h"
#include "runtime/count.h"
#include "runtime/environment.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/forks.h"
#include "tensor/engine.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace egret {
namespace detail {
namespace {

// Read for each operation: alone in its line of memory, as others that all threads read.
struct alignas(64) Limits {
  std::atomic<std::int64_t> operations, bytes;
};

Limits& limits() noexcept {
  static auto* const values = [] {
    const QueueLimits usual;
    auto* const made = new Limits{static_cast<std::int64_t>(usual.operations),
                                  static_cast<std::int64_t>(usual.bytes)};
    try {
      if (const auto text = runtime::environment("EGRET_QUEUE_OPS"))
        made->operations = runtime::parse_queue_operations(*text, "EGRET_QUEUE_OPS");
      if (const auto text = runtime::environment("EGRET_QUEUE_MB"))
        made->bytes = std::int64_t{runtime::parse_megabytes(*text, "EGRET_QUEUE_MB")} << 20;
    } catch (const Error&) { // the runtime, which checks all variables, reports it
    }
    return made;
  }();
  return *values;
}

// Streams of threads that have ended.
struct FreeStreams {
  std::mutex mutex;
  std::vector<Stream*> list;
};

FreeStreams& free_streams() noexcept {
  static auto* const streams = new FreeStreams; // outlives tensors of static duration
  return *streams;
}

std::atomic<Stream*> all_streams{nullptr};

thread_local bool stream_returned = false; // also read by what the thread destroys later

void end_background() noexcept;

// What the thread keeps of stores, before another thread gets the stream.
void forget_recent(Stream& stream) noexcept {
  stream.plans.reset();
  stream.derivations.reset();
  stream.forms.reset();
  stream.walk.reset();
}

// When the thread ends: gives its stream back. With the main thread the process ends.
struct StreamReturn {
  ~StreamReturn() {
    if (::gettid() == ::getpid())
      end_background();
    else
      forget_recent(*own_stream);
    FreeStreams& free = free_streams();
    std::lock_guard lock(free.mutex);
    free.list.push_back(std::exchange(own_stream, nullptr));
    stream_returned = true;
  }
};

} // namespace

Stream& take_stream() {
  FreeStreams& free = free_streams();
  {
    std::lock_guard lock(free.mutex);
    if (free.list.empty()) {
      own_stream = new Stream; // nodes refer to it for as long as they live
      static std::uint64_t streams = 0;
      own_stream->number = streams++;
      own_stream->next = all_streams.load(std::memory_order_relaxed);
      while (!all_streams.compare_exchange_weak(own_stream->next, own_stream)) {
      }
    } else {
      own_stream = free.list.back();
      free.list.pop_back();
    }
  }
  if (!stream_returned) { // else it is not given back: a few bytes
    thread_local const StreamReturn at_end;
    static_cast<void>(at_end);
  }
  return *own_stream;
}

namespace {

[[gnu::tls_model("initial-exec")]] thread_local int holds = 0;

// The values that handles hold of a stream's pending operations.
std::vector<NodePtr> pending_values(const Stream& stream) {
  std::vector<NodePtr> all;
  for_each_handle([&](const Handle& handle) {
    if (handle.holds())
      all.push_back(handle.node());
  });
  std::vector<NodePtr> roots;
  {
    std::lock_guard lock(engine_mutex());
    for (const NodePtr& node : all)
      if (node->stream == &stream && !node->is_leaf_value() && !node->in_flight && !node->failure &&
          !node->scope)
        roots.push_back(node);
  }
  return roots;
}

// What reading all of them computes. Those that are found to be lost (Node::failure) keep no other
// one from being computed; the first error is thrown behind that.
void run_queue(Stream& stream, const char* who) {
  std::exception_ptr first;
  for (std::size_t left = std::numeric_limits<std::size_t>::max();;) {
    const std::vector<NodePtr> roots = pending_values(stream);
    if (roots.empty() || roots.size() >= left)
      break;
    left = roots.size();
    try {
      evaluate_held(roots, who);
      break;
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first)
    std::rethrow_exception(first);
}

// Runs the queue if there are `times` the limits in it.
void run_beyond(Stream& stream, std::int64_t times) noexcept {
  const std::int64_t operations = stream.operations.value();
  const std::int64_t bytes = stream.bytes.value();
  stream.operations_left = std::min(stream.operations_left, operations);
  stream.bytes_left = std::min(stream.bytes_left, bytes);
  const Limits& most = limits();
  if (operations - stream.operations_left <
          times * most.operations.load(std::memory_order_relaxed) &&
      bytes - stream.bytes_left < times * most.bytes.load(std::memory_order_relaxed))
    return;
  if (holds > 0 || current_scope())
    return;
  const QueueHold hold; // what is recorded on the way is not the user's
  try {
    run_queue(stream, "queue");
  } catch (...) { // a read of what is pending still throws it
  }
  stream.operations_left = stream.operations.value();
  stream.bytes_left = stream.bytes.value();
}

void evaluate_quietly(std::span<const NodePtr> roots, const char* who) noexcept {
  try {
    evaluate(roots, who);
  } catch (...) { // a read of what is pending still throws it
  }
}

// The thread of async_eval(), made at its first use. It ends when the process exits, with what it
// is at: before static objects are destroyed, which it may use. Those that were made after it would
// go before a function of atexit(); objects of the main thread go before all of them. atexit() is
// for processes that exit from another thread.
class Background {
public:
  /// This process's, or the one that it was forked from.
  static Background& instance() {
    Place& place = Background::place();
    std::lock_guard lock(place.mutex);
    if (!place.background || place.background->forks_ != forks())
      place.background = new Background(place.background);
    return *place.background;
  }
  static void end_if_begun() noexcept {
    Background* background = nullptr;
    {
      Place& place = Background::place();
      std::lock_guard lock(place.mutex);
      if (place.background && place.background->forks_ == forks())
        background = place.background;
    }
    if (background)
      background->end();
  }
  /// Not kept for their own sake: what nobody holds any more is not computed. Whether there was
  /// room: a thread that asks for more than this one can do is to do it itself.
  bool put(std::span<const NodePtr> roots) {
    {
      std::lock_guard lock(mutex_);
      if (ending_)
        return true;
      if (waiting_.size() >= kMostWaiting)
        return false;
      waiting_.emplace_back(roots.begin(), roots.end());
    }
    changed_.notify_one();
    return true;
  }

private:
  static constexpr std::size_t kMostWaiting = 256;
  struct Place {
    std::mutex mutex;
    Background* background = nullptr;
  };
  static Place& place() noexcept {
    static auto* const place = new Place;
    return *place;
  }
  explicit Background(Background* before) : before_(before) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      fail(ErrorKind::Device, "async_eval: its thread cannot be started: {}", error.what());
    }
    if (!before)
      std::atexit(end_background);
  }
  void run() {
    for (;;) {
      std::vector<std::weak_ptr<Node>> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
        if (ending_)
          return;
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      std::vector<NodePtr> roots;
      for (const std::weak_ptr<Node>& root : next)
        if (NodePtr node = root.lock())
          roots.push_back(std::move(node));
      if (!roots.empty())
        evaluate_quietly(roots, "async_eval");
    }
  }
  void end() noexcept {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    std::lock_guard lock(end_mutex_);
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id())
      thread_.join();
  }

  [[maybe_unused]] Background* const before_; ///< of the process that this one was forked from
  const std::uint32_t forks_ = forks();
  std::mutex mutex_, end_mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::weak_ptr<Node>>> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

void end_background() noexcept {
  Background::end_if_begun();
}

// Whether the device in use computes while the thread goes on. A thread keeps the last answer.
bool computes_beside() {
  thread_local std::uint64_t known = 0;
  thread_local bool is_gpu = false;
  runtime::Runtime& runtime = runtime::Runtime::instance();
  if (const std::uint64_t place = runtime.place(); place != known) {
    is_gpu = runtime.target().is_gpu();
    known = place;
  }
  return is_gpu;
}

} // namespace

Stream* first_stream() noexcept {
  return all_streams.load();
}

void statement_ended() noexcept {
  Stream& stream = this_stream();
  if (stream.triggers.is_due() && holds == 0 && !current_scope()) {
    const QueueHold hold;
    try {
      if (const NodePtr due = stream.triggers.take_due()) {
        runtime::count().plans_triggered.add(1);
        evaluate(due, "queue");
      }
    } catch (...) { // a read of what is pending still throws it
    }
  }
  run_beyond(stream, 1);
}

void values_read(std::span<const NodePtr> roots, bool computed) {
  if (holds > 0)
    return;
  bool asynchronous = false;
  if (computed && roots.size() == 1) {
    const runtime::ThreadDevice device(device_for(roots[0]->placement()));
    asynchronous = computes_beside();
  }
  this_stream().triggers.read(roots.size() == 1 ? roots[0].get() : nullptr, computed, asynchronous);
}

void operation_recorded(Stream& stream) noexcept {
  stream.operations.add(1, true);
  run_beyond(stream, 2);
}

QueueHold::QueueHold() noexcept {
  ++holds;
}
QueueHold::~QueueHold() {
  --holds;
}

} // namespace detail

using namespace detail;

void set_queue_limits(const QueueLimits& to) {
  if (to.operations < 1 || to.operations > 1'000'000)
    fail(ErrorKind::Value, "set_queue_limits: {} operations; they are to be 1 to 1000000",
         to.operations);
  if (to.bytes < 1 || to.bytes > std::uint64_t{1} << 60)
    fail(ErrorKind::Value, "set_queue_limits: {} bytes; they are to be 1 to 2^60", to.bytes);
  limits().operations = static_cast<std::int64_t>(to.operations);
  limits().bytes = static_cast<std::int64_t>(to.bytes);
}

QueueLimits queue_limits() noexcept {
  return {static_cast<std::uint64_t>(limits().operations.load()),
          static_cast<std::uint64_t>(limits().bytes.load())};
}

void sync() {
  const QueueHold hold;
  run_queue(this_stream(), "sync");
  auto& stream = this_stream();
  stream.devices.insert(runtime::ThreadDevice::now());
  for (const runtime::DeviceNumber number : std::exchange(stream.devices, {})) {
    const runtime::ThreadDevice device(number);
    runtime::Runtime::instance().device().synchronize();
  }
}

void async_eval(std::span<const Tensor> tensors) {
  std::vector<NodePtr> roots;
  for (const Tensor& t : tensors)
    roots.push_back(Access::readable(t, "async_eval"));
  {
    std::lock_guard lock(engine_mutex());
    walk(roots, WalkOutputs::Roots, nullptr, "async_eval"); // refuses what is not known yet
  }
  this_stream(); // the main thread's ends the one that is asked, before static objects go
  if (Background::instance().put(roots))
    return;
  const QueueHold hold; // it is no read of the user's
  evaluate_quietly(roots, "async_eval");
}

} // namespace egret
