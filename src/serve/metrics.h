// Counters of a server in the text format of Prometheus.
#pragma once

#include "egret/language_model.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace egret::serve {

/// Seconds by how many observations were at most so long.
class Histogram {
public:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                                     0.2,   0.5,   1,     2,    5,    10,   60};
  void observe(double seconds);
  /// Lines for Prometheus under a name.
  std::string text(const std::string& name, const std::string& help) const;

private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_ = {}; ///< of each interval
  double sum_ = 0;
};

/// Any number of threads.
class Metrics {
public:
  void answered(const std::string& endpoint, int status); ///< a response has begun
  void first_token(double seconds);                       ///< since the request came
  void next_token(double seconds);                        ///< since the one before
  /// A request, in seconds since it came, and its tokens.
  void ended(double seconds, std::size_t prompt, std::size_t reused, std::size_t written);
  void cancelled();
  void handler_failed(); ///< an exception that no request is answerable for
  void load(std::size_t running, std::size_t waiting); ///< texts, now
  /// Blocks of the cache, now, and how often a text had to wait again for them.
  void cache(const models::CacheBlocks& blocks, std::uint64_t preempted);

  std::string text() const;

private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> responses_;
  std::uint64_t prompt_tokens_ = 0, reused_tokens_ = 0, written_tokens_ = 0, cancelled_ = 0,
                failures_ = 0;
  std::size_t running_ = 0, waiting_ = 0;
  models::CacheBlocks cache_;
  std::uint64_t preempted_ = 0;
  Histogram first_token_, next_token_, request_;
};

} // namespace egret::serve
