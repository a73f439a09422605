#include "egret/functional.h"
#include "egret/language_model.h"
#include "models/language/folder.h"
#include "models/language/quantization_error.h"
#include "models/language/weights.h"
#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::models {

using namespace language;

namespace {

constexpr double kMostF8 = 448; // the largest number of f8e4m3

std::int64_t bytes_of(const Tensor& a) {
  return a.numel() * static_cast<std::int64_t>(size_of(a.dtype()));
}

/// Integers 0 .. 15 and the one that stands for 0: a group spans from its least value (or 0) to its
/// largest (or 0).
Grouped with_zero_points(const Tensor& groups, const Shape& packed) {
  const Tensor exact = groups.to(DType::F32), none = zeros({1});
  const Tensor least = minimum(exact.min(-1, true), none),
               most = maximum(exact.max(-1, true), none);
  const Tensor scale = ((most - least) * (1.0 / 15)).to(groups.dtype()).eval();
  const Tensor step = where(scale.to(DType::F32) > 0, scale.to(DType::F32), 1.0);
  const Tensor zero = clamp(round(-least / step), 0, 15);
  const Tensor q = clamp(round(exact / step) + zero, 0, 15).to(DType::U8);
  return {pack_bits(q, 4).reshape(packed), scale.squeeze(-1), zero.squeeze(-1).to(DType::U8)};
}

Grouped small_floats(const Tensor& groups, const Shape& shape) {
  const Tensor exact = groups.to(DType::F32);
  const Tensor scale = (abs(exact).max(-1, true) * (1 / kMostF8)).to(groups.dtype()).eval();
  const Tensor step = where(scale.to(DType::F32) == 0, 1.0, scale.to(DType::F32));
  const Tensor values = clamp(exact / step, -kMostF8, kMostF8).to(DType::F8E4M3);
  return {values.reshape(shape), scale.squeeze(-1), {}};
}

/// Rows [..., out, in] in a form, computed.
Matrix formed(const Tensor& value, const FormRow& row, std::int64_t group) {
  Grouped result;
  if (row.dtype == DType::U8 && !row.zero_points) {
    const Quantized q = quantize(value, row.bits, group);
    result = {q.packed, q.scale, {}};
  } else {
    Shape groups(value.shape().begin(), value.shape().end() - 1), last = groups;
    groups.insert(groups.end(), {value.size(-1) / group, group});
    last.push_back(value.size(-1) * row.bits / 8);
    const Tensor grouped = value.reshape(groups);
    result = row.zero_points ? with_zero_points(grouped, last) : small_floats(grouped, last);
  }
  result.bits = row.bits;
  result.group = group;
  Matrix matrix = result;
  evaluate(matrix);
  return matrix;
}

std::string values_name(const std::string& name, const FormRow& row) {
  return fmt::format("{}.{}", name, row.name);
}

/// The tensors that formed() makes of a matrix.
template <class F>
void add_formed(std::vector<io::TensorInfo>& infos, const std::string& name,
                const FolderSource& source, bool transposed, const FormRow& row, F group_of) {
  std::vector<std::int64_t> values = source.shape(name);
  if (transposed)
    std::swap(values[0], values[1]);
  std::vector<std::int64_t> groups = values;
  groups.back() /= group_of(values.back());
  values.back() = values.back() * row.bits / 8;
  infos.push_back({values_name(name, row), row.dtype, std::move(values), 0, 0});
  infos.push_back({scale_name(name), source.dtype(name), groups, 0, 0});
  if (row.zero_points)
    infos.push_back({zero_name(name), DType::U8, std::move(groups), 0, 0});
}

} // namespace

std::vector<std::string> weight_form_names() {
  std::vector<std::string> names;
  for (const FormRow& row : weight_forms())
    names.emplace_back(row.name);
  return names;
}

WeightForm weight_form_named(std::string_view name) {
  for (const FormRow& row : weight_forms())
    if (row.name == name)
      return row.form;
  fail(ErrorKind::Value, "quantize: there is no form '{}'; there are {}", name,
       fmt::join(weight_form_names(), ", "));
}

std::vector<QuantizedMatrix> quantize_language_model(const std::filesystem::path& folder,
                                                     const std::filesystem::path& out,
                                                     const QuantizeOptions& o) {
  const FormRow& row = row_of(o.form);
  if (o.group < 0 || o.group % (8 / row.bits) != 0)
    fail(ErrorKind::Value, "quantize: groups of {}; they hold a multiple of {} values", o.group,
         8 / row.bits);
  require_new_folder(out);
  const ModelFolder model(folder, 0, o.ignored_keys);
  const FolderSource& source = model.source;
  const std::map<std::string, bool> matrices =
      parameters_of(source, model.row, model.config).matrices;
  const auto group_of = [&](std::int64_t in) {
    return o.group > 0 ? o.group : row.bits == 8 ? in : std::int64_t{32};
  };
  for (const auto& [name, transposed] : matrices) { // before any work
    if (source.packed(name))
      fail(ErrorKind::Value, "{}: tensor '{}' is quantized already", source.path_of(name), name);
    const std::vector<std::int64_t> shape = source.shape(name);
    const std::int64_t in = transposed ? shape[0] : shape.back(), group = group_of(in);
    if (in % group != 0 || group % (8 / row.bits) != 0)
      fail(ErrorKind::Value, "{}: tensor '{}' has rows of {}; groups of {} do not divide them",
           source.path_of(name), name, in, group);
  }

  std::vector<io::TensorInfo> infos;
  for (const std::string& name : source.names()) {
    const auto at = matrices.find(name);
    if (at == matrices.end())
      infos.push_back({name, source.dtype(name), source.shape(name), 0, 0});
    else
      add_formed(infos, name, source, at->second, row, group_of);
  }
  ModelFolderWriter writer(out, files_like(folder), std::move(infos));
  std::vector<QuantizedMatrix> report;
  for (const std::string& name : source.names()) {
    const auto at = matrices.find(name);
    Tensor value = source.read(name);
    if (at == matrices.end()) {
      writer.write(name, value);
      continue;
    }
    const std::int64_t before = bytes_of(value);
    if (at->second)
      value = value.transpose();
    const Matrix matrix = formed(value, row, group_of(value.size(-1)));
    const Grouped& q = std::get<Grouped>(matrix);
    report.push_back({name, relative_error(value, dense(matrix, DType::F32)), before,
                      bytes_of(q.values) + bytes_of(q.scale) + (q.zero ? bytes_of(*q.zero) : 0),
                      row.name});
    writer.write(values_name(name, row), q.values);
    writer.write(scale_name(name), q.scale);
    if (q.zero)
      writer.write(zero_name(name), *q.zero);
  }
  writer.commit();
  return report;
}

} // namespace egret::models
