#include "models/language/adapter.h"

#include "egret/functional.h"
#include "egret/io.h"
#include "egret/language_model.h"
#include "io/json_file.h"
#include "models/language/config.h"
#include "models/language/folder.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace egret::models {

namespace language {

namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
// PEFT's name of a tensor: the prefix, the module, and which of the two it is.
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

bool is_target(const std::string& part, const std::string& target) {
  return part == target || part == target + "_proj";
}

/// The scale of the updates and their rank, from a configuration that says nothing else.
struct Scaling {
  std::int64_t rank;
  double scale;
};

Scaling read_scaling(const std::filesystem::path& path) {
  Keys keys(io::read_json_object(path), path.string());
  const auto require = [&](const char* key, const char* wanted) {
    if (const std::string found = keys.text({key}, wanted); found != wanted)
      fail(ErrorKind::Unsupported, "{}: '{}' is '{}'; egret knows '{}'", path.string(), key,
           printable(found), wanted);
  };
  require("peft_type", "LORA");
  require("task_type", "CAUSAL_LM");
  require("bias", "none");
  const std::int64_t rank = keys.integer({"r"}, 1, 1 << 20);
  const double alpha = keys.number({"lora_alpha"}, 1e-9, 1e9);
  const bool stabilized = keys.flag({"use_rslora"}, false); // Kalajdzievski 2023
  // What only tells how the adapter was made, or repeats what its tensors say.
  keys.require_all_read({"auto_mapping", "base_model_name_or_path", "exclude_modules",
                         "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern",
                         "layers_to_transform", "loftq_config", "corda_config", "eva_config",
                         "lora_dropout", "megatron_config", "megatron_core", "peft_version",
                         "qalora_group_size", "revision", "target_modules"});
  const auto r = static_cast<double>(rank);
  return {rank, alpha / (stabilized ? std::sqrt(r) : r)};
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
    tensors.emplace(fmt::format("{}{}{}", kPrefix, module, kA), low.a.detach());
    tensors.emplace(fmt::format("{}{}{}", kPrefix, module, kB), low.b.detach());
  };
  for (const auto& [module, low] : adapter.layers) {
    if (low.a.rank() == 2)
      add(module, low);
    else
      for (std::int64_t e = 0; e < low.a.size(0); ++e)
        add(of_expert(module, e), update_of(low, e));
    targets.insert(last_part(module));
  }
  io::save_safetensors(folder / kTensors, tensors, {{"format", "pt"}});
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
  write_output("adapter", folder / kConfig,
               config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

namespace {

/// A module of PEFT's: a matrix of its own, or that of one expert.
struct Module {
  const LayerMatrix* layer;
  std::int64_t expert = 0;
};

std::map<std::string, Module> modules_of(const std::vector<LayerMatrix>& layers) {
  std::map<std::string, Module> known;
  for (const LayerMatrix& layer : layers) {
    if (layer.experts == 0)
      known.emplace(layer.module, Module{&layer});
    for (std::int64_t e = 0; e < layer.experts; ++e)
      known.emplace(of_expert(layer.module, e), Module{&layer, e});
  }
  return known;
}

/// The updates of a layer's experts as one; those that have none get zeros.
nn::LowRank of_all_experts(const LayerMatrix& layer,
                           const std::map<std::int64_t, nn::LowRank>& each) {
  const nn::LowRank& some = each.begin()->second;
  std::vector<Tensor> a, b;
  for (std::int64_t e = 0; e < layer.experts; ++e) {
    const auto at = each.find(e);
    const bool has = at != each.end();
    a.push_back(has ? at->second.a.to(some.a.dtype()) : zeros_like(some.a));
    b.push_back(has ? at->second.b.to(some.b.dtype()) : zeros_like(some.b));
  }
  return {stack(a).eval(), stack(b).eval(), some.scale};
}

} // namespace

Adapter load_adapter(const std::filesystem::path& folder, const std::vector<LayerMatrix>& layers) {
  const Scaling scaling = read_scaling(folder / kConfig);
  const std::filesystem::path path = folder / kTensors;
  const io::SafetensorsFile file(path);
  const std::map<std::string, Module> known = modules_of(layers);
  std::map<const LayerMatrix*, std::map<std::int64_t, nn::LowRank>> read;
  for (const io::TensorInfo& info : file.tensors()) {
    const auto refuse = [&](const std::string& why) {
      fail(ErrorKind::File, "{}: tensor '{}' {}", path.string(), printable(info.name), why);
    };
    std::string_view module = info.name;
    const bool is_a = module.ends_with(kA), is_b = module.ends_with(kB);
    if (!module.starts_with(kPrefix) || !(is_a || is_b))
      refuse("is none of a LoRA adapter");
    module.remove_prefix(kPrefix.size());
    module.remove_suffix(is_a ? kA.size() : kB.size());
    const auto at = known.find(std::string(module));
    if (at == known.end())
      refuse(fmt::format("is for a module that the model has not, or whose matrix adapters cannot "
                         "change; the adapter is for another model (this one has {} ...)",
                         layers.empty() ? "none" : layers.front().module));
    const LayerMatrix& layer = *at->second.layer;
    const std::vector<std::int64_t> wanted =
        is_a ? std::vector{scaling.rank, layer.in} : std::vector{layer.out, scaling.rank};
    if (info.shape != wanted)
      refuse(fmt::format("is [{}]; the model and the rank ask for [{}]", fmt::join(info.shape, ","),
                         fmt::join(wanted, ",")));
    if (!is_float(info.dtype))
      refuse(fmt::format("is of {}, not of floats", name_of(info.dtype)));
    nn::LowRank& low = read[&layer][at->second.expert];
    (is_a ? low.a : low.b) = file.read(info.name);
    low.scale = scaling.scale;
  }
  for (const auto& [module, of] : known)
    if (const auto layer = read.find(of.layer); layer != read.end())
      if (const auto low = layer->second.find(of.expert); low != layer->second.end())
        if (const bool has_a = low->second.a.defined(); !has_a || !low->second.b.defined())
          fail(ErrorKind::File, "{}: tensor '{}{}{}' is missing", path.string(), kPrefix, module,
               has_a ? kB : kA);
  if (read.empty())
    fail(ErrorKind::File, "{}: there are no tensors", path.string());
  Adapter adapter;
  for (auto& [layer, each] : read)
    adapter.layers.emplace(layer->module, layer->experts == 0 ? std::move(each.at(0))
                                                              : of_all_experts(*layer, each));
  return adapter;
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
  std::map<std::string, Module> changed; // by the name of the tensor
  for (const LayerMatrix& layer : parameters.layers) {
    if (!adapter.layers.contains(layer.module))
      continue;
    if (layer.experts == 0)
      changed.emplace(layer.tensor, Module{&layer});
    for (std::int64_t e = 0; e < layer.experts; ++e)
      changed.emplace(of_expert(layer.tensor, e), Module{&layer, e});
  }
  ModelFolderWriter writer(out, folder, std::move(infos));
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
