#include "egret/functional.h"
#include "egret/language_model.h"
#include "models/language/folder.h"
#include "models/language/weights.h"
#include "support/fail.h"

#include <algorithm>
#include <set>
#include <utility>

namespace egret::models {

using namespace language;

void dequantize_language_model(const std::filesystem::path& folder,
                               const std::filesystem::path& out, const DequantizeOptions& o) {
  if (o.dtype && !is_float(*o.dtype))
    fail(ErrorKind::DType, "dequantize: {} is no float", name_of(*o.dtype));
  require_new_folder(out);
  const ModelFolder model(folder, 0, o.ignored_keys);
  const FolderSource& source = model.source;
  const Parameters parameters = parameters_of(source, model.row, model.config);
  if (std::ranges::none_of(parameters.names, [&](const auto& name) { return source.packed(name); }))
    fail(ErrorKind::Value, "{}: no matrix is quantized", folder.string());
  std::set<std::string> transposed; // matrices that plain folders have the other way round
  if (model.row.transposed)
    for (const LayerMatrix& layer : parameters.layers)
      if (source.packed(layer.tensor))
        transposed.insert(layer.tensor);
  const auto dtype_of = [&](const std::string& name) {
    return source.packed(name) ? o.dtype.value_or(source.scale_dtype(name)) : source.dtype(name);
  };
  std::vector<io::TensorInfo> infos;
  for (const std::string& name : parameters.names) {
    std::vector<std::int64_t> shape = source.shape(name);
    if (transposed.contains(name))
      std::swap(shape.at(0), shape.at(1));
    infos.push_back({name, dtype_of(name), std::move(shape), 0, 0});
  }
  ModelFolderWriter writer(out, files_like(folder), std::move(infos));
  for (const std::string& name : parameters.names) {
    Tensor value = source.read(name);
    if (source.packed(name))
      value = value.to(dtype_of(name));
    writer.write(name, transposed.contains(name) ? value.transpose() : value);
  }
  writer.commit();
}

} // namespace egret::models
