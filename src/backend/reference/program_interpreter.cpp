#include "backend/reference/program_interpreter.h"

#include "backend/reference/gpu_matrix.h"
#include "backend/reference/gpu_turns.h"
#include "backend/reference/library_product.h"
#include "backend/reference/number.h"
#include "backend/reference/program_code.h"
#include "backend/reference/program_memory.h"
#include "backend/reference/tiles.h"
#include "backend/reference/worker_turns.h"
#include "kernel/clusters.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace egret::backend::reference {

using kernel::ArgBlock;
using kernel::Bind;
using kernel::Inst;
using kernel::Intrinsic;
using kernel::IntrinsicId;
using kernel::KernelProgram;
using kernel::Type;

namespace {

/// Runs statements for threads that go in step: a warp of a GPU, or the one of a CPU's worker. Each
/// has registers and loop variables of its own; a bit of `Mask` says whether it takes part.
class Worker {
public:
  using Mask = std::uint32_t;
  struct Place {
    int block = 0, blocks = 1; ///< of a GPU; a CPU's workers are numbered so
    int warp = 0;
    int cluster = 1; ///< blocks of one
  };

  Worker(const ProgramCode& code, const ArgBlock& block, const std::vector<std::int64_t>& slots,
         ProgramMemory& memory, WorkerTurns* cpu, GpuTurns* gpu, Signals* signals, Place place)
      : code_(code), program_(code.program), block_(block), memory_(memory), cpu_(cpu), gpu_(gpu),
        signals_(signals), matrices_(code.program, memory), tiles_(code.program), place_(place),
        width_(gpu ? 32 : 1), stride_(static_cast<std::size_t>(code.value_offset.back())),
        variable_stride_(static_cast<std::size_t>(code.variable_offset.back())),
        slots_(static_cast<std::size_t>(width_), slots),
        values_(stride_ * static_cast<std::size_t>(width_)),
        variables_(variable_stride_ * static_cast<std::size_t>(width_)) {
    for (int i = 0; i < width_; ++i)
      slots_[static_cast<std::size_t>(i)][static_cast<std::size_t>(code.slots.thread())] =
          32 * place.warp + i;
  }

  void run() {
    below_ -= (place_.block * 32 + place_.warp) * 100'000;
    execute(code_.body, all());
  }

private:
  Mask all() const { return width_ == 32 ? ~Mask{0} : Mask{1}; }
  template <class F>
  void each(Mask mask, F f) {
    for (int i = 0; i < width_; ++i)
      if (mask >> i & 1)
        f(i);
  }
  std::int64_t* slots(int i) { return slots_[static_cast<std::size_t>(i)].data(); }

  void execute(const std::vector<StmtCode>& block, Mask mask) {
    if (mask != 0)
      for (const StmtCode& stmt : block)
        execute(stmt, mask);
  }

  void execute(const StmtCode& code, Mask mask) {
    std::visit(
        overloaded{
            [&](const kernel::Let& x) {
              if (const auto* use = get_if<Intrinsic>(x.inst))
                return intrinsic(*use, code.inst, mask, &x);
              each(mask, [&](int i) { evaluate(x.inst, code.inst, i, value(x.target, i)); });
            },
            [&](const kernel::Assign& x) {
              each(mask, [&](int i) { set_variable(x.variable, x.value, i); });
            },
            [&](const kernel::Store& x) { each(mask, [&](int i) { store(x, code.inst, i); }); },
            [&](const kernel::For& x) { loop(x, code, mask); },
            [&](const kernel::If&) {
              Mask held = 0;
              each(mask, [&](int i) { held |= Mask{enabled(code.inst, i, 0)} << i; });
              execute(code.body, held);
              execute(code.otherwise, mask & ~held);
            },
            [&](const kernel::Barrier&) { barrier(); },
            [&](const Intrinsic& x) { intrinsic(x, code.inst, mask, nullptr); },
            [&](const kernel::Acquire& x) { acquire(x.by, code, mask); },
            [&](const kernel::InProblem& x) { problem(x, code, mask); }},
        code.stmt->node);
  }

  void problem(const kernel::InProblem& stmt, const StmtCode& code, Mask mask) {
    const kernel::ProblemGroup& group = program_.groups.at(static_cast<std::size_t>(stmt.group));
    std::optional<std::int64_t> item;
    each(mask, [&](int i) {
      fill_symbols(code.inst, i, 0);
      const std::int64_t own = code.inst.index(slots(i));
      ensure(own >= 0 && own < group.begin.back(), "program {}: item {} of a group of {}",
             program_.name, own, group.begin.back());
      ensure(!item || *item == own, "program {}: threads are in different problems", program_.name);
      item = own;
    });
    ensure(group_ == nullptr, "program {}: a problem within a problem", program_.name);
    group_ = &group;
    problem_ = group.problem_of(item.value());
    each(mask, [&](int i) {
      slots(i)[code.slot] = *item - group.begin[problem_];
      for (std::size_t s = 0; s < code.sizes.size(); ++s)
        slots(i)[code.sizes[s]] = group.values[s][problem_];
    });
    execute(code.body, mask);
    group_ = nullptr;
  }

  // --- Intrinsics

  /// `let`: what takes the result; null where there is none.
  void intrinsic(const Intrinsic& use, const InstCode& code, Mask mask, const kernel::Let* let) {
    switch (use.id) {
    case IntrinsicId::Prefetch:
    case IntrinsicId::MatrixFence:
    case IntrinsicId::ReallocateRegisters:
      return;
    case IntrinsicId::ReduceThreads:
      return reduce_threads(*let, use, mask);
    case IntrinsicId::ScanThreads:
      return scan_threads(*let, use, mask);
    case IntrinsicId::ShuffleXor:
      return shuffle_xor(*let, use, mask);
    case IntrinsicId::SubgroupBarrier:
      whole_warp(mask, use);
      return order();
    case IntrinsicId::CountInOrder:
      whole_warp(mask, use);
      return each(mask, [&](int i) { count_in_order(use, code, i); });
    case IntrinsicId::AtomicCombine:
      return each(mask, [&](int i) {
        if (enabled(code, i, 0))
          memory_.combine(use.memory[0].buffer, code.memory[0](slots(i)), use.monoid(),
                          operand(use.values[0], i, 0), actor(i));
      });
    case IntrinsicId::AtomicFetchAdd:
      return each(mask, [&](int i) {
        *variable_lanes(use.variables[0], i) =
            enabled(code, i, 0)
                ? memory_.combine(use.memory[0].buffer, code.memory[0](slots(i)), Monoid::Sum,
                                  operand(use.values[0], i, 0), actor(i))
                : Number{};
      });
    case IntrinsicId::GridBarrier:
      gpu_->grid_barrier(place_.block, place_.warp, static_cast<int>(use.number("blocks")));
      ++(use.number("blocks") > 0 ? cluster_phase_ : grid_phase_);
      return next_phase();
    case IntrinsicId::PublishFlag:
    case IntrinsicId::PublishWord:
      return each(mask, [&](int i) {
        fill_symbols(code, i, 0);
        gpu_->post(use.memory[0].buffer, code.memory[0](slots(i)),
                   use.values.empty() ? Number{} : operand(use.values[0], i, 0));
      });
    case IntrinsicId::AwaitWord:
      return each(mask, [&](int i) {
        *variable_lanes(use.variables[0], i) =
            enabled(code, i, 0) ? awaited(use, code.memory[0](slots(i))) : Number{};
      });
    case IntrinsicId::ClearFlags:
      gpu_->clear_posts(place_.block, place_.warp, use.memory[0].buffer,
                        static_cast<int>(use.number("count")));
      return next_phase();
    case IntrinsicId::CopyAsync:
      return each(mask, [&](int i) {
        const bool held = enabled(code, i, 0);
        matrices_.copy(i, use.memory[0].buffer, use.memory[1].buffer,
                       static_cast<int>(use.number("elements")), code.memory[0](slots(i)),
                       held ? code.memory[1](slots(i)) : 0, held, actor(i));
      });
    case IntrinsicId::StoreSwizzled:
      return each(mask, [&](int i) { store_swizzled(use, code, i); });
    case IntrinsicId::CommitCopies:
      return each(mask, [&](int i) { matrices_.commit_copies(i); });
    case IntrinsicId::WaitCopies:
      return each(mask, [&](int i) {
        matrices_.wait_copies(i, static_cast<int>(use.number("groups")), actor(i));
      });
    case IntrinsicId::GridDependencyWait: // launches come one after the other
    case IntrinsicId::LaunchDependents:
      return;
    case IntrinsicId::CopyFence:
      unfenced_ = stored_ = false;
      return;
    case IntrinsicId::MbarrierInit:
    case IntrinsicId::MbarrierArrive:
    case IntrinsicId::MbarrierArriveCopies:
    case IntrinsicId::MbarrierWait:
    case IntrinsicId::BulkTensorCopy:
    case IntrinsicId::BulkCopy:
      return each(mask, [&](int i) {
        fill_symbols(code, i, 0);
        mbarrier(use, code, i);
      });
    case IntrinsicId::LoadMatrix:
    case IntrinsicId::MatrixMultiply:
      return warp_value(*let, use, code, mask);
    case IntrinsicId::MatrixMultiplyAsync:
      whole_warp(mask, use);
      ensure(!unfenced_, "program {}: products of what copies brought, without a {}", program_.name,
             info_of(IntrinsicId::CopyFence).name);
      return multiply_async(use, code);
    case IntrinsicId::MatrixCommit:
      return matrices_.commit_products();
    case IntrinsicId::MatrixWait:
      whole_warp(mask, use);
      return matrices_.wait_products(
          static_cast<int>(use.number("groups")), unordered(0),
          [&](int variable, int i) { return variable_lanes(variable, i); });
    case IntrinsicId::TileZero:
      return tiles_.zero(static_cast<int>(use.number("tile")));
    case IntrinsicId::TileMultiply:
      return tiles_.multiply(static_cast<int>(use.number("sum")),
                             static_cast<int>(use.number("left")),
                             static_cast<int>(use.number("right")));
    case IntrinsicId::TileLoad:
    case IntrinsicId::TileStore:
      return move_tile(use, code);
    case IntrinsicId::LastArriver:
    case IntrinsicId::LastArriverOfGroup:
    case IntrinsicId::WaitFlags:
      break; // of an Acquire: below
    }
    ensure(false, "program {}: {} without a body", program_.name, info_of(use.id).name);
  }

  /// The turn of lane i. To others it is the subgroup that counts.
  void count_in_order(const Intrinsic& use, const InstCode& code, int i) {
    Number& before = *variable_lanes(use.variables[0], i);
    before = Number{.i = 0};
    if (!enabled(code, i, 0))
      return;
    const int counters = use.memory[0].buffer;
    const std::int64_t at = code.memory[0](slots(i)), mark = code.memory[1](slots(i));
    ensure(memory_.load(use.memory[1].buffer, mark, actor(0)).i == 0,
           "program {}: {}: mark {} is not 0", program_.name, info_of(use.id).name, mark);
    before = memory_.load(counters, at, actor(0));
    memory_.store(counters, at, Number{.i = before.i + 1}, actor(0));
  }

  void acquire(const Intrinsic& by, const StmtCode& code, Mask mask) {
    fill_symbols(code.inst, 0, 0);
    if (by.id == IntrinsicId::WaitFlags)
      wait_flags(by, code.inst);
    else if (!last_arriver(by, code.inst))
      return;
    const bool was = std::exchange(acquired_, true);
    execute(code.body, mask);
    acquired_ = was;
  }

  /// Whether this block is the last one of those that arrive.
  bool last_arriver(const Intrinsic& by, const InstCode& code) {
    const bool group = by.id == IntrinsicId::LastArriverOfGroup;
    const std::int64_t key = code.memory[0](slots(0)) * std::int64_t{1024} + by.memory[0].buffer;
    const bool here = gpu_->last(place_.block, place_.warp, key, code.indices[0](slots(0)),
                                 group ? static_cast<int>(by.number("barrier")) : 0,
                                 group ? static_cast<int>(by.number("threads")) / 32 : 0);
    if (group)
      order();
    else
      next_phase();
    return here;
  }

  Number awaited(const Intrinsic& use, std::int64_t element) {
    return gpu_->await(place_.block, place_.warp, use.memory[0].buffer, element);
  }

  void wait_flags(const Intrinsic& by, const InstCode& code) {
    const std::int64_t end = code.indices[0](slots(0));
    for (std::int64_t flag = code.memory[0](slots(0)); flag < end; ++flag)
      awaited(by, flag);
    gpu_->barrier(place_.block, place_.warp, 0, 0);
    next_phase();
  }

  void move_tile(const Intrinsic& use, const InstCode& code) {
    fill_symbols(code, 0, 0);
    const int tile = static_cast<int>(use.number("tile")), buffer = use.memory[0].buffer;
    const std::int64_t place = code.memory[0](slots(0)), stride = code.indices[0](slots(0));
    if (use.id == IntrinsicId::TileLoad)
      tiles_.load(tile, memory_, buffer, place, stride, actor(0));
    else
      tiles_.store(tile, memory_, buffer, place, stride, actor(0));
  }

  // --- Copies, barriers in memory and matrices

  void whole_warp(Mask mask, const Intrinsic& use) const {
    ensure(mask == all(), "program {}: some threads of a warp do not come to {}", program_.name,
           info_of(use.id).name);
  }
  /// What comes now is ordered behind what these threads did, and is not compared with what other
  /// warps do until the next barrier of the block.
  void order() { phase_ = --below_; }
  /// Accesses that barriers in memory order.
  Actor unordered(int i) {
    Actor a = actor(i);
    a.phase = --below_;
    return a;
  }

  void store_swizzled(const Intrinsic& use, const InstCode& code, int i) {
    if (!enabled(code, i, 0))
      return;
    const int buffer = use.memory[0].buffer;
    const std::int64_t to = code.memory[0](slots(i));
    for (int e = 0; e < type_of(use.values[0]).lanes; ++e)
      memory_.store(buffer, to + e, operand(use.values[0], i, e), actor(i));
    stored_ = true;
  }

  void mbarrier(const Intrinsic& use, const InstCode& code, int i) {
    const int buffer = use.memory[0].buffer;
    const std::int64_t place = code.memory[0](slots(i));
    if (use.id == IntrinsicId::BulkTensorCopy)
      return bulk_tensor_copy(use, code, i, place);
    if (use.id == IntrinsicId::BulkCopy)
      return bulk_copy(use, code, i, place);
    if (use.id == IntrinsicId::MbarrierInit)
      return signals_->init(place_.block, buffer, place, static_cast<int>(use.number("arrivals")));
    ensure(!stored_, "program {}: an arrival behind a {}, without a {}", program_.name,
           info_of(IntrinsicId::StoreSwizzled).name, info_of(IntrinsicId::CopyFence).name);
    if (use.id == IntrinsicId::MbarrierArrive)
      return signals_->arrive(place_.block, buffer, place, use.number("bytes"));
    if (use.id == IntrinsicId::MbarrierArriveCopies)
      return signals_->arrive_later(place_.block, buffer, place,
                                    matrices_.open_copies(i, unordered(i)));
    const auto parity = static_cast<int>(operand(use.values[0], i, 0).i);
    const auto ended = [this, buffer, place, parity] {
      return signals_->ended(place_.block, buffer, place, parity);
    };
    if (!ended())
      gpu_->wait(place_.block, place_.warp, ended, "a signal");
    unfenced_ = unfenced_ || signals_->has_copies(place_.block, buffer, place);
    order();
  }

  void bulk_tensor_copy(const Intrinsic& use, const InstCode& code, int i, std::int64_t to) {
    const auto number = static_cast<std::size_t>(use.number("map"));
    const ProgramCode::Map& map = code_.tensor_maps.at(number);
    std::vector<std::int64_t> extents, strides, at;
    for (std::size_t d = 0; d < map.extents.size(); ++d) {
      extents.push_back(map.extents[d](slots(i)));
      strides.push_back(map.strides[d](slots(i)));
      at.push_back(code.indices[d](slots(i)));
    }
    const std::int64_t bytes =
        matrices_.copy_box(program_.tensor_maps[number], map.offset(slots(i)), extents, strides, at,
                           use.memory[0].buffer, to, unordered(i));
    signals_->bring(place_.block, use.memory[1].buffer, code.memory[1](slots(i)), bytes);
  }

  void bulk_copy(const Intrinsic& use, const InstCode& code, int i, std::int64_t to) {
    const std::int64_t elements = use.number("elements"), from = code.memory[1](slots(i));
    const int source = use.memory[1].buffer;
    const Actor by = unordered(i);
    for (std::int64_t e = 0; e < elements; ++e)
      memory_.store(use.memory[0].buffer, to + e, memory_.load(source, from + e, by), by);
    const DType dtype = program_.buffers[static_cast<std::size_t>(source)].dtype;
    signals_->bring(place_.block, use.memory[2].buffer, code.memory[2](slots(i)),
                    elements * static_cast<std::int64_t>(size_of(dtype)));
  }

  void warp_value(const kernel::Let& let, const Intrinsic& use, const InstCode& code, Mask mask) {
    whole_warp(mask, use);
    std::vector<std::array<Number, 4>> result;
    if (use.id == IntrinsicId::LoadMatrix) {
      std::array<std::int64_t, WarpMatrices::kThreads> rows{};
      WarpMatrices::Actors actors;
      each(mask, [&](int i) {
        fill_symbols(code, i, 0);
        rows[static_cast<std::size_t>(i)] = code.memory[0](slots(i));
        actors[static_cast<std::size_t>(i)] = actor(i);
      });
      result = matrices_.load(use, rows, actors);
    } else {
      std::vector<std::array<Number, 4>> args[3];
      for (int a = 0; a < 3; ++a)
        each(mask, [&](int i) {
          const kernel::ValueId id = use.values.at(static_cast<std::size_t>(a));
          std::array<Number, 4> lanes{};
          for (int l = 0; l < type_of(id).lanes; ++l)
            lanes[static_cast<std::size_t>(l)] = operand(id, i, l);
          args[a].push_back(lanes);
        });
      result = WarpMatrices::multiply(use.dtype("element"), args[0], args[1], args[2]);
    }
    each(mask, [&](int i) {
      std::copy_n(result[static_cast<std::size_t>(i)].begin(), let.inst.type.lanes,
                  value(let.target, i));
    });
  }

  void multiply_async(const Intrinsic& use, const InstCode& code) {
    WarpMatrices::Product p;
    p.add = enabled(code, 0, 0);
    if (use.values.empty())
      p.left = {use.memory[1].buffer, code.memory[1](slots(0)), use.number("transposed_a") != 0,
                use.number("group_a")};
    else
      each(all(), [&](int i) {
        std::array<Number, 4> words{};
        std::copy_n(value(use.values[0], i), 4, words.begin());
        p.words.push_back(words);
      });
    p.right = {use.memory[0].buffer, code.memory[0](slots(0)), use.number("transposed_b") != 0,
               use.number("group_b")};
    p.element = use.dtype("element");
    p.first_row = 16 * (place_.warp % 4);
    p.variables = use.variables;
    matrices_.multiply_async(std::move(p));
  }

  void barrier() {
    if (cpu_)
      cpu_->barrier(place_.block);
    else
      gpu_->barrier(place_.block, place_.warp, 0, 0);
    next_phase();
  }
  void next_phase() { phase_ = ++barriers_; }

  // --- Loops

  void loop(const kernel::For& stmt, const StmtCode& code, Mask mask) {
    if (stmt.bind == Bind::Core)
      return core_loop(stmt, code);
    if (stmt.bind == Bind::Grid)
      return grid_loop(stmt, code, mask);
    struct Range {
      std::int64_t at, end, step;
    };
    std::vector<Range> ranges(static_cast<std::size_t>(width_));
    each(mask, [&](int i) {
      fill_symbols(code.inst, i, 0);
      ranges[static_cast<std::size_t>(i)] = {code.begin(slots(i)), code.end(slots(i)),
                                             code.step(slots(i))};
      ensure(ranges[static_cast<std::size_t>(i)].step > 0, "program {}: loop d{} has step {}",
             program_.name, stmt.number, ranges[static_cast<std::size_t>(i)].step);
    });
    for (;;) {
      Mask going = 0;
      each(mask, [&](int i) {
        Range& r = ranges[static_cast<std::size_t>(i)];
        if (r.at >= r.end)
          return;
        going |= Mask{1} << i;
        set_loop(stmt, code, i, r.at);
        r.at += r.step;
      });
      if (going == 0)
        return;
      execute(code.body, going);
    }
  }

  void set_loop(const kernel::For& stmt, const StmtCode& code, int i, std::int64_t at) {
    const std::int64_t extent = code.extent(slots(i));
    ensure(at >= 0 && at < extent, "program {}: loop variable d{} = {} is outside its extent {}",
           program_.name, stmt.number, at, extent);
    slots(i)[code.slot] = at;
  }

  void core_loop(const kernel::For& stmt, const StmtCode& code) {
    const std::int64_t begin = code.begin(slots(0)), end = code.end(slots(0)),
                       step = code.step(slots(0));
    ensure(step > 0, "program {}: loop d{} has step {}", program_.name, stmt.number, step);
    ensure(!in_core_loop_, "program {}: Core loop d{} stands within a Core loop", program_.name,
           stmt.number);
    const std::int64_t count = begin < end ? (end - begin + step - 1) / step : 0;
    const std::int64_t first = begin + count * place_.block / place_.blocks * step;
    const std::int64_t stop =
        std::min(end, begin + count * (place_.block + 1) / place_.blocks * step);
    in_core_loop_ = true;
    for (std::int64_t at = first; at < stop; at += step) {
      set_loop(stmt, code, 0, at);
      execute(code.body, all());
    }
    in_core_loop_ = false;
  }

  void grid_loop(const kernel::For& stmt, const StmtCode& code, Mask mask) {
    each(mask, [&](int i) { fill_symbols(code.inst, i, 0); });
    const std::int64_t begin = code.begin(slots(0)), end = code.end(slots(0)),
                       step = code.step(slots(0));
    ensure(step > 0, "program {}: loop d{} has step {}", program_.name, stmt.number, step);
    const bool dynamic = stmt.queue.has_value();
    // Roles take the same iterations of one queue, each in its own time.
    const int queue = stmt.relay ? ~stmt.queue->buffer : stmt.number;
    for (std::size_t n = 0;; ++n) {
      const std::int64_t item = dynamic
                                    ? gpu_->draw(place_.block, queue, n)
                                    : place_.block + static_cast<std::int64_t>(n) * place_.blocks;
      const std::int64_t at = begin + item * step;
      if (at >= end)
        return;
      each(mask, [&](int i) { set_loop(stmt, code, i, at); });
      execute(code.body, mask);
      if (dynamic && !stmt.relay) { // the rendered loop has a barrier here
        gpu_->barrier(place_.block, place_.warp, 0, 0);
        next_phase();
      }
    }
  }

  // --- Registers

  Number* value(kernel::ValueId id, int i) {
    return values_.data() + stride_ * static_cast<std::size_t>(i) +
           code_.value_offset.at(static_cast<std::size_t>(id));
  }
  const Type& type_of(kernel::ValueId id) const {
    return program_.values.at(static_cast<std::size_t>(id));
  }
  /// Lane `lane` of an operand of an elementwise instruction.
  Number operand(kernel::ValueId id, int i, int lane) {
    return value(id, i)[type_of(id).lanes == 1 ? 0 : lane];
  }

  void set_variable(int variable, kernel::ValueId source, int i) {
    const Number* from = value(source, i);
    std::copy(from, from + type_of(source).lanes, variable_lanes(variable, i));
  }
  Number* variable_lanes(int variable, int i) {
    return variables_.data() + variable_stride_ * static_cast<std::size_t>(i) +
           code_.variable_offset.at(static_cast<std::size_t>(variable));
  }

  void fill_symbols(const InstCode& code, int i, int lane) {
    slots(i)[code_.slots.lane()] = lane;
    for (const InstCode::Symbol& symbol : code.symbols)
      slots(i)[symbol.slot] = operand(symbol.value, i, lane).i;
  }
  bool enabled(const InstCode& code, int i, int lane) {
    fill_symbols(code, i, lane);
    return code.mask.holds(slots(i));
  }
  Actor actor(int i) const {
    if (cpu_)
      return {place_.block, 0, phase_, 0, false, group_, problem_};
    const int thread = place_.block * program_.launch.threads + 32 * place_.warp + i;
    return {thread,        place_.block, phase_,   grid_phase_,
            acquired_,     group_,       problem_, place_.block / place_.cluster,
            cluster_phase_};
  }

  void store(const kernel::Store& stmt, const InstCode& code, int i) {
    for (int lane = 0; lane < code.lanes; ++lane)
      if (enabled(code, i, lane))
        memory_.store(stmt.to.buffer, code.index(slots(i)), value(stmt.value, i)[lane], actor(i));
  }

  // --- Instructions

  void evaluate(const Inst& inst, const InstCode& code, int i, Number* result) {
    for (int lane = 0; lane < code.lanes; ++lane)
      result[lane] = evaluate(inst, code, i, lane);
  }

  Number evaluate(const Inst& inst, const InstCode& code, int i, int lane) {
    using namespace kernel::inst;
    return std::visit(
        overloaded{[&](const Constant& x) { return number_of(x.value); },
                   [&](const Argument& x) {
                     const auto n = std::size_t(kernel::scalar_of(x, group_, problem_));
                     return read_number(program_.scalars.at(n), &block_.scalars[n]);
                   },
                   [&](const Index&) {
                     fill_symbols(code, i, lane);
                     return convert({.i = code.index(slots(i))}, DType::I64, inst.type.dtype);
                   },
                   [&](const Apply& x) { return apply_op(x, inst.type, i, lane); },
                   [&](const Fma& x) { return fma(x, inst.type.dtype, i, lane); },
                   [&](const Load& x) {
                     return enabled(code, i, lane)
                                ? memory_.load(x.from.buffer, code.index(slots(i)), actor(i))
                                : Number{};
                   },
                   [&](const Read& x) { return variable_lanes(x.variable, i)[lane]; },
                   [&](const Splat& x) { return value(x.value, i)[0]; },
                   [&](const Extract& x) { return value(x.value, i)[x.lane]; },
                   [&](const ReduceLanes& x) {
                     const Type& type = type_of(x.value);
                     const Number* from = value(x.value, i);
                     return combine_halves(x.monoid, type.dtype, {from, from + type.lanes});
                   },
                   [&](const Shuffle& x) {
                     return shuffled(x, i, x.lanes_from.at(static_cast<std::size_t>(lane)));
                   },
                   [&](const Test&) { return Number{.i = enabled(code, i, lane)}; },
                   [](const Intrinsic&) { return Number{}; }}, // executed for all threads at once
        inst.op);
  }

  /// Two neighbours of 16 bits as a u32.
  Number pair(const kernel::inst::Apply& inst, int i, int lane) {
    const DType dtype = type_of(inst.args[0]).dtype;
    std::uint32_t word = 0;
    for (const int half : {0, 1}) {
      const Number bits = apply(Op::Bitcast, DType::U16, dtype,
                                value(inst.args[0], i)[2 * lane + half], Number{}, Number{});
      word |= static_cast<std::uint32_t>(bits.i & 0xFFFF) << 16 * half;
    }
    return {.i = word};
  }

  Number apply_op(const kernel::inst::Apply& inst, const Type& type, int i, int lane) {
    if (inst.op == Op::Bitcast && type_of(inst.args[0]).lanes != type.lanes)
      return pair(inst, i, lane);
    Number args[3];
    for (std::size_t a = 0; a < inst.args.size() && a < 3; ++a)
      args[a] = operand(inst.args[a], i, lane);
    return apply(inst.op, type.dtype, type_of(inst.args.back()).dtype, args[0], args[1], args[2]);
  }

  /// Two bf16 in a u32: the lower or the upper one.
  static float half(Number pair, bool upper) {
    const auto word = static_cast<std::uint32_t>(pair.i);
    return std::bit_cast<float>(upper ? word & 0xFFFF0000u : word << 16);
  }

  /// Two i16 in a u32.
  static std::int64_t short_half(Number pair, bool upper) {
    const auto word = static_cast<std::uint32_t>(pair.i);
    return static_cast<std::int16_t>(upper ? word >> 16 : word & 0xFFFFu);
  }

  Number fma(const kernel::inst::Fma& inst, DType dtype, int i, int lane) {
    if (type_of(inst.args.at(0)).dtype == DType::U32 && dtype == DType::I32) {
      const Number x = operand(inst.args.at(0), i, lane), y = operand(inst.args.at(1), i, lane);
      std::int64_t sum = operand(inst.args.at(2), i, lane).i;
      for (const bool upper : {true, false})
        sum += short_half(x, upper) * short_half(y, upper);
      return {.i = static_cast<std::int32_t>(sum)};
    }
    if (type_of(inst.args.at(0)).dtype == DType::U32 && dtype == DType::F32) {
      const Number x = operand(inst.args.at(0), i, lane), y = operand(inst.args.at(1), i, lane);
      auto sum = static_cast<float>(operand(inst.args.at(2), i, lane).f);
      for (const bool upper : {true, false})
        sum = std::fma(half(x, upper), half(y, upper), sum);
      return {.f = sum};
    }
    double a = operand(inst.args.at(0), i, lane).f, b = operand(inst.args.at(1), i, lane).f,
           c = operand(inst.args.at(2), i, lane).f;
    if (dtype == DType::F32) // rounding f64's result again would round twice
      return {.f = std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))};
    return round_to(dtype, {.f = std::fma(a, b, c)});
  }

  void reduce_threads(const kernel::Let& let, const Intrinsic& use, Mask mask) {
    const DType type = let.inst.type.dtype;
    const Monoid monoid = use.monoid();
    const int threads = static_cast<int>(use.number("threads")), group = std::min(threads, 32);
    for (int lane = 0; lane < let.inst.type.lanes; ++lane) {
      std::vector<Number> result(32);
      for (int first = 0; first < 32; first += group) {
        if (!comes(let, mask, first, group))
          continue;
        std::vector<Number> parts;
        for (int i = first; i < first + group; ++i)
          parts.push_back(operand(use.values[0], i, lane));
        std::fill_n(result.begin() + first, group, combine_halves(monoid, type, std::move(parts)));
      }
      if (threads > 32) {
        std::vector<Number> parts;
        for (const auto& warp : gpu_->exchange(place_.block, place_.warp, {result[0]}))
          parts.push_back(warp.at(0));
        while ((parts.size() & (parts.size() - 1)) != 0)
          parts.push_back(number_of(identity_of(monoid, type)));
        std::fill(result.begin(), result.end(), combine_halves(monoid, type, std::move(parts)));
      }
      each(mask, [&](int i) { value(let.target, i)[lane] = result[static_cast<std::size_t>(i)]; });
    }
  }

  /// Whether a group of threads comes to a statement: all of it or none.
  bool comes(const kernel::Let& let, Mask mask, int first, int group) const {
    const Mask wanted = (group == 32 ? ~Mask{0} : (Mask{1} << group) - 1) << first;
    ensure((mask & wanted) == 0 || (mask & wanted) == wanted,
           "program {}: some threads of a group do not come to v{}", program_.name, let.target);
    return (mask & wanted) != 0;
  }

  void scan_threads(const kernel::Let& let, const Intrinsic& use, Mask mask) {
    const DType type = let.inst.type.dtype;
    const Monoid monoid = use.monoid();
    const int group = static_cast<int>(use.number("threads"));
    for (int first = 0; first < 32; first += group) {
      if (!comes(let, mask, first, group))
        continue;
      for (int lane = 0; lane < let.inst.type.lanes; ++lane) {
        std::vector<Number> parts;
        for (int i = first; i < first + group; ++i)
          parts.push_back(operand(use.values[0], i, lane));
        for (int distance = 1; distance < group; distance *= 2)
          for (int i = group - 1; i >= distance; --i)
            parts[static_cast<std::size_t>(i)] =
                combine(monoid, type, parts[static_cast<std::size_t>(i - distance)],
                        parts[static_cast<std::size_t>(i)]);
        for (int i = 0; i < group; ++i)
          value(let.target, first + i)[lane] = i == 0 ? number_of(identity_of(monoid, type))
                                                      : parts[static_cast<std::size_t>(i - 1)];
      }
    }
  }

  void shuffle_xor(const kernel::Let& let, const Intrinsic& use, Mask mask) {
    whole_warp(mask, use);
    for (int i = 0; i < 32; ++i) {
      const std::int64_t other = operand(use.values[1], i, 0).i;
      ensure(other >= 0 && other < 32, "program {}: lanes {} apart", program_.name, other);
      for (int lane = 0; lane < let.inst.type.lanes; ++lane)
        value(let.target, i)[lane] = operand(use.values[0], i ^ static_cast<int>(other), lane);
    }
  }

  Number shuffled(const kernel::inst::Shuffle& x, int i, int from) {
    const int first = type_of(x.args.at(0)).lanes;
    return from < first ? value(x.args[0], i)[from] : value(x.args.at(1), i)[from - first];
  }

  const ProgramCode& code_;
  const KernelProgram& program_;
  const ArgBlock& block_;
  ProgramMemory& memory_;
  WorkerTurns* cpu_;
  GpuTurns* gpu_;
  Signals* signals_;
  WarpMatrices matrices_;
  Tiles tiles_;
  Place place_;
  int width_;
  std::size_t stride_, variable_stride_;
  int phase_ = 0, grid_phase_ = 0, cluster_phase_ = 0;
  int barriers_ = 0; ///< of the block, that this warp has passed
  int below_ = -2;   ///< phases of no other warp: numbers below that of none
  bool in_core_loop_ = false, acquired_ = false;
  const kernel::ProblemGroup* group_ = nullptr; ///< within a problem
  std::size_t problem_ = 0;
  bool unfenced_ = false; ///< copies came, which queued products do not see yet
  bool stored_ = false;   ///< by this warp in the swizzled order, likewise
  std::vector<std::vector<std::int64_t>> slots_; ///< by thread
  std::vector<Number> values_, variables_;       ///< thread after thread
};

} // namespace

void interpret(const KernelProgram& program, const ArgBlock& block,
               const InterpreterOptions& options) {
  kernel::verify(program);
  if (program.product)
    return make_product(program, block);
  const ProgramCode code(program);
  std::vector<std::int64_t> slots(static_cast<std::size_t>(code.slots.size()));
  std::copy(block.dims, block.dims + program.dims.size(), slots.begin());
  const auto useful = std::max<std::int64_t>(1, code.workers(slots.data()));
  const int cluster = std::max(1, kernel::cluster_blocks(program));
  int workers = static_cast<int>(std::clamp<std::int64_t>(options.workers, 1, useful));
  workers = std::max(cluster, workers / cluster * cluster);

  ProgramMemory memory(code, block, slots.data(), workers, options);
  if (program.launch.threads == 0) {
    WorkerTurns turns(workers);
    turns.run([&](int number) {
      Worker(code, block, slots, memory, &turns, nullptr, nullptr, {number, workers, 0}).run();
    });
    return;
  }
  Signals signals(program);
  GpuTurns turns(workers, program.launch.threads / 32);
  turns.run([&](int number, int warp) {
    Worker(code, block, slots, memory, nullptr, &turns, &signals, {number, workers, warp, cluster})
        .run();
  });
  signals.finish();
  ensure(!turns.has_posts(), "program {}: posts are left at its end", program.name);
}

} // namespace egret::backend::reference
