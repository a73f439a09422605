// Convolutions and pooling over the last one, two or three axes, by PyTorch's rules. Operands are
// [batch, channels, spatial...], or [channels, spatial...] without a batch; spatial sizes are known
// numbers.
#pragma once

#include "egret/functional/reductions.h"
#include "egret/tensor.h"

#include <optional>
#include <vector>

namespace egret {

/// One number for all spatial axes, or one for each of them; none above 2^29.
class PerAxis {
public:
  template <std::integral T>
  PerAxis(T all) : values_{static_cast<std::int64_t>(all)} {}
  PerAxis(std::initializer_list<std::int64_t> each) : values_(each) {}
  PerAxis(std::vector<std::int64_t> each) : values_(std::move(each)) {}

  const std::vector<std::int64_t>& values() const noexcept { return values_; }

private:
  std::vector<std::int64_t> values_;
};

struct ConvOptions {
  PerAxis stride = 1;
  PerAxis padding = 0; ///< zeros on each side
  PerAxis dilation = 1;
  std::int64_t groups = 1; ///< channels and outputs fall into that many parts
  bool same = false; ///< the padding that keeps the sizes; needs stride 1 and replaces padding
};

/// result[n,o,i...] = bias[o] + sum over c, k... of a[n,c,i*stride+k*dilation-padding...] *
/// weight[o,c,k...] for weight [outputs, channels/groups, kernel...] and bias [outputs]. It is a
/// view of windows, a product and a sum, so it is computed as a matrix product is; products and
/// sums of f16 and bf16 are formed in f32 and rounded once.
Tensor conv1d(const Operand& a, const Operand& weight, const Operand& bias = {},
              const ConvOptions& options = {});
Tensor conv2d(const Operand& a, const Operand& weight, const Operand& bias = {},
              const ConvOptions& options = {});
Tensor conv3d(const Operand& a, const Operand& weight, const Operand& bias = {},
              const ConvOptions& options = {});

struct ConvTransposeOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;        ///< taken away on each side of the result
  PerAxis output_padding = 0; ///< added behind it; less than stride or dilation
  PerAxis dilation = 1;
  std::int64_t groups = 1;
};

/// The gradient of a convolution as a function: each element of `a` adds itself times the kernel to
/// the result. Weight is [channels, outputs/groups, kernel...]; sizes are (n-1)*stride - 2*padding
/// + dilation*(kernel-1) + output_padding + 1.
Tensor conv_transpose1d(const Operand& a, const Operand& weight, const Operand& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Operand& a, const Operand& weight, const Operand& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Operand& a, const Operand& weight, const Operand& bias = {},
                        const ConvTransposeOptions& options = {});

struct MaxPoolOptions {
  std::optional<PerAxis> stride = {}; ///< the kernel's size by default
  PerAxis padding = 0;                ///< of -inf on each side, at most half the kernel
  PerAxis dilation = 1;
  bool ceil_mode = false; ///< sizes round up: a last window may reach beyond the padding
};

/// The largest element of each window; NaN wins. Elements that tie share the gradient.
Tensor max_pool1d(const Operand& a, const PerAxis& kernel, const MaxPoolOptions& options = {});
Tensor max_pool2d(const Operand& a, const PerAxis& kernel, const MaxPoolOptions& options = {});
Tensor max_pool3d(const Operand& a, const PerAxis& kernel, const MaxPoolOptions& options = {});

/// The same, and where each stood: i64 numbers in row-major order among the spatial elements of its
/// channel, the first of those that tie, -1 of padding alone. The gradient goes there alone.
Extreme max_pool1d_with_indices(const Operand& a, const PerAxis& kernel,
                                const MaxPoolOptions& options = {});
Extreme max_pool2d_with_indices(const Operand& a, const PerAxis& kernel,
                                const MaxPoolOptions& options = {});
Extreme max_pool3d_with_indices(const Operand& a, const PerAxis& kernel,
                                const MaxPoolOptions& options = {});

struct MaxUnpoolOptions {
  std::optional<PerAxis> stride = {}; ///< the kernel's size by default
  PerAxis padding = 0;
  /// Of the result: (n-1)*stride - 2*padding + kernel by default
  std::optional<PerAxis> sizes = {};
};
/// Zeros with each element of `a` where `indices` says (those of max_pool..._with_indices, of a's
/// shape). One that is out of range is dropped; of several for one place the last one stays.
Tensor max_unpool1d(const Operand& a, const Operand& indices, const PerAxis& kernel,
                    const MaxUnpoolOptions& options = {});
Tensor max_unpool2d(const Operand& a, const Operand& indices, const PerAxis& kernel,
                    const MaxUnpoolOptions& options = {});
Tensor max_unpool3d(const Operand& a, const Operand& indices, const PerAxis& kernel,
                    const MaxUnpoolOptions& options = {});

struct LpPoolOptions {
  std::optional<PerAxis> stride = {}; ///< the kernel's size by default
  bool ceil_mode = false;             ///< sizes round up: a last window may reach beyond the axis
};
/// The p-norm of each window, (sum of |x|^p)^(1/p), p at least 1.
Tensor lp_pool1d(const Operand& a, double p, const PerAxis& kernel,
                 const LpPoolOptions& options = {});
Tensor lp_pool2d(const Operand& a, double p, const PerAxis& kernel,
                 const LpPoolOptions& options = {});
Tensor lp_pool3d(const Operand& a, double p, const PerAxis& kernel,
                 const LpPoolOptions& options = {});

struct FoldOptions {
  PerAxis dilation = 1;
  PerAxis padding = 0; ///< zeros on each side
  PerAxis stride = 1;
};
/// Every window of an image [batch, channels, height, width] as a column: [batch, channels *
/// kernel, windows], in row-major order (torch.nn.functional.unfold).
Tensor unfold(const Operand& a, const PerAxis& kernel, const FoldOptions& options = {});
/// The reverse for an image of two `sizes`: what lies in several windows is added.
Tensor fold(const Operand& a, const PerAxis& sizes, const PerAxis& kernel,
            const FoldOptions& options = {});

/// The same of lines [batch, channels, length] and volumes [batch, channels, depth, height, width].
Tensor unfold1d(const Operand& a, const PerAxis& kernel, const FoldOptions& options = {});
Tensor unfold3d(const Operand& a, const PerAxis& kernel, const FoldOptions& options = {});
Tensor fold1d(const Operand& a, const PerAxis& sizes, const PerAxis& kernel,
              const FoldOptions& options = {});
Tensor fold3d(const Operand& a, const PerAxis& sizes, const PerAxis& kernel,
              const FoldOptions& options = {});

struct AvgPoolOptions {
  std::optional<PerAxis> stride = {}; ///< the kernel's size by default
  PerAxis padding = 0;                ///< of zeros on each side, at most half the kernel
  bool ceil_mode = false;        ///< sizes round up: a last window may reach beyond the padding
  bool count_include_pad = true; ///< zeros of the padding count in the mean
  std::optional<std::int64_t> divisor = {}; ///< divides the sums instead of the counts
};

/// The mean of each window (of floats).
Tensor avg_pool1d(const Operand& a, const PerAxis& kernel, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Operand& a, const PerAxis& kernel, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Operand& a, const PerAxis& kernel, const AvgPoolOptions& options = {});

/// Windows from floor(i*n/size) to ceil((i+1)*n/size), so that the result has the sizes given.
Tensor adaptive_avg_pool1d(const Operand& a, const PerAxis& sizes);
Tensor adaptive_avg_pool2d(const Operand& a, const PerAxis& sizes);
Tensor adaptive_avg_pool3d(const Operand& a, const PerAxis& sizes);
Tensor adaptive_max_pool1d(const Operand& a, const PerAxis& sizes);
Tensor adaptive_max_pool2d(const Operand& a, const PerAxis& sizes);
Tensor adaptive_max_pool3d(const Operand& a, const PerAxis& sizes);

enum class Interpolation { Nearest, NearestExact, Linear, Cubic };
struct InterpolateOptions {
  Interpolation mode = Interpolation::Nearest;
  bool align_corners = false; ///< Linear, Cubic: the corners' centres meet, not their edges
  /// Linear, Cubic: where an axis becomes smaller, the weights reach over as many more elements, so
  /// that all of them count (as Pillow and torchvision do; a is -0.5 there). Not with
  /// align_corners.
  bool antialias = false;
};
/// Other sizes for the last one to three axes of a [batch, channels, spatial...], axis by axis:
/// nearest elements (floor(i·n/size), or those nearest to the centre), linear between two, cubic
/// (Keys 1981, a = -0.75) over four. As PyTorch does, elements beyond the edge repeat it.
Tensor interpolate(const Operand& a, const PerAxis& sizes, const InterpolateOptions& options = {});
/// The same for factors of the sizes, which are rounded down.
Tensor interpolate_by(const Operand& a, const std::vector<double>& factors,
                      const InterpolateOptions& options = {});

enum class GridPadding { Zeros, Border, Reflection };
struct GridSampleOptions {
  Interpolation mode = Interpolation::Linear; ///< Nearest, Linear, or Cubic of images
  GridPadding padding = GridPadding::Zeros;   ///< what lies outside
  bool align_corners = false; ///< -1 and 1 are the corners' centres, not their edges
};
/// a [batch, channels, height, width] at the positions grid [batch, h, w, 2] (x, then y, from -1 to
/// 1): [batch, channels, h, w]; volumes [batch, channels, depth, height, width] with grid [batch,
/// d, h, w, 3] (x, y, z). Nearest rounds halves to even. Differentiable in both.
Tensor grid_sample(const Operand& a, const Operand& grid, const GridSampleOptions& options = {});
/// The grid that a linear map makes of the result's positions: theta [batch, 2, 3] for `size`
/// {batch, channels, height, width}, [batch, 3, 4] for a volume.
Tensor affine_grid(const Operand& theta, const Shape& size, bool align_corners = false);

} // namespace egret
