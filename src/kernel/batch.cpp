// Independent regions in one launch (parts.h): many small updates, say, of which each alone would
// cost more to launch than to compute. Every part is written by the generator of its own form. The
// pieces of work that these share out stand in one row, and the number of a piece selects the part:
// on a GPU a piece is what one block does at a time, on a CPU a share of a part's loop that is
// worth a worker. Parts that are equal but for their sizes are problems of one group, with one code
// (equal_forms.h), as those of a grouped GEMM.
#include "kernel/analysis.h"
#include "kernel/code_length.h"
#include "kernel/equal_forms.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "kernel/parts.h"
#include "kernel/phases.h"
#include "kernel/splice.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

namespace egret::kernel {

namespace {

/// Schedules of a part that are looked at.
constexpr int kMostTried = 48;
/// Small parts are over before another worker is awake: it gets so many times the work that one
/// large kernel gives it at the least.
constexpr std::int64_t kWakingFactor = 8;
/// Parts for which codes of their own are tried, each with the sizes as constants.
constexpr std::size_t kFewParts = 16;
/// Their length in all (code_length.h): longer ones take seconds to compile.
constexpr std::int64_t kMostOwnCode = 4096;
/// Codes of different forms in one kernel.
constexpr std::size_t kMostForms = 64;

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
  Batch(const Region& region, const Target& target)
      : region_(region), target_(target), of_parts_(target) {}

  /// `apart`: every part has a code of its own.
  Lowered run(std::int64_t threads, std::int64_t choice, bool apart) {
    const std::vector<Part> parts = parts_of(region_);
    if (parts.size() < 2)
      return {false, {}, "it is one whole"};
    of_parts_.sharing = static_cast<int>(parts.size());
    declare_arguments();
    for (const std::vector<const Part*>& equal : by_form(parts, apart)) {
      if (equal.size() > 1 && add_group(equal, threads, choice))
        continue;
      for (const Part* part : equal) {
        if (pieces_.size() == kMostForms)
          return {false, {}, fmt::format("parts of more than {} forms", kMostForms)};
        if (auto why = add(*part, threads, choice); !why.empty())
          return {false, {}, fmt::format("a part of {}: {}", region_.name, why)};
      }
    }
    const int number = splice_.fresh_loop();
    KernelProgram& program = splice_.program();
    for (const ProblemGroup& group :
         program.groups) // another part may write over what one only reads
      for (std::size_t i = 0; i < group.buffers.size(); ++i)
        for (const int a : group.arguments[i])
          program.buffers[static_cast<std::size_t>(group.buffers[i])].aliased |=
              program.buffers[static_cast<std::size_t>(a)].aliased;
    For loop;
    loop.number = number;
    loop.extent = loop.end = begin_.back();
    loop.begin = Expr(0);
    loop.step = Expr(1);
    loop.bind = target_.is_gpu() ? Bind::Grid : Bind::Core;
    loop.body = select(0, pieces_.size(), Expr::axis(number, loop.extent));
    loop.keeps_invariants = target_.is_gpu() && pieces_.size() > 1; // those of all branches
    program.body.push_back(std::move(loop));
    if (program.launch.threads == 0)
      program.launch.workers = useful_workers(begin_.back(), floordiv(work_, kWakingFactor));
    verify(program);
    if (apart && code_length(program) > kMostOwnCode)
      return {false, {}, "codes of their own for all parts are too long"};
    if (program.launch.threads == 0)
      return {true, std::move(program), ""};
    keep_registers(program.launch);
    std::size_t words = program.dims.size() + program.scalars.size() + 3;
    for (const Buffer& b : program.buffers)
      words +=
          b.space == Space::Argument || b.space == Space::Workspace || b.space == Space::Counter;
    if (target_.parameter_bytes > 0 &&
        static_cast<std::int64_t>(words) * 8 > target_.parameter_bytes)
      return {false, {}, "more arguments than a launch can have"};
    return within_block(std::move(program), target_);
  }

private:
  /// Code of a part; `loop` is the last statement and goes over `count` pieces, `turns` being the
  /// iterations that all of them together do.
  struct Piece {
    Block body;
    Expr turns, count;
    int group = -1; ///< of which these are the problems
    Expr item;      ///< of a group: the number of a piece in its problem
  };

  /// Parts that may be problems of one group, in the order of their first ones.
  static std::vector<std::vector<const Part*>> by_form(const std::vector<Part>& parts, bool apart) {
    std::vector<std::vector<const Part*>> forms;
    std::map<std::uint64_t, std::size_t> known;
    for (const Part& part : parts) {
      const std::size_t next = forms.size();
      const std::size_t form =
          apart ? next : known.try_emplace(form_hash(part.region), next).first->second;
      if (form == next)
        forms.emplace_back();
      forms[form].push_back(&part);
    }
    return forms;
  }

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
    const Lowered lowered = choose_part(part.region, of_parts_, threads, choice);
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

  /// The parts as problems of one group; false where they cannot be, and nothing is added. What a
  /// generator cannot make of sizes that are symbols is made of each part's own.
  bool add_group(const std::vector<const Part*>& parts, std::int64_t threads, std::int64_t choice) {
    std::vector<const Region*> regions;
    regions.reserve(parts.size());
    for (const Part* part : parts)
      regions.push_back(&part->region);
    std::optional<CommonForm> form = common_form(regions);
    if (!form)
      return false;
    Lowered lowered;
    try {
      lowered = choose_part(form->region, of_parts_, threads, choice);
    } catch (const InternalError&) {
      return false;
    }
    if (!lowered.ok)
      return false;
    KernelProgram& own = lowered.program;
    const For& shared = *get_if<For>(own.body.back());
    const Expr turns = ceildiv(shared.end - shared.begin, shared.step);
    const Expr work = own.launch.threads > 0 ? own.launch.workers : work_of(form->region);
    ProblemGroup group;
    std::vector<std::int64_t> all, counts;
    Expr total_work = 0;
    group.begin.push_back(0);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto here = [&](const Expr& e) { return with_sizes(e, form->sizes, form->values, p); };
      const Expr count = own.launch.threads > 0
                             ? here(turns)
                             : useful_workers(here(turns), floordiv(here(work), kWakingFactor));
      if (!count.is_constant() || !here(turns).is_constant())
        return false;
      all.push_back(here(turns).value());
      counts.push_back(count.value());
      group.begin.push_back(group.begin.back() + count.value());
      total_work = total_work + here(work);
    }
    if (group.begin.back() == 0 || !bounded_memory(own, *form, parts.size()))
      return false;
    Piece piece;
    piece.turns = turns;
    piece.count = counts == all ? turns : size_of_problems(*form, counts);
    piece.group = static_cast<int>(splice_.program().groups.size());
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    group.item = Expr::symbol(fmt::format("%item{}", most), 0, std::max<std::int64_t>(1, most - 1));
    piece.item = most > 1 ? group.item : Expr(0);
    splice_group(own, parts, *form, group, piece);
    begin_.push_back(begin_.back() + Expr(group.begin.back()));
    group.sizes = std::move(form->sizes);
    group.values = std::move(form->values);
    splice_.program().groups.push_back(std::move(group));
    Launch& launch = splice_.program().launch;
    if (own.launch.threads > 0) {
      launch.workers = (pieces_.empty() ? Expr(0) : launch.workers) + total_work;
      launch.threads = own.launch.threads;
      launch.least_shared = std::max(launch.least_shared, own.launch.least_shared);
    } else {
      work_ = work_ + total_work;
    }
    pieces_.push_back(std::move(piece));
    return true;
  }

  static Expr size_of_problems(CommonForm& form, const std::vector<std::int64_t>& counts) {
    if (std::all_of(counts.begin(), counts.end(), [&](auto c) { return c == counts[0]; }))
      return counts[0];
    form.sizes.push_back(size_symbol(form.sizes.size(), counts));
    form.values.push_back(counts);
    return form.sizes.back();
  }

  /// Whether the program's own memory can be as large as its largest problem needs, and is made so.
  static bool bounded_memory(KernelProgram& program, const CommonForm& form, std::size_t problems) {
    for (Buffer& b : program.buffers) {
      if (b.space == Space::Argument)
        continue;
      if (b.space == Space::Workspace || b.space == Space::Counter)
        return false; // problems that run at the same time would share it
      Expr most = 0;
      for (std::size_t p = 0; p < problems; ++p)
        most = max(most, with_sizes(b.elements, form.sizes, form.values, p));
      b.elements = most;
    }
    return true;
  }

  /// Adds the group's code, with a buffer for each of its arguments, and a scalar for each of those
  /// by value, that is another one in each problem.
  void splice_group(const KernelProgram& own, const std::vector<const Part*>& parts,
                    const CommonForm& form, ProblemGroup& group, Piece& piece) {
    const Part& first = *parts[0];
    std::vector<int> arguments, scalars;
    for (std::size_t i = 0; i < first.operands.size() + first.outputs.size(); ++i) {
      const bool output = i >= first.operands.size();
      const std::size_t at = output ? i - first.operands.size() : i;
      std::vector<int> numbers; // of the argument, or the scalar, by problem
      numbers.reserve(parts.size());
      for (const Part* part : parts)
        numbers.push_back(output ? output_[static_cast<std::size_t>(part->outputs[at])]
                                 : operand_[static_cast<std::size_t>(part->operands[at])]);
      if (!output && first.region.operands[at].role == Role::Scalar) {
        if (std::ranges::count(numbers, numbers[0]) == std::ssize(numbers)) {
          scalars.push_back(numbers[0]);
        } else {
          group.scalars.push_back(std::move(numbers));
          scalars.push_back(-static_cast<int>(group.scalars.size()));
        }
        continue;
      }
      std::vector<Buffer>& buffers = splice_.program().buffers;
      const auto place = static_cast<std::size_t>(numbers[0]);
      Buffer b;
      b.name = buffers[place].name;
      b.dtype = buffers[place].dtype;
      b.space = Space::Problem;
      b.elements =
          element_count(output ? form.region.outputs[at].shape : form.region.operands[at].shape);
      b.alignment = output ? 1 : form.region.operands[at].alignment;
      arguments.push_back(static_cast<int>(buffers.size()));
      group.buffers.push_back(arguments.back());
      group.arguments.push_back(std::move(numbers));
      buffers.push_back(std::move(b));
    }
    piece.body = splice_.add(own, arguments, scalars, form.sizes);
    std::vector<Buffer>& buffers = splice_.program().buffers;
    for (std::size_t i = 0; i < group.buffers.size(); ++i)
      for (const int a : group.arguments[i]) {
        const Buffer& b = buffers[static_cast<std::size_t>(group.buffers[i])];
        Buffer& argument = buffers[static_cast<std::size_t>(a)];
        argument.read |= b.read;
        argument.written |= b.written;
        argument.aliased |= b.aliased;
        argument.alignment = std::max(argument.alignment, b.alignment);
      }
  }

  /// The parts from `first` up to `end`, of which the number of the piece selects one.
  Block select(std::size_t first, std::size_t end, const Expr& number) {
    if (end - first == 1)
      return code(pieces_[first], number - begin_[first]);
    const std::size_t middle = first + (end - first) / 2;
    If choice;
    choice.condition = {{number, Expr(0), begin_[middle]}};
    choice.body = select(first, middle, number);
    choice.otherwise = select(middle, end, number);
    return {std::move(choice)};
  }

  static Block code(Piece& p, const Expr& at) {
    if (p.group < 0)
      return piece(p, at);
    InProblem problem;
    problem.group = p.group;
    problem.item = at;
    problem.body = piece(p, p.item);
    return {std::move(problem)};
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
  Target of_parts_; ///< the same, as parts are made for
  Splice splice_{region_.name};
  std::vector<int> operand_, output_; ///< the buffer, or the scalar, of each
  std::vector<Piece> pieces_;
  std::vector<Expr> begin_; ///< by part: the number of its first piece; at the end, of all
  Expr work_ = Expr(0);
};

/// Threads of a GPU's blocks, the usual number first.
constexpr int kThreads[] = {256, 512, 128}, kNoThreads[] = {0};

constexpr Knob kBatchKnobs[] = {{"threads", 0, 1024, 32}, {"choice", 0, 15}, {"apart", 0, 1}};

class BatchGenerator : public Generator {
public:
  std::string name() const override { return "batch"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    if (!has_parts(region))
      return {};
    std::vector<Schedule> out;
    const bool gpu = target.is_gpu(), few = parts_of(region).size() <= kFewParts;
    for (int choice : {0, 1, 2})
      for (int threads : gpu ? std::span<const int>(kThreads) : std::span<const int>(kNoThreads)) {
        Schedule s;
        s.generator = name();
        if (threads > 0)
          s.knobs["threads"] = threads;
        if (choice > 0)
          s.knobs["choice"] = choice;
        if (few) { // sizes as constants make better code, and little of it
          out.push_back(s);
          out.back().knobs["apart"] = 1;
        }
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
    return Batch(region, target)
        .run(threads, schedule.knob("choice", 0), schedule.knob("apart", 0) != 0);
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
  if (target.is_gpu() && !gpu_ring_generator().space(region, target).empty())
    return {false, {}, "its own kernel reads while the launch before it is running"};
  return choose_part(region, target, target.is_gpu() ? kThreads[0] : 0, 0);
}

} // namespace egret::kernel
