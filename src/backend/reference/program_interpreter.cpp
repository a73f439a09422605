#include "backend/reference/program_interpreter.h"

#include "backend/reference/gpu_matrix.h"
#include "backend/reference/gpu_turns.h"
#include "backend/reference/library_product.h"
#include "backend/reference/number.h"
#include "backend/reference/program_code.h"
#include "backend/reference/program_memory.h"
#include "backend/reference/tiles.h"
#include "backend/reference/worker_turns.h"
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
using kernel::InstKind;
using kernel::KernelProgram;
using kernel::StmtKind;
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
    const kernel::Stmt& stmt = *code.stmt;
    switch (stmt.kind) {
    case StmtKind::Let:
      if (stmt.inst.kind == InstKind::ReduceThreads)
        return reduce_threads(stmt, mask);
      if (stmt.inst.kind == InstKind::ScanThreads)
        return scan_threads(stmt, mask);
      if (stmt.inst.kind == InstKind::LoadMatrix || stmt.inst.kind == InstKind::Mma)
        return warp_value(code, mask);
      return each(mask, [&](int i) { evaluate(code.inst, i, value(stmt.target, i)); });
    case StmtKind::Set:
      return each(mask, [&](int i) { set_variable(stmt.target, stmt.args.at(0), i); });
    case StmtKind::Store:
      return each(mask, [&](int i) { store(code.inst, stmt.args.at(0), i); });
    case StmtKind::For:
      return loop(code, mask);
    case StmtKind::If: {
      Mask held = 0;
      each(mask, [&](int i) { held |= Mask{enabled(code.inst, i, 0)} << i; });
      execute(code.body, held);
      return execute(code.otherwise, mask & ~held);
    }
    case StmtKind::Barrier:
      return barrier(code);
    case StmtKind::GridBarrier:
      gpu_->grid_barrier(place_.block, place_.warp);
      ++grid_phase_;
      return;
    case StmtKind::Last:
      return last(code, mask);
    case StmtKind::Prefetch:
      return;
    case StmtKind::Post:
      return each(mask, [&](int i) {
        fill_symbols(code.inst, i, 0);
        gpu_->post(stmt.inst.buffer, code.inst.index(slots(i)));
      });
    case StmtKind::AwaitPosts:
      return await_posts(code, mask);
    case StmtKind::ClearPosts:
      gpu_->clear_posts(place_.block, place_.warp, stmt.inst.buffer, stmt.number);
      return next_phase();
    case StmtKind::WarpBarrier:
      whole_warp(mask, "a barrier of the warp");
      return order();
    case StmtKind::CopyAsync:
      return each(mask, [&](int i) {
        const bool held = enabled(code.inst, i, 0);
        matrices_.copy(i, stmt.inst, code.inst.index(slots(i)),
                       held ? code.inst.source(slots(i)) : 0, held, actor(i));
      });
    case StmtKind::CommitCopies:
      return each(mask, [&](int i) { matrices_.commit_copies(i); });
    case StmtKind::WaitCopies:
      return each(mask, [&](int i) { matrices_.wait_copies(i, stmt.number, actor(i)); });
    case StmtKind::InitSignal:
    case StmtKind::Arrive:
    case StmtKind::Await:
    case StmtKind::TensorCopy:
      return signal(code, mask);
    case StmtKind::MultiplyAsync:
      whole_warp(mask, "an asynchronous product");
      return multiply_async(code);
    case StmtKind::CommitProducts:
      return matrices_.commit_products();
    case StmtKind::WaitProducts:
      whole_warp(mask, "a wait for products");
      return matrices_.wait_products(stmt.number, unordered(0), [&](int variable, int i) {
        return variable_lanes(variable, i);
      });
    case StmtKind::FenceProducts:
    case StmtKind::SetRegisters:
      return;
    case StmtKind::TileZero:
      return tiles_.zero(stmt.target);
    case StmtKind::TileMultiply:
      return tiles_.multiply(stmt.target, stmt.number, stmt.inst.number);
    case StmtKind::TileLoad:
    case StmtKind::TileStore:
      return move_tile(code);
    }
  }

  void move_tile(const StmtCode& code) {
    const kernel::Stmt& stmt = *code.stmt;
    fill_symbols(code.inst, 0, 0);
    const std::int64_t place = code.inst.index(slots(0)), stride = code.inst.source(slots(0));
    if (stmt.kind == StmtKind::TileLoad)
      tiles_.load(stmt.target, memory_, stmt.inst.buffer, place, stride, actor(0));
    else
      tiles_.store(stmt.target, memory_, stmt.inst.buffer, place, stride, actor(0));
  }

  // --- Copies, signals and matrices

  void whole_warp(Mask mask, const char* what) const {
    ensure(mask == all(), "program {}: some threads of a warp do not come to {}", program_.name,
           what);
  }
  /// What comes now is ordered behind what these threads did, and is not compared with what other
  /// warps do until the next barrier of the block.
  void order() { phase_ = --below_; }
  /// Accesses that signals order.
  Actor unordered(int i) {
    Actor a = actor(i);
    a.phase = --below_;
    return a;
  }

  void signal(const StmtCode& code, Mask mask) {
    const kernel::Stmt& stmt = *code.stmt;
    const Inst& inst = stmt.inst;
    each(mask, [&](int i) {
      fill_symbols(code.inst, i, 0);
      const std::int64_t place = code.inst.index(slots(i));
      switch (stmt.kind) {
      case StmtKind::InitSignal:
        return signals_->init(place_.block, inst.buffer, place, stmt.number);
      case StmtKind::Arrive:
        return signals_->arrive(place_.block, inst.buffer, place, stmt.number);
      case StmtKind::Await: {
        const auto parity = static_cast<int>(operand(stmt.args.at(0), i, 0).i);
        const auto ended = [this, &inst, place, parity] {
          return signals_->ended(place_.block, inst.buffer, place, parity);
        };
        if (!ended())
          gpu_->wait(place_.block, place_.warp, ended, "a signal");
        return order();
      }
      default:
        return tensor_copy(code, i, place);
      }
    });
  }

  void tensor_copy(const StmtCode& code, int i, std::int64_t to) {
    const Inst& inst = code.stmt->inst;
    const auto number = static_cast<std::size_t>(code.stmt->number);
    const ProgramCode::Map& map = code_.tensor_maps.at(number);
    std::vector<std::int64_t> extents, strides, at;
    for (std::size_t d = 0; d < map.extents.size(); ++d) {
      extents.push_back(map.extents[d](slots(i)));
      strides.push_back(map.strides[d](slots(i)));
      at.push_back(code.inst.at[d](slots(i)));
    }
    const std::int64_t bytes =
        matrices_.copy_box(program_.tensor_maps[number], map.offset(slots(i)), extents, strides, at,
                           inst.buffer, to, unordered(i));
    signals_->bring(place_.block, inst.source, code.inst.source(slots(i)), bytes);
  }

  void warp_value(const StmtCode& code, Mask mask) {
    const kernel::Stmt& stmt = *code.stmt;
    const Inst& inst = stmt.inst;
    whole_warp(mask, "a matrix");
    std::vector<std::array<Number, 4>> result;
    if (inst.kind == InstKind::LoadMatrix) {
      std::array<std::int64_t, WarpMatrices::kThreads> rows{};
      WarpMatrices::Actors actors;
      each(mask, [&](int i) {
        fill_symbols(code.inst, i, 0);
        rows[static_cast<std::size_t>(i)] = code.inst.index(slots(i));
        actors[static_cast<std::size_t>(i)] = actor(i);
      });
      result = matrices_.load(inst, rows, actors);
    } else {
      std::vector<std::array<Number, 4>> args[3];
      for (int a = 0; a < 3; ++a)
        each(mask, [&](int i) {
          const kernel::ValueId id = inst.args.at(static_cast<std::size_t>(a));
          std::array<Number, 4> lanes{};
          for (int l = 0; l < type_of(id).lanes; ++l)
            lanes[static_cast<std::size_t>(l)] = operand(id, i, l);
          args[a].push_back(lanes);
        });
      result = WarpMatrices::multiply(inst.element, args[0], args[1], args[2]);
    }
    each(mask, [&](int i) {
      std::copy_n(result[static_cast<std::size_t>(i)].begin(), inst.type.lanes,
                  value(stmt.target, i));
    });
  }

  void multiply_async(const StmtCode& code) {
    const kernel::Stmt& stmt = *code.stmt;
    const Inst& inst = stmt.inst;
    WarpMatrices::Product p;
    p.add = enabled(code.inst, 0, 0);
    if (stmt.args.empty())
      p.left = {inst.buffer, code.inst.index(slots(0)), inst.transposed, stmt.target};
    else
      each(all(), [&](int i) {
        std::array<Number, 4> words{};
        std::copy_n(value(stmt.args[0], i), 4, words.begin());
        p.words.push_back(words);
      });
    p.right = {inst.source, code.inst.source(slots(0)), inst.source_transposed, stmt.number};
    p.element = inst.element;
    p.first_row = 16 * (place_.warp % 4);
    p.variables = stmt.variables;
    matrices_.multiply_async(std::move(p));
  }

  void barrier(const StmtCode& code) {
    if (cpu_)
      cpu_->barrier(place_.block);
    else
      gpu_->barrier(place_.block, place_.warp, code.stmt->number,
                    static_cast<int>(code.end(slots(0)) / 32));
    if (code.stmt->number == 0)
      next_phase();
    else
      order();
  }
  void next_phase() { phase_ = ++barriers_; }

  void last(const StmtCode& code, Mask mask) {
    fill_symbols(code.inst, 0, 0);
    const std::int64_t key =
        code.inst.index(slots(0)) * std::int64_t{1024} + code.stmt->inst.buffer;
    const kernel::Stmt& stmt = *code.stmt;
    const bool here = gpu_->last(place_.block, place_.warp, key, code.end(slots(0)), stmt.number,
                                 stmt.target / 32);
    if (stmt.number == 0)
      next_phase();
    else
      order();
    if (!here)
      return;
    const bool was = std::exchange(acquired_, true);
    execute(code.body, mask);
    acquired_ = was;
  }

  void await_posts(const StmtCode& code, Mask mask) {
    const int counter = code.stmt->inst.buffer;
    fill_symbols(code.inst, 0, 0);
    const std::int64_t end = code.end(slots(0));
    for (std::int64_t place = code.inst.index(slots(0)); place < end; ++place) {
      const auto posted = [this, counter, place] { return gpu_->posted(counter, place); };
      if (!posted())
        gpu_->wait(place_.block, place_.warp, posted, "a post");
    }
    gpu_->barrier(place_.block, place_.warp, 0, 0);
    next_phase();
    const bool was = std::exchange(acquired_, true);
    execute(code.body, mask);
    acquired_ = was;
  }

  // --- Loops

  void loop(const StmtCode& code, Mask mask) {
    const kernel::Stmt& stmt = *code.stmt;
    if (stmt.bind == Bind::Core)
      return core_loop(code);
    if (stmt.bind == Bind::Grid)
      return grid_loop(code, mask);
    struct Range {
      std::int64_t at, end, step;
    };
    std::vector<Range> ranges(static_cast<std::size_t>(width_));
    each(mask, [&](int i) {
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
        set_loop(code, i, r.at);
        r.at += r.step;
      });
      if (going == 0)
        return;
      execute(code.body, going);
    }
  }

  void set_loop(const StmtCode& code, int i, std::int64_t at) {
    const std::int64_t extent = code.extent(slots(i));
    ensure(at >= 0 && at < extent, "program {}: loop variable d{} = {} is outside its extent {}",
           program_.name, code.stmt->number, at, extent);
    slots(i)[code.slot] = at;
  }

  void core_loop(const StmtCode& code) {
    const kernel::Stmt& stmt = *code.stmt;
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
      set_loop(code, 0, at);
      execute(code.body, all());
    }
    in_core_loop_ = false;
  }

  void grid_loop(const StmtCode& code, Mask mask) {
    const kernel::Stmt& stmt = *code.stmt;
    const std::int64_t begin = code.begin(slots(0)), end = code.end(slots(0)),
                       step = code.step(slots(0));
    ensure(step > 0, "program {}: loop d{} has step {}", program_.name, stmt.number, step);
    const bool drawn = stmt.order == kernel::WorkOrder::Drawn;
    for (std::size_t n = 0;; ++n) {
      const std::int64_t item = drawn ? gpu_->draw(place_.block, stmt.number, n)
                                      : place_.block + static_cast<std::int64_t>(n) * place_.blocks;
      const std::int64_t at = begin + item * step;
      if (at >= end)
        return;
      each(mask, [&](int i) { set_loop(code, i, at); });
      execute(code.body, mask);
      if (drawn) { // the rendered loop has a barrier here
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
      return {place_.block, 0, phase_, 0, false};
    const int thread = place_.block * program_.launch.threads + 32 * place_.warp + i;
    return {thread, place_.block, phase_, grid_phase_, acquired_};
  }

  void store(const InstCode& code, kernel::ValueId source, int i) {
    for (int lane = 0; lane < code.lanes; ++lane)
      if (enabled(code, i, lane))
        memory_.store(code.inst->buffer, code.index(slots(i)), value(source, i)[lane], actor(i));
  }

  // --- Instructions

  void evaluate(const InstCode& code, int i, Number* result) {
    for (int lane = 0; lane < code.lanes; ++lane)
      result[lane] = evaluate(code, i, lane);
  }

  Number evaluate(const InstCode& code, int i, int lane) {
    const Inst& inst = *code.inst;
    const DType dtype = inst.type.dtype;
    switch (inst.kind) {
    case InstKind::Constant:
      return number_of(inst.constant);
    case InstKind::Scalar:
      return read_number(program_.scalars.at(static_cast<std::size_t>(inst.number)),
                         &block_.scalars[inst.number]);
    case InstKind::Index:
      fill_symbols(code, i, lane);
      return convert({.i = code.index(slots(i))}, DType::I64, dtype);
    case InstKind::Apply:
      return apply_op(inst, i, lane);
    case InstKind::Fma:
      return fma(inst, i, lane);
    case InstKind::Load:
      return enabled(code, i, lane) ? memory_.load(inst.buffer, code.index(slots(i)), actor(i))
                                    : Number{};
    case InstKind::ReadVar:
      return variable_lanes(inst.number, i)[lane];
    case InstKind::Splat:
      return value(inst.args.at(0), i)[0];
    case InstKind::Extract:
      return value(inst.args.at(0), i)[inst.number];
    case InstKind::ReduceLanes: {
      const Type& type = type_of(inst.args.at(0));
      const Number* from = value(inst.args[0], i);
      return tree(inst.monoid, type.dtype, {from, from + type.lanes});
    }
    case InstKind::Shuffle:
      return shuffled(inst, i, inst.lanes_from.at(static_cast<std::size_t>(lane)));
    case InstKind::Test:
      return {.i = enabled(code, i, lane)};
    case InstKind::ReduceThreads:
    case InstKind::ScanThreads:
    case InstKind::LoadMatrix:
    case InstKind::Mma:
      break; // executed for all threads at once
    }
    return {};
  }

  /// Two neighbours of 16 bits as a u32.
  Number pair(const Inst& inst, int i, int lane) {
    const DType dtype = type_of(inst.args[0]).dtype;
    std::uint32_t word = 0;
    for (const int half : {0, 1}) {
      const Number bits = apply(Op::Bitcast, DType::U16, dtype,
                                value(inst.args[0], i)[2 * lane + half], Number{}, Number{});
      word |= static_cast<std::uint32_t>(bits.i & 0xFFFF) << 16 * half;
    }
    return {.i = word};
  }

  Number apply_op(const Inst& inst, int i, int lane) {
    if (inst.op == Op::Bitcast && type_of(inst.args[0]).lanes != inst.type.lanes)
      return pair(inst, i, lane);
    Number args[3];
    for (std::size_t a = 0; a < inst.args.size() && a < 3; ++a)
      args[a] = operand(inst.args[a], i, lane);
    return apply(inst.op, inst.type.dtype, type_of(inst.args.back()).dtype, args[0], args[1],
                 args[2]);
  }

  /// Two bf16 in a u32: the lower or the upper one.
  static float half(Number pair, bool upper) {
    const auto word = static_cast<std::uint32_t>(pair.i);
    return std::bit_cast<float>(upper ? word & 0xFFFF0000u : word << 16);
  }

  Number fma(const Inst& inst, int i, int lane) {
    if (type_of(inst.args.at(0)).dtype == DType::U32 && inst.type.dtype == DType::F32) {
      const Number x = operand(inst.args.at(0), i, lane), y = operand(inst.args.at(1), i, lane);
      auto sum = static_cast<float>(operand(inst.args.at(2), i, lane).f);
      for (const bool upper : {true, false})
        sum = std::fma(half(x, upper), half(y, upper), sum);
      return {.f = sum};
    }
    double a = operand(inst.args.at(0), i, lane).f, b = operand(inst.args.at(1), i, lane).f,
           c = operand(inst.args.at(2), i, lane).f;
    if (inst.type.dtype == DType::F32) // rounding f64's result again would round twice
      return {.f = std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c))};
    return round_to(inst.type.dtype, {.f = std::fma(a, b, c)});
  }

  /// Halves are combined until one is left: number i with number i + half.
  static Number tree(Monoid monoid, DType type, std::vector<Number> parts) {
    for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i)
        parts[i] = combine(monoid, type, parts[i], parts[i + half]);
    return parts[0];
  }

  void reduce_threads(const kernel::Stmt& stmt, Mask mask) {
    const Inst& inst = stmt.inst;
    const DType type = inst.type.dtype;
    const int group = std::min(inst.number, 32);
    for (int lane = 0; lane < inst.type.lanes; ++lane) {
      std::vector<Number> result(32);
      for (int first = 0; first < 32; first += group) {
        if (!comes(stmt, mask, first, group))
          continue;
        std::vector<Number> parts;
        for (int i = first; i < first + group; ++i)
          parts.push_back(operand(inst.args.at(0), i, lane));
        std::fill_n(result.begin() + first, group, tree(inst.monoid, type, std::move(parts)));
      }
      if (inst.number > 32) {
        std::vector<Number> parts;
        for (const auto& warp : gpu_->exchange(place_.block, place_.warp, {result[0]}))
          parts.push_back(warp.at(0));
        while ((parts.size() & (parts.size() - 1)) != 0)
          parts.push_back(number_of(identity_of(inst.monoid, type)));
        std::fill(result.begin(), result.end(), tree(inst.monoid, type, std::move(parts)));
      }
      each(mask, [&](int i) { value(stmt.target, i)[lane] = result[static_cast<std::size_t>(i)]; });
    }
  }

  /// Whether a group of threads comes to a statement: all of it or none.
  bool comes(const kernel::Stmt& stmt, Mask mask, int first, int group) const {
    const Mask wanted = (group == 32 ? ~Mask{0} : (Mask{1} << group) - 1) << first;
    ensure((mask & wanted) == 0 || (mask & wanted) == wanted,
           "program {}: some threads of a group do not come to v{}", program_.name, stmt.target);
    return (mask & wanted) != 0;
  }

  void scan_threads(const kernel::Stmt& stmt, Mask mask) {
    const Inst& inst = stmt.inst;
    const DType type = inst.type.dtype;
    const int group = inst.number;
    for (int first = 0; first < 32; first += group) {
      if (!comes(stmt, mask, first, group))
        continue;
      for (int lane = 0; lane < inst.type.lanes; ++lane) {
        std::vector<Number> parts;
        for (int i = first; i < first + group; ++i)
          parts.push_back(operand(inst.args.at(0), i, lane));
        for (int distance = 1; distance < group; distance *= 2)
          for (int i = group - 1; i >= distance; --i)
            parts[static_cast<std::size_t>(i)] =
                combine(inst.monoid, type, parts[static_cast<std::size_t>(i - distance)],
                        parts[static_cast<std::size_t>(i)]);
        for (int i = 0; i < group; ++i)
          value(stmt.target, first + i)[lane] = i == 0 ? number_of(identity_of(inst.monoid, type))
                                                       : parts[static_cast<std::size_t>(i - 1)];
      }
    }
  }

  Number shuffled(const Inst& inst, int i, int from) {
    const int first = type_of(inst.args.at(0)).lanes;
    return from < first ? value(inst.args[0], i)[from] : value(inst.args.at(1), i)[from - first];
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
  int phase_ = 0, grid_phase_ = 0;
  int barriers_ = 0; ///< of the block, that this warp has passed
  int below_ = -2;   ///< phases of no other warp: numbers below that of none
  bool in_core_loop_ = false, acquired_ = false;
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
  const int workers = static_cast<int>(std::clamp<std::int64_t>(options.workers, 1, useful));

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
    Worker(code, block, slots, memory, nullptr, &turns, &signals, {number, workers, warp}).run();
  });
  ensure(!turns.has_posts(), "program {}: posts are left at its end", program.name);
}

} // namespace egret::backend::reference
