#include "compiler/generate_code.h"

#include "compiler/refusals.h"
#include "kernel/code_length.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

namespace egret::compiler {

GeneratedCode generate_code(const kernel::Plan& plan, const std::vector<Chain>& chains,
                            backend::Device& device, KernelCache& cache) {
  // Kernels that something launches, then chains.
  std::vector<std::size_t> wanted;
  const std::vector<bool> alone = launched_alone(plan, chains);
  for (std::size_t i = 0; i < plan.kernels.size(); ++i)
    if (alone[i] || chains.empty())
      wanted.push_back(i);
  const std::size_t kernels = wanted.size(), n = kernels + chains.size();
  const auto program_of = [&](std::size_t i) -> const kernel::KernelProgram& {
    return i < kernels ? plan.kernels[wanted[i]].program : chains[i - kernels].program;
  };
  // The longest first: else the last thread to take one would keep all others waiting.
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < n; ++i)
    lengths.push_back(kernel::code_length(program_of(i)));
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return lengths[i]; });
  GeneratedCode built;
  built.artifacts.resize(plan.kernels.size());
  built.chains.resize(chains.size());
  std::atomic<std::size_t> next{0};
  std::atomic<int> compiled{0}, loaded{0};
  std::exception_ptr failure;
  std::mutex guard;
  auto work = [&] {
    for (std::size_t turn; (turn = next++) < n;) {
      const std::size_t i = order[turn];
      try {
        bool was_cached = false;
        auto& artifact = i < kernels ? built.artifacts[wanted[i]] : built.chains[i - kernels];
        artifact = cache.get(program_of(i), device, &was_cached);
        (artifact->loaded() ? loaded : compiled) += !was_cached;
      } catch (...) {
        std::lock_guard lock(guard);
        if (refusal_of(std::current_exception())) {
          (i < kernels ? built.refused[wanted[i]] : built.refused_chain) = std::current_exception();
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
  const auto made = [](const auto& list) {
    return static_cast<int>(
        std::count_if(list.begin(), list.end(), [](const auto& a) { return a != nullptr; }));
  };
  built.cached = made(built.artifacts) + made(built.chains) - compiled - loaded;
  return built;
}

} // namespace egret::compiler
