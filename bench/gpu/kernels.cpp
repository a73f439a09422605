// Kernels of the GPU's generators on a GPU: first every form that regions come in against the
// region evaluator, then the time of element-wise, row and column kernels beside a copy of as many
// bytes. Prints one line a check that fails and one a schedule that was timed.
//   gpu_kernels check
//   gpu_kernels time [NAME [SCHEDULE...]]    cases whose names contain NAME, with these schedules
//   gpu_kernels text NAME [SCHEDULE...]      needs no GPU: the CUDA C++ of each for an H200
//   gpu_kernels cost NAME [SCHEDULE...]      needs NVRTC but no GPU: registers and spills of each
// NAME may be a file with a graph in its text form (docs/graph.md): each of its kernels is a case.
#include "backend/clike/renderer.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "kernel/generator.h"
#include "support/attention_graphs.h"
#include "support/random_graph.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace egret {
namespace {

using backend::Artifact;
using backend::Device;
using ir::Graph;
using ir::NodeId;
using kernel::KernelProgram;
using kernel::Region;
using testing::regions_of;

std::int64_t size_in(const Expr& e, const KernelProgram& p, const std::int64_t* dims) {
  return evaluate(e, [&](const Expr& v) {
    auto at = std::find(p.dims.begin(), p.dims.end(), v);
    return at == p.dims.end() ? 0 : dims[at - p.dims.begin()];
  });
}

/// Runs a program with arguments in host memory.
void launch_with_copies(Device& device, const Artifact& artifact, const KernelProgram& p,
                        const kernel::ArgBlock& block) {
  std::map<void*, std::pair<void*, std::size_t>> copies;
  std::vector<void*> pointers;
  std::size_t i = 0;
  for (const kernel::Buffer& b : p.buffers) {
    if (b.space != kernel::Space::Argument && b.space != kernel::Space::Workspace)
      continue;
    void* host = block.pointers[i++];
    const std::size_t bytes = std::size_t(size_in(b.elements, p, block.dims)) * size_of(b.dtype);
    auto [it, fresh] = copies.try_emplace(host, nullptr, bytes);
    if (fresh) {
      it->second.first = device.allocate(std::max<std::size_t>(bytes, 64));
      device.copy_in(it->second.first, host, bytes);
    }
    pointers.push_back(it->second.first);
  }
  kernel::ArgBlock there = block;
  there.pointers = pointers.data();
  device.launch(artifact, p, there, 0);
  device.synchronize();
  for (auto& [host, copy] : copies) {
    device.copy_out(host, copy.first, copy.second);
    device.release(copy.first, copy.second);
  }
}

/// Runs `body(i)` for i below `count` on all threads of the host.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < count;)
        body(i);
    });
}

struct Job {
  Region region;
  backend::reference::Bindings sizes;
  kernel::Schedule schedule;
  KernelProgram program;
  std::shared_ptr<const Artifact> artifact;
  std::string error;
};

void compile_all(Device& device, std::vector<Job>& jobs) {
  in_parallel(jobs.size(), [&](std::size_t i) {
    try {
      jobs[i].artifact = device.compile(jobs[i].program);
    } catch (const std::exception& e) {
      jobs[i].error = e.what();
    }
  });
}

void add_jobs(std::vector<Job>& jobs, const Region& region,
              const backend::reference::Bindings& sizes, const kernel::Target& target,
              std::size_t most) {
  for (const kernel::Generator* generator : kernel::generators(target)) {
    auto schedules = generator->space(region, target);
    for (std::size_t i = 0; i < schedules.size() && i < most; ++i) {
      auto lowered = generator->lower(region, schedules[i], target);
      if (lowered.ok)
        jobs.push_back({region, sizes, schedules[i], std::move(lowered.program), nullptr, ""});
    }
  }
}

void add_schedules(std::vector<Job>& jobs, const Region& region,
                   const std::vector<std::string>& texts, const kernel::Target& target) {
  for (const std::string& text : texts) {
    const kernel::Schedule schedule = kernel::parse_schedule(text);
    for (const kernel::Generator* generator : kernel::generators(target))
      if (generator->name() == schedule.generator) {
        auto lowered = generator->lower(region, schedule, target);
        if (lowered.ok)
          jobs.push_back({region, {}, schedule, std::move(lowered.program), nullptr, ""});
        else
          fmt::print("{}: {}\n", text, lowered.reason);
      }
  }
}

int check(Device& device) {
  std::vector<Job> jobs;
  for (const auto& form : testing::region_forms())
    for (std::size_t i : {form.sizes.size() - 1}) {
      Graph g;
      form.make(g, form.sizes[i].first, form.sizes[i].second);
      for (const Region& region : regions_of(g, device.target())) {
        add_jobs(jobs, region, {}, device.target(), 1);
        add_jobs(jobs, region, {}, testing::test_gpu(), 1); // splits more
      }
    }
  testing::RandomGraphOptions options;
  options.max_elements = 2000;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Graph graph = testing::random_graph(seed, options);
    for (const Region& region : regions_of(graph, device.target()))
      add_jobs(jobs, region, {}, device.target(), 1);
  }
  // Equal programs once.
  std::map<std::uint64_t, bool> seen;
  std::erase_if(jobs, [&](const Job& j) { return !seen.try_emplace(hash_of(j.program)).second; });
  compile_all(device, jobs);
  int wrong = 0;
  std::mutex reporting;
  in_parallel(jobs.size(), [&](std::size_t i) {
    Job& job = jobs[i];
    std::string message = job.error;
    if (message.empty())
      try {
        auto result = backend::reference::verify_kernel(
            job.region, job.program,
            [&](const KernelProgram& p, const kernel::ArgBlock& block) {
              launch_with_copies(device, *job.artifact, p, block);
            },
            job.sizes, {.seed = 7, .complete_work = 1 << 14, .sample_work = 1 << 16});
        message = result.ok ? "" : result.message;
      } catch (const std::exception& e) {
        message = e.what();
      }
    std::lock_guard lock(reporting);
    if (!message.empty() && ++wrong <= 12)
      fmt::print("WRONG {}: {}\n", to_string(job.schedule), message.substr(0, 600));
  });
  fmt::print("checked {} kernels, {} wrong\n", jobs.size(), wrong);
  return wrong;
}

// --- Times

NodeId constant(Graph& g, double v, const Shape& shape, DType type) {
  return g.broadcast(g.constant(type, v), shape);
}
NodeId sub(Graph& g, NodeId a, NodeId b) {
  Shape s = g[a].shape;
  return g.binary(Op::Add, a, g.binary(Op::Mul, b, constant(g, -1, s, g[b].dtype)));
}
NodeId along(Graph& g, NodeId reduced, const Shape& like) {
  Shape s = like;
  s.back() = 1;
  return g.expand(g.reshape(reduced, s), like);
}
NodeId f32(Graph& g, NodeId x) {
  return g[x].dtype == DType::F32 ? x : g.cast(x, DType::F32);
}
NodeId to(Graph& g, NodeId x, DType type) {
  return type == DType::F32 ? x : g.cast(x, type);
}

struct Timed {
  std::string name;
  std::function<void(Graph&, std::int64_t rows)> make;
  std::int64_t rows;      ///< 0: those of the graph; nothing is checked at fewer then
  std::size_t kernel = 0; ///< of the graph's
  std::int64_t few = 67;  ///< rows at which it is checked
};

/// The kernels of the graph in a file.
std::vector<Timed> cases_of_file(const std::string& path, const kernel::Target& target) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Graph graph = ir::parse_graph(text);
  std::vector<Timed> cases;
  const std::size_t kernels = regions_of(graph, target).size();
  for (std::size_t k = 0; k < kernels; ++k)
    cases.push_back({fmt::format("{}#{}", std::filesystem::path(path).stem().string(), k),
                     [graph](Graph& g, std::int64_t) { g = graph; }, 0, k});
  return cases;
}

std::vector<Timed> built_in_cases() {
  std::vector<Timed> cases;
  const std::int64_t many = 1 << 26;
  cases.push_back({"copy_u32_64M",
                   [](Graph& g, auto n) {
                     NodeId x = g.input("x", DType::U32, {n});
                     g.outputs = {
                         g.binary(Op::Xor, x, g.broadcast(g.constant(DType::U32, 77.0), {n}))};
                   },
                   many});
  cases.push_back({"relu_f32_64M",
                   [](Graph& g, auto n) {
                     NodeId x = g.input("x", DType::F32, {n});
                     g.outputs = {g.binary(Op::Max, x, constant(g, 0, {n}, DType::F32))};
                   },
                   many});
  cases.push_back({"add_bf16_128M",
                   [](Graph& g, auto n) {
                     NodeId x = g.input("x", DType::BF16, {n}), y = g.input("y", DType::BF16, {n});
                     g.outputs = {g.binary(Op::Add, x, y)};
                   },
                   2 * many});
  cases.push_back({"exp_cos_f32_64M",
                   [](Graph& g, auto n) {
                     NodeId x = g.input("x", DType::F32, {n});
                     g.outputs = {g.unary(Op::Exp, g.unary(Op::Cos, x))};
                   },
                   many});
  cases.push_back(
      {"bias_gelu_bf16_16384x4096",
       [](Graph& g, auto m) {
         const Shape s{m, 4096};
         NodeId x = f32(g, g.input("x", DType::BF16, s));
         NodeId b = g.broadcast(f32(g, g.input("b", DType::BF16, {4096})), s);
         NodeId h = g.binary(Op::Add, x, b);
         NodeId cube = g.binary(Op::Mul, g.binary(Op::Mul, h, h), h);
         NodeId inner = g.binary(
             Op::Mul, constant(g, 0.7978845608, s, DType::F32),
             g.binary(Op::Add, h, g.binary(Op::Mul, cube, constant(g, 0.044715, s, DType::F32))));
         NodeId y =
             g.binary(Op::Mul, g.binary(Op::Mul, h, constant(g, 0.5, s, DType::F32)),
                      g.binary(Op::Add, g.unary(Op::Tanh, inner), constant(g, 1, s, DType::F32)));
         g.outputs = {to(g, y, DType::BF16)};
       },
       16384});
  cases.push_back({"transpose_bf16_8192x8192",
                   [](Graph& g, auto m) {
                     NodeId x = g.input("x", DType::BF16, {8192, m});
                     g.outputs = {g.binary(Op::Add, g.permute(x, {1, 0}),
                                           constant(g, 1, {m, 8192}, DType::BF16))};
                   },
                   8192});
  for (DType type : {DType::F32, DType::BF16})
    for (auto [m, n] : {std::pair{16384, 4096}, {65536, 1024}, {4096, 32768}})
      cases.push_back(
          {fmt::format("softmax_{}_{}x{}", name_of(type), m, n),
           [type, n = n](Graph& g, auto rows) {
             const Shape s{rows, n};
             NodeId x = f32(g, g.input("x", type, s));
             NodeId e = g.unary(Op::Exp, sub(g, x, along(g, g.reduce(Op::ReduceMax, x, {1}), s)));
             NodeId y = g.binary(Op::Div, e, along(g, g.reduce(Op::ReduceSum, e, {1}), s));
             g.outputs = {to(g, y, type)};
           },
           m});
  for (bool layer : {false, true})
    for (auto [m, n] : {std::pair{16384, 4096}, {65536, 1024}, {4096, 32768}})
      cases.push_back(
          {fmt::format("{}_bf16_{}x{}", layer ? "layernorm" : "rmsnorm", m, n),
           [layer, n = n](Graph& g, auto rows) {
             const Shape s{rows, n};
             NodeId x = f32(g, g.input("x", DType::BF16, s));
             NodeId w = f32(g, g.input("w", DType::BF16, {n}));
             auto mean = [&](NodeId v) {
               return g.binary(Op::Mul, g.reduce(Op::ReduceSum, v, {1}),
                               constant(g, 1.0 / double(n), {rows}, DType::F32));
             };
             if (layer)
               x = sub(g, x, along(g, mean(x), s));
             NodeId var = g.binary(Op::Add, mean(g.binary(Op::Mul, x, x)),
                                   constant(g, 1e-5, {rows}, DType::F32));
             NodeId r = g.unary(Op::Recip, g.unary(Op::Sqrt, var));
             NodeId y = g.binary(Op::Mul, g.binary(Op::Mul, x, along(g, r, s)), g.broadcast(w, s));
             if (layer)
               y = g.binary(Op::Add, y, g.broadcast(f32(g, g.input("b", DType::BF16, {n})), s));
             g.outputs = {to(g, y, DType::BF16)};
           },
           m});
  cases.push_back({"logsumexp_bf16_8192x50304",
                   [](Graph& g, auto rows) {
                     const Shape s{rows, 50304};
                     NodeId x = f32(g, g.input("x", DType::BF16, s));
                     NodeId top = g.reduce(Op::ReduceMax, x, {1});
                     NodeId e = g.unary(Op::Exp, sub(g, x, along(g, top, s)));
                     g.outputs = {
                         g.binary(Op::Add, g.unary(Op::Log, g.reduce(Op::ReduceSum, e, {1})), top)};
                   },
                   8192});
  cases.push_back({"bias_grad_bf16_16384x4096",
                   [](Graph& g, auto rows) {
                     NodeId x = f32(g, g.input("x", DType::BF16, {rows, 4096}));
                     g.outputs = {g.reduce(Op::ReduceSum, x, {0})};
                   },
                   16384});
  cases.push_back({"sum_of_squares_f32_64M",
                   [](Graph& g, auto n) {
                     NodeId x = g.input("x", DType::F32, {n});
                     g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, x), {0})};
                   },
                   many});
  struct Sizes {
    std::int64_t batch, heads, positions, width;
  };
  for (const Sizes& a : {Sizes{4, 32, 4096, 128}, Sizes{16, 12, 1024, 64}}) {
    const std::string name = fmt::format("b{}h{}s{}d{}", a.batch, a.heads, a.positions, a.width);
    const auto make = [a](bool gradients) {
      return [a, gradients](Graph& g, std::int64_t positions) {
        g = testing::attention_graph({"", a.batch, a.heads, 1, positions, positions, a.width,
                                      a.width, DType::BF16, testing::Mask::Causal, false, false,
                                      gradients});
      };
    };
    constexpr std::int64_t kFew = 456; // as many scores as factors, and no whole tile
    cases.push_back({"attention_" + name, make(false), a.positions, 0, kFew});
    const std::size_t kernels = 2; // by queries, by keys and values
    for (std::size_t k = 0; k < kernels; ++k)
      cases.push_back(
          {fmt::format("attention_grad_{}#{}", name, k), make(true), a.positions, k, kFew});
  }
  return cases;
}

/// Those that the command line names, and the copy beside which the others stand.
std::vector<Timed> cases_named(const std::string& name, const kernel::Target& target) {
  const bool file = std::filesystem::is_regular_file(name);
  std::vector<Timed> cases = built_in_cases();
  std::erase_if(cases, [&](const Timed& c) {
    return c.name.find("copy") != 0 && (file || c.name.find(name) == std::string::npos);
  });
  if (file)
    for (Timed& c : cases_of_file(name, target))
      cases.push_back(std::move(c));
  return cases;
}

std::vector<Job> jobs_of(const Timed& c, const std::vector<std::string>& schedules,
                         const kernel::Target& target) {
  Graph g;
  c.make(g, c.rows);
  const Region region = regions_of(g, target).at(c.kernel);
  std::vector<Job> jobs;
  if (schedules.empty() || c.name.find("copy") == 0)
    add_jobs(jobs, region, {}, target, 12);
  else
    add_schedules(jobs, region, schedules, target);
  if (jobs.size() > 1)
    std::erase_if(jobs, [](const Job& j) { return j.schedule.generator == "generic"; });
  return jobs;
}

/// Numbers in [-2, 2), a different one almost everywhere; integers are any bits.
std::vector<std::byte> random_bytes(DType type, std::size_t elements, std::uint64_t seed) {
  std::vector<std::byte> bytes(elements * size_of(type));
  const std::size_t block = std::min<std::size_t>(elements, 1 << 20);
  std::uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t i = 0; i < block; ++i) {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    const Scalar v = is_float(type) ? Scalar::of(type, double(std::int64_t(s >> 40)) * 0x1p-22 - 2)
                                    : Scalar::from_bits(type, s >> 32);
    std::memcpy(bytes.data() + i * size_of(type), &v.bits, size_of(type));
  }
  for (std::size_t at = block * size_of(type); at < bytes.size();
       at += std::min(at, bytes.size() - at))
    std::memcpy(bytes.data() + at, bytes.data(), std::min(at, bytes.size() - at));
  return bytes;
}

void time_all(Device& device, const std::string& only, const std::vector<std::string>& schedules) {
  double copy_rate = 0;
  std::vector<std::string> table;
  for (const Timed& c : cases_named(only, device.target())) {
    std::vector<Job> jobs = jobs_of(c, schedules, device.target());
    if (jobs.empty())
      continue;
    compile_all(device, jobs);
    // Right at fewer rows, with the same schedule.
    std::vector<Job> checks;
    Region small;
    if (c.rows > 0) {
      Graph g;
      c.make(g, c.rows > 100000 ? 100003 : c.few);
      small = regions_of(g, device.target()).at(c.kernel);
      for (const Job& j : jobs)
        add_schedules(checks, small, {to_string(j.schedule)}, device.target());
    }
    if (checks.size() > 2)
      checks.resize(2);
    compile_all(device, checks);
    std::string verdict = checks.empty() ? "unchecked" : "ok";
    for (Job& j : checks) {
      if (!j.error.empty()) {
        verdict = "WRONG " + j.error.substr(0, 300);
        break;
      }
      auto result = backend::reference::verify_kernel(
          small, j.program,
          [&](const KernelProgram& p, const kernel::ArgBlock& block) {
            launch_with_copies(device, *j.artifact, p, block);
          },
          {}, {.seed = 3, .complete_work = 1 << 17, .sample_work = 1 << 18});
      if (!result.ok)
        verdict = "WRONG " + to_string(j.schedule) + result.message.substr(0, 300);
    }
    // Two sets of arguments in turn.
    std::vector<std::vector<void*>> sets(2);
    std::int64_t bytes = 0;
    std::vector<std::pair<void*, std::size_t>> held;
    const KernelProgram& first = jobs.at(0).program;
    for (std::size_t set = 0; set < sets.size(); ++set)
      for (const kernel::Buffer& b : first.buffers)
        if (b.space == kernel::Space::Argument) {
          const auto elements = std::size_t(b.elements.value());
          const std::size_t size = elements * size_of(b.dtype);
          void* memory = device.allocate(size);
          held.push_back({memory, size});
          if (!b.written) {
            auto data = random_bytes(b.dtype, elements, set + 1);
            device.copy_in(memory, data.data(), size);
          }
          sets[set].push_back(memory);
          bytes += set == 0 ? std::int64_t(size) : 0;
        }
    double best = 0;
    std::string best_schedule;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Job& j = jobs[i];
      if (!j.error.empty()) {
        fmt::print("{}: {}\n", to_string(j.schedule), j.error.substr(0, 300));
        continue;
      }
      std::vector<void*> work;
      for (const kernel::Buffer& b : j.program.buffers)
        if (b.space == kernel::Space::Workspace) {
          const std::size_t size = std::size_t(b.elements.value()) * size_of(b.dtype);
          work.push_back(device.allocate(size));
          held.push_back({work.back(), size});
        }
      std::vector<std::uint64_t> scalars; // eights
      for (const DType type : j.program.scalars)
        scalars.push_back(Scalar::of(type, 8.0).bits);
      auto run = [&](int n) {
        for (int k = 0; k < n; ++k) {
          std::vector<void*> pointers = sets[std::size_t(k) % 2];
          pointers.insert(pointers.end(), work.begin(), work.end());
          device.launch(*j.artifact, j.program,
                        {pointers.data(), nullptr, scalars.data(), nullptr, nullptr}, 0);
        }
        device.synchronize();
      };
      run(2);
      std::vector<double> times;
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto begin = std::chrono::steady_clock::now();
        run(20);
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 20);
      }
      std::sort(times.begin(), times.end());
      const double rate = double(bytes) / times[1] / 1e12;
      if (c.name.find("copy") == 0)
        copy_rate = std::max(copy_rate, rate);
      if (rate > best) {
        best = rate;
        best_schedule = to_string(j.schedule);
      }
      fmt::print("{:28} {:7.1f} us {:5.2f} TB/s {:5.3f} {}\n", i == 0 ? c.name : "", times[1] * 1e6,
                 rate, rate / copy_rate, to_string(j.schedule));
    }
    table.push_back(fmt::format("{:28} {:5.2f} TB/s {:5.3f} of copy, {}  {}", c.name, best,
                                best / copy_rate, verdict, best_schedule));
    for (auto [memory, size] : held)
      device.release(memory, size);
  }
  fmt::print("--- best\n");
  for (const std::string& line : table)
    fmt::print("{}\n", line);
}

/// Of cases_named(), those that need no copy beside them.
std::vector<Timed> cases_alone(const std::string& name, const kernel::Target& target) {
  std::vector<Timed> cases = cases_named(name, target);
  if (name.find("copy") != 0)
    std::erase_if(cases, [](const Timed& c) { return c.name.find("copy") == 0; });
  return cases;
}

void print_texts(const std::string& name, const std::vector<std::string>& schedules) {
  const kernel::Target target = backend::cuda::known_target(90);
  for (const Timed& c : cases_alone(name, target))
    for (const Job& j : jobs_of(c, schedules, target))
      fmt::print("// {}: {}\n{}\n", c.name, to_string(j.schedule),
                 backend::cuda::render_cuda(j.program, backend::cuda::cuda_target(target)));
}

void print_costs(const std::string& name, const std::vector<std::string>& schedules) {
  const kernel::Target target = backend::cuda::known_target(90);
  const auto compiler = backend::cuda::Nvrtc::instance();
  for (const Timed& c : cases_alone(name, target)) {
    std::vector<Job> jobs = jobs_of(c, schedules, target);
    if (!jobs.empty())
      fmt::print("{}: {}", c.name, print(jobs[0].region));
    for (const Job& j : jobs)
      for (const auto& k :
           compiler
               ->compile(backend::cuda::render_cuda(j.program, backend::cuda::cuda_target(target)),
                         compiler->architecture_for(90, true))
               .kernels)
        fmt::print("  {:3} registers, {:4} bytes spilled, {:6} shared: {}\n", k.registers,
                   k.spill_stores, backend::cuda::dynamic_shared_bytes(j.program),
                   to_string(j.schedule));
  }
}

int run(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "all";
  const std::string name = argc > 2 ? argv[2] : "";
  const std::vector<std::string> schedules(argv + std::min(argc, 3), argv + argc);
  if (what == "text" || what == "cost") {
    if (what == "text")
      print_texts(name, schedules);
    else
      print_costs(name, schedules);
    return 0;
  }
  auto text = [](const KernelProgram& p, const backend::cuda::CudaTarget& t) {
    return backend::cuda::KernelText{backend::cuda::render_cuda(p, t),
                                     backend::clike::kernel_symbol(p),
                                     backend::cuda::dynamic_shared_bytes(p)};
  };
  backend::cuda::CudaOptions options;
  options.text = text;
  auto device = backend::cuda::make_cuda_device(0, options);
  fmt::print("{} {}\n", device->name(), device->target().name);
  int wrong = 0;
  if (what == "all" || what == "check")
    wrong = check(*device);
  if (what == "all" || what == "time")
    time_all(*device, name, schedules);
  return wrong ? 1 : 0;
}

} // namespace
} // namespace egret

int main(int argc, char** argv) {
  try {
    return egret::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
}
