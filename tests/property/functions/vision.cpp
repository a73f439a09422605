// Boxes and samples of images beside plain loops.
#include "functions.h"

#include <algorithm>

namespace egret::testing {

namespace {

// Boxes [n, 4] with their corners in order.
Array boxes(Draw& d, std::int64_t n) {
  Array a = d.distinct({n, 4}, 0, 3);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < 2; ++j)
      a[{i, j + 2}] += a[{i, j}] + 0.5;
  a.repeated.clear();
  return a;
}

struct Overlap {
  double both, join, around;
  double centres = 0, diagonal = 0, angle = 0; ///< squared, squared, of the sides' ratios
};
Overlap overlap(const Array& a, std::int64_t i, const Array& b, std::int64_t j) {
  Overlap o{1, 1, 1};
  double areas[2] = {1, 1};
  for (std::int64_t k = 0; k < 2; ++k) {
    const double al = a[{i, k}], ah = a[{i, k + 2}], bl = b[{j, k}], bh = b[{j, k + 2}];
    o.both *= std::max(std::min(ah, bh) - std::max(al, bl), 0.0);
    o.around *= std::max(ah, bh) - std::min(al, bl);
    areas[0] *= ah - al;
    areas[1] *= bh - bl;
  }
  o.join = areas[0] + areas[1] - o.both;
  for (std::int64_t k = 0; k < 2; ++k) {
    const double al = a[{i, k}], ah = a[{i, k + 2}], bl = b[{j, k}], bh = b[{j, k + 2}];
    o.centres += std::pow((al + ah - bl - bh) / 2, 2);
    o.diagonal += std::pow(std::max(ah, bh) - std::min(al, bl), 2);
  }
  const auto ratio = [](const Array& x, std::int64_t n) {
    return std::atan((x[{n, 2}] - x[{n, 0}]) / (x[{n, 3}] - x[{n, 1}]));
  };
  o.angle = ratio(a, i) - ratio(b, j);
  return o;
}

enum class Iou { Plain, Generalized, Distance, Complete };

Instance iou_of(Draw& d, Iou kind) {
  const std::int64_t n = d.below(4), m = d.between(1, 3);
  // No corner is beside another one: there are no derivatives there.
  Array others = boxes(d, m);
  for (double& x : others.values)
    x += 0.047;
  return one(
      {boxes(d, n), others},
      [=](const Tensors& t) {
        switch (kind) {
        case Iou::Plain:
          return box_iou(t[0], t[1]);
        case Iou::Generalized:
          return generalized_box_iou(t[0], t[1]);
        case Iou::Distance:
          return distance_box_iou(t[0], t[1]);
        default:
          return complete_box_iou(t[0], t[1]);
        }
      },
      [=](const Arrays& a) {
        return Array({n, m}, [&](const Sizes& at) {
          const Overlap o = overlap(a[0], at[0], a[1], at[1]);
          const double iou = o.both / o.join;
          if (kind == Iou::Plain)
            return iou;
          if (kind == Iou::Generalized)
            return iou - (o.around - o.join) / o.around;
          const double distance = iou - o.centres / (o.diagonal + 1e-7);
          const double v = o.angle * o.angle * 4 / (M_PI * M_PI);
          return kind == Iou::Distance ? distance : distance - v * v / (1 - iou + v + 1e-7);
        });
      });
}

Instance nms_of(Draw& d) {
  const std::int64_t n = d.below(8), most = d.between(0, n + 1);
  const double threshold = d.pick({0.05, 0.3, 0.7});
  const bool classes = d.chance();
  Arrays operands = {boxes(d, n), d.distinct({n}, 0, 1), d.integers({n}, 0, 1)};
  return {operands,
          [=](const Tensors& t) {
            const KeptBoxes k =
                nms(t[0], t[1], threshold, {.most = most, .classes = classes ? t[2] : Tensor()});
            return Tensors{k.mask, k.indices, k.count};
          },
          [=](const Arrays& a) {
            std::vector<std::int64_t> order, left;
            for (std::int64_t i = 0; i < n; ++i)
              order.push_back(i);
            std::ranges::stable_sort(order, [&](auto i, auto j) { return a[1][{i}] > a[1][{j}]; });
            for (const std::int64_t i : order) {
              bool good = std::ssize(left) < most;
              for (const std::int64_t j : left) {
                const Overlap o = overlap(a[0], j, a[0], i);
                if (o.both / o.join > threshold && (!classes || a[2][{i}] == a[2][{j}]))
                  good = false;
              }
              if (good)
                left.push_back(i);
            }
            Array mask({n}), indices({most}, -1);
            for (std::size_t i = 0; i < left.size(); ++i) {
              mask[{left[i]}] = 1;
              indices[{std::int64_t(i)}] = double(left[i]);
            }
            return Arrays{std::move(mask).as(DType::Bool), std::move(indices).as(DType::I64),
                          Array({}, double(left.size())).as(DType::I64)};
          }};
}

// Between the pixels of a channel; pixels that are not there are 0.
double between(const Array& a, std::int64_t n, std::int64_t c, double y, double x) {
  const double low = std::floor(y), left = std::floor(x);
  double sum = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const auto v = std::int64_t(low) + i, u = std::int64_t(left) + j;
      if (v < 0 || v >= a.size(2) || u < 0 || u >= a.size(3))
        continue;
      sum +=
          a[{n, c, v, u}] * (i == 0 ? low + 1 - y : y - low) * (j == 0 ? left + 1 - x : x - left);
    }
  return sum;
}

Instance roi_align_of(Draw& d) {
  const std::int64_t images = d.between(1, 2), channels = d.between(1, 2), height = d.between(1, 4),
                     width = d.between(1, 4), n = d.below(3), ph = d.between(1, 2),
                     pw = d.between(1, 2);
  const RoiAlignOptions o{.spatial_scale = d.pick({1.0, 0.5}),
                          .sampling_ratio = d.between(1, 3),
                          .aligned = d.chance()};
  Array places = boxes(d, n);
  places.type = DType::F32; // exact in every way to compute them
  for (double& x : places.values)
    x = std::round(x * 8) / 8 - 1.0625;
  return one(
      {d.array({images, channels, height, width}), places, d.integers({n}, -1, images, DType::I32)},
      [=](const Tensors& t) {
        return roi_align(t[0], t[1].to(t[0].dtype()), {ph, pw}, o, t[2]);
      },
      [=](const Arrays& a) {
        return Array({n, channels, ph, pw}, [&](const Sizes& at) {
          const std::int64_t image = std::int64_t(a[2][{at[0]}]);
          double sum = 0;
          if (image < 0 || image >= images)
            return 0.0;
          const std::int64_t sizes[] = {width, height}, bins[] = {pw, ph};
          double begin[2], bin[2];
          for (std::int64_t k = 0; k < 2; ++k) {
            const double shift = o.aligned ? 0.5 : 0;
            begin[k] = a[1][{at[0], k}] * o.spatial_scale - shift;
            const double length = a[1][{at[0], k + 2}] * o.spatial_scale - shift - begin[k];
            bin[k] = (o.aligned ? length : std::max(length, 1.0)) / double(bins[k]);
          }
          const double step = 1 / double(o.sampling_ratio);
          for (std::int64_t i = 0; i < o.sampling_ratio; ++i)
            for (std::int64_t j = 0; j < o.sampling_ratio; ++j) {
              double place[2] = {begin[0] + bin[0] * (double(at[3]) + (double(j) + 0.5) * step),
                                 begin[1] + bin[1] * (double(at[2]) + (double(i) + 0.5) * step)};
              bool in = true;
              for (int k = 0; k < 2; ++k) {
                in = in && place[k] >= -1 && place[k] <= double(sizes[k]);
                place[k] = std::clamp(place[k], 0.0, double(sizes[k] - 1));
              }
              if (in)
                sum += between(a[0], image, at[1], place[1], place[0]);
            }
          return sum * step * step;
        });
      });
}

Instance deform_conv_of(Draw& d) {
  const std::int64_t batch = d.between(1, 2), groups = d.between(1, 2), parts = d.between(1, 2),
                     inner = parts == groups ? 1 : 2, channels = groups * inner,
                     outputs = groups * d.between(1, 2), kh = d.between(1, 2), kw = d.between(1, 2),
                     height = d.between(2, 3), width = d.between(2, 3);
  const std::int64_t stride = d.between(1, 2), padding = d.below(2), dilation = d.between(1, 2);
  const std::int64_t h = (height + 2 * padding - dilation * (kh - 1) - 1) / stride + 1,
                     w = (width + 2 * padding - dilation * (kw - 1) - 1) / stride + 1;
  const std::int64_t share = channels % parts == 0 ? parts : 1;
  if (height + 2 * padding <= dilation * (kh - 1) || width + 2 * padding <= dilation * (kw - 1))
    return deform_conv_of(d);
  const bool masked = d.chance(), biased = d.chance();
  // Well inside of pixels: there are no derivatives at their middles.
  Array offset({batch, 2 * share * kh * kw, h, w}, [&](const Sizes&) {
    return double(d.between(-1, 1)) + double(d.between(1, 7)) / 8;
  });
  return one(
      {d.array({batch, channels, height, width}), offset, d.array({outputs, inner, kh, kw}),
       d.array({outputs}), d.array({batch, share * kh * kw, h, w}, 0, 1)},
      [=](const Tensors& t) {
        return deform_conv2d(t[0], t[1], t[2], biased ? t[3] : Tensor(),
                             {.stride = stride,
                              .padding = padding,
                              .dilation = dilation,
                              .mask = masked ? t[4] : Tensor()});
      },
      [=](const Arrays& a) {
        return Array({batch, outputs, h, w}, [&](const Sizes& at) {
          double sum = biased ? a[3][{at[1]}] : 0;
          for (std::int64_t c = 0; c < inner; ++c)
            for (std::int64_t i = 0; i < kh; ++i)
              for (std::int64_t j = 0; j < kw; ++j) {
                const std::int64_t channel = at[1] / (outputs / groups) * inner + c;
                const std::int64_t tap = channel / (channels / share) * kh * kw + i * kw + j;
                const double y = double(at[2] * stride - padding + i * dilation) +
                                 a[1][{at[0], 2 * tap, at[2], at[3]}];
                const double x = double(at[3] * stride - padding + j * dilation) +
                                 a[1][{at[0], 2 * tap + 1, at[2], at[3]}];
                sum += between(a[0], at[0], channel, y, x) * a[2][{at[1], c, i, j}] *
                       (masked ? a[4][{at[0], tap, at[2], at[3]}] : 1);
              }
          return sum;
        });
      });
}

} // namespace

std::vector<Row> vision_rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* name, std::function<Instance(Draw&)> make,
                       bool gradient = true) {
    rows.push_back({name, std::move(make), Types::Floats, gradient, false, 8});
  };
  add("box_iou", [](Draw& d) { return iou_of(d, Iou::Plain); });
  add("generalized_box_iou", [](Draw& d) { return iou_of(d, Iou::Generalized); });
  add("distance_box_iou", [](Draw& d) { return iou_of(d, Iou::Distance); });
  // A part of its gradient is left out.
  add(
      "complete_box_iou", [](Draw& d) { return iou_of(d, Iou::Complete); }, false);
  add("nms", nms_of, false);
  add("roi_align", roi_align_of);
  add("deform_conv2d", deform_conv_of);
  return rows;
}

} // namespace egret::testing
