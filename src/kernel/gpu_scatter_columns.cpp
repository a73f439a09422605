// Scatters whose columns have indices of their own, by a thread for each column.
#include "kernel/gpu_scatter.h"

namespace egret::kernel {

namespace {

class ColumnScatter : GpuScatter {
public:
  ColumnScatter(const Region& region, const ScatterForm& form, int threads, int together)
      : GpuScatter(region, form, threads), together_(together) {}

  KernelProgram run() {
    if (empty())
      return finish();
    points(f_.column_count, [&](const Expr& column) {
      const Expr count = f_.update_count, step(together_);
      const Expr whole = floordiv(count, step) * step;
      b_.loop(Expr(0), whole, step, count, Bind::Serial,
              [&](const Expr& first) { several(first, together_, column); });
      b_.loop(whole, count, Expr(1), count, Bind::Serial,
              [&](const Expr& update) { several(update, 1, column); });
    });
    return finish();
  }

private:
  /// Indices and updates are fetched together; the elements follow one by one, since they may be
  /// the same.
  void several(const Expr& first, int count, const Expr& column) {
    struct Update {
      Point point;
      Expr bin;
      ValueId value;
    };
    std::vector<Update> updates;
    for (int i = 0; i < count; ++i) {
      const Point p = point_of_update(r_, f_, first + Expr(i), column);
      const Expr bin = bin_of(e_, f_, p);
      updates.push_back({p, bin, update_of(e_, f_, p)});
    }
    for (const Update& u : updates)
      update_output(e_, f_, element_of(r_, f_, u.point, u.bin), u.value,
                    {{u.bin, Expr(0), f_.bins}});
  }

  int together_;
};

} // namespace

std::string refused_columns(const ScatterForm& form, const Region& region) {
  return form.monoid == Monoid::Sum && region.outputs[0].dtype != form.state
             ? "sums that are rounded once"
             : "";
}

KernelProgram scatter_by_columns(const Region& region, const ScatterForm& form, int threads,
                                 int together) {
  return ColumnScatter(region, form, threads, together).run();
}

} // namespace egret::kernel
