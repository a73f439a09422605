#include "models/language/adapter.h"

#include "egret/functional.h"
#include "egret/io.h"
#include "egret/language_model.h"
#include "models/language/folder.h"
#include "models/language/peft_names.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"

#include <algorithm>
#include <set>

namespace egret::models {

namespace language {

namespace {

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

bool is_target(const std::string& part, const std::string& target) {
  return part == target || part == target + "_proj";
}

} // namespace

std::vector<LayerMatrix> targeted(const std::vector<LayerMatrix>& layers,
                                  const std::vector<std::string>& targets,
                                  const std::string& path) {
  std::vector<LayerMatrix> chosen;
  std::vector<bool> found(targets.size());
  std::vector<std::string> known;
  for (const LayerMatrix& layer : layers) {
    const std::string part = last_part(layer.module);
    if (std::ranges::find(known, part) == known.end())
      known.push_back(part);
    bool takes = targets.empty() && (layer.role == Role::Query || layer.role == Role::Value ||
                                     layer.role == Role::Qkv);
    for (std::size_t i = 0; i < targets.size(); ++i)
      if (is_target(part, targets[i]))
        found[i] = takes = true;
    if (takes)
      chosen.push_back(layer);
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!found[i])
      fail(ErrorKind::Value, "{}: there is no matrix '{}' that an adapter may change; there are {}",
           path, printable(targets[i]), fmt::join(known, ", "));
  return chosen;
}

Adapter new_adapter(const std::vector<LayerMatrix>& layers, std::int64_t rank, double alpha,
                    Generator& generator) {
  Adapter adapter;
  for (const LayerMatrix& layer : layers)
    adapter.layers.emplace(layer.module,
                           nn::LowRank(layer.in, layer.out, rank, alpha, generator,
                                       layer.experts > 0 ? Shape{layer.experts} : Shape{}));
  return adapter;
}

namespace {

void update(Projection& projection, const Adapter& adapter) {
  const auto at = adapter.layers.find(projection.module);
  if (at == adapter.layers.end())
    return;
  nn::LowRank low = at->second;
  const std::int64_t rows = count_of(projection.weight);
  if (rows != low.b.size(0)) // a part of a fused matrix
    low.b = low.b.narrow(0, projection.row, rows);
  projection.update = std::move(low);
}

void update(ExpertMatrix& matrix, const Adapter& adapter) {
  if (const auto at = adapter.layers.find(matrix.module); at != adapter.layers.end())
    matrix.update = at->second;
}

/// The update of one expert.
nn::LowRank update_of(const nn::LowRank& all, std::int64_t number) {
  return {all.a[number], all.b[number], all.scale};
}

} // namespace

Weights adapted(Weights weights, const Adapter& adapter) {
  for (LayerWeights& layer : weights.layers) {
    for (Projection* projection : {&layer.query, &layer.key, &layer.value, &layer.output})
      update(*projection, adapter);
    for (std::optional<Projection>* projection : {&layer.gate, &layer.up, &layer.down})
      if (*projection)
        update(**projection, adapter);
    if (layer.experts)
      for (ExpertMatrix* matrix : {&layer.experts->gate, &layer.experts->up, &layer.experts->down})
        update(*matrix, adapter);
  }
  return weights;
}

void save_adapter(const std::filesystem::path& folder, const Adapter& adapter,
                  const AdapterInfo& info) {
  io::TensorMap tensors;
  std::set<std::string> targets;
  const auto add = [&](const std::string& module, const nn::LowRank& low) {
    tensors.emplace(fmt::format("{}{}{}", peft::kPrefix, module, peft::kA), low.a.detach());
    tensors.emplace(fmt::format("{}{}{}", peft::kPrefix, module, peft::kB), low.b.detach());
  };
  for (const auto& [module, low] : adapter.layers) {
    if (low.a.rank() == 2)
      add(module, low);
    else
      for (std::int64_t e = 0; e < low.a.size(0); ++e)
        add(of_expert(module, e), update_of(low, e));
    targets.insert(last_part(module));
  }
  io::save_safetensors(folder / peft::kTensors, tensors, {{"format", "pt"}});
  const nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                         {"task_type", "CAUSAL_LM"},
                                         {"base_model_name_or_path", info.base},
                                         {"r", info.rank},
                                         {"lora_alpha", info.alpha},
                                         {"lora_dropout", 0.0},
                                         {"target_modules", targets},
                                         {"bias", "none"},
                                         {"fan_in_fan_out", info.transposed},
                                         {"inference_mode", true}};
  write_output("adapter", folder / peft::kConfig,
               config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

} // namespace language

using namespace language;

void merge_adapter(const std::filesystem::path& folder, const std::filesystem::path& adapter_folder,
                   const std::filesystem::path& out, const std::vector<std::string>& ignored_keys) {
  require_new_folder(out);
  const ModelFolder model(folder, 0, ignored_keys);
  const Parameters parameters = parameters_of(model.source, model.row, model.config);
  const Adapter adapter = load_adapter(adapter_folder, parameters.layers);
  std::vector<io::TensorInfo> infos;
  for (const std::string& name : parameters.names) {
    if (model.source.packed(name))
      fail(ErrorKind::Value, "{}: tensor '{}' is quantized; merge first, then quantize",
           model.source.path_of(name), name);
    infos.push_back({name, model.source.dtype(name), model.source.shape(name), 0, 0});
  }
  std::map<std::string, std::pair<const LayerMatrix*, std::int64_t>> changed; // and which expert
  for (const LayerMatrix& layer : parameters.layers) {
    if (!adapter.layers.contains(layer.module))
      continue;
    if (layer.experts == 0)
      changed.emplace(layer.tensor, std::pair(&layer, 0));
    for (std::int64_t e = 0; e < layer.experts; ++e)
      changed.emplace(of_expert(layer.tensor, e), std::pair(&layer, e));
  }
  ModelFolderWriter writer(out, files_like(folder), std::move(infos));
  for (const std::string& name : parameters.names) {
    Tensor value = model.source.read(name);
    if (const auto at = changed.find(name); at != changed.end()) {
      const auto& [layer_of, expert] = at->second;
      const LayerMatrix& layer = *layer_of;
      const nn::LowRank& low = adapter.layers.at(layer.module);
      const Tensor change = (layer.experts == 0 ? low : update_of(low, expert)).matrix();
      value = (value.to(DType::F32) + (layer.transposed ? change.transpose() : change))
                  .to(value.dtype());
    }
    writer.write(name, value);
  }
  writer.commit();
}

} // namespace egret::models
