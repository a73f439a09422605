// Scatters whose columns have a thread each, or several that own some of its elements: each of
// these goes through all updates in their order and makes those of its elements.
#include "kernel/gpu_scatter.h"

namespace egret::kernel {

namespace {

/// Indices that owners, for whom most updates are another's, fetch together.
constexpr int kIndicesTogether = 16;

class ColumnScatter : GpuScatter {
public:
  ColumnScatter(const Region& region, const ScatterForm& form, const ColumnShape& shape)
      : GpuScatter(region, form, shape.threads), shape_(shape), buffer_(e_.output_buffer(0)) {}

  KernelProgram run() {
    if (empty())
      return finish();
    const int output = buffer_;
    const bool low = f_.monoid == Monoid::Sum && b_.buffer_dtype(output) != f_.state;
    if (low) { // sums are rounded once
      buffer_ = b_.workspace("sums", f_.state, element_count(r_.outputs[0].shape));
      convert(output, buffer_);
      barrier();
    }
    const Expr each = floordiv(f_.column_count, Expr(shape_.columns));
    points(Expr(shape_.owners) * each, [&](const Expr& number) {
      owner_ = floordiv(number, each);
      updates(floormod(number, each));
    });
    if (low) {
      barrier();
      convert(buffer_, output);
    }
    return finish();
  }

private:
  void convert(int from, int to) {
    points(element_count(r_.outputs[0].shape), [&](const Expr& at) {
      b_.store(to, at, b_.cast(b_.load(from, at, 1), b_.buffer_dtype(to)));
    });
  }

  void updates(const Expr& column) {
    const int together = shape_.owners > 1 ? kIndicesTogether : shape_.together;
    const Expr count = f_.update_count, step(together);
    const Expr whole = floordiv(count, step) * step;
    b_.loop(Expr(0), whole, step, count, Bind::Serial,
            [&](const Expr& first) { several(first, together, column); });
    b_.loop(whole, count, Expr(1), count, Bind::Serial,
            [&](const Expr& update) { several(update, 1, column); });
  }

  /// Indices and updates are fetched together, by owners the indices; the elements follow one by
  /// one, since they may be the same.
  void several(const Expr& first, int count, const Expr& column) {
    struct Update {
      Point point;
      Expr bin;
      ValueId value = -1;
    };
    std::vector<Update> updates;
    for (int i = 0; i < count; ++i) {
      const Point p = point_of_update(r_, f_, first + Expr(i), column);
      updates.push_back({p, bin_of(e_, f_, p)});
      if (shape_.owners == 1)
        updates.back().value = update_of(e_, f_, p);
    }
    for (int i = 0; i < count; ++i) {
      const Update& u = updates[std::size_t(i)];
      if (shape_.owners == 1) {
        update(u.point, u.bin, u.value);
        continue;
      }
      b_.when({{floormod(u.bin, Expr(shape_.owners)), owner_, owner_ + Expr(1)}}, [&] {
        const Expr apart = floordiv(f_.column_count, Expr(shape_.columns));
        for (int c = 0; c < shape_.columns; ++c) {
          const Point p = point_of_update(r_, f_, first + Expr(i), column + Expr(c) * apart);
          update(p, u.bin, update_of(e_, f_, p));
        }
      });
    }
  }

  void update(const Point& p, const Expr& bin, ValueId value) {
    update_output(e_, f_, element_of(r_, f_, p, bin), value, {{bin, Expr(0), f_.bins}}, buffer_);
  }

  ColumnShape shape_;
  int buffer_; ///< that is updated
  Expr owner_;
};

} // namespace

std::string refused_columns(const ScatterForm& form, const ColumnShape& shape) {
  if (shape.columns == 1)
    return "";
  if (shape.owners == 1 || !form.index_by_update || form.whole)
    return "columns have indices of their own, or one owner";
  return form.column_count.divisor() % shape.columns != 0 ? "columns that do not divide" : "";
}

KernelProgram scatter_by_columns(const Region& region, const ScatterForm& form,
                                 const ColumnShape& shape) {
  return ColumnScatter(region, form, shape).run();
}

} // namespace egret::kernel
