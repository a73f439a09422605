#include "backend/cuda/render.h"

#include "backend/cuda/renderer.h"
#include "kernel/clusters.h"
#include "kernel/factor_sums.h"
#include "kernel/program_fields.h"

#include <algorithm>
#include <utility>

namespace egret::backend::cuda {

using kernel::Bind;
using kernel::Block;
using kernel::For;
using kernel::KernelProgram;
using kernel::Space;
using kernel::Stmt;
using kernel::Type;

namespace {

/// By buffer: whether a statement names it.
std::vector<bool> buffers_in(const KernelProgram& program) {
  struct Named : kernel::FieldVisitor<Named> {
    std::vector<bool> found;
    void visit(const Expr&) {}
    void id(kernel::IdKind kind, int& number) {
      if (kind == kernel::IdKind::Buffer && number >= 0)
        found[static_cast<std::size_t>(number)] = true;
    }
  } named;
  named.found.assign(program.buffers.size(), false);
  named(const_cast<Block&>(program.body)); // nothing is changed
  return std::move(named.found);
}

std::int64_t aligned(std::int64_t offset, std::int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

} // namespace

SharedLayout shared_layout(const KernelProgram& program) {
  SharedLayout layout;
  int lanes = 0;
  bool dynamic = false;
  each_statement(program.body, [&](const Stmt& s) {
    const auto* use = made_by<kernel::Intrinsic>(s);
    if (use && use->id == kernel::IntrinsicId::ReduceThreads) {
      const std::int64_t threads = use->number("threads");
      if (threads == program.launch.threads && threads > 32)
        lanes = std::max(lanes, get_if<kernel::Let>(s)->inst.type.lanes);
    }
    if (const auto* loop = get_if<For>(s))
      dynamic = dynamic || (loop->queue && !loop->relay);
  });
  // What asks for more alignment comes first, so that little is lost.
  layout.offset.assign(program.buffers.size(), -1);
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].space == Space::Shared)
      order.push_back(b);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return program.buffers[a].alignment > program.buffers[b].alignment;
  });
  for (std::size_t b : order) {
    const kernel::Buffer& buffer = program.buffers[b];
    layout.bytes = aligned(layout.bytes, std::max<std::int64_t>(16, buffer.alignment));
    layout.offset[b] = layout.bytes;
    layout.bytes += buffer.elements.value() * static_cast<std::int64_t>(size_of(buffer.dtype));
  }
  layout.bytes = aligned(layout.bytes, 16);
  if (lanes > 0) {
    layout.scratch = layout.bytes;
    layout.scratch_half = 32 * 8 * std::int64_t{lanes};
    layout.bytes += 2 * layout.scratch_half;
  }
  if (dynamic) {
    layout.ticket = layout.bytes;
    layout.bytes += 16;
  }
  return layout;
}

std::int64_t dynamic_shared_bytes(const KernelProgram& program) {
  return shared_layout(program).bytes;
}

std::string render_cuda(const KernelProgram& program, const CudaTarget& target) {
  const KernelProgram factored = kernel::with_factored_sums(program);
  return CudaRenderer(factored, target, clike::kernel_symbol(program)).run();
}

namespace {
const CudaLanguage cuda_language;
}

CudaRenderer::CudaRenderer(const KernelProgram& program, const CudaTarget& target,
                           std::string symbol)
    : Renderer(program, cuda_language), target_(target), values_(program.values.size()),
      made_by_(program.values.size()), asked_(kernel::rounded_uses(program).asked),
      symbol_(std::move(symbol)), multiplies_(has_products(program.body)) {}

std::string CudaRenderer::run() {
  ensure(program_.launch.threads > 0, "cuda renderer: kernel {} is a CPU's", program_.name);
  arguments();
  for (std::size_t v = 0; v < program_.variables.size(); ++v)
    for (int l = 0; l < program_.variables[v].lanes; ++l)
      line("{} r{}_{} = 0;", register_type(program_.variables[v].dtype), v, l);
  block(program_.body);
  const std::string body = std::move(out_);
  std::string bounds =
      program_.launch.blocks_per_core > 0
          ? fmt::format("{}, {}", program_.launch.threads, program_.launch.blocks_per_core)
          : fmt::format("{}", program_.launch.threads);
  if (const int blocks = kernel::cluster_blocks(program_); blocks > 0)
    bounds += fmt::format(") __cluster_dims__({}, 1, 1", blocks);
  return fmt::format("{}{}{}{}\nextern \"C\" __global__ void __launch_bounds__({})\n{}(const "
                     "__grid_constant__ EgretArgs args{}) {{\n{}}}\n",
                     clike::prelude_for(body, prelude_pieces()), matrix_prelude(body), parameters(),
                     tables_, bounds, symbol_, tensor_map_parameters(), body);
}

std::string CudaRenderer::parameters() const {
  std::size_t pointers = 0;
  for (const kernel::Buffer& b : program_.buffers)
    pointers += b.space != Space::Shared && b.space != Space::Problem;
  return fmt::format("struct EgretArgs {{\n  void* p[{}];\n  long long d[{}];\n  unsigned long "
                     "long s[{}];\n{}}};\n",
                     std::max<std::size_t>(1, pointers),
                     std::max<std::size_t>(1, program_.dims.size()),
                     std::max<std::size_t>(1, program_.scalars.size()),
                     has_settled(program_) ? "  unsigned long long settled;\n" : "");
}

// Constant memory while it lasts: threads of a warp read one element.
std::string CudaRenderer::table(const char* type, const std::vector<std::string>& values) {
  constexpr std::size_t kConstantBytes = 32 << 10;
  table_bytes_ += values.size() * (std::string_view(type) == "int" ? 4 : 8);
  std::string name = fmt::format("eg_table{}", names_++);
  tables_ += fmt::format("{} const {} {}[{}] = {{{}}};\n",
                         table_bytes_ <= kConstantBytes ? "__constant__" : "__device__", type, name,
                         values.size(), fmt::join(values, ", "));
  return name;
}

// Loads of what nobody writes during the launch are ordered by nothing but their pointers, which
// are known behind the wait for the launch before.
std::string CudaRenderer::argument_pointer(const kernel::Buffer& buffer,
                                           const std::string& number) const {
  const std::string pointer = fmt::format("args.p[{}]", number);
  return is_read_only(buffer) && target_.launches_early()
             ? fmt::format("eg_after_wait({})", pointer)
             : pointer;
}

void CudaRenderer::arguments() {
  const SharedLayout shared = shared_layout(program_);
  if (target_.launches_early() && !has_settled(program_)) {
    if (begins_next_at_once(program_))
      line("eg_let_next_launch_come();");
    line("eg_wait_for_launch_before();");
  }
  line("const int t = threadIdx.x;");
  if (shared.bytes > 0)
    line("extern __shared__ __align__(1024) unsigned char eg_shared[];");
  const std::vector<bool> direct = buffers_in(program_);
  int place = 0;
  for (Space space : {Space::Argument, Space::Workspace, Space::Counter})
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const kernel::Buffer& buffer = program_.buffers[b];
      if (buffer.space != space)
        continue;
      if (!direct[b]) { // only by problems
        ++place;
        continue;
      }
      const bool constant = space == Space::Argument && !buffer.written;
      line("{0}{1}* {5}b{2} = ({0}{1}*){3}; // {4}", constant ? "const " : "",
           memory_type(buffer.dtype), b, argument_pointer(buffer, fmt::format("{}", place++)),
           clike::comment_text(buffer.name), has_settled(program_) ? "" : "const ");
    }
  for (std::size_t b = 0; b < program_.buffers.size(); ++b)
    if (shared.offset[b] >= 0)
      line("{0}* const b{1} = ({0}*)(eg_shared + {2}); // {3}",
           memory_type(program_.buffers[b].dtype), b, shared.offset[b],
           clike::comment_text(program_.buffers[b].name));
  if (shared.scratch >= 0)
    line("int eg_turn = 0;");
  if (shared.ticket >= 0) {
    line("unsigned* const eg_ticket = (unsigned*)(eg_shared + {});", shared.ticket);
    line("int eg_draw = 0;");
  }
  for (std::size_t d = 0; d < program_.dims.size(); ++d) {
    const char* type = IndexText::fits(program_.dims[d]) ? "int" : "long long";
    line("const {0} d{1} = ({0})args.d[{1}]; // {2}", type, d,
         clike::comment_text(program_.dims[d].str()));
  }
}

void CudaRenderer::grid_dependency_wait(bool unless_settled) {
  if (!target_.launches_early())
    return;
  if (unless_settled)
    return line("if (!args.settled) eg_wait_for_launch_before();");
  line("eg_wait_for_launch_before();");
  const std::vector<bool> direct = buffers_in(program_);
  for (std::size_t b = 0; b < program_.buffers.size(); ++b)
    if (const kernel::Buffer& buffer = program_.buffers[b];
        buffer.space == Space::Argument && direct[b] && is_read_only(buffer))
      line("b{0} = (const {1}*)eg_after_wait((void*)b{0});", b, memory_type(buffer.dtype));
}

void CudaRenderer::launch_dependents() {
  if (target_.launches_early())
    line("eg_let_next_launch_come();");
}

const CudaRenderer::Lanes& CudaRenderer::value(kernel::ValueId id) const {
  const Lanes& lanes = values_.at(static_cast<std::size_t>(id));
  ensure(!lanes.empty(), "cuda renderer: kernel {} uses value {} before it is made", program_.name,
         id);
  return lanes;
}

const std::string& CudaRenderer::lane_of(kernel::ValueId id, int lane) const {
  const Lanes& lanes = value(id);
  return lanes[lanes.size() == 1 ? 0 : static_cast<std::size_t>(lane)];
}

void CudaRenderer::define(kernel::ValueId target, int lane, const std::string& text) {
  Lanes& lanes = values_[static_cast<std::size_t>(target)];
  const Type& type = program_.values[static_cast<std::size_t>(target)];
  std::string name =
      type.lanes == 1 ? fmt::format("v{}", target) : fmt::format("v{}_{}", target, lane);
  line("const {} {} = {};", register_type(type.dtype), name, text);
  lanes.push_back(std::move(name));
}

void CudaRenderer::assign(const kernel::Assign& stmt) {
  const int lanes = program_.variables[static_cast<std::size_t>(stmt.variable)].lanes;
  for (int l = 0; l < lanes; ++l)
    line("r{}_{} = {};", stmt.variable, l, lane_of(stmt.value, l));
}

void CudaRenderer::loop(const For& stmt) {
  if (stmt.bind == Bind::Grid)
    return stmt.relay ? relayed_loop(stmt) : stmt.queue ? dynamic_loop(stmt) : grid_loop(stmt);
  // What does not change is loaded before the loop, unless there may be no iteration.
  const bool may_be_empty = !proves_less(stmt.begin, stmt.end);
  if (may_be_empty) {
    open(fmt::format("if ({} < {})", index_.text(stmt.begin), index_.text(stmt.end)));
    enter_branch(stmt.body);
  }
  if (stmt.bind == Bind::Unroll)
    line("#pragma unroll");
  else
    line("#pragma unroll {}", std::max(1, stmt.unroll));
  open(fmt::format("for ({0} i{1} = {2}; i{1} < {3}; i{1} += {4})", IndexText::type_of(stmt.extent),
                   stmt.number, index_.text(stmt.begin), index_.text(stmt.end),
                   index_.text(stmt.step)));
  block(stmt.body);
  close();
  if (may_be_empty)
    close();
}

void CudaRenderer::grid_loop(const For& stmt) {
  const char* type = IndexText::type_of(stmt.extent);
  const std::string step = stmt.step == Expr(1) ? "" : " * " + index_.text(stmt.step);
  const std::string begin = stmt.begin == Expr(0) ? "" : " + " + index_.text(stmt.begin);
  line("#pragma unroll 1");
  open(fmt::format("for ({0} i{1} = ({0})blockIdx.x{2}{3}; i{1} < {4}; i{1} += ({0})gridDim.x{2})",
                   type, stmt.number, step, begin, index_.text(stmt.end)));
  if (stmt.keeps_invariants)
    line("const int t = eg_opaque(threadIdx.x);");
  block(stmt.body);
  close();
}

// The first iteration of a block is its own number; the others are drawn behind those. A draw is
// asked for at the start of an iteration and needed at its end. The last block to end clears the
// counter for the next launch.
void CudaRenderer::dynamic_loop(const For& stmt) {
  const std::string c = counter(*stmt.queue);
  const int n = names_++;
  open("");
  line("unsigned eg_item{} = blockIdx.x;", n);
  open("for (;;)");
  take_item(stmt, n);
  line("unsigned eg_next{} = 0;", n);
  line("if (t == 0) eg_next{} = gridDim.x + atomicAdd({}, 1u);", n, c);
  block(stmt.body);
  line("if (t == 0) eg_ticket[eg_draw] = eg_next{};", n);
  line("__syncthreads();");
  line("eg_item{} = eg_ticket[eg_draw];", n);
  line("eg_draw ^= 1;");
  close();
  clear_queue("t == 0 && ", c);
  close();
}

// The leader takes an iteration from the queue at the end of the one before and tells the others
// its number in one of two places, once all of them have read what was there.
void CudaRenderer::relayed_loop(const For& stmt) {
  const bool leads = stmt.relay->leads;
  const std::string c = counter(*stmt.queue);
  const int n = names_++;
  open("");
  line("unsigned long long* const eg_relay{} = b{} + {};", n, stmt.relay->at.buffer,
       index_.text(stmt.relay->at.index));
  line("volatile unsigned* const eg_numbers{0} = (unsigned*)(eg_relay{0} + 4);", n);
  if (leads)
    line("unsigned eg_item{} = blockIdx.x;", n);
  line("#pragma unroll 1");
  open(fmt::format("for (unsigned eg_told{0} = 0;; ++eg_told{0})", n));
  line("const unsigned eg_place{0} = eg_told{0} & 1, eg_parity{0} = (eg_told{0} >> 1) & 1;", n);
  const std::string is_there = fmt::format("eg_address(eg_relay{0} + eg_place{0})", n),
                    is_read = fmt::format("eg_address(eg_relay{0} + 2 + eg_place{0})", n);
  if (leads) {
    line("eg_await({}, eg_parity{} ^ 1);", is_read, n);
    line("eg_numbers{0}[eg_place{0}] = eg_item{0};", n);
    line("eg_arrive({});", is_there);
  } else {
    line("eg_await({}, eg_parity{});", is_there, n);
    line("const unsigned eg_item{0} = eg_numbers{0}[eg_place{0}];", n);
    line("__syncwarp();");
    line("if ((t & 31) == 0) eg_arrive({});", is_read);
  }
  take_item(stmt, n);
  block(stmt.body);
  if (leads)
    line("eg_item{} = gridDim.x + atomicAdd({}, 1u);", n, c);
  close();
  if (leads)
    clear_queue("", c);
  close();
}

/// The loop's variable from its number, or the loop's end.
void CudaRenderer::take_item(const For& stmt, int n) {
  line("const {0} i{1} = {2} + ({0})eg_item{3} * {4};", IndexText::type_of(stmt.extent),
       stmt.number, index_.text(stmt.begin), n, index_.text(stmt.step));
  line("if (i{} >= {}) break;", stmt.number, index_.text(stmt.end));
}

void CudaRenderer::clear_queue(const char* condition, const std::string& queue) {
  line("if ({1}atomicAdd({0} + 1, 1u) == gridDim.x - 1) {{ ({0})[0] = 0; ({0})[1] = 0; }}", queue,
       condition);
}

} // namespace egret::backend::cuda
