// Boxes and regions of images, by torchvision's rules (torchvision.ops).
#pragma once

#include "egret/functional/convolutions.h"
#include "egret/tensor.h"

#include <cstdint>
#include <optional>

namespace egret {

// Boxes are [..., 4]: x1, y1, x2, y2 with x1 <= x2 and y1 <= y2, of floats or integers (these are
// computed in f32, as are f16 and bf16, which are rounded once). Error(Shape) for a last axis of
// another size, and for sets of boxes that are not [n, 4].

enum class BoxFormat {
  Corners,    ///< x1, y1, x2, y2
  CornerSize, ///< x1, y1, width, height
  CenterSize, ///< x and y of the centre, width, height
};
/// Boxes in another format.
Tensor box_convert(const Operand& boxes, BoxFormat from, BoxFormat to);
Tensor box_area(const Operand& boxes); ///< (x2 - x1) (y2 - y1): [...]
/// Intersection over union of every box of a [n, 4] with every one of b [m, 4]: [n, m], in floats.
Tensor box_iou(const Operand& a, const Operand& b);
/// That less the part of the smallest box around both that neither covers (Rezatofighi et al.
/// 2019): from -1 to 1.
Tensor generalized_box_iou(const Operand& a, const Operand& b);

/// Intersection over union less the squared distance of the centres over the squared diagonal of
/// the smallest box around both (Zheng et al. 2020), and less a term for different ratios of the
/// sides, whose weight has no gradient. Squared diagonals count 1e-7 more, as in torchvision.
Tensor distance_box_iou(const Operand& a, const Operand& b);
Tensor complete_box_iou(const Operand& a, const Operand& b);

/// Boxes that are left; no shape depends on data.
struct KeptBoxes {
  Tensor mask;    ///< bool [n]
  Tensor indices; ///< i64 [most]: the boxes that are left by descending score, -1 behind them
  Tensor count;   ///< i64 []: how many
};
struct NmsOptions {
  /// At most that many boxes are left; all by default. The search is that many steps, one after the
  /// other, so a number that is no larger than needed runs faster, and compiles faster in a
  /// compiled function or a graph; of lazy tensors a few steps are a program, which is run when
  /// nms() is called. Error(Value) unless it is from 0 to 4096, or by default where n is larger.
  std::optional<std::int64_t> most = {};
  Tensor classes = {}; ///< integers [n]: boxes of different classes do not meet (batched_nms)
};
/// Greedy non-maximum suppression of boxes [n, 4] by scores [n]: the box of the highest score is
/// left, those whose intersection over union with it is above `threshold` go, and so on. Of equal
/// scores the first box comes first. [n, n] bools are stored. Without gradients. Error(Value) for a
/// threshold that is NaN.
KeptBoxes nms(const Operand& boxes, const Operand& scores, double threshold,
              const NmsOptions& options = {});

struct RoiAlignOptions {
  double spatial_scale = 1;        ///< from the boxes' coordinates to those of `a`
  std::int64_t sampling_ratio = 2; ///< samples along each axis of a bin, from 1 to 64
  /// Pixels are at i + 1/2: boxes move by half a pixel. Otherwise boxes are at least 1 wide and
  /// high.
  bool aligned = false;
};
/// The means over bins of boxes (He et al. 2017): a [batch, channels, height, width] and boxes
/// [n, 5], the number of the image and a box in a's dtype, or [n, 4] with `images`, integers [n],
/// give [n, channels, sizes]. Each bin is the mean of sampling_ratio² samples, linear between
/// pixels and 0 beyond a pixel outside; those of an image that is not there are 0. Differentiable
/// in `a`. Error(Value) for options out of range.
Tensor roi_align(const Operand& a, const Operand& boxes, const PerAxis& sizes,
                 const RoiAlignOptions& options = {}, const Operand& images = {});

struct DeformConvOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis dilation = 1;
  Tensor mask = {}; ///< [batch, parts * kh * kw, h, w]: factor of each sample (Zhu et al. 2018)
};
/// A convolution whose samples move (Dai et al. 2017): a [batch, channels, height, width], offset
/// [batch, 2 * parts * kh * kw, h, w] (y, then x, of each element of the kernel; neighbouring
/// channels share one of the `parts`), weight [outputs, channels / groups, kh, kw] and bias
/// [outputs] give [batch, outputs, h, w]. Samples are linear between pixels, 0 outside. The numbers
/// of parts and groups follow from the shapes. Differentiable in all operands; f16 and bf16 are
/// computed in f32.
Tensor deform_conv2d(const Operand& a, const Operand& offset, const Operand& weight,
                     const Operand& bias = {}, const DeformConvOptions& options = {});

} // namespace egret
