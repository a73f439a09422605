#include "egret/functional.h"
#include "egret/language_model.h"
#include "models/language/folder.h"
#include "models/language/weights.h"
#include "support/fail.h"

#include <cmath>

namespace egret::models {

using namespace language;

namespace {

std::int64_t bytes_of(const Tensor& a) {
  return a.numel() * static_cast<std::int64_t>(size_of(a.dtype()));
}

/// |a - b| / |a| over all elements, by the 2-norm; 0 for zeros.
double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor exact = a.to(DType::F32), off = exact - b.to(DType::F32);
  const double norm = (exact * exact).sum().item(), error = (off * off).sum().item();
  return norm > 0 ? std::sqrt(error / norm) : 0;
}

} // namespace

std::vector<QuantizedMatrix> quantize_language_model(const std::filesystem::path& folder,
                                                     const std::filesystem::path& out,
                                                     const QuantizeOptions& o) {
  if (o.bits != 4 && o.bits != 8)
    fail(ErrorKind::Value, "quantize: {} bits; there are 4 and 8", o.bits);
  if (o.group < 0 || o.group % (8 / o.bits) != 0)
    fail(ErrorKind::Value, "quantize: groups of {}; they hold a multiple of {} integers", o.group,
         8 / o.bits);
  require_new_folder(out);
  const ModelFolder model(folder, 0, o.ignored_keys);
  const FolderSource& source = model.source;
  const std::map<std::string, bool> matrices =
      parameters_of(source, model.row, model.config).matrices;

  std::vector<QuantizedMatrix> report;
  io::TensorMap tensors;
  for (const std::string& name : source.names()) {
    const auto at = matrices.find(name);
    Tensor value = source.read(name);
    value.eval();
    if (at == matrices.end()) {
      tensors.emplace(name, value);
      continue;
    }
    if (source.packed(name))
      fail(ErrorKind::Value, "{}: tensor '{}' is quantized already", source.path_of(name), name);
    const std::int64_t before = bytes_of(value);
    if (at->second)
      value = value.transpose();
    const std::int64_t in = value.size(-1), whole = o.bits == 8 ? in : 32;
    const std::int64_t group = o.group > 0 ? o.group : whole;
    if (in % group != 0 || group % (8 / o.bits) != 0)
      fail(ErrorKind::Value, "{}: tensor '{}' has rows of {}; groups of {} do not divide them",
           source.path_of(name), name, in, group);
    Quantized q = quantize(value, o.bits, group);
    q.packed.eval();
    q.scale.eval();
    report.push_back({name, relative_error(value, dequantize(q)), before,
                      bytes_of(q.packed) + bytes_of(q.scale)});
    tensors.emplace(PackedName::packed(name, o.bits), q.packed);
    tensors.emplace(PackedName::scale(name), q.scale);
  }
  write_model_folder(out, folder, tensors);
  return report;
}

} // namespace egret::models
