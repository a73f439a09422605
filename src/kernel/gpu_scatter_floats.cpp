// Scatters of floats by atomic operations on integers that stand for them, so that the order in
// which updates are combined does not change the result.
#include "kernel/gpu_scatter.h"
#include "kernel/gpu_scatter_fixed.h"

namespace egret::kernel {

namespace {

// --- Sums in fixed point

class FixedPoint : FixedPointScatter {
public:
  FixedPoint(const Region& region, const ScatterForm& form, int threads, int together)
      : FixedPointScatter(region, form, threads, together) {}

  KernelProgram run() {
    if (empty())
      return finish();
    peaks_ = b_.workspace("peaks", DType::I32, elements());
    sums_ = b_.workspace("sums", DType::I64, elements());
    points(elements(), [&](const Expr& at) {
      b_.store(peaks_, at, number(DType::I32, 0));
      b_.store(sums_, at, number(DType::I64, 0));
    });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      for (const auto& [u, value] : with_values(updates))
        b_.atomic_combine(Monoid::Max, peaks_, element_number(*u), exponent(value), u->mask);
    });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      const auto values = with_values(updates);
      std::vector<ValueId> fixed;
      for (const auto& [u, value] : values)
        fixed.push_back(to_fixed(value, b_.load(peaks_, element_number(*u), 1, u->mask)));
      for (std::size_t i = 0; i < values.size(); ++i)
        b_.atomic_combine(Monoid::Sum, sums_, element_number(updates[i]), fixed[i],
                          updates[i].mask);
    });
    barrier();
    all_elements([&](const Expr& at, const Expr& bin, const Point& p) {
      const ValueId peak = b_.load(peaks_, at, 1);
      combine_with_output(element_of(r_, f_, p, bin), is_updated(peak), {},
                          [&] { return from_fixed(b_.load(sums_, at, 1), peak); });
    });
    return finish();
  }

private:
  std::vector<std::pair<const Update*, ValueId>> with_values(const std::vector<Update>& updates) {
    std::vector<std::pair<const Update*, ValueId>> out;
    for (const Update& u : updates)
      out.emplace_back(&u, update_of(e_, f_, u.point));
    return out;
  }
};

// --- Maxima

/// Floats as integers in the same order, every NaN above all numbers.
class Maxima : UnorderedScatter {
public:
  Maxima(const Region& region, const ScatterForm& form, int threads, int together)
      : UnorderedScatter(region, form, threads, together),
        image_(form.state == DType::F64 ? DType::I64 : DType::I32) {}

  KernelProgram run() {
    if (empty())
      return finish();
    const ValueId none = b_.constant(identity_of(Monoid::Max, image_)); // the image of no float
    images_ = b_.workspace("images", image_, elements());
    points(elements(), [&](const Expr& at) { b_.store(images_, at, none); });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      std::vector<ValueId> values;
      for (const Update& u : updates)
        values.push_back(image(update_of(e_, f_, u.point)));
      for (std::size_t i = 0; i < updates.size(); ++i)
        b_.atomic_combine(Monoid::Max, images_, element_number(updates[i]), values[i],
                          updates[i].mask);
    });
    barrier();
    all_elements([&](const Expr& at, const Expr& bin, const Point& p) {
      const ValueId found = b_.load(images_, at, 1);
      combine_with_output(element_of(r_, f_, p, bin), {holds(equal(found, none), false)}, {},
                          [&] { return b_.apply(Op::Bitcast, f_.state, {turned(found)}); });
    });
    return finish();
  }

private:
  /// Of negative floats, those of greater magnitude are greater as integers: all bits but the sign
  /// are turned.
  ValueId turned(ValueId bits) {
    const std::int64_t magnitude = image_ == DType::I64 ? INT64_MAX : INT32_MAX;
    return select(less(bits, number(image_, 0)), apply(Op::Xor, bits, number(image_, magnitude)),
                  bits);
  }

  ValueId image(ValueId value) {
    const std::int64_t most = image_ == DType::I64 ? INT64_MAX : INT32_MAX;
    const ValueId bits = b_.apply(Op::Bitcast, image_, {value});
    return select(equal(value, value), turned(bits), number(image_, most));
  }

  DType image_;
  int images_ = -1;
};

} // namespace

std::string refused_integers(const ScatterForm& form, const Target& target) {
  if (!target.has(Capability::Atomics))
    return "the target has no atomic operations";
  if (form.monoid == Monoid::Max)
    return form.state == DType::F32 || form.state == DType::F64 ? "" : "it is no maximum of floats";
  if (form.monoid != Monoid::Sum || form.state != DType::F32)
    return "it is no sum of f32";
  return form.update_count.upper() >= std::int64_t(1) << 30 ? "more updates than can be added" : "";
}

KernelProgram scatter_by_integers(const Region& region, const ScatterForm& form, int threads,
                                  int together) {
  return form.monoid == Monoid::Max ? Maxima(region, form, threads, together).run()
                                    : FixedPoint(region, form, threads, together).run();
}

} // namespace egret::kernel
