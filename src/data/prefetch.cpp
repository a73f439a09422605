#include "egret/prefetch.h"

#include "support/fail.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace egret::data {

// Batches are numbered through all epochs. Workers take the numbers from `next` on, as long as they
// are less than `ahead` beyond `wanted`, and put what they made into `ready`.
struct PrefetchLoader::Impl {
  struct Batch {
    std::vector<Tensor> tensors;
    std::exception_ptr error;
  };

  Impl(std::int64_t batches_an_epoch, Make maker, const PrefetchOptions& options)
      : batches(batches_an_epoch), make(std::move(maker)),
        ahead(std::max<std::int64_t>(1, options.ahead)) {
    for (std::int64_t i = 0; i < options.workers; ++i)
      workers.emplace_back([this] { work(); });
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex);
      ending = true;
    }
    room.notify_all();
    for (std::thread& worker : workers)
      worker.join();
  }
  Impl(const Impl&) = delete;

  Batch made(std::int64_t number) const {
    Batch batch;
    try {
      batch.tensors = make(number / batches, number % batches);
    } catch (...) {
      batch.error = std::current_exception();
    }
    return batch;
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      room.wait(lock, [&] { return ending || (!failed && next < wanted + ahead); });
      if (ending)
        return;
      const std::int64_t number = next++;
      const std::uint64_t round = seeks;
      lock.unlock();
      Batch batch = made(number);
      lock.lock();
      if (round != seeks)
        continue; // next() has moved elsewhere
      ready.emplace(number, std::move(batch));
      arrived.notify_all();
    }
  }

  Batch take(std::int64_t number) {
    if (workers.empty())
      return made(number);
    std::unique_lock lock(mutex);
    failed = false;
    if (number != wanted) {
      ready.clear();
      ++seeks;
      wanted = next = number;
    }
    room.notify_all();
    arrived.wait(lock, [&] { return ready.contains(number); });
    Batch batch = std::move(ready.at(number));
    ready.erase(number);
    if (batch.error) { // the same call makes it anew, and nobody before it does
      failed = true;
      ++seeks;
      ready.clear();
      next = wanted;
      return batch;
    }
    ++wanted;
    room.notify_all();
    return batch;
  }

  const std::int64_t batches;
  const Make make;
  const std::int64_t ahead;
  std::mutex mutex;
  std::condition_variable room, arrived;
  bool ending = false, failed = false;
  std::int64_t wanted = 0, next = 0;
  std::uint64_t seeks = 0;
  std::map<std::int64_t, Batch> ready;
  std::vector<std::thread> workers; // last: they use what stands before
};

namespace {

/// Orders of epochs, made once for all batches of one.
class Orders {
public:
  explicit Orders(const Loader& loader) : loader_(loader) {}
  std::shared_ptr<const std::vector<std::int64_t>> of(std::int64_t epoch) {
    std::lock_guard lock(mutex_);
    auto& order = known_[epoch];
    if (!order)
      order = std::make_shared<const std::vector<std::int64_t>>(loader_.order(epoch));
    auto found = order;
    constexpr std::size_t kKept =
        2; // workers may be at the end of one and at the start of the next
    while (known_.size() > kKept)
      known_.erase(known_.begin()->first == epoch ? std::prev(known_.end()) : known_.begin());
    return found;
  }

private:
  const Loader& loader_;
  std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<const std::vector<std::int64_t>>> known_;
};

/// A loader with its orders; shared by the copies of the function that uses it.
struct Source {
  explicit Source(Loader l) : loader(std::move(l)), orders(loader) {}
  Loader loader;
  Orders orders;
};

PrefetchLoader::Make maker_of(const std::shared_ptr<Source>& source) {
  return [source](std::int64_t epoch, std::int64_t batch) {
    return source->loader.batch(*source->orders.of(epoch), batch);
  };
}

} // namespace

PrefetchLoader::PrefetchLoader(std::int64_t batches_an_epoch, Make make,
                               const PrefetchOptions& options)
    : position(tensor(std::vector<std::int64_t>{0, 0})) {
  if (batches_an_epoch <= 0)
    fail(ErrorKind::Value, "PrefetchLoader: an epoch of {} batches", batches_an_epoch);
  if (options.workers < 0 || options.workers > 256)
    fail(ErrorKind::Value, "PrefetchLoader: {} workers; 0 to 256", options.workers);
  impl_ = std::make_unique<Impl>(batches_an_epoch, std::move(make), options);
}

PrefetchLoader::PrefetchLoader(Loader loader, const PrefetchOptions& options)
    // In braces, so that batches() is asked before the loader goes.
    : PrefetchLoader{loader.batches(), maker_of(std::make_shared<Source>(std::move(loader))),
                     options} {}

PrefetchLoader::~PrefetchLoader() = default;
PrefetchLoader::PrefetchLoader(PrefetchLoader&&) noexcept = default;
PrefetchLoader& PrefetchLoader::operator=(PrefetchLoader&&) noexcept = default;

std::int64_t PrefetchLoader::epoch() const {
  return position.to_vector<std::int64_t>()[0];
}
std::int64_t PrefetchLoader::batch() const {
  return position.to_vector<std::int64_t>()[1];
}
std::int64_t PrefetchLoader::batches() const {
  return impl_->batches;
}

std::vector<Tensor> PrefetchLoader::next() {
  const auto at = position.to_vector<std::int64_t>();
  constexpr std::int64_t kMostEpochs = std::int64_t{1} << 31; // so that numbers of batches fit
  if (at[0] < 0 || at[0] >= kMostEpochs || at[1] < 0 || at[1] >= impl_->batches)
    fail(ErrorKind::Value, "PrefetchLoader: no batch {} of {} in epoch {}", at[1], impl_->batches,
         at[0]);
  Impl::Batch batch = impl_->take(at[0] * impl_->batches + at[1]);
  if (batch.error)
    std::rethrow_exception(batch.error);
  const bool last = at[1] + 1 == impl_->batches;
  position.assign(
      tensor(std::vector<std::int64_t>{last ? at[0] + 1 : at[0], last ? 0 : at[1] + 1}));
  return std::move(batch.tensors);
}

} // namespace egret::data
