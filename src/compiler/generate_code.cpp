#include "compiler/generate_code.h"

#include "compiler/refusals.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace egret::compiler {

GeneratedCode generate_code(const kernel::Plan& plan, backend::Device& device, KernelCache& cache) {
  const std::size_t n = plan.kernels.size();
  GeneratedCode built;
  built.artifacts.resize(n);
  std::atomic<std::size_t> next{0};
  std::atomic<int> compiled{0}, loaded{0};
  std::exception_ptr failure;
  std::mutex guard;
  auto work = [&] {
    for (std::size_t i; (i = next++) < n;) {
      try {
        bool was_cached = false;
        built.artifacts[i] = cache.get(plan.kernels[i].program, device, &was_cached);
        (built.artifacts[i]->loaded() ? loaded : compiled) += !was_cached;
      } catch (...) {
        std::lock_guard lock(guard);
        if (refusal_of(std::current_exception())) {
          built.refused[i] = std::current_exception();
        } else {
          failure = std::current_exception();
          next = n;
        }
      }
    }
  };
  const std::size_t helpers =
      std::min<std::size_t>(n, static_cast<std::size_t>(std::max(1, device.compile_threads())));
  std::vector<std::jthread> threads;
  for (std::size_t t = 1; t < helpers; ++t)
    threads.emplace_back(work);
  work();
  threads.clear();
  if (failure)
    std::rethrow_exception(failure);
  built.compiled = compiled;
  built.loaded = loaded;
  built.cached = static_cast<int>(n - built.refused.size()) - compiled - loaded;
  return built;
}

} // namespace egret::compiler
