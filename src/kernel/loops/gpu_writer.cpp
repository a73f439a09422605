#include "kernel/loops/gpu_writer.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::kernel::loops {

namespace {

constexpr std::int64_t kMostShared = 1 << 16;
/// Threads that share the parts of one result at the most.
constexpr int kSharers = 8;

/// Threads that the loops inside are dealt to.
std::int64_t threads_wanted(const Tree& t) {
  if (t.kind == Kind::For && t.bind == Bind::Matrix)
    return 32;
  if (t.kind == Kind::Collapse)
    return std::max<std::int64_t>(t.step, threads_wanted(*t.rest));
  std::int64_t inside = 1;
  for (const TreePtr& part : {t.first, t.rest})
    if (part)
      inside = std::max(inside, threads_wanted(*part));
  if (!goes_by_threads(t))
    return inside;
  const auto n = t.extent.constant();
  if (!n)
    throw Cannot("threads of unknown number");
  if (std::max<std::int64_t>(*n, 1) * inside > kMostThreads)
    throw Cannot(fmt::format("more than {} threads", kMostThreads));
  return std::max<std::int64_t>(*n, 1) * inside;
}

} // namespace

GpuWriter::GpuWriter(const Region& region, const Tree& tree, const Schedule& schedule,
                     const Target& target)
    : Writer(region, tree, schedule, target) {
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    check_unit(int(s));
  threads_ = int((threads_wanted(tree) + 31) / 32 * 32);
  thread_ = thread_variable(threads_);
}

int GpuWriter::threads_inside(const Tree& t) const {
  return t.rest ? int(threads_wanted(*t.rest)) : 1;
}

bool GpuWriter::is_known(const Tree& loop) const {
  return Writer::is_known(loop) || goes_by_threads(loop);
}

// --- Blocks

void GpuWriter::deal(std::span<const Expr> extents, const Here& h, const Dealt& code) {
  Expr count(1);
  for (const Expr& e : extents)
    count = count * e;
  b_.grid_loop(count, [&](const Expr& block) {
    Here in = h;
    in.shared = false;
    in.thread = thread_;
    in.width = threads_;
    code(unflatten(block, extents), in);
  });
}

void GpuWriter::deal_points(std::span<const Expr> extents, const Here& h, const Dealt& code) {
  Expr count(1);
  for (const Expr& e : extents)
    count = count * e;
  const Expr blocks = ceildiv(count, Expr(threads_));
  pieces_ = max(pieces_, blocks);
  b_.grid_loop(blocks, [&](const Expr& block) {
    const Expr flat = block * Expr(threads_) + thread_;
    Here in = h;
    in.shared = false;
    in.diverged = true;
    b_.when({{flat, Expr(0), count}}, [&] { code(unflatten(flat, extents), in); });
  });
}

void GpuWriter::meet() {
  if (counter_ < 0)
    counter_ = b_.counter("blocks", 2);
  b_.grid_barrier(counter_, Expr(0));
}

KernelProgram GpuWriter::end(const Expr&) {
  Launch launch;
  launch.threads = threads_;
  launch.resident = counter_ >= 0;
  launch.workers = max(Expr(1), pieces_);
  launch.blocks_per_core = schedule_.blocks_per_core;
  return b_.finish(launch);
}

void GpuWriter::collapse(const Tree& t, const Here& h) {
  if (!h.shared || t.step != threads_)
    throw Cannot(fmt::format("the threads of a collapse are not the {} of its block", threads_));
  std::vector<const Tree*> loops;
  std::vector<Expr> extents;
  Expr count(1);
  const Tree* rest = t.rest.get();
  for (; rest->kind == Kind::For && rest->bind == dealt_; rest = rest->rest.get()) {
    loops.push_back(rest);
    extents.push_back(rest->extent);
    count = count * rest->extent;
  }
  if (count == Expr(0))
    return;
  const Expr tile = Expr(t.step) * t.extent;
  const Expr blocks = ceildiv(count, tile);
  pieces_ = max(pieces_, blocks);
  b_.grid_loop(blocks, [&](const Expr& block) {
    const auto points = [&](bool whole) {
      for (std::int64_t c = 0; c < t.extent.value(); ++c) {
        const Expr flat = block * tile + Expr(c * t.step) + thread_;
        const auto point = [&] {
          const std::vector<Expr> at = unflatten(flat, extents);
          Here in = h;
          in.shared = false;
          in.diverged = true;
          for (std::size_t i = 0; i < loops.size(); ++i)
            in = enter(in, *loops[i], at[i]);
          whole_or_cut(loops, 0, *rest, in);
        };
        if (whole)
          point();
        else
          when({{flat, Expr(0), count}}, point);
      }
    };
    const auto grouped = [&](bool whole) {
      if (stores_may_wait(*rest))
        store_together([&] { points(whole); });
      else
        points(whole);
    };
    const Expr end = (block + Expr(1)) * tile;
    const std::vector<Guard> whole{{end, Expr(0), count + Expr(1)}};
    if (unproved(whole).empty())
      grouped(true);
    else if (blocks == Expr(1) || t.extent == Expr(1))
      grouped(false); // one point has no other loads to wait for its test
    else
      b_.either(
          whole, [&] { grouped(true); }, [&] { grouped(false); });
  });
}

void GpuWriter::copy_all(int from, int to, const Expr& elements) {
  const std::vector<Expr> extents{elements};
  deal_points(extents, Here{}, [&](std::span<const Expr> at, const Here&) {
    b_.store(to, at[0], b_.cast(b_.load(from, at[0], 1), b_.buffer_dtype(to)));
  });
}

// --- Threads

void GpuWriter::threads_of_loop(const Tree& t, const Here& h, const Code& code) {
  const int inside = threads_inside(t);
  const std::int64_t n = t.extent.value();
  if (n * inside > h.width)
    throw Cannot("a loop of threads is inside of none of their blocks");
  const Expr digit = floordiv(h.thread, Expr(inside));
  Here in = enter(h, t, digit);
  in.thread = floormod(h.thread, Expr(inside));
  in.width = inside;
  if (n * inside == h.width) {
    code(in);
    return;
  }
  in.diverged = true;
  when({{digit, Expr(0), Expr(n)}}, [&] { code(in); });
}

void GpuWriter::other_loop(const Tree& t, const Here& h) {
  if (!goes_by_threads(t))
    throw Cannot(fmt::format("a GPU has no {} loops", name_of(t.bind)));
  if (h.shared)
    throw Cannot("threads share out what is then shared out among blocks");
  threads_of_loop(t, h, [&](Here in) {
    in.diverged = in.diverged || clips(t, h);
    whole_or_cut({&t}, 0, *t.rest, in);
  });
}

Point GpuWriter::storing(const Here& h) const {
  Point p = h.point;
  if (h.width > 1)
    p.mask.push_back({h.thread, Expr(0), Expr(1)});
  return p;
}

bool GpuWriter::sums_threads(int stage) const {
  const Path& p = path(stage);
  return std::any_of(p.begin(), p.end(), [&](const Step& s) {
    return goes_by_threads(*s.node) && !is_single(*s.node) &&
           contains(r_.stages[std::size_t(stage)].over, s.node->axis);
  });
}

void GpuWriter::check_body(int stage, const Here& h) {
  if (h.width > 1 && sums_threads(stage))
    throw Cannot(fmt::format("some threads would add to the sums of stage {} twice", stage));
}

void GpuWriter::check_sums(const Sums& s) {
  if (s.in_memory)
    throw Cannot(fmt::format("the sums of stage {} do not fit registers", s.stage));
  if (online_.maxima.contains(s.stage))
    throw Cannot(fmt::format("the sum of stage {} goes along with its maximum", s.stage));
}

/// Neighbouring threads take results side by side; of a result with many parts, several of them a
/// share each.
void GpuWriter::combine_parts(Sums& s, std::span<const Tree* const> reduced, const Expr& elements,
                              const Here& h) {
  const auto parts =
      reduced.empty() ? std::optional<std::int64_t>(1) : reduced[0]->extent.constant();
  int share = 1;
  while (share < kSharers && parts && *parts >= 4 * share)
    share *= 2;
  std::vector<Expr> counts;
  Expr results(1);
  for (const Box::Side& side : s.box.sides) {
    counts.push_back(min(side.size, r_.axes[std::size_t(side.axis)].extent - side.base));
    results = results * counts.back();
  }
  const Expr blocks = ceildiv(results * Expr(share), Expr(threads_));
  pieces_ = max(pieces_, blocks);
  b_.grid_loop(blocks, [&](const Expr& block) {
    const Expr number = block * Expr(threads_ / share) + floordiv(thread_, Expr(share));
    const std::vector<Expr> at = unflatten(min(number, results - Expr(1)), counts);
    Here in = h;
    in.shared = false;
    in.diverged = true;
    in.thread = floormod(thread_, Expr(share));
    in.width = share;
    for (std::size_t i = 0; i < at.size(); ++i)
      in.point.at[std::size_t(s.box.sides[i].axis)] = s.box.sides[i].base + at[i];
    std::vector<State> states = sum_of_parts(s, reduced, elements, in, in.thread, Expr(share));
    if (share > 1)
      for (std::size_t y = 0; y < states.size(); ++y)
        states[y] = s.accumulators[y].across_threads(states[y], share);
    b_.when({{number, Expr(0), results}}, [&] { complete(s, in, states); });
  });
}

bool GpuWriter::stores_alone(int stage) const {
  std::int64_t width = threads_;
  for (const Step& s : path(stage))
    if (goes_by_threads(*s.node))
      width = threads_inside(*s.node);
    else if (s.node->kind == Kind::Collapse)
      width = 1;
  return width == 1 && r_.stages[std::size_t(stage)].kind == StageKind::Map;
}

// --- Memory of a block

void GpuWriter::meet_block(const Here& h) {
  if (h.width != threads_ || h.diverged)
    throw Cannot("some threads of a block would wait for others");
  b_.barrier();
}

int GpuWriter::memory(const std::string& name, DType dtype, const Expr& elements, const Here& h) {
  if (h.shared)
    return b_.workspace(name, dtype, elements);
  const auto n = elements.constant();
  if (!n || *n > kMostShared)
    throw Cannot(fmt::format("a block would need {} elements of shared memory", elements.str()));
  if (h.width != threads_ || h.diverged)
    throw Cannot(fmt::format("{} would be memory of some threads of a block", name));
  return b_.shared(name, dtype, std::max<std::int64_t>(*n, 1));
}

void GpuWriter::then(const Tree& t, const Here& h) {
  if (h.shared) {
    Writer::then(t, h);
    return;
  }
  bool waits = h.width > 1 && overwrites(*t.first, *t.rest);
  if (auto it = lives_at_.find(&t); it != lives_at_.end())
    for (int s : it->second)
      place_result(s, h);
  for (int made : bodies(*t.first))
    for (int reader : bodies(*t.rest))
      waits = waits || (results_[std::size_t(made)].kind == Result::Kind::Memory &&
                        reads_stage(reader, made));
  emit(*t.first, h);
  if (waits && h.width > 1)
    meet_block(h);
  emit(*t.rest, h);
  if (waits && h.width > 1)
    meet_block(h);
}

} // namespace egret::kernel::loops
