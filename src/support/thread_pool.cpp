#include "support/thread_pool.h"

#include "support/fail.h"
#include "support/forks.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace egret {
namespace {

// Long enough to bridge the gap between two kernels of one step, short enough that nobody notices
// it as load.
constexpr auto kSpinTime = std::chrono::microseconds(60);

// A thread that begins so much later than it was called was not let onto a core: one that sleeps is
// woken within a tenth. How long fewer threads meet then, at first and at most, as it doubles
// whenever the next try finds a late thread.
constexpr std::int64_t kLate = 500'000, kFirstPatience = 10'000'000, kMostPatience = 160'000'000;

std::int64_t steady_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// More threads than cores: one that spins keeps the core from the one that it waits for.
bool oversubscribed(int threads) noexcept {
  static const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores > 0 && threads > cores;
}

// Spins until done() or for kSpinTime; true when done() held. `threads` take part in what is waited
// for.
template <class Done>
bool spin(int threads, Done done) noexcept {
  if (oversubscribed(threads))
    return done();
  for (int i = 0; i < 64; ++i) {
    if (done())
      return true;
    relax();
  }
  auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done())
        return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

// The pool whose run this thread is inside of.
thread_local const ThreadPool* current_pool = nullptr;

class Inside {
public:
  explicit Inside(const ThreadPool* pool) noexcept : before_(current_pool) { current_pool = pool; }
  ~Inside() { current_pool = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

private:
  const ThreadPool* before_;
};

// Workers whose threads are those of the process that this one was forked from. They stay in
// memory: there is nothing to join.
template <class Worker>
void give_up(std::vector<std::unique_ptr<Worker>>& workers) {
  static std::mutex guard;
  static auto* const given_up = new std::vector<const void*>;
  std::lock_guard lock(guard);
  for (auto& worker : workers)
    given_up->push_back(worker.release());
  workers.clear();
}

} // namespace

void Barrier::reset(int parties) noexcept {
  parties_ = parties;
  arrived_.store(0, std::memory_order_relaxed);
}

void Barrier::wait() noexcept {
  std::uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties_) {
    arrived_.store(0, std::memory_order_relaxed);
    // Sequentially consistent with the sleeper's increment: one of the two sees the other.
    round_.store(round + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0)
      round_.notify_all();
    return;
  }
  auto passed = [&] { return round_.load(std::memory_order_acquire) != round; };
  if (spin(parties_, passed))
    return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (round_.load(std::memory_order_seq_cst) == round)
    round_.wait(round, std::memory_order_seq_cst);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

// A thread and the mailbox by which it learns of work: `ticket` grows by one for each run that it
// takes part in, and `claimed` becomes the ticket when its call is begun, by itself or by the
// caller.
struct alignas(64) ThreadPool::Worker {
  std::atomic<std::uint32_t> ticket{0};
  std::atomic<std::uint32_t> claimed{0};
  std::atomic<bool> sleeps{false};
  std::atomic<bool> quit{false};
  const std::uint32_t forks = egret::forks(); ///< of the process that has the thread
  std::thread thread;

  bool claim(std::uint32_t of) noexcept {
    std::uint32_t before = of - 1;
    return claimed.compare_exchange_strong(before, of, std::memory_order_acq_rel);
  }
  void wake() noexcept {
    ticket.fetch_add(1, std::memory_order_seq_cst);
    if (sleeps.load(std::memory_order_seq_cst))
      ticket.notify_one();
  }
};

ThreadPool::ThreadPool(int size) : size_(size) {
  ensure(size >= 1, "a thread pool of {} workers", size);
}

ThreadPool::~ThreadPool() {
  if (!workers_.empty() && workers_[0]->forks != forks())
    give_up(workers_);
  for (auto& worker : workers_) {
    worker->quit.store(true, std::memory_order_relaxed);
    worker->wake();
  }
  for (auto& worker : workers_)
    worker->thread.join();
}

bool ThreadPool::inside() const noexcept {
  return current_pool == this;
}

void ThreadPool::start(int workers) {
  if (!workers_.empty() && workers_[0]->forks != forks())
    give_up(workers_);
  while (static_cast<int>(workers_.size()) + 1 < workers) {
    auto worker = std::make_unique<Worker>();
    int number = static_cast<int>(workers_.size()) + 1;
    workers_.reserve(workers_.size() + 1);
    try {
      worker->thread = std::thread([this, w = worker.get(), number] { work(*w, number); });
    } catch (const std::system_error& e) {
      fail(ErrorKind::Device, "thread pool: thread {} of {} cannot be started: {}", number, size_,
           e.what());
    }
    workers_.push_back(std::move(worker));
  }
}

void ThreadPool::work(Worker& worker, int number) noexcept {
  Inside inside(this);
  std::uint32_t seen = 0;
  for (;;) {
    auto called = [&] { return worker.ticket.load(std::memory_order_acquire) != seen; };
    if (!spin(size_, called)) {
      worker.sleeps.store(true, std::memory_order_seq_cst);
      while (worker.ticket.load(std::memory_order_seq_cst) == seen)
        worker.ticket.wait(seen, std::memory_order_seq_cst);
      worker.sleeps.store(false, std::memory_order_relaxed);
    }
    seen = worker.ticket.load(std::memory_order_acquire);
    if (worker.quit.load(std::memory_order_relaxed))
      return;
    const std::int64_t now = steady_now();
    if (now - called_.load(std::memory_order_relaxed) > kLate)
      note_late(now);
    if (!worker.claim(seen))
      continue;
    call(*function_, number, active_);
    if (remaining_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        caller_sleeps_.load(std::memory_order_seq_cst))
      remaining_.notify_one();
  }
}

// Half of the workers meet until some time has passed.
void ThreadPool::note_late(std::int64_t now) noexcept {
  const std::int64_t until = late_until_.load(std::memory_order_relaxed);
  if (until != 0 && now < until)
    return; // known
  const std::int64_t last = patience_.load(std::memory_order_relaxed);
  const bool again = last != 0 && now - until < last;
  const std::int64_t patience = again ? std::min(2 * last, kMostPatience) : kFirstPatience;
  patience_.store(patience, std::memory_order_relaxed);
  late_until_.store(now + patience, std::memory_order_relaxed);
}

int ThreadPool::prompt(int workers) noexcept {
  const std::int64_t until = late_until_.load(std::memory_order_relaxed);
  if (until == 0)
    return workers;
  const std::int64_t now = steady_now();
  if (now < until)
    return std::min(workers, std::max(1, size_ / 2));
  if (now - until > patience_.load(std::memory_order_relaxed))
    late_until_.store(0, std::memory_order_relaxed);
  return workers;
}

void ThreadPool::call(const WorkerFunction& f, int worker, int workers) noexcept {
  try {
    f(worker, workers);
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_)
      error_ = std::current_exception();
  }
}

void ThreadPool::run(int workers, WorkerFunction f, bool together) {
  if (inside()) {
    f(0, 1);
    return;
  }
  workers = std::max(1, std::min(workers, size_));
  std::lock_guard turn(turn_);
  Inside inside(this);
  if (workers == 1) {
    f(0, 1);
    return;
  }
  start(workers);
  function_ = &f;
  active_ = workers;
  remaining_.store(workers - 1, std::memory_order_relaxed);
  called_.store(steady_now(), std::memory_order_relaxed);
  for (int i = 1; i < workers; ++i)
    workers_[static_cast<std::size_t>(i - 1)]->wake();
  call(f, 0, workers);
  for (int i = 1; i < workers && !together; ++i) {
    Worker& worker = *workers_[static_cast<std::size_t>(i - 1)];
    if (worker.claim(worker.ticket.load(std::memory_order_relaxed))) {
      call(f, i, workers);
      remaining_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  if (!spin(workers, [&] { return remaining_.load(std::memory_order_acquire) == 0; })) {
    caller_sleeps_.store(true, std::memory_order_seq_cst);
    for (int left; (left = remaining_.load(std::memory_order_seq_cst)) != 0;)
      remaining_.wait(left, std::memory_order_seq_cst);
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }
  if (error_)
    std::rethrow_exception(std::exchange(error_, nullptr));
}

} // namespace egret
