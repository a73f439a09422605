#include "backend/c/library.h"

#include "backend/c/library_parts.h"
#include "backend/c/render.h"
#include "backend/clike/renderer.h"
#include "backend/common/host_workers.h"

#include <fmt/ranges.h>

#include <set>

namespace egret::backend::c {

using kernel::Plan;
using kernel::Slot;
using kernel::Step;
using kernel::StepKind;

namespace {

constexpr std::string_view kEndings[] = {"_memory", "_OK", "_BAD_SIZE", "_NO_MEMORY"};

class LibraryRenderer final : private LibraryParts {
public:
  LibraryRenderer(const Plan& plan, const ir::Graph& graph, const LibraryInterface& interface)
      : LibraryParts(plan, graph, interface, kEndings, {}) {}

  LibraryText run();

private:
  std::string sizes_text() const;
  std::string launch_text(const Step& step) const;
  std::string results_text() const;
  std::string kernels_text() const;
  std::string header() const;
};

// Bytes of a worker's memory, the most that a launch needs.
std::string LibraryRenderer::sizes_text() const {
  std::set<std::string> seen;
  std::string text = "  size_t eg_share = 0;\n";
  for (const Step& step : plan_.steps) {
    if (step.kind != StepKind::Launch)
      continue;
    const kernel::KernelProgram& program =
        plan_.kernels[static_cast<std::size_t>(step.kernel)].program;
    const Expr bytes = by_plan_dims(worker_bytes(program), program, step);
    if (bytes == Expr(0) || !seen.insert(number(bytes)).second)
      continue;
    text += fmt::format("  if ((size_t){0} > eg_share) eg_share = (size_t){0};\n", number(bytes));
  }
  return text + fmt::format("  const size_t eg_arena_bytes = ((size_t){} + 63) / 64 * 64;\n",
                            number(plan_.arena_bytes));
}

std::string LibraryRenderer::launch_text(const Step& step) const {
  if (step.kind == StepKind::Copy) {
    const Slot& from = plan_.slots[static_cast<std::size_t>(step.slots[0])];
    const Slot& to = plan_.slots[static_cast<std::size_t>(step.slots[1])];
    return fmt::format("  memcpy((void*)({}), (const void*)({}), (size_t){});\n", address(to),
                       address(from), number(from.bytes));
  }
  if (step.kind != StepKind::Launch)
    return {};
  const kernel::KernelProgram& program =
      plan_.kernels[static_cast<std::size_t>(step.kernel)].program;
  const Arguments given = arguments_of(step, "eg_scalars");
  std::string text = "  {\n";
  if (!given.pointers.empty())
    text +=
        fmt::format("    void* const eg_pointers[] = {{{}}};\n", fmt::join(given.pointers, ", "));
  if (!given.dims.empty())
    text += fmt::format("    const int64_t eg_dims[] = {{{}}};\n", fmt::join(given.dims, ", "));
  if (!given.scalars.empty())
    text += fmt::format("    uint64_t eg_scalars[] = {{{}}};\n{}", fmt::join(given.scalars, ", "),
                        given.fill);
  const Expr workers = by_plan_dims(program.launch.workers, program, step);
  text += fmt::format("    eg_launch({}, {}, {}, {}, &eg_pool, {});\n  }}\n",
                      clike::kernel_symbol(program), given.pointers.empty() ? "0" : "eg_pointers",
                      given.dims.empty() ? "0" : "eg_dims",
                      given.scalars.empty() ? "0" : "eg_scalars", number(workers));
  return text;
}

// What is given and was not written by a kernel where it is wanted.
std::string LibraryRenderer::results_text() const {
  std::string text;
  for (const Copy& copy : copies())
    if (copy.number)
      text += fmt::format("  {{\n    const {0} eg_number = ({0}){1};\n    memcpy({2}, &eg_number, "
                          "sizeof eg_number);\n  }}\n",
                          copy.number, copy.from, copy.to);
    else
      text +=
          fmt::format("  memcpy({}, {}, (size_t){});\n", copy.to, copy.from, number(copy.bytes));
  return text;
}

std::string LibraryRenderer::kernels_text() const {
  std::string text;
  for (const kernel::KernelEntry& entry : plan_.kernels)
    text += render_c(entry.program, Linkage::Internal);
  return text;
}

std::string LibraryRenderer::header() const {
  return header_of(fmt::format(R"(/* Made by egret. Compile with
     cc -O3 -std=c11 -ffp-contract=off -fwrapv -fno-strict-aliasing -c {0}.c
   and link with -lm. With -fopenmp it uses the threads of OpenMP; results have the same bits.
   Several calls may run at once, each with memory of its own. */

enum {{
  {0}_OK = 0,
  {0}_BAD_SIZE = 1, /* a size is none that the library was made for */
  {0}_NO_MEMORY = 2 /* `bytes` are too few, or malloc gave none */
}};

/* Bytes for intermediate values. */
size_t {0}_memory({2});

/* Arrays are dense, row-major, and those that are written overlap no other one.
{1}     void* memory: {0}_memory() bytes, aligned to 64; null: the function allocates and frees them
     size_t bytes: of `memory` */
int {0}({3}void* memory, size_t bytes);
)",
                               interface_.name, notes(), size_parameters(), array_parameters()));
}

// How a kernel is run by all workers that there is memory for.
constexpr std::string_view kLaunch = R"(
struct EgretPool {
  char* memory; /* 64 bytes for each worker, then `share` bytes for each */
  int64_t workers;
  size_t share;
};

static inline void eg_wait(void* barrier) {
  (void)barrier;
#ifdef _OPENMP
#pragma omp barrier
#endif
}

static int64_t eg_threads(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

static inline void eg_launch(void (*kernel)(const struct EgretArgs*, int64_t, int64_t),
                      void* const* pointers, const int64_t* dims, const uint64_t* scalars,
                      const struct EgretPool* pool, int64_t useful) {
  void** const places = (void**)(void*)pool->memory;
  const int64_t wanted = useful < pool->workers ? useful : pool->workers;
  const int64_t workers = wanted < 1 ? 1 : wanted;
  for (int64_t w = 0; w < workers; ++w)
    places[w] = pool->memory + (size_t)pool->workers * 64 + (size_t)w * pool->share;
  const struct EgretArgs args = {pointers, dims, scalars, places, 0, eg_wait};
#ifdef _OPENMP
  if (workers > 1) {
#pragma omp parallel num_threads((int)workers)
    kernel(&args, omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  kernel(&args, 0, 1);
}
)";

LibraryText LibraryRenderer::run() {
  name_parameters();
  std::string steps;
  for (const Step& step : plan_.steps)
    steps += launch_text(step);
  const std::string& name = interface_.name;
  std::string code = fmt::format(
      "size_t {0}_memory({1}) {{\n{2}{3}  return eg_arena_bytes + (size_t)eg_threads() * (64 + "
      "eg_share);\n}}\n\n",
      name, size_parameters(), dims_text(), sizes_text());
  code += fmt::format("int {}({}void* memory, size_t bytes) {{\n{}{}{}", name, array_parameters(),
                      uses_text(), guards_text(), sizes_text());
  code += fmt::format(R"(  int64_t eg_workers = eg_threads();
  void* eg_own = 0;
  if (!memory) {{
    bytes = eg_arena_bytes + (size_t)eg_workers * (64 + eg_share);
    eg_own = memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) return {0}_NO_MEMORY;
  }}
  if (bytes < eg_arena_bytes + 64 + eg_share) return {0}_NO_MEMORY;
  if ((int64_t)((bytes - eg_arena_bytes) / (64 + eg_share)) < eg_workers)
    eg_workers = (int64_t)((bytes - eg_arena_bytes) / (64 + eg_share));
  char* const eg_arena = (char*)memory;
  const struct EgretPool eg_pool = {{eg_arena + eg_arena_bytes, eg_workers, eg_share}};
  (void)eg_pool;
)",
                      name);
  code += steps + results_text() + fmt::format("  free(eg_own);\n  return {}_OK;\n}}\n", name);

  LibraryText text;
  text.header = header();
  text.source =
      "#include <stdlib.h>\n#include <string.h>\n#ifdef _OPENMP\n#include <omp.h>\n#endif\n";
  text.source += std::string(text_head()) + kernels_text() + std::string(kLaunch);
  text.source += prelude_of(code);
  text.source += values_ + "\n" + code;
  return text;
}

} // namespace

LibraryText render_library(const Plan& plan, const ir::Graph& graph,
                           const LibraryInterface& interface) {
  return LibraryRenderer(plan, graph, interface).run();
}

} // namespace egret::backend::c
