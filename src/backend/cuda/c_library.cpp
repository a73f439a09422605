#include "backend/cuda/c_library.h"

#include "backend/c/library_parts.h"
#include "backend/clike/renderer.h"
#include "backend/cuda/c_library_text.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/tensor_maps.h"
#include "kernel/clusters.h"
#include "support/fail.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <thread>

namespace egret::backend::cuda {

using c::LibraryInterface;
using c::LibraryText;
using kernel::KernelProgram;
using kernel::Plan;
using kernel::Space;

namespace {

constexpr std::string_view kEndings[] = {
    "_memory", "_device",   "_device_memory", "_open",      "_close",  "_message",
    "_OK",     "_BAD_SIZE", "_NO_MEMORY",     "_NO_DEVICE", "_FAILED", "_BUSY"};
constexpr std::string_view kReserved[] = {"stream", "device"};

/// A kernel's machine code.
struct Code {
  std::string cubin, ptx; ///< empty: there is none
  std::string target;     ///< the GPUs that it runs on, for people
};

/// A kernel of the library.
struct Kernel {
  const KernelProgram* program;
  KernelText text;
  std::vector<std::int64_t> counters; ///< where each lies among all counters, in bytes
  Code code;
};

std::string c_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : clike::comment_text(text)) {
    if (c == '"' || c == '\\')
      quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/// The bytes as an array, with a zero behind them.
std::string array_text(const std::string& name, const std::string& bytes) {
  return fmt::format("static const _Alignas(64) uint64_t {}[{}] = {{{}\n}};\n", name,
                     bytes.size() / 8 + 1,
                     c::words_of(std::as_bytes(std::span(bytes.c_str(), bytes.size() + 1))));
}

/// Whether the kernel has instructions that no other GPU than the target's has.
bool is_specific(const KernelProgram& program, const CudaTarget& target) {
  CudaTarget portable = target;
  portable.specific = false;
  return std::ranges::any_of(kernel::requirements_of(program), [&](kernel::Capability capability) {
    return !provides(portable, capability);
  });
}

/// Those that code for the target runs on, for people.
std::string gpus_of(const CudaTarget& target, bool specific) {
  return fmt::format("compute capability {}.{}{}", target.capability / 10, target.capability % 10,
                     specific ? " alone" : " and later");
}

Code compile(const Kernel& kernel, const CudaTarget& target, const Nvrtc& nvrtc,
             CubinCache* cache) {
  const bool specific = is_specific(*kernel.program, target);
  const std::string architecture = nvrtc.architecture_for(target.capability, specific);
  const auto code_for = [&](const std::string& wanted) {
    Cubin made = cache ? cache->get(nvrtc, kernel.text.text, wanted, {}, kernel.text.symbol)
                       : nvrtc.compile(kernel.text.text, wanted, {}, kernel.text.symbol);
    return std::move(made.code);
  };
  Code code;
  std::string portable = architecture;
  if (architecture.starts_with("sm_")) {
    code.cubin = code_for(architecture);
    portable = "compute_" + architecture.substr(3);
  } else if (specific) {
    fail(ErrorKind::Unsupported,
         "library: kernel {} has instructions of {}, for which NVRTC {} makes no code",
         kernel.program->name, target.arch(), version_text(nvrtc.version()));
  }
  code.ptx = code_for(portable);
  code.target = gpus_of(target, specific);
  return code;
}

class LibraryRenderer final : private c::LibraryParts {
public:
  LibraryRenderer(const Plan& plan, std::span<const LibraryStep> steps, const ir::Graph& graph,
                  const LibraryInterface& interface, const CudaTarget& target)
      : LibraryParts(plan, graph, interface, kEndings, kReserved), steps_(steps), target_(target) {
    find_kernels();
  }
  void compile_kernels(const Nvrtc& nvrtc, CubinCache* cache);
  LibraryText run();

private:
  void find_kernels();
  std::string address_of_value(const std::string& name, std::size_t bytes) override;
  std::string kernels_text() const;
  std::string values_text() const;
  std::string maps_text(const KernelProgram& program, const kernel::Step& step, int number,
                        const std::vector<std::string>& pointers) const;
  std::string launch_text(const LibraryStep& step) const;
  std::string results_text() const;
  std::string run_text() const;
  std::string places_text() const;
  std::string host_text() const;
  std::string device_text() const;
  std::string entry_text(const std::string& head, const std::string& inner) const;
  std::string arena_text() const { return fmt::format("(size_t){}", number(plan_.arena_bytes)); }
  std::string gpus_text() const;
  std::string header() const;

  std::span<const LibraryStep> steps_;
  CudaTarget target_;
  std::vector<Kernel> kernels_;
  std::map<std::string, int> number_of_; ///< by symbol
  std::int64_t counter_bytes_ = 0, value_bytes_ = 0;
  std::string value_list_;
  int value_count_ = 0;
};

void LibraryRenderer::find_kernels() {
  for (const LibraryStep& step : steps_) {
    if (!step.program)
      continue;
    if (step.program->product)
      fail(ErrorKind::Unsupported,
           "library: kernel {} is a call of cublasLt, which a C library does not have",
           step.program->name);
    Kernel kernel{step.program, rendered_text(*step.program, target_), {}, {}};
    if (!number_of_.emplace(kernel.text.symbol, static_cast<int>(kernels_.size())).second)
      continue;
    kernel.text.shared_bytes =
        std::max(kernel.text.shared_bytes, step.program->launch.least_shared);
    for (const kernel::Buffer& buffer : step.program->buffers)
      if (buffer.space == Space::Counter) {
        kernel.counters.push_back(counter_bytes_);
        counter_bytes_ += aligned(static_cast<std::int64_t>(buffer.elements.upper()) *
                                  static_cast<std::int64_t>(size_of(buffer.dtype)));
      }
    kernels_.push_back(std::move(kernel));
  }
}

void LibraryRenderer::compile_kernels(const Nvrtc& nvrtc, CubinCache* cache) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> failures(kernels_.size());
  const auto work = [&] {
    for (std::size_t k; (k = next++) < kernels_.size();)
      try {
        kernels_[k].code = compile(kernels_[k], target_, nvrtc, cache);
      } catch (...) {
        failures[k] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t most = std::max(1u, std::thread::hardware_concurrency());
    for (std::size_t i = 1; i < std::min(kernels_.size(), most); ++i)
      threads.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& failure : failures)
    if (failure)
      std::rethrow_exception(failure);
}

std::string LibraryRenderer::address_of_value(const std::string& name, std::size_t bytes) {
  value_list_ += fmt::format("  {{{}, {}, {}}},\n", name, value_bytes_, bytes);
  ++value_count_;
  std::string address = fmt::format("(eg_gpu.memory + {})", value_bytes_);
  value_bytes_ += aligned(static_cast<std::int64_t>(bytes));
  return address;
}

std::string LibraryRenderer::kernels_text() const {
  std::string code, list;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    const Kernel& kernel = kernels_[k];
    const KernelProgram& program = *kernel.program;
    const std::string cubin = fmt::format("eg_cubin{}", k), ptx = fmt::format("eg_ptx{}", k);
    if (!kernel.code.cubin.empty())
      code += array_text(cubin, kernel.code.cubin);
    code += array_text(ptx, kernel.code.ptx);
    list +=
        fmt::format("  {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}},\n", c_string(program.name),
                    c_string(kernel.text.symbol), c_string(kernel.code.target),
                    kernel.code.cubin.empty() ? "0" : cubin, ptx, program.launch.threads,
                    kernel.text.shared_bytes, program.launch.resident ? 1 : 0,
                    program.launch.blocks_per_core, target_.launches_early() ? 1 : 0,
                    kernel::cluster_blocks(program) > kernel::kPortableCluster ? 1 : 0);
  }
  return code + fmt::format(R"(
struct EgKernel {{
  const char *name, *symbol, *target;
  const void *cubin, *ptx;
  unsigned threads, shared;
  int resident, blocks_per_core, early, large_clusters;
}};
static const struct EgKernel eg_kernels[] = {{
{}  {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
}};
enum {{ EG_KERNELS = {} }};
)",
                            list, kernels_.size());
}

std::string LibraryRenderer::values_text() const {
  return fmt::format(R"({}
struct EgValue {{
  const void* from;
  size_t at, bytes;
}};
static const struct EgValue eg_values[] = {{
{}  {{0, 0, 0}},
}};
enum {{ EG_VALUES = {}, EG_VALUE_BYTES = {}, EG_COUNTER_BYTES = {} }};
)",
                     values_, value_list_, value_count_, value_bytes_, counter_bytes_);
}

std::string LibraryRenderer::maps_text(const KernelProgram& program, const kernel::Step& step,
                                       int number_of_kernel,
                                       const std::vector<std::string>& pointers) const {
  const auto text_of = [&](const Expr& e) { return number(by_plan_dims(e, program, step)); };
  std::string text;
  for (std::size_t i = 0; i < program.tensor_maps.size(); ++i) {
    const kernel::TensorMap& map = program.tensor_maps[i];
    const kernel::Buffer& buffer = program.buffers[static_cast<std::size_t>(map.buffer)];
    const Expr size = static_cast<std::int64_t>(size_of(buffer.dtype));
    std::vector<std::string> extents, strides;
    for (const Expr& e : map.extents)
      extents.push_back("(uint64_t)" + text_of(e));
    for (std::size_t d = 1; d < map.strides.size(); ++d)
      strides.push_back("(uint64_t)" + text_of(map.strides[d] * size));
    if (strides.empty())
      strides.emplace_back("0");
    text +=
        fmt::format(R"(    struct EgMap eg_map{0};
    {{
      const uint64_t eg_extents[] = {{{1}}}, eg_strides[] = {{{2}}};
      const uint32_t eg_box[] = {{{3}}};
      if ((eg_code = eg_map(&eg_map{0}, {4}, {5}, {6} + {7}, eg_extents, eg_strides, eg_box, {8}, {9})))
        return eg_code;
    }}
)",
                    i, fmt::join(extents, ", "), fmt::join(strides, ", "), fmt::join(map.box, ", "),
                    tensor_map_type(buffer.dtype), map.box.size(),
                    pointers.at(static_cast<std::size_t>(buffer.argument)),
                    text_of(map.offset * size), tensor_map_swizzle(map.swizzle), number_of_kernel);
  }
  return text;
}

// The parameters are those of render.h.
std::string LibraryRenderer::launch_text(const LibraryStep& planned) const {
  const kernel::Step& step = *planned.step;
  if (!planned.program) {
    ensure(step.kind == kernel::StepKind::Copy, "library: a step is no launch and no copy");
    const kernel::Slot& from = plan_.slots[static_cast<std::size_t>(step.slots[0])];
    const kernel::Slot& to = plan_.slots[static_cast<std::size_t>(step.slots[1])];
    return fmt::format(
        "  if ((eg_code = eg_copy({}, {}, (size_t){}, eg_stream))) return eg_code;\n", address(to),
        address(from), number(from.bytes));
  }
  const KernelProgram& program = *planned.program;
  const int number_of_kernel = number_of_.at(clike::kernel_symbol(program));
  Arguments given = arguments_of(step, "eg_args.s");
  const std::vector<std::string> pointers = given.pointers;
  for (const std::int64_t at : kernels_[static_cast<std::size_t>(number_of_kernel)].counters)
    given.pointers.push_back(fmt::format("eg_gpu.memory + EG_VALUE_BYTES + {}", at));
  const auto list = [](std::vector<std::string>& values) {
    if (values.empty())
      values.emplace_back("0");
    return fmt::format("{{{}}}", fmt::join(values, ", "));
  };
  const bool settled = kernel::has_settled(program);
  const std::string values =
      fmt::format("{}, {}, {}{}", list(given.pointers), list(given.dims), list(given.scalars),
                  settled ? planned.settled ? ", 1" : ", 0" : "");
  std::string parameters = "&eg_args";
  for (std::size_t i = 0; i < program.tensor_maps.size(); ++i)
    parameters += fmt::format(", &eg_map{}", i);
  return fmt::format(R"(  {{
    struct {{ void* p[{}]; int64_t d[{}]; uint64_t s[{}]; {}}} eg_args = {{{}}};
{}{}    void* eg_parameters[] = {{{}}};
    if ((eg_code = eg_launch({}, {}, eg_parameters, eg_stream))) return eg_code;
  }}
)",
                     given.pointers.size(), given.dims.size(), given.scalars.size(),
                     settled ? "uint64_t settled; " : "", values, given.fill,
                     maps_text(program, step, number_of_kernel, pointers), parameters,
                     number_of_kernel, number(by_plan_dims(program.launch.workers, program, step)));
}

// What no kernel has written where it is wanted.
std::string LibraryRenderer::results_text() const {
  std::string text;
  for (const Copy& copy : copies())
    if (copy.number)
      text += fmt::format(R"(  {{
    const {0} eg_number = ({0}){1};
    if ((eg_code = eg_copy_in({2}, &eg_number, sizeof eg_number, eg_stream))) return eg_code;
  }}
)",
                          copy.number, copy.from, copy.to);
    else
      text +=
          fmt::format("  if ((eg_code = eg_copy({}, {}, (size_t){}, eg_stream))) return eg_code;\n",
                      copy.to, copy.from, number(copy.bytes));
  return text;
}

// All launches, on memory of the GPU.
std::string LibraryRenderer::run_text() const {
  std::string parameters, unused;
  for (const Parameter& parameter : parameters_) {
    parameters += parameter.is_array() ? "char* " : fmt::format("{} ", parameter.type);
    parameters += parameter.name + ", ";
    unused += fmt::format("  (void){};\n", parameter.name);
  }
  std::string text =
      fmt::format("static int eg_run({}char* eg_arena, void* eg_stream) {{\n"
                  "  int eg_code = EG_OK;\n  (void)eg_arena;\n  (void)eg_stream;\n{}{}",
                  parameters, unused, dims_text());
  for (const LibraryStep& step : steps_)
    text += launch_text(step);
  return text + results_text() + "  return eg_code;\n}\n";
}

// Where each array of the host and the arena lie in the GPU's memory.
std::string LibraryRenderer::places_text() const {
  std::string text = dims_text() + "  size_t eg_total = 0;\n";
  for (const Parameter& parameter : parameters_)
    if (parameter.is_array())
      text += fmt::format("  const size_t eg_at_{0} = eg_place(&eg_total, (size_t){1});\n"
                          "  (void)eg_at_{0};\n",
                          parameter.name, number(parameter.bytes));
  return text + fmt::format("  const size_t eg_at_arena = eg_place(&eg_total, {});\n"
                            "  (void)eg_at_arena;\n",
                            arena_text());
}

// The function that takes arrays of the host, within a call.
std::string LibraryRenderer::host_text() const {
  std::string in, out, arguments;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.is_array()) {
      arguments += parameter.name + ", ";
      continue;
    }
    arguments += fmt::format("eg_memory + eg_at_{}, ", parameter.name);
    if (parameter.kind != Parameter::Kind::Written)
      in += fmt::format("  if (!eg_code) eg_code = eg_copy_in(eg_memory + eg_at_{0}, {0}, "
                        "(size_t){1}, eg_gpu.stream);\n",
                        parameter.name, number(parameter.bytes));
    if (parameter.kind != Parameter::Kind::Read)
      out += fmt::format("  if (!eg_code) eg_code = eg_copy_out({0}, eg_memory + eg_at_{0}, "
                         "(size_t){1}, eg_gpu.stream);\n",
                         parameter.name, number(parameter.bytes));
  }
  return fmt::format(R"(
static int eg_on_host({0}void* memory, size_t bytes) {{
  int eg_code = EG_OK;
{1}  char* eg_memory = (char*)memory;
  if (memory && bytes < eg_total)
    return eg_fail(EG_NO_MEMORY, EG_NAME ": too few bytes of memory", (const char*)0);
  if (memory) eg_code = eg_check_aligned(memory, "memory");
  if (!memory) eg_code = eg_allocate(&eg_memory, eg_total, eg_gpu.stream);
  if (eg_code) return eg_code;
  eg_code = eg_begin(eg_gpu.stream);
{2}  if (!eg_code) eg_code = eg_run({3}eg_memory + eg_at_arena, eg_gpu.stream);
{4}  if (!memory) eg_cu.cuMemFreeAsync(eg_address(eg_memory), eg_gpu.stream);
  eg_code = eg_end(eg_code, eg_gpu.stream);
  const int eg_result = eg_cu.cuStreamSynchronize(eg_gpu.stream);
  return eg_code ? eg_code : eg_check(eg_result, "waiting for the GPU", "");
}}
)",
                     array_parameters(), places_text(), in, arguments, out);
}

// The function that takes memory of the GPU, within a call.
std::string LibraryRenderer::device_text() const {
  std::string checks, arguments;
  for (const Parameter& parameter : parameters_) {
    arguments += fmt::format("{}{}, ", parameter.is_array() ? "(char*)" : "", parameter.name);
    if (parameter.is_array())
      checks += fmt::format("  if (!eg_code) eg_code = eg_check_aligned({0}, \"{0}\");\n",
                            parameter.name);
  }
  return fmt::format(R"(
static int eg_on_device({0}void* memory, size_t bytes, void* stream) {{
  int eg_code = EG_OK;
{1}  const size_t eg_total = {2};
  char* eg_memory = (char*)memory;
{3}  if (eg_code) return eg_code;
  if (memory && bytes < eg_total)
    return eg_fail(EG_NO_MEMORY, EG_NAME ": too few bytes of memory", (const char*)0);
  if (memory) eg_code = eg_check_aligned(memory, "memory");
  if (!memory && eg_total > 0) eg_code = eg_allocate(&eg_memory, eg_total, stream);
  if (eg_code) return eg_code;
  eg_code = eg_begin(stream);
  if (!eg_code) eg_code = eg_run({4}eg_memory, stream);
  if (!memory && eg_total > 0) eg_cu.cuMemFreeAsync(eg_address(eg_memory), stream);
  return eg_end(eg_code, stream);
}}
)",
                     array_parameters(), dims_text(), arena_text(), checks, arguments);
}

// A function of the header: sizes are checked, and `inner` is called within a call.
std::string LibraryRenderer::entry_text(const std::string& head, const std::string& inner) const {
  return fmt::format("\n{} {{\n{}  const int eg_code = eg_enter();\n"
                     "  return eg_code ? eg_code : eg_leave({});\n}}\n",
                     head, guards_text(), inner);
}

// The GPUs that all kernels run on.
std::string LibraryRenderer::gpus_text() const {
  return gpus_of(target_, std::ranges::any_of(kernels_, [&](const Kernel& kernel) {
                   return is_specific(*kernel.program, target_);
                 }));
}

std::string LibraryRenderer::header() const {
  return header_of(fmt::format(R"(/* Made by egret for an NVIDIA GPU of {5}. Compile with
     cc -O2 -std=c11 -c {0}.c
   and link with -ldl: nothing of CUDA is needed but the driver, which is opened at run time
   (libcuda.so.1, or what EGRET_CUDA_DRIVER names). One call at a time: another thread's is refused
   with {0}_BUSY. */

enum {{
  {0}_OK = 0,
  {0}_BAD_SIZE = 1,  /* a size is none that the library was made for */
  {0}_NO_MEMORY = 2, /* `bytes` are too few, or the GPU has no more */
  {0}_NO_DEVICE = 3, /* no driver, no GPU, or one that the kernels do not run on */
  {0}_FAILED = 4,    /* the driver has refused something */
  {0}_BUSY = 5       /* another thread is in a function of this library */
}};

/* Why the last function of this thread that did not give {0}_OK or {0}_BAD_SIZE has failed. */
const char* {0}_message(void);

/* Loads kernels and values on the GPU of this number, in its primary context. The first call does
   so on GPU 0 if nothing is loaded. {0}_close waits for all calls and gives everything back. */
int {0}_open(int device);
int {0}_close(void);

/* Bytes of the GPU's memory for copies of the arrays and for intermediate values. */
size_t {0}_memory({2});

/* Arrays of the host: dense, row-major, and those that are written overlap no other one. Returns
   when the results are there.
{1}     void* memory: {0}_memory() bytes of the GPU's memory, aligned to 256; null: the function
       allocates and frees them
     size_t bytes: of `memory` */
int {0}({3}void* memory, size_t bytes);

/* Bytes of the GPU's memory for intermediate values. */
size_t {0}_device_memory({2});

/* The same on arrays of the GPU's memory, aligned to 64; numbers are the host's. Returns when the
   work is queued in `stream` (a CUstream, or cudaStream_t; null: the default one).
   {0}_device_memory() bytes of `memory` are needed. Calls are done one after the other, whatever
   their streams. */
int {0}_device({3}void* memory, size_t bytes,
{4}void* stream);
)",
                               interface_.name, notes(), size_parameters(), array_parameters(),
                               std::string(interface_.name.size() + 12, ' '), gpus_text()));
}

LibraryText LibraryRenderer::run() {
  name_parameters();
  const std::string& name = interface_.name;
  std::string names;
  for (const Parameter& parameter : parameters_)
    names += parameter.name + ", ";
  const std::string head = fmt::format("int {}({}void* memory, size_t bytes)", name,
                                       array_parameters()),
                    device_head = fmt::format("int {}_device({}void* memory, size_t bytes, void* "
                                              "stream)",
                                              name, array_parameters());
  std::string code = run_text() + host_text() + device_text();
  code += fmt::format("\nsize_t {0}_memory({1}) {{\n{2}  return eg_total;\n}}\n"
                      "\nsize_t {0}_device_memory({1}) {{\n{3}  return {4};\n}}\n",
                      name, size_parameters(), places_text(), dims_text(), arena_text());
  code += entry_text(head, fmt::format("eg_on_host({}memory, bytes)", names));
  code += entry_text(device_head, fmt::format("eg_on_device({}memory, bytes, stream)", names));
  code += fmt::format(R"(
const char* {0}_message(void) {{
  return eg_words;
}}

int {0}_open(int device) {{
  int code = EG_OK;
  if (atomic_flag_test_and_set(&eg_busy))
    return eg_fail(EG_BUSY, EG_NAME ": another thread is in a function of this library",
                   (const char*)0);
  if (!eg_gpu.context)
    code = eg_open(device);
  else if (eg_gpu.device != device)
    code = eg_fail(EG_FAILED, EG_NAME ": it is open on another GPU", (const char*)0);
  atomic_flag_clear(&eg_busy);
  return code;
}}

int {0}_close(void) {{
  if (atomic_flag_test_and_set(&eg_busy))
    return eg_fail(EG_BUSY, EG_NAME ": another thread is in a function of this library",
                   (const char*)0);
  eg_close();
  atomic_flag_clear(&eg_busy);
  return EG_OK;
}}
)",
                      name);
  LibraryText text;
  text.header = header();
  text.source = fmt::format(R"(#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EG_NAME "{0}"
enum {{
  EG_OK = {0}_OK,
  EG_NO_MEMORY = {0}_NO_MEMORY,
  EG_NO_DEVICE = {0}_NO_DEVICE,
  EG_FAILED = {0}_FAILED,
  EG_BUSY = {0}_BUSY
}};
)",
                            name);
  text.source += std::string(library_driver_text()) + kernels_text() + values_text();
  text.source += std::string(library_launch_text()) + prelude_of(code) + code;
  return text;
}

} // namespace

LibraryText render_library(const Plan& plan, std::span<const LibraryStep> steps,
                           const ir::Graph& graph, const LibraryInterface& interface,
                           const kernel::Target& target, const Nvrtc& nvrtc, CubinCache* cache) {
  LibraryRenderer renderer(plan, steps, graph, interface, cuda_target(target));
  renderer.compile_kernels(nvrtc, cache);
  return renderer.run();
}

} // namespace egret::backend::cuda
