// The nodes of a loop tree, but for sums: writer_sums.cpp; and where results wait:
// writer_memory.cpp.
#include "kernel/loops/writer.h"

#include "kernel/analysis.h"
#include "kernel/nest.h"
#include "kernel/stored_stages.h"
#include "kernel/stream_form.h"
#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::kernel::loops {

namespace {

/// Bodies that a program may be written with, all copies of them.
constexpr int kMostWritten = 4096;
/// Vectors of outputs of several points whose stores wait for each other: they take registers, of
/// which a GPU's thread has more.
constexpr std::int64_t kMostWaiting = 8, kGpuMostWaiting = 16;

bool is_unrolled(const Tree& t) {
  return t.bind == Bind::Unroll || t.bind == Bind::Vector || t.bind == Bind::Matrix;
}

bool has_sums(const Tree& t) {
  return t.kind == Kind::Accumulate || (t.first && has_sums(*t.first)) ||
         (t.rest && has_sums(*t.rest));
}

/// Bodies of maps under loops whose iterations are known when code is written, and of threads.
bool is_maps(const Region& region, const Tree& t, std::int64_t copies, std::int64_t& stored) {
  switch (t.kind) {
  case Kind::Body:
    for (const Output& out : region.outputs)
      stored += out.stage == t.stage ? copies : 0;
    return region.stages[std::size_t(t.stage)].kind == StageKind::Map;
  case Kind::Mask:
    return is_maps(region, *t.rest, copies, stored);
  case Kind::Then:
    return is_maps(region, *t.first, copies, stored) && is_maps(region, *t.rest, copies, stored);
  case Kind::For: {
    const bool copied = t.bind == Bind::Unroll;
    if (!copied && t.bind != Bind::Vector && t.bind != Bind::Lane && t.bind != Bind::Warp)
      return false;
    return is_maps(region, *t.rest, copied ? copies * t.extent.value() : copies, stored);
  }
  default:
    return false;
  }
}

} // namespace

Writer::Writer(const Region& region, const Tree& tree, const Schedule& schedule,
               const Target& target)
    : r_(region), tree_(tree), schedule_(schedule), target_(target), b_(region.name),
      e_(b_, region), arithmetic_(arithmetic_of(target)),
      dealt_(target.is_gpu() ? Bind::Grid : Bind::Core), stored_(stored_stages(region).stages),
      paths_(body_paths(region, tree)), results_(region.stages.size()),
      is_read_(region.stages.size(), false), waits_(region.stages.size(), false),
      open_(region.stages.size()) {
  e_.load_policy = schedule.load_policy;
  e_.branches = !target.is_gpu(); // where a branch holds back no loads of other threads
  for (std::size_t s = 0; s < paths_.size(); ++s) {
    overreaches_.emplace_back(r_.axes.size(), false);
    computed_.emplace_back();
    if (paths_[s].empty())
      continue;
    computed_[s] = computed_with(r_, paths_, int(s));
    for (std::size_t i = 0; i < computed_[s].size(); ++i)
      for (const Load& l : r_.stages[std::size_t(computed_[s][i])].loads)
        if (l.source == Source::Stage && !contains(computed_[s], l.number) &&
            is_made_again(l.number, int(s)))
          computed_[s].push_back(l.number);
    for (int a : r_.stages[s].axes)
      overreaches_[s][std::size_t(a)] = overreaches(r_, paths_[s], a);
  }
  online_ = online_sums(r_, paths_);
  e_.means = online_.means;
  for (const auto& [sum, maximum] : online_.maxima) {
    const Path& own = path(sum);
    rescaled_at_[own[parting(own, path(maximum))].node].push_back(sum);
  }
}

KernelProgram Writer::run() {
  check_vectors();
  find_waiting();
  find_results();
  Here h;
  h.point.at.assign(r_.axes.size(), Expr(0));
  h.clip.assign(r_.axes.size(), true);
  open_updates();
  for (std::size_t s = 0; s < r_.stages.size(); ++s)
    if (waits_[s])
      place_result(int(s), h);
  emit(tree_, h);
  copy_waiting();
  close_updates();
  Expr work(1);
  for (std::size_t s = 0; s < r_.stages.size(); ++s)
    work = work + points_of(r_, r_.stages[s].axes) * Expr(std::int64_t(flops_of(r_.stages[s])) + 1);
  return end(work);
}

KernelProgram Writer::end(const Expr& work) {
  return b_.finish(useful_workers(pieces_, work));
}

// --- What the tree says

const std::vector<int>& Writer::bodies(const Tree& t) {
  auto [it, fresh] = bodies_.try_emplace(&t);
  if (fresh) {
    std::vector<int> found;
    if (t.kind == Kind::Body)
      found.push_back(t.stage);
    for (const TreePtr& part : {t.first, t.rest})
      if (part)
        for (int s : bodies(*part))
          found.push_back(s);
    bodies_[&t] = std::move(found);
  }
  return bodies_.at(&t);
}

bool Writer::is_made_again(int maker, int reader) const {
  const Path &made = path(maker), &read = path(reader);
  if (made.empty())
    return true;
  if (r_.stages[std::size_t(maker)].kind != StageKind::Map || !is_output(r_, maker))
    return false;
  const std::size_t at = parting(made, read);
  const auto is_loop = [](const Step& s) {
    return s.node->kind == Kind::For && !is_single(*s.node);
  };
  const auto is_dealt = [&](const Step& s) {
    return s.node->kind == Kind::Collapse || (s.node->kind == Kind::For && s.node->bind == dealt_);
  };
  const auto parted = made.begin() + std::ptrdiff_t(at);
  if (std::none_of(made.begin(), parted, is_dealt))
    return !stored_[std::size_t(maker)] && std::any_of(parted, made.end(), is_dealt);
  return target_.is_gpu() && std::any_of(parted, made.end(), [&](const Step& s) {
           return is_loop(s) && s.node->bind == Bind::Serial;
         });
}

bool Writer::has_core(const Tree& t) {
  return (t.kind == Kind::For && t.bind == dealt_) || t.kind == Kind::Collapse ||
         (t.first && has_core(*t.first)) || (t.rest && has_core(*t.rest));
}

bool Writer::overreaches_inside(const Tree& t, int axis) {
  const std::vector<int>& inside = bodies(t);
  return std::any_of(inside.begin(), inside.end(),
                     [&](int s) { return overreaches_[std::size_t(s)][std::size_t(axis)]; });
}

std::vector<const Tree*> Writer::loops_inside(const Tree& t, int axis) const {
  std::vector<const Tree*> found;
  if (t.kind == Kind::For && t.axis == axis && !is_single(t))
    found.push_back(&t);
  for (const TreePtr& part : {t.first, t.rest})
    if (part)
      for (const Tree* l : loops_inside(*part, axis))
        found.push_back(l);
  return found;
}

bool Writer::stores_may_wait(const Tree& t) {
  std::int64_t stored = 0;
  if (!is_maps(r_, t, 1, stored))
    return false;
  return stored <= (target_.is_gpu() ? kGpuMostWaiting : kMostWaiting) || is_point(r_, t);
}

void Writer::store_together(const std::function<void()>& code) {
  std::vector<Pending> stores;
  std::vector<Pending>* const before = std::exchange(pending_, &stores);
  code();
  pending_ = before;
  for (const Pending& s : stores)
    e_.store(s.output, s.point, s.value, policy_of(s.point));
}

bool Writer::is_tile(const Tree& t, int axis, std::int64_t& span) {
  span = 0;
  for (int s : bodies(t)) {
    std::int64_t own = 1;
    bool inside = false;
    for (const Step& step : path(s)) {
      const Tree& l = *step.node;
      inside = inside || &l == &t;
      if (!inside || l.kind != Kind::For || l.axis != axis || is_single(l))
        continue;
      if (!is_unrolled(l) && !(goes_by_threads(l) && l.extent.constant() && !has_sums(t)))
        return false;
      own += (l.extent.value() - 1) * l.step;
    }
    span = std::max(span, own);
  }
  return span > 1;
}

std::vector<int> Writer::state_axes(int stage) const {
  std::vector<int> axes = r_.stages[std::size_t(stage)].axes;
  std::erase_if(axes, [&](int a) { return contains(r_.stages[std::size_t(stage)].over, a); });
  return axes;
}

const Tree* Writer::vector_of(int stage) const {
  for (const Step& s : path(stage))
    if (s.node->kind == Kind::For && is_vector(*s.node) && !is_single(*s.node))
      return s.node;
  return nullptr;
}

/// Lanes store elements of their own, and lanes of a scatter share its indices.
void Writer::check_vectors() {
  for (const Output& out : r_.outputs) {
    const Tree* v = vector_of(out.stage);
    const Stage& stage = r_.stages[std::size_t(out.stage)];
    if (!v || contains(stage.over, v->axis))
      continue;
    if (stride_of(r_, out, v->axis) == 0)
      throw Cannot(fmt::format("lanes along axis {} would share an element", v->axis));
    for (int c : out.indirect) {
      bool varies = axes_of_value(r_, stage, stage.yields[std::size_t(c)])[std::size_t(v->axis)];
      for (const Load& l : stage.loads)
        varies = varies || (l.source == Source::Stage &&
                            contains(result_axes(r_.stages[std::size_t(l.number)]), v->axis));
      if (varies)
        throw Cannot(fmt::format("lanes along axis {} would have indices of their own", v->axis));
    }
  }
}

// --- Nodes

void Writer::emit(const Tree& t, const Here& h) {
  if (h.shared && !has_core(t)) {
    alone(h, [&](const Here& in) { emit(t, in); });
    return;
  }
  if (!pending_ && !h.shared && stores_may_wait(t)) {
    store_together([&] { emit(t, h); });
    return;
  }
  switch (t.kind) {
  case Kind::Body:
    emit_body(t, h);
    return;
  case Kind::For:
    if (t.bind == Bind::Matrix)
      return matrix_product(t, h);
    if (is_single(t) && t.bind != dealt_) {
      emit(*t.rest, enter(h, t, Expr(0)));
      return;
    }
    switch (t.bind) {
    case Bind::Serial:
      return serial_loop(t, h);
    case Bind::Unroll:
      return unrolled_loop(t, h);
    case Bind::Vector:
      return vector_loop(t, h);
    default:
      return t.bind == dealt_ ? core_loops(t, h) : other_loop(t, h);
    }
  case Kind::Mask:
    return emit(*t.rest, h);
  case Kind::Accumulate:
    return sums(t, h);
  case Kind::Prefetch:
    return prefetched(t, h);
  case Kind::Near:
    return near_copy(t, h);
  case Kind::Then:
    return then(t, h);
  case Kind::Collapse:
    return collapse(t, h);
  }
}

void Writer::collapse(const Tree& t, const Here&) {
  throw Cannot(fmt::format("a CPU has no blocks of {} threads", t.step));
}

void Writer::when(std::vector<Guard> condition, const std::function<void()>& code) {
  if (unproved(condition).empty() || !pending_)
    b_.when(std::move(condition), code);
  else
    b_.when(std::move(condition), [&] { store_together(code); });
}

void Writer::alone(const Here& h, const Code& code) {
  deal({}, h, [&](std::span<const Expr>, const Here& in) { code(in); });
}

bool Writer::clips(const Tree& t, const Here& h) {
  return h.clip[std::size_t(t.axis)] && overreaches_inside(t, t.axis);
}

void Writer::mask_end(Here& h, int axis, const Tree& rest) {
  const Guard end{h.point.at[std::size_t(axis)], Expr(0), r_.axes[std::size_t(axis)].extent};
  h.point.mask.push_back(end);
  for (int s : bodies(rest))
    if (contains(r_.stages[std::size_t(s)].over, axis)) {
      h.terms.push_back(end);
      return;
    }
}

void Writer::serial_loop(const Tree& t, const Here& h) {
  const auto a = std::size_t(t.axis);
  const Expr &n = t.extent, &extent = r_.axes[a].extent;
  const auto go = [&](const Expr& from, const Expr& to, bool clip) {
    b_.loop(from, to, Expr(1), n, Bind::Serial, [&](const Expr& i) {
      Here in = enter(h, t, i);
      in.clip[a] = clip;
      if (clip && depends_on_lane(in.point.at[a]))
        in.point.mask.push_back({in.point.at[a], Expr(0), extent});
      emit(*t.rest, in);
      if (h.shared)
        meet();
    });
  };
  if (!clips(t, h)) {
    go(Expr(0), n, false);
    return;
  }
  const Expr at = first_lane(h.point.at[a]);
  const bool by_lane = !(at == h.point.at[a]);
  const Expr count = min(n, ceildiv(extent - at, Expr(t.step)));
  std::int64_t span = 0;
  if (!by_lane && is_tile(*t.rest, t.axis, span)) {
    const Expr whole =
        max(Expr(0), min(n, floordiv(extent - at - Expr(span), Expr(t.step)) + Expr(1)));
    go(Expr(0), whole, false);
    go(whole, count, true);
    return;
  }
  go(Expr(0), count, by_lane || !loops_inside(*t.rest, t.axis).empty());
}

void Writer::unrolled_loop(const Tree& t, const Here& h) {
  const auto a = std::size_t(t.axis);
  const Expr& extent = r_.axes[a].extent;
  const bool clip = clips(t, h);
  const bool more = !loops_inside(*t.rest, t.axis).empty();
  for (std::int64_t i = 0; i < t.extent.value(); ++i) {
    Here in = enter(h, t, Expr(i));
    in.clip[a] = clip && more;
    if (clip && masks_ends(*t.rest)) {
      if (!more)
        mask_end(in, t.axis, *t.rest);
      emit(*t.rest, in);
      continue;
    }
    const auto code = [&] {
      emit(*t.rest, in);
      if (h.shared)
        meet();
    };
    if (!clip) {
      code();
      continue;
    }
    const Expr at = in.point.at[a];
    if (depends_on_lane(at)) {
      in.clip[a] = true;
      in.point.mask.push_back({at, Expr(0), extent});
    }
    when({{first_lane(at), Expr(0), extent}}, code);
  }
}

void Writer::vector_loop(const Tree& t, const Here& h) {
  const auto a = std::size_t(t.axis);
  const int lanes = int(t.extent.value());
  Here in = enter(h, t, lane_variable(lanes));
  in.point.lanes = lanes;
  const std::vector<LaneRows> rows = rows_of_outputs(t, in);
  const std::size_t before = stored_rows_.size();
  stored_rows_.insert(stored_rows_.end(), rows.begin(), rows.end());
  const auto code = [&] {
    emit(*t.rest, in);
    stored_rows_.resize(before);
    for (const LaneRows& r : rows)
      store_rows(r, h);
  };
  if (!clips(t, h)) {
    in.clip[a] = false;
    code();
    return;
  }
  const Expr& extent = r_.axes[a].extent;
  in.clip[a] = !loops_inside(*t.rest, t.axis).empty();
  in.point.mask.push_back({in.point.at[a], Expr(0), extent});
  if (masks_ends(*t.rest)) {
    code();
    return;
  }
  when({{first_lane(in.point.at[a]), Expr(0), extent}}, code);
}

void Writer::core_loops(const Tree& t, const Here& h) {
  if (!h.shared)
    throw Cannot(fmt::format("a {} loop is inside of another, with something between them",
                             name_of(t.bind)));
  std::vector<const Tree*> loops;
  std::vector<Expr> extents;
  const Tree* rest = &t;
  for (; rest->kind == Kind::For && rest->bind == dealt_; rest = rest->rest.get()) {
    loops.push_back(rest);
    extents.push_back(rest->extent);
    if (rest->extent == Expr(0))
      return;
  }
  Expr pieces(1);
  for (const Expr& e : extents)
    pieces = pieces * e;
  pieces_ = max(pieces_, pieces);
  deal(extents, h, [&](std::span<const Expr> at, Here in) {
    for (std::size_t i = 0; i < loops.size(); ++i)
      in = enter(in, *loops[i], at[i]);
    whole_or_cut(loops, 0, *rest, in);
  });
}

/// For each axis of the loops, the code for tiles that lie inside of it and for those that do not.
void Writer::whole_or_cut(const std::vector<const Tree*>& loops, std::size_t i, const Tree& rest,
                          const Here& h) {
  if (i == loops.size()) {
    emit(rest, h);
    return;
  }
  const Tree& t = *loops[i];
  const auto a = std::size_t(t.axis);
  const bool last =
      std::none_of(loops.begin() + std::ptrdiff_t(i) + 1, loops.end(),
                   [&](const Tree* l) { return l->axis == t.axis && !is_single(*l); });
  if (!last || is_single(t) || !clips(t, h)) {
    whole_or_cut(loops, i + 1, rest, h);
    return;
  }
  if (masks_ends(rest)) {
    Here in = h;
    in.clip[a] = !loops_inside(rest, t.axis).empty();
    if (!in.clip[a])
      mask_end(in, t.axis, rest);
    whole_or_cut(loops, i + 1, rest, in);
    return;
  }
  const Expr &at = h.point.at[a], &extent = r_.axes[a].extent;
  const auto go = [&](bool clip) {
    Here in = h;
    in.clip[a] = clip;
    if (pending_)
      store_together([&] { whole_or_cut(loops, i + 1, rest, in); });
    else
      whole_or_cut(loops, i + 1, rest, in);
  };
  std::int64_t span = 1;
  const bool more = !loops_inside(rest, t.axis).empty(), tile = is_tile(rest, t.axis, span);
  b_.when({{at, Expr(0), extent}}, [&] {
    if (!tile) {
      go(more);
      return;
    }
    const Expr room = extent - at - Expr(span);
    const std::vector<Guard> whole{{room, Expr(0), Expr(INT64_MAX)}};
    if (unproved(whole).empty())
      go(false);
    else if (proves_less(room, Expr(0)))
      go(true);
    else
      b_.either(
          whole, [&] { go(false); }, [&] { go(true); });
  });
}

void Writer::then(const Tree& t, const Here& h) {
  if (auto it = lives_at_.find(&t); it != lives_at_.end())
    for (int s : it->second)
      place_result(s, h);
  if (const auto found = rescaled_at_.find(&t); found != rescaled_at_.end())
    return then_rescale(t, found->second, h);
  emit(*t.first, h);
  if (h.shared && depend(*t.first, *t.rest))
    meet();
  emit(*t.rest, h);
}

void Writer::deal(std::span<const Expr> extents, const Here& h, const Dealt& code) {
  core_loop(b_, extents, [&](std::span<const Expr> at) {
    Here in = h;
    in.shared = false;
    code(at, in);
  });
}

void Writer::other_loop(const Tree& t, const Here&) {
  throw Cannot(fmt::format("a CPU has no {} loops", name_of(t.bind)));
}

bool Writer::depend(const Tree& first, const Tree& rest) {
  for (int made : bodies(first))
    for (int reader : bodies(rest))
      if (reads_stage(reader, made))
        return true;
  return overwrites(first, rest);
}

/// Whether outputs inside of `rest` may lie in the memory of what `first` reads.
bool Writer::overwrites(const Tree& first, const Tree& rest) {
  for (int made : bodies(first))
    for (int reader : bodies(rest)) {
      for (const Output& out : r_.outputs) {
        if (out.alias < 0 || out.stage != reader)
          continue;
        for (int s : computed_[std::size_t(made)])
          for (const Load& l : r_.stages[std::size_t(s)].loads)
            if (l.source == Source::Operand && l.number == out.alias)
              return true;
      }
    }
  return false;
}

void Writer::emit_body(const Tree& t, const Here& h) {
  if (++written_ > kMostWritten)
    throw Cannot(fmt::format("more than {} copies of bodies", kMostWritten));
  const int s = t.stage;
  const Stage& stage = r_.stages[std::size_t(s)];
  const Point& p = h.point;
  check_body(s, h);
  if (prefetch_)
    ask_ahead(s, p);
  provide_results(s, p);
  provide_near(s, h);
  if (stage.kind == StageKind::Map) {
    const std::vector<Value> values = e_.yields(s, p);
    e_.forget_loads();
    deliver(s, h, values);
    return;
  }
  Sums& open = *open_[std::size_t(s)].back();
  open.copy = copy_of(open, h);
  const std::vector<State> states = read_sums(open, p);
  std::vector<State> next;
  const auto maximum = online_.maxima.find(s);
  e_.beside_one =
      maximum != online_.maxima.end() && is_scaled_by(r_, s, maximum->second, true, true);
  for (std::size_t y = 0; y < states.size(); ++y)
    next.push_back(open.accumulators[y].keep(
        h.terms, open.accumulators[y].add(states[y], p, place_of(s, p), open.checks), states[y]));
  e_.beside_one = false;
  e_.forget_loads();
  write_sums(open, p, next);
  if (stage.kind == StageKind::Scan) {
    std::vector<Value> values;
    for (std::size_t y = 0; y < next.size(); ++y)
      values.push_back(open.accumulators[y].finish(next[y]));
    deliver(s, h, values);
  }
}

} // namespace egret::kernel::loops
