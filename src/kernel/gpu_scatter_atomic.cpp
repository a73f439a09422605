// Scatters by atomic operations on the values themselves: where the order in which updates are
// combined does not change the result.
#include "kernel/gpu_scatter.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace egret::kernel {

UnorderedScatter::UnorderedScatter(const Region& region, const ScatterForm& form, int threads,
                                   int together)
    : GpuScatter(region, form, threads), together_(std::max(1, together / int(places()))),
      axes_(result_axes(region.stages[std::size_t(form.stage)])) {
  std::erase(axes_, form.choice);
  for (const int a : axes_)
    extents_.push_back(region.axes[std::size_t(a)].extent);
}

std::int64_t UnorderedScatter::places() const {
  return f_.choice < 0 ? 1 : r_.axes[std::size_t(f_.choice)].extent.value();
}

Expr UnorderedScatter::number_along(const std::vector<int>& axes, const Point& p) const {
  Expr number(0);
  for (const int a : axes)
    number = number * r_.axes[std::size_t(a)].extent + p.at[std::size_t(a)];
  return number;
}

void UnorderedScatter::append_updates(std::vector<Update>& to, const Expr& flat,
                                      const std::vector<Guard>& mask) {
  Point point;
  point.at.resize(r_.axes.size());
  const std::vector<Expr> at = unflatten(flat, extents_);
  for (std::size_t i = 0; i < axes_.size(); ++i)
    point.at[std::size_t(axes_[i])] = at[i];
  point.mask = mask;
  for (std::int64_t place = 0; place < places(); ++place) {
    if (f_.choice >= 0)
      point.at[std::size_t(f_.choice)] = Expr(place);
    const Expr bin = bin_of(e_, f_, point);
    to.push_back({point, bin, number_along(f_.columns, point), mask});
    to.back().mask.push_back({bin, Expr(0), f_.bins});
  }
}

void UnorderedScatter::several(const Expr& first, const Expr& end, bool masked,
                               const std::function<void(const std::vector<Update>&)>& body) {
  std::vector<Update> updates;
  for (int i = 0; i < together_; ++i) {
    const Expr flat = first + Expr(std::int64_t(i) * threads_) + thread_;
    std::vector<Guard> mask;
    if (masked)
      mask.push_back({flat, Expr(0), end});
    append_updates(updates, flat, mask);
  }
  body(updates);
}

void UnorderedScatter::all_updates(const std::function<void(const std::vector<Update>&)>& body) {
  const Expr count = update_points(), each(std::int64_t(threads_) * together_);
  const Expr blocks = ceildiv(count, each);
  blocks_ = max(blocks_, blocks);
  b_.grid_loop(blocks, [&](const Expr& block) { several(block * each, count, true, body); });
}

void UnorderedScatter::all_elements(
    const std::function<void(const Expr&, const Expr&, const Point&)>& body) {
  points(elements(), [&](const Expr& element) {
    body(element, floordiv(element, columns()),
         point_of_update(r_, f_, Expr(0), floormod(element, columns())));
  });
}

namespace {

/// What all updates bring in magnitude, where that is one integer.
std::optional<double> constant_update(const Region& region, const ScatterForm& form) {
  const Stage& stage = region.stages[std::size_t(form.stage)];
  const BodyValue& v =
      stage.body[std::size_t(stage.yields[std::size_t(region.outputs[0].component)])];
  if (v.kind != BodyValue::Kind::Constant || !is_integer(v.constant.dtype))
    return std::nullopt;
  return std::abs(v.constant.as_double());
}

/// In which a block counts: 32 bits where they cannot overflow.
DType table_dtype(const ScatterForm& form, const Region& region) {
  const auto each = constant_update(region, form);
  const bool fits = each && form.monoid == Monoid::Sum && size_of(form.state) == 8 &&
                    *each * double(form.update_count.upper()) <= INT32_MAX;
  return fits ? DType::I32 : form.state;
}

// --- Tables of a block

class Tables : UnorderedScatter {
public:
  Tables(const Region& region, const ScatterForm& form, const TableShape& shape)
      : UnorderedScatter(region, form, shape.threads, shape.together), s_(shape),
        dtype_(table_dtype(form, region)), size_(elements().value()) {}

  KernelProgram run() {
    if (empty() || size_ == 0)
      return finish();
    table_ = b_.shared("table", dtype_, size_ * s_.copies);
    none_ = dtype_ == f_.state ? identity() : number(dtype_, 0);
    blocks_ = Expr(s_.groups);
    b_.grid_loop(Expr(s_.groups), [&](const Expr& group) {
      each_of_block(size_ * s_.copies, [&](const Expr& at, const std::vector<Guard>& mask) {
        b_.store(table_, at, none_, mask);
      });
      b_.barrier();
      add(group);
      b_.barrier();
      each_of_block(size_,
                    [&](const Expr& at, const std::vector<Guard>& mask) { deliver(at, mask); });
      b_.barrier();
    });
    return finish();
  }

private:
  void add(const Expr& group) {
    const Expr count = update_points(), step(std::int64_t(threads_) * together_);
    const Expr size = ceildiv(count, Expr(s_.groups) * step) * step;
    const Expr begin = min(count, group * size), end = min(count, begin + size);
    const Expr whole = begin + floordiv(end - begin, step) * step;
    const auto combine = [&](const std::vector<Update>& updates) {
      std::vector<ValueId> values;
      for (const Update& u : updates)
        values.push_back(b_.cast(update_of(e_, f_, u.point), dtype_));
      for (std::size_t i = 0; i < updates.size(); ++i) {
        const Expr at = element_number(updates[i]) * Expr(s_.copies);
        b_.atomic_combine(*f_.monoid, table_, at + floormod(thread_, Expr(s_.copies)), values[i],
                          updates[i].mask);
      }
    };
    b_.loop(begin, whole, step, count, Bind::Serial,
            [&](const Expr& base) { several(base, end, false, combine); });
    b_.when({{whole, Expr(0), end}}, [&] { several(whole, end, true, combine); });
  }

  void deliver(const Expr& element, const std::vector<Guard>& mask) {
    ValueId all = -1;
    for (int c = 0; c < s_.copies; ++c) { // threads beside each other meet in no bank
      const Expr copy = floormod(thread_ + Expr(c), Expr(s_.copies));
      const ValueId one = b_.load(table_, element * Expr(s_.copies) + copy, 1, mask);
      all = c == 0 ? one : b_.apply(op_of(*f_.monoid), dtype_, {all, one});
    }
    std::vector<Guard> any = mask;
    any.push_back(holds(equal(all, none_), false));
    const Point p = point_of_update(r_, f_, Expr(0), floormod(element, columns()));
    b_.atomic_combine(*f_.monoid, e_.output_buffer(0),
                      element_of(r_, f_, p, floordiv(element, columns())), b_.cast(all, f_.state),
                      any);
  }

  TableShape s_;
  DType dtype_;
  std::int64_t size_; ///< elements of a copy
  int table_ = -1;
  ValueId none_ = -1;
};

// --- The output itself

class Direct : UnorderedScatter {
public:
  Direct(const Region& region, const ScatterForm& form, int threads, int together)
      : UnorderedScatter(region, form, threads, together) {}

  KernelProgram run() {
    if (empty())
      return finish();
    all_updates([&](const std::vector<Update>& updates) {
      std::vector<ValueId> values;
      for (const Update& u : updates)
        values.push_back(update_of(e_, f_, u.point));
      for (std::size_t i = 0; i < updates.size(); ++i)
        b_.atomic_combine(*f_.monoid, e_.output_buffer(0),
                          element_of(r_, f_, updates[i].point, updates[i].bin), values[i],
                          updates[i].mask);
    });
    return finish();
  }
};

// --- The last update

class LastUpdates : UnorderedScatter {
public:
  LastUpdates(const Region& region, const ScatterForm& form, int threads, int together)
      : UnorderedScatter(region, form, threads, together),
        dtype_(form.update_count.upper() < INT32_MAX ? DType::I32 : DType::I64) {}

  KernelProgram run() {
    if (empty())
      return finish();
    const bool one = f_.index_by_update; // place for all columns
    const Expr places = one ? f_.bins : elements();
    const auto place = [&](const Update& u) { return one ? u.bin : element_number(u); };
    const auto number_of = [&](const Update& u) {
      return b_.index(number_along(f_.updates, u.point), dtype_, 1);
    };
    last_ = b_.workspace("last", dtype_, places);
    points(places, [&](const Expr& at) { b_.store(last_, at, number(dtype_, -1)); });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      for (const Update& u : updates) {
        std::vector<Guard> mask = u.mask;
        if (one) // those of the other columns are the same
          mask.push_back({u.column, Expr(0), Expr(1)});
        b_.atomic_combine(Monoid::Max, last_, place(u), number_of(u), mask);
      }
    });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      std::vector<std::vector<Guard>> masks;
      std::vector<ValueId> values;
      for (const Update& u : updates) {
        masks.push_back(u.mask);
        masks.back().push_back(holds(equal(b_.load(last_, place(u), 1, u.mask), number_of(u))));
      }
      for (std::size_t i = 0; i < updates.size(); ++i) {
        Point p = updates[i].point;
        p.mask = masks[i];
        values.push_back(update_of(e_, f_, p));
      }
      for (std::size_t i = 0; i < updates.size(); ++i)
        update_output(e_, f_, element_of(r_, f_, updates[i].point, updates[i].bin), values[i],
                      masks[i]);
    });
    return finish();
  }

private:
  DType dtype_; ///< of an update's number
  int last_ = -1;
};

} // namespace

// --- What they take

std::string refused_atomics(const ScatterForm& form, const Region& region, const Target& target) {
  if (!target.has(Capability::Atomics))
    return "the target has no atomic operations";
  const std::size_t size = size_of(form.state);
  if (!form.monoid || !is_integer(form.state) || (size != 4 && size != 8) ||
      region.outputs[0].dtype != form.state)
    return "the order of updates is of consequence";
  return {};
}

std::int64_t table_bytes(const ScatterForm& form, const Region& region) {
  const auto bins = form.bins.constant(), columns = form.column_count.constant();
  constexpr std::int64_t kMost = 1 << 20;
  if (!bins || !columns || *bins > kMost || *columns > kMost)
    return 0;
  return *bins * *columns * std::int64_t(size_of(table_dtype(form, region)));
}

std::string refused_tables(const ScatterForm& form, const Region& region, const TableShape& shape,
                           const Target& target) {
  if (auto why = refused_atomics(form, region, target); !why.empty())
    return why;
  const std::int64_t bytes = table_bytes(form, region);
  if (bytes == 0)
    return "it is not known how many elements there are";
  if (!std::has_single_bit(unsigned(shape.copies)))
    return "copies that are no power of two";
  return bytes * shape.copies > target.block_shared_bytes - 4096 ? "more than a block can have"
                                                                 : "";
}

std::string refused_last(const ScatterForm& form, const Target& target) {
  if (form.monoid)
    return "updates are combined";
  return target.has(Capability::Atomics) ? "" : "the target has no atomic operations";
}

KernelProgram scatter_by_tables(const Region& region, const ScatterForm& form,
                                const TableShape& shape) {
  return Tables(region, form, shape).run();
}

KernelProgram scatter_by_atomics(const Region& region, const ScatterForm& form, int threads,
                                 int together) {
  return Direct(region, form, threads, together).run();
}

KernelProgram scatter_last(const Region& region, const ScatterForm& form, int threads,
                           int together) {
  return LastUpdates(region, form, threads, together).run();
}

} // namespace egret::kernel
