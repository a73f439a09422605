// Copies near on a GPU: in shared memory, filled by all threads of a block. Where a loop over terms
// copies what each of its iterations wants, the next iterations' copies are under way meanwhile.
#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"
#include "kernel/loops/gpu_writer.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace egret::kernel::loops {

namespace {

/// Bytes of the widest access; iterations that have copies at a time at the most, and bytes of
/// those where they are more than two.
constexpr int kWide = 16;
constexpr std::int64_t kStages = 4, kStagesBytes = 112 << 10;
/// Loads of a thread that are made together to fill a copy.
constexpr std::int64_t kTogether = 16;
/// Banks of shared memory and the bytes that each gives at a time.
constexpr std::int64_t kBanks = 32, kBankBytes = 4;

const Load& load_of(const Region& region, int stage, int value) {
  const Stage& s = region.stages[std::size_t(stage)];
  return s.loads[std::size_t(s.body[std::size_t(value)].load)];
}

} // namespace

std::int64_t GpuWriter::bank_conflicts(const NearCopy& copy) const {
  const auto size = std::int64_t(size_of(r_.operands[std::size_t(copy.operand)].dtype));
  std::map<std::int64_t, std::set<std::int64_t>> words; // by bank
  for (std::int64_t thread = 0; thread < target_.subgroup; ++thread) {
    std::int64_t element = 0, wide = 1;
    for (std::size_t i = 0; i < copy.loops.size(); ++i) {
      const Tree& l = *copy.loops[i];
      const std::int64_t stride = copy.strides[i].constant().value_or(0);
      if (l.bind == Bind::Vector && stride == 1)
        wide = l.extent.value();
      if (l.bind == Bind::Lane || l.bind == Bind::Warp)
        element += thread / threads_inside(l) % l.extent.value() * stride;
    }
    for (std::int64_t w = element * size / kBankBytes; w * kBankBytes < (element + wide) * size;
         ++w)
      words[w % kBanks].insert(w);
  }
  std::size_t most = 0;
  for (const auto& [bank, asked] : words)
    most = std::max(most, asked.size());
  return std::int64_t(most);
}

void GpuWriter::lay_out(NearCopy& copy, int across, std::int64_t pad) const {
  const auto size = std::int64_t(size_of(r_.operands[std::size_t(copy.operand)].dtype));
  copy.strides.assign(copy.loops.size(), Expr(1));
  copy.elements = Expr(1);
  for (std::size_t i = copy.loops.size(); i-- > 0;) {
    const bool row = across >= 0 && copy.loops[i]->axis != across && i + 1 < copy.loops.size() &&
                     copy.loops[i + 1]->axis == across;
    const auto n = copy.elements.constant();
    if (row && n && *n * size % kWide == 0)
      copy.elements = copy.elements + Expr(pad);
    copy.strides[i] = copy.elements;
    copy.elements = copy.elements * copy.loops[i]->extent;
  }
}

/// What lies side by side in memory is side by side in the copy. Rows are apart by some bytes more
/// than they have, so that a warp finds neighbouring rows in different banks: by as many as keep
/// wide accesses aligned, if fewer do not make a warp's reads faster.
void GpuWriter::arrange(NearCopy& copy) const {
  const Stage& stage = r_.stages[std::size_t(copy.stage)];
  const Load& load = load_of(r_, copy.stage, copy.value);
  int across = -1;
  for (int a : copy.axes)
    if (stride_of(r_, stage, load, a) == 1)
      across = a;
  if (across >= 0)
    std::stable_sort(copy.loops.begin(), copy.loops.end(), [&](const Tree* x, const Tree* y) {
      if ((x->axis == across) != (y->axis == across))
        return y->axis == across;
      return x->axis == y->axis ? x->step > y->step : x->axis < y->axis;
    });
  const auto size = std::int64_t(size_of(r_.operands[std::size_t(copy.operand)].dtype));
  lay_out(copy, across, kWide / size);
  const bool of_unit = std::any_of(copy.loops.begin(), copy.loops.end(),
                                   [](const Tree* l) { return l->bind == Bind::Matrix; });
  if (of_unit || across < 0)
    return;
  NearCopy best = copy;
  std::int64_t fewest = bank_conflicts(copy);
  for (std::int64_t bytes = kWide / 2; bytes >= kBankBytes && bytes >= size; bytes /= 2) {
    lay_out(copy, across, bytes / size);
    if (const std::int64_t n = bank_conflicts(copy); n < fewest) {
      fewest = n;
      best = copy;
    }
  }
  copy = std::move(best);
}

int GpuWriter::width_of_copy(const NearCopy& copy, bool whole) const {
  if (copy.loops.empty())
    return 1;
  const Tree& last = *copy.loops.back();
  const Stage& stage = r_.stages[std::size_t(copy.stage)];
  const Load& load = load_of(r_, copy.stage, copy.value);
  const auto n = last.extent.constant();
  if (!n || last.step != 1 || stride_of(r_, stage, load, last.axis) != 1)
    return 1;
  Expr variable(0);
  const Expr& extent = r_.axes[std::size_t(last.axis)].extent;
  for (std::size_t i = 0; i < stage.axes.size(); ++i)
    if (stage.axes[i] == last.axis)
      variable = Expr::axis(int(i), extent);
  const Expr others = offset_of(r_, load) - variable;
  const Operand& operand = r_.operands[std::size_t(copy.operand)];
  const int size = int(size_of(operand.dtype));
  const auto divides = [](const Expr& e, int by) { return e.divisor() % by == 0; };
  int width = std::max(1, kWide / size);
  while (width > 1 && (*n % width != 0 || !divides(others, width) || !divides(extent, width) ||
                       operand.alignment % (width * size) != 0 ||
                       (whole && std::any_of(copy.strides.begin(), std::prev(copy.strides.end()),
                                             [&](const Expr& s) { return !divides(s, width); }))))
    width /= 2;
  return width;
}

int GpuWriter::width_of_async_copy(const NearCopy& copy) const {
  const Operand& operand = r_.operands[std::size_t(copy.operand)];
  if (!target_.has(Capability::AsyncCopies) || !load_of(r_, copy.stage, copy.value).map.is_total())
    return 0;
  const int width = width_of_copy(copy, true);
  return width * int(size_of(operand.dtype)) >= 4 ? width : 0;
}

void GpuWriter::fill_by_threads(const NearCopy& copy, const Here& h, int width, bool async) {
  std::vector<Expr> extents;
  Expr count(1);
  for (std::size_t i = 0; i < copy.loops.size(); ++i) {
    const bool last = i + 1 == copy.loops.size();
    extents.push_back(last && width > 1 ? Expr(copy.loops[i]->extent.value() / width)
                                        : copy.loops[i]->extent);
    count = count * extents.back();
  }
  const Stage& stage = r_.stages[std::size_t(copy.stage)];
  const Load& load = load_of(r_, copy.stage, copy.value);
  const Expr turns = ceildiv(count, Expr(threads_));
  b_.loop(Expr(0), turns, Expr(1), turns, Bind::Serial, [&](const Expr& turn) {
    const Expr flat = turn * Expr(threads_) + thread_;
    b_.when({{flat, Expr(0), count}}, [&] {
      std::vector<Expr> at = unflatten(flat, extents);
      Here in = h;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const bool wide = width > 1 && i + 1 == at.size();
        in = enter(in, *copy.loops[i],
                   !wide   ? at[i]
                   : async ? at[i] * Expr(width)
                           : at[i] * Expr(width) + lane_variable(width));
      }
      if (!async) {
        if (width > 1)
          in.point.lanes = width;
        fill_near(copy, copy.loops.size(), in);
        return;
      }
      std::vector<Guard> exists;
      for (int a : copy.axes)
        if (may_leave(copy.body, a, h))
          exists.push_back({in.point.at[std::size_t(a)], Expr(0), r_.axes[std::size_t(a)].extent});
      const auto element = element_at(r_, stage, load, in.point);
      ensure(element.has_value(), "region {}: a copy of what is data", r_.name);
      b_.copy_async(copy.buffer, copy.offset(in.digits), e_.operand_buffer(copy.operand), *element,
                    width, std::move(exists));
    });
  });
}

bool GpuWriter::fill_in_groups(const NearCopy& copy, const Here& h, int width) {
  std::vector<Expr> extents;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < copy.loops.size(); ++i) {
    const auto n = copy.loops[i]->extent.constant();
    if (!n)
      return false;
    extents.emplace_back(i + 1 == copy.loops.size() ? *n / width : *n);
    count *= extents.back().value();
  }
  if (count == 0)
    return false;
  const std::int64_t turns = (count + threads_ - 1) / threads_;
  const std::int64_t most = std::max<std::int64_t>(1, kTogether / width);
  const std::int64_t groups = (turns + most - 1) / most, each = (turns + groups - 1) / groups;
  if (groups == 1)
    fill_group(copy, h, width, extents, Expr(0), each, count);
  else
    b_.loop(Expr(0), Expr(groups), Expr(1), Expr(groups), Bind::Serial, [&](const Expr& group) {
      fill_group(copy, h, width, extents, group * Expr(each), each, count);
    });
  return true;
}

void GpuWriter::fill_group(const NearCopy& copy, const Here& h, int width,
                           const std::vector<Expr>& extents, const Expr& first, std::int64_t turns,
                           std::int64_t count) {
  struct Item {
    Expr offset;
    ValueId value;
    std::vector<Guard> mask;
    int lanes;
  };
  std::vector<Item> items;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const Expr number = first + Expr(turn), flat = number * Expr(threads_) + thread_;
    const std::vector<Expr> at = unflatten(flat, extents);
    Here in = h;
    for (std::size_t i = 0; i < at.size(); ++i)
      in = enter(in, *copy.loops[i],
                 width > 1 && i + 1 == at.size() ? at[i] * Expr(width) + lane_variable(width)
                                                 : at[i]);
    if (width > 1)
      in.point.lanes = width;
    std::vector<Guard> exists;
    if (!proves_less_equal((number + Expr(1)) * Expr(threads_), Expr(count)))
      exists.push_back({flat, Expr(0), Expr(count)});
    Point p = in.point;
    p.mask.insert(p.mask.end(), exists.begin(), exists.end());
    for (int a : copy.axes)
      if (h.clip[std::size_t(a)] && overreaches_[std::size_t(copy.body)][std::size_t(a)])
        p.mask.push_back({p.at[std::size_t(a)], Expr(0), r_.axes[std::size_t(a)].extent});
    const ValueId v = e_.narrow(e_.value(copy.stage, copy.value, p));
    items.push_back({copy.offset(in.digits), v, std::move(exists), p.lanes});
  }
  for (const Item& item : items)
    b_.store(copy.buffer, item.offset,
             depends_on_lane(item.offset) ? b_.splat(item.value, item.lanes) : item.value,
             item.mask);
}

void GpuWriter::fill(const NearCopy& copy, const Here& h) {
  if (h.shared)
    throw Cannot("a copy for all blocks");
  meet_block(h); // the last one has been read
  const int width = h.point.lanes > 1 ? 1 : width_of_copy(copy, false);
  if (!fill_in_groups(copy, h, width))
    fill_by_threads(copy, h, width, false);
  meet_block(h);
}

std::vector<Writer::NearCopy> GpuWriter::copies_ahead(const Tree& t, const Here& h) {
  std::vector<NearCopy> copies;
  if (t.rest->kind != Kind::Near || h.shared || h.width != threads_ || h.diverged ||
      h.point.lanes > 1 || t.extent == Expr(1))
    return copies;
  const Here in = enter(h, t, Expr(0));
  for (const Tree* n = t.rest.get(); n->kind == Kind::Near; n = n->rest.get()) {
    NearCopy copy = plan_near(*n, in);
    if (copy.body < 0 || !contains(copy.axes, t.axis) || !copy.elements.constant() ||
        *copy.elements.constant() > kStagesBytes || width_of_async_copy(copy) == 0)
      return {};
    copies.push_back(std::move(copy));
  }
  return copies;
}

void GpuWriter::serial_loop(const Tree& t, const Here& h) {
  if (std::vector<NearCopy> copies = copies_ahead(t, h); !copies.empty())
    copy_ahead(t, std::move(copies), h);
  else
    Writer::serial_loop(t, h);
}

void GpuWriter::copy_ahead(const Tree& t, std::vector<NearCopy> copies, const Here& h) {
  std::int64_t bytes = 0;
  for (const NearCopy& copy : copies)
    bytes +=
        copy.elements.value() * std::int64_t(size_of(r_.operands[std::size_t(copy.operand)].dtype));
  const std::int64_t stages = std::clamp<std::int64_t>(kStagesBytes / bytes, 2, kStages);
  const Tree* inside = t.rest.get();
  for (NearCopy& copy : copies) {
    auto [held, fresh] = near_buffers_.try_emplace(inside, -1);
    if (fresh)
      held->second =
          memory(fmt::format("near{}_{}", copy.operand, near_buffers_.size()),
                 r_.operands[std::size_t(copy.operand)].dtype, copy.elements * Expr(stages), h);
    copy.buffer = held->second;
    inside = inside->rest.get();
  }
  const auto a = std::size_t(t.axis);
  const bool clip = clips(t, h);
  const Expr count =
      clip ? min(t.extent, ceildiv(r_.axes[a].extent - h.point.at[a], Expr(t.step))) : t.extent;
  const auto place = [&](NearCopy& copy, const Expr& i) {
    copy.base = floormod(i, Expr(stages)) * copy.elements;
  };
  const auto start = [&](const Expr& i) {
    std::vector<Guard> wanted = any_points(copies[0].body);
    wanted.push_back({i, Expr(0), count});
    b_.when(wanted, [&] {
      Here in = enter(h, t, i);
      in.clip[a] = clip;
      for (NearCopy& copy : copies) {
        place(copy, i);
        fill_by_threads(copy, in, width_of_async_copy(copy), true);
      }
    });
    b_.commit_copies();
  };
  meet_block(h); // what was there has been read
  for (std::int64_t i = 0; i + 1 < stages; ++i)
    start(Expr(i));
  b_.loop(Expr(0), count, Expr(1), t.extent, Bind::Serial, [&](const Expr& i) {
    b_.wait_copies(int(stages) - 2);
    meet_block(h);
    start(i + Expr(stages - 1));
    Here in = enter(h, t, i);
    in.clip[a] = clip && !loops_inside(*t.rest, t.axis).empty();
    for (NearCopy& copy : copies) {
      place(copy, i);
      near_.push_back(&copy);
    }
    emit(*inside, in);
    near_.resize(near_.size() - copies.size());
  });
}

} // namespace egret::kernel::loops
