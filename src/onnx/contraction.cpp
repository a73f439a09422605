// Sums of products: MatMul, Einsum or Conv of the tensors that the factors are views of.
#include "onnx/factor.h"
#include "onnx/lower.h"

#include <algorithm>

namespace egret::onnx {

namespace {

using Axes = std::vector<int>;

/// Axes of the product by what they are to both factors. Axes of one element are in none.
struct Roles {
  Axes batch, rows, columns, depth; ///< in both and kept; left; right; in both and summed
  Axes summed_once;                 ///< in one factor only, summed
  Axes kept;                        ///< of the result, in its order
};

/// A tensor whose dims are axes of the product.
struct Operand {
  std::string name;
  Axes axes;
};

class Contraction {
public:
  Contraction(Emitter& emitter, ir::NodeId sum)
      : e_(emitter), graph_(emitter.graph()), sum_(graph_[sum]), product_(graph_[sum_.inputs[0]]),
        carrier_(carrier_of(sum_.dtype)) {}

  bool lower() {
    if (product_.op != Op::Mul || (is_float(sum_.dtype) && carrier_ != sum_.dtype))
      return false;
    for (const bool swapped : {false, true})
      if (lower_convolution(product_.inputs[swapped ? 1 : 0], product_.inputs[swapped ? 0 : 1]))
        return true;
    return lower_product();
  }

private:
  Expr extent(int axis) const { return product_.shape[static_cast<std::size_t>(axis)]; }
  bool is_summed(int axis) const {
    return std::ranges::find(sum_.attrs.axes, axis) != sum_.attrs.axes.end();
  }
  Shape extents(const Axes& axes) const {
    Shape shape;
    for (const int axis : axes)
      shape.push_back(extent(axis));
    return shape;
  }

  std::string reshape(const std::string& x, const Shape& from, const Shape& to) {
    if (from == to)
      return x;
    return e_.emit("Reshape", {x, e_.sizes(to)}, {{"allowzero", std::int64_t{1}}});
  }

  std::string transpose(const Operand& x, const Axes& order) {
    if (x.axes == order)
      return x.name;
    std::vector<std::int64_t> places;
    for (const int axis : order)
      places.push_back(std::ranges::find(x.axes, axis) - x.axes.begin());
    return e_.emit("Transpose", {x.name}, {{"perm", places}});
  }

  /// The source of a plain factor without its dims of one element.
  Operand operand(const Factor& factor) {
    Operand made{e_.value(factor.source, carrier_), {}};
    for (const Coordinate& coordinate : factor.coordinates)
      if (!coordinate.terms.empty())
        made.axes.push_back(coordinate.terms[0].axis);
    made.name = reshape(made.name, graph_[factor.source].shape, extents(made.axes));
    return made;
  }

  void define(const Operand& result, const Axes& kept) {
    const std::string ordered = transpose(result, kept);
    e_.define(reshape(ordered, extents(kept), sum_.shape), carrier_, sum_.dtype == DType::U64);
  }

  std::optional<Roles> roles_of(const std::set<int>& left, const std::set<int>& right) const {
    Roles roles;
    for (int axis = 0; axis < static_cast<int>(product_.shape.size()); ++axis) {
      const bool in_left = left.contains(axis), in_right = right.contains(axis);
      if (!in_left && !in_right) {
        if (!(extent(axis) == Expr(1)))
          return std::nullopt;
        continue;
      }
      if (is_summed(axis)) {
        (in_left && in_right ? roles.depth : roles.summed_once).push_back(axis);
        continue;
      }
      roles.kept.push_back(axis);
      (in_left ? in_right ? roles.batch : roles.rows : roles.columns).push_back(axis);
    }
    return roles;
  }

  bool lower_product() {
    const Factor left = plain_factor(graph_, product_.inputs[0]);
    const Factor right = plain_factor(graph_, product_.inputs[1]);
    if (left.source == ir::kNoNode || right.source == ir::kNoNode) // a size is 0
      return false;
    const std::set<int> in_left = left.axes(), in_right = right.axes();
    // Otherwise nothing is repeated, and a product and a sum are as good.
    if (std::ranges::includes(in_left, in_right) || std::ranges::includes(in_right, in_left))
      return false;
    const std::optional<Roles> roles = roles_of(in_left, in_right);
    if (!roles)
      return false;
    const Operand a = operand(left), b = operand(right);
    if (is_matrix_product(*roles))
      lower_matrix_product(a, b, *roles);
    else if (!lower_einsum(a, b, *roles))
      return false;
    return true;
  }

  static bool is_matrix_product(const Roles& roles) {
    const auto fits = [&](const Axes& rows, const Axes& columns) {
      return columns.size() == 1 && (roles.batch.empty() ? !rows.empty() : rows.size() == 1);
    };
    return roles.depth.size() == 1 && roles.summed_once.empty() &&
           (fits(roles.rows, roles.columns) || fits(roles.columns, roles.rows));
  }

  void lower_matrix_product(Operand left, Operand right, Roles roles) {
    // The other way round where only that fits, or saves a transpose of the result.
    if (roles.columns.size() > 1 || (roles.rows.size() == 1 && roles.columns[0] < roles.rows[0])) {
      std::swap(left, right);
      std::swap(roles.rows, roles.columns);
    }
    Axes a = roles.batch, b = roles.batch, result = roles.batch;
    a.insert(a.end(), roles.rows.begin(), roles.rows.end());
    a.push_back(roles.depth[0]);
    b.push_back(roles.depth[0]);
    b.push_back(roles.columns[0]);
    result.insert(result.end(), roles.rows.begin(), roles.rows.end());
    result.push_back(roles.columns[0]);
    define({e_.emit("MatMul", {transpose(left, a), transpose(right, b)}), result}, roles.kept);
  }

  bool lower_einsum(const Operand& left, const Operand& right, const Roles& roles) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (product_.shape.size() > kLetters.size())
      return false;
    const auto letters = [&](const Axes& axes) {
      std::string text;
      for (const int axis : axes)
        text += kLetters[static_cast<std::size_t>(axis)];
      return text;
    };
    const std::string equation =
        letters(left.axes) + "," + letters(right.axes) + "->" + letters(roles.kept);
    define({e_.emit("Einsum", {left.name, right.name}, {{"equation", equation}}), roles.kept},
           roles.kept);
    return true;
  }

  /// An axis of a convolution along which windows slide: coordinate = stride * out + dilation *
  /// tap.
  struct Window {
    std::size_t dim; ///< of the data's source
    int out = -1, tap = -1;
    std::int64_t stride = 1, dilation = 1;
    std::int64_t outputs = 1, taps = 1, size = 0;
    std::int64_t covered() const { return stride * (outputs - 1) + dilation * (taps - 1) + 1; }
    /// Conv would give some that are not wanted.
    bool has_more_outputs() const { return size - covered() >= stride; }
  };

  // Reads one coordinate of the data as a window; false where it is none.
  bool read_window(const Coordinate& coordinate, const Expr& size, const std::set<int>& weights,
                   Window& window) const {
    if (!size.is_constant() || coordinate.terms.empty() || coordinate.terms.size() > 2)
      return false;
    window.size = size.value();
    for (const Coordinate::Term& term : coordinate.terms) {
      const bool is_tap = is_summed(term.axis);
      if (is_tap != weights.contains(term.axis) || term.coefficient < 1 ||
          !extent(term.axis).is_constant() || (is_tap ? window.tap : window.out) >= 0)
        return false;
      (is_tap ? window.tap : window.out) = term.axis;
      (is_tap ? window.dilation : window.stride) = term.coefficient;
      (is_tap ? window.taps : window.outputs) = extent(term.axis).value();
    }
    return window.covered() <= window.size;
  }

  /// The data of a convolution, by what its dims are.
  struct Data {
    std::vector<Window> windows;
    Shape split; ///< the shape of the source with groups and channels apart
    Axes axes;   ///< of its dims; -1 for those of windows, in their order
    Axes examples, groups, channels;
  };

  std::optional<Data> read_data(const Factor& factor, const std::set<int>& weights) const {
    Data data;
    const Shape& shape = graph_[factor.source].shape;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const Coordinate& coordinate = factor.coordinates[dim];
      if (coordinate.terms.empty()) {
        if (!(shape[dim] == Expr(1)))
          return std::nullopt;
        continue;
      }
      if (coordinate.is_axis() && extent(coordinate.terms[0].axis) == shape[dim]) {
        add_axis(data, coordinate.terms[0].axis, weights);
        continue;
      }
      Window window{.dim = dim};
      if (read_window(coordinate, shape[dim], weights, window)) {
        data.windows.push_back(window);
        data.split.push_back(shape[dim]);
        data.axes.push_back(-1);
      } else if (!add_grouped(data, coordinate, shape[dim], weights)) {
        return std::nullopt;
      }
    }
    for (const Axes* axes : {&data.examples, &data.groups, &data.channels})
      for (const int axis : *axes)
        if (axis < 0)
          return std::nullopt;
    return data;
  }

  void add_axis(Data& data, int axis, const std::set<int>& weights) const {
    const bool shared = weights.contains(axis);
    data.split.push_back(extent(axis));
    data.axes.push_back(axis);
    Axes& role = is_summed(axis) ? data.channels : shared ? data.groups : data.examples;
    role.push_back(is_summed(axis) && !shared ? -1 : axis);
  }

  // group * channels + channel
  bool add_grouped(Data& data, const Coordinate& coordinate, const Expr& size,
                   const std::set<int>& weights) const {
    if (coordinate.terms.size() != 2)
      return false;
    Coordinate::Term group = coordinate.terms[0], channel = coordinate.terms[1];
    if (is_summed(group.axis))
      std::swap(group, channel);
    if (is_summed(group.axis) || !is_summed(channel.axis) || !weights.contains(group.axis) ||
        channel.coefficient != 1 || !(extent(channel.axis) == Expr(group.coefficient)) ||
        !(extent(group.axis) * extent(channel.axis) == size))
      return false;
    add_axis(data, group.axis, weights);
    add_axis(data, channel.axis, weights);
    return true;
  }

  // Conv of [examples, groups * channels, windows...] and [groups * outputs, channels, taps...].
  bool lower_convolution(ir::NodeId data_view, ir::NodeId weight_view) {
    const std::optional<Factor> factor =
        carrier_ == DType::F32 ? linear_factor(graph_, data_view) : std::nullopt;
    if (!factor)
      return false;
    const Factor weight = plain_factor(graph_, weight_view);
    if (weight.source == ir::kNoNode) // a size is 0
      return false;
    const std::set<int> in_weight = weight.axes(), in_data = factor->axes();
    const std::optional<Data> data = read_data(*factor, in_weight);
    const std::optional<Roles> roles = roles_of(in_data, in_weight);
    if (!data || !roles || data->windows.empty() || data->windows.size() > 3 ||
        !roles->summed_once.empty())
      return false;

    Axes order = data->examples, weight_order = data->groups, result = data->examples;
    const auto append = [](Axes& to, const Axes& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    append(order, data->groups);
    append(order, data->channels);
    append(weight_order, roles->columns);
    append(weight_order, data->channels);
    append(result, data->groups);
    append(result, roles->columns);
    std::vector<std::int64_t> strides, dilations, taps;
    const Expr groups = element_count(extents(data->groups));
    Shape weight_shape{groups * element_count(extents(roles->columns)),
                       element_count(extents(data->channels))};
    for (const Window& window : data->windows) {
      strides.push_back(window.stride);
      dilations.push_back(window.dilation);
      taps.push_back(window.taps);
      weight_shape.push_back(window.taps);
      if (window.tap >= 0)
        weight_order.push_back(window.tap);
      if (window.out >= 0)
        result.push_back(window.out);
    }
    if (!groups.is_constant() || weight_order.size() != in_weight.size())
      return false;
    std::vector<std::int64_t> pads;
    const std::string x = convolution_data(*factor, *data, order, pads);
    const std::string w =
        reshape(transpose(operand(weight), weight_order), extents(weight_order), weight_shape);
    const std::string y = e_.emit("Conv", {x, w},
                                  {{"strides", strides},
                                   {"dilations", dilations},
                                   {"kernel_shape", taps},
                                   {"pads", pads},
                                   {"group", groups.value()}});
    Shape made{element_count(extents(data->examples)), weight_shape[0]};
    for (const Window& window : data->windows)
      made.push_back(window.outputs);
    define({reshape(y, made, extents(result)), result}, roles->kept);
    return true;
  }

  // Transposed, reshaped, as long as the windows reach. A pad by zeros becomes that of Conv.
  std::string convolution_data(const Factor& factor, const Data& data, const Axes& order,
                               std::vector<std::int64_t>& pads) {
    ir::NodeId source = factor.source;
    Shape split = data.split;
    const std::size_t windows = data.windows.size();
    pads.assign(2 * windows, 0);
    if (is_window_pad(source, data)) {
      const ir::Node& pad = graph_[source];
      std::size_t place = 0;
      for (std::size_t i = 0; i < windows; ++i) {
        pads[i] = pad.attrs.before[data.windows[i].dim].value();
        pads[windows + i] = pad.attrs.after[data.windows[i].dim].value();
        place = static_cast<std::size_t>(
            std::ranges::find(data.axes.begin() + static_cast<std::ptrdiff_t>(place),
                              data.axes.end(), -1) -
            data.axes.begin());
        split[place++] = graph_[pad.inputs[0]].shape[data.windows[i].dim];
      }
      source = pad.inputs[0];
    }
    std::string x = reshape(e_.value(source, carrier_), graph_[source].shape, split);
    std::vector<std::int64_t> perm, begins, ends, axes;
    for (const int axis : order)
      perm.push_back(std::ranges::find(data.axes, axis) - data.axes.begin());
    Shape merged{element_count(extents(data.examples)),
                 element_count(extents(data.groups)) * element_count(extents(data.channels))};
    Shape transposed = extents(order);
    std::size_t window = 0;
    for (std::size_t dim = 0; dim < data.axes.size(); ++dim) {
      if (data.axes[dim] >= 0)
        continue;
      const Window& w = data.windows[window++];
      perm.push_back(static_cast<std::int64_t>(dim));
      merged.push_back(split[dim]);
      transposed.push_back(split[dim]);
      if (w.has_more_outputs() && source == factor.source) {
        begins.push_back(0);
        ends.push_back(w.covered());
        axes.push_back(static_cast<std::int64_t>(merged.size()) - 1);
      }
    }
    if (!std::ranges::is_sorted(perm))
      x = e_.emit("Transpose", {x}, {{"perm", perm}});
    x = reshape(x, transposed, merged);
    return axes.empty() ? x : e_.emit("Slice", {x, e_.list(begins), e_.list(ends), e_.list(axes)});
  }

  // Zeros along windows only, from which Conv makes no outputs that are not wanted.
  bool is_window_pad(ir::NodeId source, const Data& data) const {
    const ir::Node& pad = graph_[source];
    if (pad.op != Op::Pad || pad.attrs.value.as_double() != 0)
      return false;
    for (std::size_t dim = 0; dim < pad.shape.size(); ++dim) {
      const auto window = std::ranges::find(data.windows, dim, &Window::dim);
      const Expr &before = pad.attrs.before[dim], &after = pad.attrs.after[dim];
      if (window == data.windows.end()
              ? !(before == Expr(0) && after == Expr(0))
              : !before.is_constant() || !after.is_constant() || window->has_more_outputs())
        return false;
    }
    return true;
  }

  Emitter& e_;
  const ir::Graph& graph_;
  const ir::Node& sum_;
  const ir::Node& product_;
  DType carrier_;
};

} // namespace

bool lower_contraction(Emitter& emitter, ir::NodeId id) {
  return Contraction(emitter, id).lower();
}

} // namespace egret::onnx
