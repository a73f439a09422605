#include "serve/metrics.h"

#include <algorithm>
#include <fmt/format.h>

namespace egret::serve {

namespace {

std::string head(const std::string& name, const std::string& help, const char* type) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string single(const std::string& name, const std::string& help, const char* type,
                   std::uint64_t value) {
  return head(name, help, type) + fmt::format("{} {}\n", name, value);
}

} // namespace

void Histogram::observe(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<std::size_t>(at - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string out = head(name, help, "histogram");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], below);
  }
  below += counts_.back();
  return out + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name,
                           below, sum_);
}

void Metrics::answered(const std::string& endpoint, int status) {
  const std::scoped_lock lock(mutex_);
  ++responses_[{endpoint, status}];
}

void Metrics::first_token(double seconds) {
  const std::scoped_lock lock(mutex_);
  first_token_.observe(seconds);
}

void Metrics::next_token(double seconds) {
  const std::scoped_lock lock(mutex_);
  next_token_.observe(seconds);
}

void Metrics::ended(double seconds, std::size_t prompt, std::size_t reused, std::size_t written) {
  const std::scoped_lock lock(mutex_);
  request_.observe(seconds);
  prompt_tokens_ += prompt;
  reused_tokens_ += reused;
  written_tokens_ += written;
}

void Metrics::cancelled() {
  const std::scoped_lock lock(mutex_);
  ++cancelled_;
}

void Metrics::handler_failed() {
  const std::scoped_lock lock(mutex_);
  ++failures_;
}

void Metrics::load(std::size_t running, std::size_t waiting) {
  const std::scoped_lock lock(mutex_);
  running_ = running;
  waiting_ = waiting;
}

void Metrics::cache(const models::CacheBlocks& blocks, std::uint64_t preempted) {
  const std::scoped_lock lock(mutex_);
  cache_ = blocks;
  preempted_ = preempted;
}

std::string Metrics::text() const {
  const std::scoped_lock lock(mutex_);
  std::string out =
      head("egret_http_responses_total", "Responses by endpoint and status", "counter");
  for (const auto& [of, count] : responses_)
    out += fmt::format("egret_http_responses_total{{endpoint=\"{}\",code=\"{}\"}} {}\n", of.first,
                       of.second, count);
  out += single("egret_prompt_tokens_total", "Tokens of prompts of requests that ended", "counter",
                prompt_tokens_);
  out += single("egret_prompt_tokens_reused_total", "Tokens of prompts that the cache held",
                "counter", reused_tokens_);
  out += single("egret_generated_tokens_total", "Tokens written by requests that ended", "counter",
                written_tokens_);
  out += single("egret_requests_cancelled_total", "Requests whose client left or whose time ended",
                "counter", cancelled_);
  out += single("egret_internal_errors_total", "Exceptions of the thread of connections", "counter",
                failures_);
  out += single("egret_requests_running", "Requests that are written now", "gauge", running_);
  out += single("egret_requests_waiting", "Requests that wait", "gauge", waiting_);
  const auto blocks = [&](const char* name, const char* help, std::int64_t value) {
    out += single(std::string("egret_cache_blocks_") + name, help, "gauge",
                  static_cast<std::uint64_t>(value));
  };
  blocks("used", "Blocks of the cache that running requests have", cache_.used);
  blocks("shared", "Blocks of the cache that several running requests have", cache_.shared);
  blocks("free", "Blocks of the cache that no running request has", cache_.all - cache_.used);
  blocks("cached", "Free blocks whose tokens are not read again where a prompt has them",
         cache_.cached);
  out += single("egret_cache_blocks_copied_total", "Blocks copied before they were written to",
                "counter", cache_.copied);
  out += single("egret_cache_blocks_evicted_total", "Cached blocks that were taken for others",
                "counter", cache_.evicted);
  out += single("egret_requests_preempted_total",
                "Running requests that had to wait again because blocks were missing", "counter",
                preempted_);
  out += first_token_.text("egret_time_to_first_token_seconds",
                           "From the arrival of a request to its first token");
  out += next_token_.text("egret_time_per_token_seconds", "Between tokens of a request");
  out += request_.text("egret_request_seconds", "From the arrival of a request to its end");
  return out;
}

} // namespace egret::serve
