// Independent regions in one launch (parts.h): many small updates, say, of which each alone would
// cost more to launch than to compute. Every part is written by the generator of its own form. The
// pieces of work that these share out stand in one row, and the number of a piece selects the part:
// on a GPU a piece is what one block does at a time, on a CPU a share of a part's loop that is
// worth a worker.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "kernel/parts.h"
#include "kernel/phases.h"
#include "kernel/splice.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace egret::kernel {

namespace {

/// Schedules of a part that are looked at.
constexpr int kMostTried = 48;
/// Small parts are over before another worker is awake: it gets so many times the work that one
/// large kernel gives it at the least.
constexpr std::int64_t kWakingFactor = 8;
/// The largest struct of parameters that every GPU takes.
constexpr std::int64_t kGpuParameterBytes = 4096;

bool is_shared_out(const Stmt& s) {
  const For* loop = get_if<For>(s);
  return loop && (loop->bind == Bind::Core || loop->bind == Bind::Grid);
}

/// Why a program cannot be a part of a batch; empty when it can: all its work must stand in one
/// loop that is shared out, behind which nothing comes.
std::string refused_part(const KernelProgram& p) {
  if (p.body.empty() || !is_shared_out(p.body.back()) ||
      std::any_of(p.body.begin(), p.body.end() - 1, is_shared_out))
    return "its work is not one loop over the workers";
  if (get_if<For>(p.body.back())->queue)
    return "its blocks take their work from a queue";
  if (phases_of(p) > 1)
    return "its workers wait for each other";
  if (p.launch.resident || !p.tensor_maps.empty())
    return "it is launched in a way of its own";
  return {};
}

/// The program of a part by its schedule number `choice` among those that a batch can take, or by
/// the last one where there are fewer. `threads`: those of a block; 0: any.
Lowered choose_part(const Region& region, const Target& target, std::int64_t threads,
                    std::int64_t choice) {
  Lowered best;
  int tried = 0;
  for (const Generator* generator : generators(target)) {
    if (generator == &loops_generator())
      continue; // its trees are not in the order of likely speed
    for (const Schedule& schedule : generator->space(region, target)) {
      if (++tried > kMostTried || (best.ok && choice == 0))
        return best;
      Lowered lowered = generator->lower(region, schedule, target);
      if (lowered.ok) {
        lowered.reason = refused_part(lowered.program);
        if (lowered.reason.empty() && threads > 0 && lowered.program.launch.threads != threads)
          lowered.reason = fmt::format("no blocks of {} threads", threads);
        lowered.ok = lowered.reason.empty();
      }
      if (lowered.ok && best.ok)
        --choice;
      if (lowered.ok || !best.ok)
        best = std::move(lowered);
    }
  }
  return best;
}

Expr work_of(const Region& region) {
  Expr work(0);
  for (const Stage& stage : region.stages)
    work = work + points_of(region, stage.axes) * Expr(std::int64_t(flops_of(stage)) + 1);
  return work;
}

class Batch {
public:
  Batch(const Region& region, const Target& target) : region_(region), target_(target) {}

  Lowered run(std::int64_t threads, std::int64_t choice) {
    const std::vector<Part> parts = parts_of(region_);
    if (parts.size() < 2)
      return {false, {}, "it is one whole"};
    declare_arguments();
    for (const Part& part : parts)
      if (auto why = add(part, threads, choice); !why.empty())
        return {false, {}, fmt::format("a part of {}: {}", region_.name, why)};
    const int number = splice_.fresh_loop();
    KernelProgram& program = splice_.program();
    For loop;
    loop.number = number;
    loop.extent = loop.end = begin_.back();
    loop.begin = Expr(0);
    loop.step = Expr(1);
    loop.bind = target_.is_gpu() ? Bind::Grid : Bind::Core;
    loop.body = select(0, pieces_.size(), Expr::axis(number, loop.extent));
    program.body.push_back(std::move(loop));
    if (program.launch.threads == 0)
      program.launch.workers = useful_workers(begin_.back(), floordiv(work_, kWakingFactor));
    verify(program);
    if (program.launch.threads == 0)
      return {true, std::move(program), ""};
    std::size_t words = program.dims.size() + program.scalars.size() + 3;
    for (const Buffer& b : program.buffers)
      words +=
          b.space == Space::Argument || b.space == Space::Workspace || b.space == Space::Counter;
    if (static_cast<std::int64_t>(words) * 8 > kGpuParameterBytes)
      return {false, {}, "more arguments than a launch can have"};
    return within_block(std::move(program), target_);
  }

private:
  /// Code of a part; `loop` is the last statement and goes over `count` pieces, `turns` being the
  /// iterations that all of them together do.
  struct Piece {
    Block body;
    Expr turns, count;
  };

  void declare_arguments() {
    KernelProgram& program = splice_.program();
    auto argument = [&](const std::string& name, DType dtype, const Expr& elements,
                        std::int64_t alignment) {
      Buffer b;
      b.name = name;
      b.dtype = dtype;
      b.argument = static_cast<int>(program.buffers.size());
      b.elements = elements;
      b.alignment = alignment;
      program.buffers.push_back(std::move(b));
      return program.buffers.back().argument;
    };
    for (const Operand& o : region_.operands)
      if (o.role == Role::Scalar) {
        operand_.push_back(static_cast<int>(program.scalars.size()));
        program.scalars.push_back(o.dtype);
      } else {
        operand_.push_back(argument(o.name, o.dtype, element_count(o.shape), o.alignment));
      }
    for (std::size_t o = 0; o < region_.outputs.size(); ++o)
      output_.push_back(argument(fmt::format("out{}", o), region_.outputs[o].dtype,
                                 element_count(region_.outputs[o].shape), 1));
    begin_.push_back(Expr(0));
  }

  std::string add(const Part& part, std::int64_t threads, std::int64_t choice) {
    const Lowered lowered = choose_part(part.region, target_, threads, choice);
    if (!lowered.ok)
      return lowered.reason;
    const KernelProgram& own = lowered.program;
    std::vector<int> arguments, scalars;
    for (std::size_t i = 0; i < part.operands.size(); ++i)
      (part.region.operands[i].role == Role::Scalar ? scalars : arguments)
          .push_back(operand_[static_cast<std::size_t>(part.operands[i])]);
    for (int o : part.outputs)
      arguments.push_back(output_[static_cast<std::size_t>(o)]);
    Piece piece;
    piece.body = splice_.add(own, arguments, scalars);
    const For& loop = *get_if<For>(piece.body.back());
    piece.turns = ceildiv(loop.end - loop.begin, loop.step);
    Launch& launch = splice_.program().launch;
    if (own.launch.threads > 0) {
      piece.count = piece.turns;
      launch.workers = (pieces_.empty() ? Expr(0) : launch.workers) + own.launch.workers;
      launch.threads = own.launch.threads;
      launch.least_shared = std::max(launch.least_shared, own.launch.least_shared);
    } else {
      const Expr work = work_of(part.region);
      work_ = work_ + work;
      piece.count = useful_workers(piece.turns, floordiv(work, kWakingFactor));
    }
    begin_.push_back(begin_.back() + piece.count);
    pieces_.push_back(std::move(piece));
    return {};
  }

  /// The parts from `first` up to `end`, of which the number of the piece selects one.
  Block select(std::size_t first, std::size_t end, const Expr& number) {
    if (end - first == 1)
      return piece(pieces_[first], number - begin_[first]);
    const std::size_t middle = first + (end - first) / 2;
    If choice;
    choice.condition = {{number, Expr(0), begin_[middle]}};
    choice.body = select(first, middle, number);
    choice.otherwise = select(middle, end, number);
    return {std::move(choice)};
  }

  /// Piece number `at` of a part: an equal share of its loop.
  static Block piece(Piece& p, const Expr& at) {
    For& loop = *get_if<For>(p.body.back());
    loop.bind = Bind::Serial;
    if (p.count == Expr(1))
      return std::move(p.body);
    const bool single = p.count == p.turns;
    auto turn = [&](const Expr& n) { return single ? n : floordiv(p.turns * n, p.count); };
    const Expr begin = loop.begin;
    loop.begin = begin + loop.step * turn(at);
    loop.end = begin + loop.step * turn(at + Expr(1));
    return std::move(p.body);
  }

  const Region& region_;
  const Target& target_;
  Splice splice_{region_.name};
  std::vector<int> operand_, output_; ///< the buffer, or the scalar, of each
  std::vector<Piece> pieces_;
  std::vector<Expr> begin_; ///< by part: the number of its first piece; at the end, of all
  Expr work_ = Expr(0);
};

/// Threads of a GPU's blocks, the usual number first.
constexpr int kThreads[] = {256, 512, 128}, kNoThreads[] = {0};

constexpr Knob kBatchKnobs[] = {{"threads", 0, 1024, 32}, {"choice", 0, 15}};

class BatchGenerator : public Generator {
public:
  std::string name() const override { return "batch"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    if (!has_parts(region))
      return {};
    std::vector<Schedule> out;
    const bool gpu = target.is_gpu();
    for (int choice : {0, 1, 2})
      for (int threads : gpu ? std::span<const int>(kThreads) : std::span<const int>(kNoThreads)) {
        Schedule s;
        s.generator = name();
        if (threads > 0)
          s.knobs["threads"] = threads;
        if (choice > 0)
          s.knobs["choice"] = choice;
        out.push_back(std::move(s));
      }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kBatchKnobs); !why.empty())
      return {false, {}, why};
    const std::int64_t threads = schedule.knob("threads", 0);
    if (target.is_gpu() != (threads > 0))
      return {false, {}, "threads are those of a GPU's blocks"};
    return Batch(region, target).run(threads, schedule.knob("choice", 0));
  }
};

} // namespace

const Generator& batch_generator() {
  static const BatchGenerator generator;
  return generator;
}

Lowered lower_part(const Region& region, const Target& target) {
  if (has_parts(region))
    return {false, {}, "it is several already"};
  return choose_part(region, target, target.is_gpu() ? kThreads[0] : 0, 0);
}

} // namespace egret::kernel
