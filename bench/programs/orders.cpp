// Sorting, selection and what rests on order.
#include "programs.h"

namespace egret::programs {

namespace {

Tensor overlaps(const Tensor& boxes) { // [n, 4] as x, y, width, height
  const Tensor low = boxes.narrow(1, 0, 2), high = low + abs(boxes.narrow(1, 2, 2));
  const Tensor area = (high - low).prod(1);
  const Tensor left = maximum(low.unsqueeze(1), low.unsqueeze(0));
  const Tensor right = minimum(high.unsqueeze(1), high.unsqueeze(0));
  const Tensor shared = relu(right - left).prod(2);
  return shared / (area.unsqueeze(1) + area.unsqueeze(0) - shared);
}

void add_sorts(Programs& p) {
  p.add("order/sort_rows", {data({p.size(1024, 5), p.size(1024, 33)})},
        [](const Tensors& t) -> Tensors { return {sort(t[0]).values}; });
  p.add("order/argsort_rows", {data({p.size(512, 5), p.size(1000, 37)})},
        [](const Tensors& t) -> Tensors { return {argsort(t[0], -1, true)}; });
  p.add("order/sort_columns", {data({p.size(1500, 23), p.size(257, 7)})},
        [](const Tensors& t) -> Tensors { return {sort(t[0], 0).values}; });
  p.add("order/sort_by_key",
        {data({p.size(512, 4), p.size(777, 19)}), data({p.size(512, 4), p.size(777, 19)})},
        [](const Tensors& t) -> Tensors { return {take_along_dim(t[1], argsort(t[0], 1), 1)}; });
  p.add("order/ranks", {data({p.size(256, 3), p.size(1024, 29)})},
        [](const Tensors& t) -> Tensors { return {argsort(argsort(t[0], 1), 1)}; });
  p.add("order/unique_counts", {whole({p.size(131072, 100)}, p.size(5000, 20))},
        [=](const Tensors& t) -> Tensors {
          const Tensor line = sort(t[0], 0).values;
          const std::int64_t n = line.size(0);
          const Tensor fresh =
              (line.narrow(0, 1, n - 1) != line.narrow(0, 0, n - 1)).to(DType::I64);
          const Tensor group = cat({zeros({1}, DType::I64), cumsum(fresh, 0)});
          return {group, bincount(group, p.size(5000, 20)), group.max() + 1};
        });
  p.add("order/top_p", {data({p.size(16, 3), p.size(32000, 50)}, DType::F32, 8)},
        [](const Tensors& t) -> Tensors {
          const Sorted sorted = sort(t[0], -1, true);
          const Tensor chances = softmax(sorted.values);
          const Tensor before = cumsum(chances, -1) - chances;
          const Tensor kept = where(before < 0.9, chances, 0.0);
          return {kept / kept.sum(-1, true), (before < 0.9).sum(-1)};
        });
}

void add_selections(Programs& p) {
  p.add("order/topk", {data({p.size(128, 4), p.size(16384, 60)})},
        [=](const Tensors& t) -> Tensors { return {topk(t[0], p.size(50, 5)).values}; });
  p.add("order/topk_mask", {data({p.size(1024, 6), p.size(1024, 40)})},
        [=](const Tensors& t) -> Tensors {
          const Tensor least = topk(abs(t[0]), p.size(32, 4)).values.narrow(1, p.size(31, 3), 1);
          return {where(abs(t[0]) >= least, t[0], 0.0)};
        });
  p.train("order/topk_train", {data({p.size(1024, 6), p.size(512, 40)})},
          [](const Tensors& t) { return with_gradients(topk(t[0], 8).values.square().sum(), t); });
  p.add("order/median", {data({p.size(2048, 5), p.size(301, 21)})},
        [](const Tensors& t) -> Tensors {
          const Tensor middle = median(t[0], 1, true).values;
          return {(t[0] - middle) / (median(abs(t[0] - middle), 1, true).values + 1e-3)};
        });
  p.add("order/median_of_windows", {data({p.size(64, 3), p.size(4000, 40)})},
        [](const Tensors& t) -> Tensors { return {median(unfold(t[0], 1, 7, 1), -1).values}; });
  p.add("order/kthvalue", {data({p.size(1000, 5), p.size(999, 30)})},
        [=](const Tensors& t) -> Tensors { return {kthvalue(t[0], p.size(250, 7), 1).values}; });
  p.add("order/mode", {whole({p.size(256, 5), p.size(257, 23)}, 40)},
        [](const Tensors& t) -> Tensors { return {mode(t[0], 1).values}; });
  p.add("order/quantile_clip", {data({p.size(1024, 40), p.size(256, 6)})},
        [](const Tensors& t) -> Tensors {
          return {clamp(t[0], quantile(t[0], 0.1, 0, true), quantile(t[0], 0.9, 0, true))};
        });
  p.add("order/median_filter", {data({p.size(4, 1), p.size(192, 15), p.size(256, 17)})},
        [](const Tensors& t) -> Tensors {
          const std::int64_t h = t[0].size(1), w = t[0].size(2);
          const Tensor padded = pad(t[0], {0, 1, 1}, {0, 1, 1}, PadMode::Replicate);
          Tensors around;
          for (int i = 0; i < 9; ++i)
            around.push_back(padded.narrow(1, i / 3, h).narrow(2, i % 3, w));
          return {median(stack(around, -1), -1).values};
        });
  p.add("order/searchsorted",
        {data({p.size(4096, 33)}), data({p.size(500000, 200)}, DType::F32, 1.1)},
        [](const Tensors& t) -> Tensors { return {searchsorted(sort(t[0], 0).values, t[1])}; });
  p.add("order/nearest_argmin", {data({p.size(64, 3), p.size(300, 11), p.size(200, 13)})},
        [](const Tensors& t) -> Tensors {
          return {argmax(t[0], 1), argmin(t[0], 2), t[0].max({0, 2})};
        });
  p.add("order/nms_mask", {data({p.size(1000, 20), 4}), data({p.size(1000, 20)})},
        [](const Tensors& t) -> Tensors {
          const Tensor better = t[1].unsqueeze(0) > t[1].unsqueeze(1);
          const Tensor dropped = (better & (overlaps(t[0]) > 0.5)).any(1);
          return {where(dropped, 0.0, t[1]), dropped.sum()};
        });
}

} // namespace

void add_orders(Programs& p) {
  add_sorts(p);
  add_selections(p);
}

} // namespace egret::programs
