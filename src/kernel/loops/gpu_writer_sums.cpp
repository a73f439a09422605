// Sums of a GPU's loop tree that several threads or blocks have parts of.
#include "kernel/loops/gpu_writer.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace egret::kernel::loops {

namespace {

/// States that a thread combines, and parts that it loads, one after the other.
constexpr int kInTurn = 8;

/// The number of a thread by its number among those that share a result: between the digits of the
/// latter stand those of the loops along results, which are 0.
Expr spread(Expr number, const std::vector<std::pair<Expr, Expr>>& gaps) {
  for (const auto& [count, inside] : gaps)
    number = floormod(number, inside) + floordiv(number, inside) * (inside * count);
  return number;
}

} // namespace

bool GpuWriter::masks_ends(const Tree& t) {
  switch (t.kind) {
  case Kind::Body:
    return r_.stages[std::size_t(t.stage)].kind == StageKind::Reduce;
  case Kind::Mask:
    return masks_ends(*t.rest);
  case Kind::For:
    return t.bind != Bind::Matrix && masks_ends(*t.rest);
  case Kind::Then:
    return masks_ends(*t.first) && masks_ends(*t.rest);
  default:
    return false;
  }
}

/// Sums are in all threads that have parts of them, other results in those that the loops around
/// their body are dealt to.
bool GpuWriter::reaches(int maker, int reader) const {
  const auto threads = [&](int stage) {
    std::int64_t n = 1;
    for (const Step& s : path(stage))
      if (goes_by_threads(*s.node))
        n *= s.node->extent.value();
      else if (s.node->kind == Kind::For && s.node->bind == Bind::Matrix)
        return n * 32; // a warp
    return n;
  };
  const bool sums = r_.stages[std::size_t(maker)].kind == StageKind::Reduce && sums_threads(maker);
  return sums || threads(maker) == 1 || threads(maker) >= threads(reader);
}

GpuWriter::Sharers GpuWriter::sharers_of(const Sums& s) const {
  Sharers sharers;
  sharers.found = s.recalled;
  // Loops inside of these sums; along reduced axes, those of their parts do not count.
  bool inside = false, own = false, unit = false;
  for (const Step& step : path(s.stage)) {
    const Tree& t = *step.node;
    if (inside && t.kind == Kind::Accumulate && t.stage == s.stage)
      own = false;
    if (&t == s.node)
      inside = own = true;
    unit = unit || (t.kind == Kind::For && t.bind == Bind::Matrix);
    if (!inside || !goes_by_threads(t) || is_single(t))
      continue;
    if (!contains(r_.stages[std::size_t(s.stage)].over, t.axis)) {
      sharers.results.push_back(&t);
      sharers.apart = sharers.apart || sharers.found;
    } else {
      sharers.found = sharers.found || own;
    }
  }
  if (!sharers.found)
    sharers.results.clear();
  sharers.apart = !unit && (sharers.apart || (sharers.found && s.lanes > 1 && !s.fold));
  return sharers;
}

void GpuWriter::each_digit(const Sums& s, const Tree& l, const Here& h, const Code& code) {
  if (l.bind == Bind::Matrix) {
    each_of_unit(l, h, code);
    return;
  }
  if (!goes_by_threads(l)) {
    Writer::each_digit(s, l, h, code);
    return;
  }
  const int inside = threads_inside(l);
  const int n = int(l.extent.value());
  if (!sharers_of(s).apart || h.width % (n * inside) != 0) {
    threads_of_loop(l, h, code);
    return;
  }
  // Threads of loops around this one share the sum.
  Here in = enter(h, l, floormod(floordiv(h.thread, Expr(inside)), Expr(n)));
  in.thread = floormod(h.thread, Expr(inside)) +
              floordiv(h.thread, Expr(std::int64_t(n) * inside)) * Expr(inside);
  in.width = h.width / n;
  code(in);
}

void GpuWriter::close_sums(Sums& s, const Here& h) {
  if (!sharers_of(s).apart) {
    Writer::close_sums(s, h);
    return;
  }
  // All threads meet, also those of results that do not exist.
  each_sum(s, h, false, [&](const Here& in) {
    std::vector<State> states = read_sums(s, in.point);
    combine_threads(s, in, states);
    write_sums(s, in.point, states);
  });
  each_sum(s, h, true, [&](const Here& in) { complete(s, in, read_sums(s, in.point)); });
}

void GpuWriter::together(Sums& s, const Here& h, std::vector<State>& states) {
  Writer::together(s, h, states);
  combine_threads(s, h, states);
}

void GpuWriter::combine_threads(Sums& s, const Here& h, std::vector<State>& states) {
  const Sharers sharers = sharers_of(s);
  if (!sharers.found)
    return;
  if (sharers.apart) {
    combine_apart(s, sharers, h, states);
    return;
  }
  const bool warp = h.width <= 32 && std::has_single_bit(unsigned(h.width));
  if (h.width == 1 || (!warp && h.width != threads_) || (h.diverged && h.width > 32))
    throw Cannot(fmt::format("{} threads cannot combine the sums of stage {}", h.width, s.stage));
  if (h.point.lanes > 1 || s.lanes > 1)
    throw Cannot(fmt::format("threads combine no vectors of stage {}", s.stage));
  for (std::size_t y = 0; y < states.size(); ++y)
    states[y] = s.accumulators[y].across_threads(states[y], h.width);
}

/// Shared memory for states of the sums, one buffer for each of their parts. Sums are combined one
/// after the other, between barriers, so all use the same.
std::vector<std::vector<int>> GpuWriter::scratch(const Sums& s, std::int64_t elements) {
  std::vector<std::vector<int>> buffers;
  std::map<std::pair<DType, std::int64_t>, std::size_t> taken;
  for (const Accumulator& sum : s.accumulators) {
    buffers.emplace_back();
    for (const Type& t : sum.types(1)) {
      std::vector<int>& pool = scratch_[{t.dtype, elements}];
      const std::size_t next = taken[{t.dtype, elements}]++;
      if (next == pool.size())
        pool.push_back(
            b_.shared(fmt::format("shared{}_{}", name_of(t.dtype), next), t.dtype, elements));
      buffers.back().push_back(pool[next]);
    }
  }
  return buffers;
}

/// From the first to the last. Where there are many, each thread combines some neighbours for one
/// result at a time, so that the threads read what lies side by side, and then fewer do what these
/// left.
void GpuWriter::combine_apart(Sums& s, const Sharers& sharers, const Here& h,
                              std::vector<State>& states) {
  std::int64_t results = 1;
  std::vector<std::pair<Expr, Expr>> gaps; // threads of a loop, and inside of it
  Expr own(0);
  for (const Tree* t : sharers.results) {
    const Expr inside(threads_inside(*t)), count(t->extent.value());
    results *= t->extent.value();
    gaps.insert(gaps.begin(), {count, inside});
    own = own + h.digits.at(t) * inside;
  }
  if (s.fold || h.diverged || h.width * results != threads_)
    throw Cannot(fmt::format("not all threads of the block combine the sums of stage {}", s.stage));
  const int sharing = h.width, lanes = s.lanes;
  if (sharing == 1)
    return;
  const std::vector<std::vector<int>> buffers = scratch(s, std::int64_t(threads_) * lanes);
  // What each thread has: those of one result, then those of the next, lie apart by this.
  const Expr row(results * lanes), thread(thread_variable(threads_));
  const auto place = [&](const Expr& number) {
    const Expr at = (own + spread(number, gaps)) * Expr(lanes);
    return lanes > 1 ? at + lane_variable(lanes) : at;
  };
  const auto merged = [&](int count, int width, const std::function<Expr(int)>& at,
                          const std::function<std::vector<Guard>(int)>& there) {
    std::vector<State> all;
    for (std::size_t y = 0; y < states.size(); ++y) {
      const State first = load_state(b_, buffers[y], at(0), width);
      std::vector<State> more;
      std::vector<std::vector<Guard>> masks;
      for (int i = 1; i < count; ++i) {
        masks.push_back(unproved(there(i)));
        more.push_back(load_state(b_, buffers[y], at(i), width, masks.back()));
      }
      all.push_back(s.accumulators[y].merge_all(first, more, masks));
    }
    return all;
  };
  const auto save = [&](const std::vector<State>& values, const Expr& at,
                        const std::vector<Guard>& mask) {
    for (std::size_t y = 0; y < values.size(); ++y)
      store_state(b_, buffers[y], at, values[y], mask);
  };
  save(states, place(h.thread), {});
  b_.barrier();
  int left = sharing;
  const bool side_by_side = std::ranges::all_of(
      sharers.results, [&](const Tree* t) { return threads_inside(*t) < results; });
  const bool in_turn = left <= kInTurn || !side_by_side || sharing < lanes;
  while (left > 1 && !in_turn) {
    const int groups = std::min(sharing / lanes, (left + kInTurn - 1) / kInTurn);
    const int each = (left + groups - 1) / groups;
    const Expr group = floordiv(thread, row), first = group * Expr(each);
    const std::vector<Guard> works{{group, Expr(0), Expr(groups)}};
    std::vector<StateVariables> mine;
    for (Accumulator& sum : s.accumulators)
      mine.emplace_back(b_, sum.identity(1));
    b_.when(works, [&] {
      const std::vector<State> some = merged(
          each, 1, [&](int i) { return (first + Expr(i)) * row + floormod(thread, row); },
          [&](int i) {
            return left % each == 0 ? std::vector<Guard>{}
                                    : std::vector<Guard>{{first + Expr(i), Expr(0), Expr(left)}};
          });
      for (std::size_t y = 0; y < some.size(); ++y)
        mine[y].write(some[y]);
    });
    b_.barrier();
    std::vector<State> some;
    for (const StateVariables& m : mine)
      some.push_back(m.read());
    save(some, thread, works);
    b_.barrier();
    left = (left + each - 1) / each;
  }
  states = merged(
      left, lanes, [&](int i) { return place(Expr(i)); }, [](int) { return std::vector<Guard>{}; });
  b_.barrier();
}

// --- Parts of sums by blocks

void GpuWriter::core_loops(const Tree& t, const Here& h) {
  std::vector<const Tree*> loops, reduced, nodes;
  std::vector<Expr> extents;
  Expr places(1), parts(1);
  const Tree* rest = &t;
  for (; rest->kind == Kind::For && rest->bind == dealt_; rest = rest->rest.get()) {
    loops.push_back(rest);
    extents.push_back(rest->extent);
    places = places * rest->extent;
  }
  const Tree* inner = rest->kind == Kind::Then ? rest->first.get() : rest;
  for (; inner->kind == Kind::Accumulate; inner = inner->rest.get())
    nodes.push_back(inner);
  for (; inner->kind == Kind::For && inner->bind == dealt_; inner = inner->rest.get()) {
    reduced.push_back(inner);
    extents.push_back(inner->extent);
    parts = parts * inner->extent;
  }
  if (!h.shared || nodes.empty() || reduced.empty()) {
    Writer::core_loops(t, h);
    return;
  }
  if (!places.is_constant() || !parts.is_constant())
    throw Cannot("sums of an unknown number of blocks");
  if (places == Expr(0))
    return;
  for (const Tree* node : nodes)
    for (const Tree* l : reduced)
      if (!contains(r_.stages[std::size_t(node->stage)].over, l->axis))
        throw Cannot(
            fmt::format("blocks share out results of stage {} inside of its sums", node->stage));
  const std::size_t outer = loops.size();
  const int arrivals = b_.counter(fmt::format("arrivals{}", nodes[0]->stage), places.value());
  pieces_ = max(pieces_, places * parts);
  deal(extents, h, [&](std::span<const Expr> at, Here in) {
    Expr place(0), number(0);
    for (std::size_t i = 0; i < outer; ++i) {
      in = enter(in, *loops[i], at[i]);
      place = place * loops[i]->extent + at[i];
      if (clips(*loops[i], in) && loops_inside(*rest, loops[i]->axis).empty())
        throw Cannot(fmt::format("blocks go beyond the end of axis {}", loops[i]->axis));
    }
    Here part = in;
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      part = enter(part, *reduced[i], at[outer + i]);
      number = number * reduced[i]->extent + at[outer + i];
    }
    const Expr number_of_all = place * parts + number;
    std::vector<Sums> sums;
    for (const Tree* node : nodes)
      sums.push_back(open_parts(*node, places * parts, in));
    for (Sums& s : sums) {
      s.part = &number_of_all;
      open_[std::size_t(s.stage)].push_back(&s);
    }
    whole_or_cut(reduced, 0, *inner, part);
    for (Sums& s : sums) {
      open_[std::size_t(s.stage)].pop_back();
      recalled_[s.node] = &s;
    }
    place_ = place;
    parts_ = parts;
    b_.last_arriver(arrivals, place, parts, [&] { emit(*rest, in); });
    for (Sums& s : sums)
      recalled_.erase(s.node);
  });
}

void GpuWriter::sums(const Tree& t, const Here& h) {
  const auto parts = recalled_.find(&t);
  if (parts == recalled_.end()) {
    Writer::sums(t, h);
    return;
  }
  recall(*parts->second, t, h);
  if (t.rest->kind == Kind::Accumulate)
    emit(*t.rest, h);
}

/// The threads that have a result take its parts in turn.
void GpuWriter::recall(Sums& parts, const Tree& t, const Here& h) {
  Sums all = open_sums(t, h);
  all.recalled = true;
  const std::int64_t count = parts_.value();
  each_sum(all, h, false, [&](const Here& in) {
    const auto [lanes, offset] = state_at(parts, in.point);
    std::vector<Guard> exists;
    for (int a : state_axes(t.stage))
      if (h.clip[std::size_t(a)] && overreaches_[std::size_t(t.stage)][std::size_t(a)])
        exists.push_back({in.point.at[std::size_t(a)], Expr(0), r_.axes[std::size_t(a)].extent});
    exists = unproved(std::move(exists));
    std::vector<StateVariables> sums;
    for (Accumulator& a : all.accumulators)
      sums.emplace_back(b_, a.identity(lanes));
    const std::int64_t turns = (count + in.width - 1) / in.width;
    const std::int64_t batch = std::min<std::int64_t>(turns, kInTurn); // loads that are under way
    const Expr rounds((turns + batch - 1) / batch);
    b_.loop(Expr(0), rounds, Expr(1), rounds, Bind::Serial,
            [&, lanes = lanes, offset = offset](const Expr& round) {
              std::vector<std::vector<State>> loaded(sums.size());
              std::vector<std::vector<Guard>> masks;
              for (std::int64_t i = 0; i < batch; ++i) {
                const Expr number = (round * Expr(batch) + Expr(i)) * Expr(in.width) + in.thread;
                masks.push_back(unproved({{number, Expr(0), parts_}}));
                std::vector<Guard> mask = exists;
                mask.insert(mask.end(), masks.back().begin(), masks.back().end());
                for (std::size_t y = 0; y < sums.size(); ++y)
                  loaded[y].push_back(load_state(
                      b_, parts.buffers[y],
                      (place_ * parts_ + number) * parts.box.elements() + offset, lanes, mask));
              }
              for (std::size_t y = 0; y < sums.size(); ++y)
                sums[y].write(all.accumulators[y].merge_all(sums[y].read(), loaded[y], masks));
            });
    std::vector<State> states;
    for (const StateVariables& s : sums)
      states.push_back(s.read());
    combine_threads(all, in, states);
    write_sums(all, in.point, states);
  });
  each_sum(all, h, true, [&](const Here& in) { complete(all, in, read_sums(all, in.point)); });
}

} // namespace egret::kernel::loops
