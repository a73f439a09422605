// Products by a vendor's library. A region is recognized by its loads, which have to be plain
// strided matrices, and by what becomes of the sum: nothing, or a bias and an activation that
// the library has.
#include "kernel/gpu_library.h"
#include "kernel/analysis.h"
#include "kernel/contraction_form.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "support/fail.h"

#include <array>
#include <cmath>

namespace egret::kernel {

namespace {

using Activation = LibraryProduct::Activation;

/// Ways of the library that are candidates, and the memory that they may use.
constexpr int kWays = 8;
constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;

std::optional<std::int64_t> constant_of(const Expr& e) {
  return e.is_constant() ? std::optional(e.value()) : std::nullopt;
}

class ProductFinder {
public:
  explicit ProductFinder(const Region& region) : r_(region) {}

  FoundProduct run() {
    FoundProduct found;
    found.reason = fill();
    found.ok = found.reason.empty();
    if (found.ok)
      found.product = p_;
    return found;
  }

private:
  std::string fill() {
    const FoundContraction found = find_contraction(r_, true);
    if (!found.ok)
      return found.reason;
    f_ = found.form;
    if (f_.accumulator != DType::F32)
      return "it is not summed in f32";
    if (r_.outputs.size() != 1)
      return "it has more than one output";
    for (const Operand& operand : r_.operands)
      if (operand.role != Role::Tensor)
        return "it takes a number by value";
    for (const auto& [group, extent] : {std::pair{&f_.batch, &p_.batches},
                                        {&f_.rows, &p_.rows},
                                        {&f_.columns, &p_.columns},
                                        {&f_.depth, &p_.depth}}) {
      if (group->axes.size() > 1)
        return "rows, columns or the depth are several axes that do not follow each other";
      const auto size = constant_of(group->extent);
      if (!size)
        return "a size is not known before it runs";
      if (*size < 1 || *size >= std::int64_t{1} << 31)
        return "a size is 0 or beyond 32 bits";
      *extent = *size;
    }
    for (const auto& [side, group, matrix] :
         {std::tuple{&f_.left, &f_.rows, &p_.left}, {&f_.right, &f_.columns, &p_.right}})
      if (std::string reason = factor(*side, *group, *matrix); !reason.empty())
        return reason;
    const Operand &left = r_.operands[std::size_t(p_.left.buffer)],
                  &right = r_.operands[std::size_t(p_.right.buffer)];
    type_ = left.dtype;
    if (right.dtype != type_ ||
        (type_ != DType::F32 && type_ != DType::BF16 && type_ != DType::F16))
      return "its factors are not of one type that the library multiplies";
    if (std::string reason = result(); !reason.empty())
      return reason;
    return epilogue();
  }

  /// A factor as a matrix of an operand.
  std::string factor(const Side& side, const AxisGroup& panel, LibraryProduct::Matrix& m) const {
    const Stage& stage = r_.stages[std::size_t(f_.stage)];
    const BodyValue& value = stage.body[std::size_t(through_casts(stage, side.value))];
    if (value.kind != BodyValue::Kind::Load)
      return "a factor is computed first";
    const Load& load = stage.loads[std::size_t(value.load)];
    if (load.source != Source::Operand || !load.indirect.empty() || !load.map.is_total())
      return "a factor is not read from one plain array";
    m.buffer = load.number;
    const auto offset = start_of(offset_of(r_, load));
    const auto batch = stride(stage, load, f_.batch), row = stride(stage, load, panel),
               column = stride(stage, load, f_.depth);
    if (!offset || !batch || !row || !column || *row < 0 || *column < 0 || *batch < 0)
      return "a factor has no constant strides";
    m.offset = *offset;
    m.batch = *batch;
    m.row = *row;
    m.column = *column;
    return is_matrix(m, panel.extent.value(), p_.depth) ? ""
                                                        : "a factor's rows overlap or lie apart";
  }

  std::string result() {
    const Output& out = r_.outputs[0];
    if (!out.map.is_total())
      return "the result is not stored whole";
    LibraryProduct::Matrix& m = p_.result;
    m.buffer = int(r_.operands.size());
    const auto offset = start_of(offset_of(out));
    const auto batch = stride(out, f_.batch), row = stride(out, f_.rows),
               column = stride(out, f_.columns);
    if (!offset || !batch || !row || !column || *row < 0 || *batch < 0)
      return "the result has no constant strides";
    m = {m.buffer, *offset, *batch, *row, *column};
    const bool apart = m.column != 1 && p_.columns > 1;
    return !apart && is_matrix(m, p_.rows, p_.columns) ? ""
                                                       : "the result's rows are not contiguous";
  }

  /// Neighbours along one index, and along the other steps that are long enough.
  static bool is_matrix(const LibraryProduct::Matrix& m, std::int64_t rows, std::int64_t columns) {
    return ((m.column == 1 || columns == 1) && (rows == 1 || m.row >= columns)) ||
           ((m.row == 1 || rows == 1) && (columns == 1 || m.column >= rows));
  }

  /// An offset where every axis is 0.
  static std::optional<std::int64_t> start_of(const Expr& offset) {
    return constant_of(substitute(
        offset, [](const Expr& v) { return v.is_axis() ? std::optional(Expr(0)) : std::nullopt; }));
  }
  std::optional<std::int64_t> stride(const Stage& stage, const Load& load,
                                     const AxisGroup& group) const {
    return group.axes.empty() ? 0 : stride_of(r_, stage, load, group.axes[0]);
  }
  std::optional<std::int64_t> stride(const Output& out, const AxisGroup& group) const {
    return group.axes.empty() ? 0 : stride_of(r_, out, group.axes[0]);
  }

  // --- what becomes of the sum

  /// Its maps are evaluated in f64 at many sums and biases: the library's function is the one that
  /// has the same values. What it makes of a NaN, the check of candidates tells.
  std::string epilogue() {
    if (std::string reason = find_bias(); !reason.empty())
      return reason;
    static constexpr std::array kSums{-6.0, -3.0, -1.5, -0.7, -0.2, 0.0, 0.1, 0.4, 0.9, 2.0, 5.0};
    static constexpr std::array kBiases{-1.25, 0.0, 0.5, 2.5};
    for (const Activation activation : {Activation::None, Activation::Relu, Activation::Gelu}) {
      if ((activation == Activation::Gelu) != (tanhs_ == 1))
        continue;
      bool same = true;
      for (const double sum : kSums)
        for (const double bias : kBiases) {
          const double x = sum + (p_.bias >= 0 ? bias : 0);
          const auto got = epilogue_at(sum, bias);
          if (!got)
            return "what becomes of the sum is not computed in floats alone";
          // Constants are rounded to 16 bits; those of gelu make a thousandth.
          const double room = activation == Activation::Gelu ? 2e-3 * (1 + std::fabs(x)) : 1e-12;
          same &= std::fabs(*got - value_of(activation, x)) <= room;
        }
      if (same) {
        p_.activation = activation;
        return "";
      }
    }
    return "the library does not have what becomes of the sum";
  }

  static double value_of(Activation activation, double x) {
    switch (activation) {
    case Activation::None:
      return x;
    case Activation::Relu:
      return std::fmax(x, 0.0);
    case Activation::Gelu:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
    return 0;
  }

  /// The one operand that maps of the sum may read: an element for each column.
  std::string find_bias() {
    for (std::size_t s = 0; s < r_.stages.size(); ++s) {
      if (int(s) == f_.stage)
        continue;
      for (const BodyValue& value : r_.stages[s].body)
        tanhs_ += value.kind == BodyValue::Kind::Apply && value.op == Op::Tanh;
      for (const Load& load : r_.stages[s].loads) {
        if (load.source == Source::Stage)
          continue;
        const auto offset = start_of(offset_of(r_, load));
        const auto at = [&](const AxisGroup& g) { return stride(r_.stages[s], load, g); };
        const bool plain = load.indirect.empty() && load.map.is_total() && offset &&
                           at(f_.columns) == 1 && at(f_.rows) == 0 && at(f_.batch) == 0 &&
                           r_.operands[std::size_t(load.number)].dtype == type_ &&
                           r_.outputs[0].dtype == type_;
        if (!plain || (p_.bias >= 0 && (p_.bias != load.number || p_.bias_offset != *offset)))
          return "more than a bias of the columns is read beside the factors";
        p_.bias = load.number;
        p_.bias_offset = *offset;
      }
    }
    return "";
  }

  /// The output for a sum and a bias; nothing when something else than floats comes in.
  std::optional<double> epilogue_at(double sum, double bias) const {
    std::vector<double> of_stage(r_.stages.size(), 0);
    for (std::size_t s = 0; s < r_.stages.size(); ++s) {
      const Stage& stage = r_.stages[s];
      if (int(s) == f_.stage) {
        of_stage[s] = sum;
        continue;
      }
      if (stage.yields.size() != 1)
        return std::nullopt;
      std::vector<double> values;
      for (const BodyValue& v : stage.body) {
        const auto made = value_at(stage, v, values, of_stage, bias);
        if (!made)
          return std::nullopt;
        values.push_back(*made);
      }
      of_stage[s] = values[std::size_t(stage.yields[0])];
    }
    return of_stage[std::size_t(r_.outputs[0].stage)];
  }

  static std::optional<double> value_at(const Stage& stage, const BodyValue& v,
                                        const std::vector<double>& values,
                                        const std::vector<double>& of_stage, double bias) {
    const auto arg = [&](std::size_t i) {
      return i < v.args.size() ? values[std::size_t(v.args[i])] : 0.0;
    };
    switch (v.kind) {
    case BodyValue::Kind::Constant:
      return is_float(v.dtype) ? std::optional(v.constant.as_double()) : std::nullopt;
    case BodyValue::Kind::Load: {
      const Load& load = stage.loads[std::size_t(v.load)];
      return load.source == Source::Stage ? of_stage[std::size_t(load.number)] : bias;
    }
    case BodyValue::Kind::Index:
      return std::nullopt;
    case BodyValue::Kind::Apply: {
      if (v.op == Op::Select)
        return arg(0) != 0 ? arg(1) : arg(2);
      const DType operand = stage.body[std::size_t(v.args.back())].dtype;
      if (!is_float(operand))
        return std::nullopt;
      if (v.op == Op::StopGradient || (v.op == Op::Cast && is_float(v.dtype)))
        return arg(0);
      const OpInfo& info = info_of(v.op);
      if (!info.eval_float || v.op == Op::Cast)
        return std::nullopt;
      return info.eval_float(arg(0), arg(1), arg(2));
    }
    }
    return std::nullopt;
  }

  const Region& r_;
  ContractionForm f_;
  LibraryProduct p_;
  DType type_ = DType::F32;
  int tanhs_ = 0; ///< in maps of the sum
};

KernelProgram program_of(const Region& region, LibraryProduct product) {
  KernelProgram program;
  program.name = region.name;
  const auto argument = [&](const std::string& name, DType dtype, const Expr& elements,
                            std::int64_t alignment, bool written) {
    const int number = int(program.buffers.size());
    program.buffers.push_back(
        {name, dtype, Space::Argument, number, elements, !written, written, alignment});
  };
  for (const Operand& operand : region.operands)
    argument(operand.name, operand.dtype, operand.shape.at(0), operand.alignment, false);
  argument("out0", region.outputs[0].dtype, region.outputs[0].shape.at(0), 64, true);
  product.workspace = int(program.buffers.size());
  program.buffers.push_back(
      {"workspace", DType::U8, Space::Workspace, -1, Expr(kWorkspace), true, true, 256});
  program.launch.workers = Expr(1);
  program.launch.threads = 32;
  program.product = product;
  return program;
}

constexpr Knob kGpuLibraryKnobs[] = {{"way", 0, 63}};

class GpuLibraryGenerator : public Generator {
public:
  std::string name() const override { return "cublaslt"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    std::vector<Schedule> space;
    if (target.product_library == 0 || !find_product(region).ok)
      return space;
    for (int way = 0; way < kWays; ++way) {
      Schedule& s = space.emplace_back();
      s.generator = name();
      s.knobs = {{"way", way}};
    }
    return space;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (target.product_library == 0)
      return {false, {}, "the library is not there, or not allowed"};
    if (auto why = refused_settings(schedule, target, kGpuLibraryKnobs); !why.empty())
      return {false, {}, why};
    FoundProduct found = find_product(region);
    if (!found.ok)
      return {false, {}, found.reason};
    found.product.rank = int(schedule.knob("way", 0));
    return {true, program_of(region, found.product), ""};
  }
};

} // namespace

FoundProduct find_product(const Region& region) {
  return ProductFinder(region).run();
}

const Generator& gpu_library_generator() {
  static const GpuLibraryGenerator generator;
  return generator;
}

const char* name_of(LibraryProduct::Activation activation) noexcept {
  switch (activation) {
  case Activation::None:
    return "none";
  case Activation::Relu:
    return "relu";
  case Activation::Gelu:
    return "gelu";
  }
  return "?";
}

} // namespace egret::kernel
